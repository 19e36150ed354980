"""Checksums of many entries at once, against those that are made one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sirius.wal.block import ENTRY, encode
from sirius.wal.checksums import checksums, renumber
from sirius.wal.record import Op, Update

BODIES = st.binary(max_size=300) | st.sampled_from([b"", b"x" * 4096, b"y" * 70_000])
UPDATES = st.lists(
    st.tuples(st.text(min_size=1, max_size=9), BODIES).map(
        lambda pair: Update(Op.PUT, pair[0].encode(), pair[1])
    ),
    min_size=1,
    max_size=40,
)


@given(UPDATES, st.integers(1, 2**62), st.integers(-(2**63), 2**63 - 1))
def test_they_are_those_of_the_encoder(updates: list[Update], first: int, ts_us: int) -> None:
    entries = encode(first, updates, ts_us).entries
    rest = [update.key + update.body for update in updates]
    assert checksums(entries, rest).tolist() == entries["crc"].tolist()


@given(UPDATES, st.integers(1, 2**40), st.integers(0, 2**62))
def test_an_entry_with_another_number_has_the_checksum_of_one_that_was_born_with_it(
    updates: list[Update], first: int, by: int
) -> None:
    entries = encode(first, updates, 7).entries.copy()
    renumber(entries, by)
    assert entries.tolist() == encode(first + by, updates, 7).entries.tolist()


def test_no_entries_are_no_trouble() -> None:
    none = np.zeros(0, ENTRY)
    renumber(none, 5)
    assert checksums(none, []).tolist() == []
