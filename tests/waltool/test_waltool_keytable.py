"""Distinct keys against a dict, which is too simple to be wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.wal import Batch, Op, Update, encode
from sirius.wal.block import ENTRY_BYTES
from waltool import keytable
from waltool.keytable import Distinct, Keys, KeyTable
from waltool.tally import prefixes_of, top_prefixes

# Few letters and lengths around the window's, so that keys are equal, nearly equal, or prefixes of each other.
KEYS = st.one_of(
    st.text("ab/", min_size=1, max_size=4),
    st.integers(0, 90).map(lambda n: "k" * n + "x"),
    st.text(min_size=1, max_size=40),
)
UPDATES = st.lists(
    st.tuples(st.sampled_from(list(Op)), KEYS, st.binary(max_size=5)), min_size=1, max_size=40
)


def updates_of(rows: Sequence[tuple[Op, str, bytes]]) -> list[Update]:
    return [Update(op, key.encode(), b"" if op == Op.DELETE else body) for op, key, body in rows]


def batches_of(updates: Sequence[Update], size: int) -> list[Batch]:
    chunks = [updates[at : at + size] for at in range(0, len(updates), size)]
    return [Batch.of(encode(1 + n * size, chunk, 1000 + n)) for n, chunk in enumerate(chunks)]


Row = tuple[int, int, int, int, int]


def by_dict(updates: Sequence[Update], size: int) -> dict[bytes, Row]:
    """For each key: its newest seq, time and operation, the number of its records, their bytes."""
    found: dict[bytes, Row] = {}
    for at, update in enumerate(updates):
        if update.op <= Op.DELETE:
            _, _, _, count, total = found.pop(update.key, (0, 0, 0, 0, 0))
            total += len(update.key) + len(update.body) + ENTRY_BYTES
            found[update.key] = (at + 1, 1000 + at // size, int(update.op), count + 1, total)
    return found


def as_dict(distinct: Distinct) -> dict[bytes, Row]:
    columns = (distinct.seq, distinct.ts, distinct.op, distinct.updates, distinct.total_size)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(distinct.keys.pieces(), rows, strict=True))


@given(UPDATES, st.integers(1, 9), st.integers(1, 60), st.integers(1, 400))
def test_distinct_keys_are_those_of_a_dict(
    rows: list[tuple[Op, str, bytes]], size: int, rows_max: int, key_bytes_max: int
) -> None:
    updates = updates_of(rows)
    table = KeyTable(rows_max=rows_max, key_bytes_max=key_bytes_max)
    for batch in batches_of(updates, size):
        table.add(batch)
    expected = by_dict(updates, size)
    found = as_dict(table.distinct())
    assert found == expected
    assert list(found) == list(expected), "in the order of each key's newest record"
    assert len(table.distinct()) == len(expected), "asking twice changes nothing"


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_keys_that_share_a_hash_are_told_apart(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real, kept = Keys.hashes, np.uint64(((1 << bits) - 1) << 60)
    monkeypatch.setattr(Keys, "hashes", lambda keys: real(keys) & kept)
    stems = (b"key/", b"k" * 40, b"\0")
    updates = [
        Update(Op.PUT, stems[n % 3] + (b"\0" * (n % 4) if n % 3 == 2 else b"%d" % (n * n % 37)))
        for n in range(200)
    ]
    table = KeyTable(rows_max=64)
    for batch in batches_of(updates, 7):
        table.add(batch)
    assert as_dict(table.distinct()) == by_dict(updates, 7)


@given(st.lists(KEYS, min_size=1, max_size=30), st.lists(KEYS, min_size=1, max_size=30))
def test_a_hash_does_not_depend_on_the_keys_beside_it(some: list[str], others: list[str]) -> None:
    def hashes(keys: list[str]) -> list[int]:
        blobs = [key.encode() for key in keys]
        return Keys.of(blobs, np.array([len(blob) for blob in blobs])).hashes().tolist()  # type: ignore[no-any-return]

    assert hashes(some + others) == hashes(some) + hashes(others)


def test_numbered_keys_rarely_share_a_hash() -> None:
    blobs = [b"title/%018d" % number for number in range(100_000)]
    found = Keys.of(blobs, np.full(len(blobs), 24)).hashes()
    assert len(np.unique(found >> np.uint64(20))) == len(blobs)


def test_a_batch_larger_than_the_table_is_taken_in() -> None:
    updates = [Update(Op.PUT, b"key%d" % (n % 700)) for n in range(3000)]
    table = KeyTable(rows_max=100, key_bytes_max=100)
    for batch in batches_of(updates, 1000):
        table.add(batch)
    assert as_dict(table.distinct()) == by_dict(updates, 1000)


def test_an_empty_table_has_no_keys() -> None:
    table = KeyTable()
    table.add(Batch.hole(1, 5))
    table.add(Batch.of(encode(6, [Update(Op.NOOP, b"")], 0)))
    assert len(table.distinct()) == 0
    assert top_prefixes(table.distinct(), "/", 10) == []


@pytest.mark.parametrize(("rows_max", "key_bytes_max"), [(100, 1 << 30), (1 << 30, 200)])
def test_memory_is_bounded_by_what_is_distinct(
    rows_max: int, key_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged: list[int] = []
    real = Distinct.merged

    def spy(rows: Distinct, *, one_each: bool = False) -> Distinct:
        merged.append(len(rows))
        return real(rows, one_each=one_each)

    monkeypatch.setattr(Distinct, "merged", spy)
    table = KeyTable(rows_max=rows_max, key_bytes_max=key_bytes_max)
    for batch in batches_of([Update(Op.PUT, b"k%d" % (n % 10)) for n in range(10_000)], 50):
        table.add(batch)
    assert len(table.distinct()) == 10
    assert max(merged) == 100


@given(st.lists(KEYS, min_size=1, max_size=30), st.sampled_from(["/", "a", "ab", "é", "kkk"]))
def test_prefixes_are_those_of_partition(keys: list[str], separator: str) -> None:
    blobs = [key.encode() for key in keys]
    found = prefixes_of(Keys.of(blobs, np.array([len(b) for b in blobs])), separator.encode())
    expected = [
        head + middle if middle else b""
        for head, middle, _ in (blob.partition(separator.encode()) for blob in blobs)
    ]
    assert found.pieces() == expected


def test_windows_of_a_key_that_ended_are_zeroes() -> None:
    keys = Keys.of([b"a" * 40, b"b"], np.array([40, 1]))
    assert keys.windows(keytable._WINDOW).tolist() == [[0x6161616161616161], [0]]


@pytest.mark.parametrize("prefix", [b"t", b"title/", b"title/00", b"title/0000", b"x" * 32])
def test_startswith_says_what_bytes_do(prefix: bytes) -> None:
    keys = [b"", b"t", b"title", b"title/", b"title/0", b"title/0000", b"title/00\0", b"x" * 40]
    lengths = np.array([len(key) for key in keys])
    found = Keys.of(keys, lengths).startswith(prefix)
    assert found.tolist() == [key.startswith(prefix) for key in keys]


def test_startswith_with_no_key_as_long() -> None:
    assert Keys.of([b"a"], np.array([1])).startswith(b"a-long-prefix/").tolist() == [False]
