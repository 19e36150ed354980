"""Which records are the newest of their key: exact also when hashes collide, and in bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.wal import Batch, Op, Update, encode
from sirius.wal.block import Entries
from sirius.wal.compaction import liveness as liveness_module
from sirius.wal.compaction.keyset import Hashes, KeyHasher, KeySet, newest
from sirius.wal.compaction.liveness import NewestFirst
from tests.wal.bookkeeping import EAGER, state_of
from tests.wal.histories import History, entries, written

Pair = tuple[int, int]

# Few values, so that upper parts are shared and lower ones differ, and rows collide in any order.
CROWDED: Final = st.tuples(st.integers(0, 3), st.integers(0, 3))
# Equal but for the bits in which the row number is packed while sorting.
NEAR: Final = st.tuples(st.integers(2**63, 2**63 + 40), st.integers(0, 1))
PAIRS: Final = st.lists(CROWDED, max_size=60) | st.lists(NEAR, max_size=60)


def hashes_of(pairs: list[Pair]) -> Hashes:
    return Hashes(
        np.array([high for high, _ in pairs], np.uint64),
        np.array([low for _, low in pairs], np.uint32),
    )


@given(pairs=PAIRS)
def test_newest_is_the_last_row_of_each_hash(pairs: list[Pair]) -> None:
    found = newest(hashes_of(pairs))
    last = {pair: row for row, pair in enumerate(pairs)}
    assert {pairs[row]: row for row in found.rows.tolist()} == last
    assert len(found.rows) == len(last)
    assert found.counts.tolist() == [pairs.count(pairs[row]) for row in found.rows.tolist()]
    distinct = list(zip(found.hashes.high.tolist(), found.hashes.low.tolist(), strict=True))
    assert distinct == [pairs[row] for row in found.rows.tolist()]
    assert [high for high, _ in distinct] == sorted(high for high, _ in last)


def test_hashes_that_share_all_bits_but_the_lowest_are_told_apart() -> None:
    """The row number is packed into the lowest bits while sorting: these must not be lost."""
    pairs = [(1 << 40, 0), (1 << 40 | 1, 0), (1 << 40, 0), (1 << 40 | 1, 7), (1 << 40, 0)]
    found = newest(hashes_of(pairs))
    assert sorted(found.rows.tolist()) == [1, 3, 4]


@given(parts=st.lists(PAIRS, max_size=12))
def test_a_set_has_few_runs(parts: list[list[Pair]]) -> None:
    seen, twin = KeySet(), set[Pair]()
    for part in parts:
        fresh = sorted(set(part) - twin)
        seen.add(hashes_of(fresh))
        twin.update(fresh)
    assert len(seen._runs) <= max(1, len(twin)).bit_length()


# --- collisions -----------------------------------------------------------------------------------


class Crowded(KeyHasher):
    """Many keys share the upper part of their hash; the lower part still tells them apart."""

    def hash(self, entries: Entries, keys: bytes) -> Hashes:
        real = super().hash(entries, keys)
        return Hashes(real.low.astype(np.uint64) % np.uint64(3) << np.uint64(20), real.low)


class Near(KeyHasher):
    """Hashes differ only in the lowest bits of their upper part."""

    def hash(self, entries: Entries, keys: bytes) -> Hashes:
        real = super().hash(entries, keys)
        return Hashes(real.high % np.uint64(7) | np.uint64(1 << 63), real.low)


@pytest.mark.parametrize("hasher", [Crowded, Near])
@given(history=st.lists(entries(keys=20), min_size=1, max_size=60), seed=st.integers(0, 99))
@settings(max_examples=25)
def test_compaction_is_exact_when_many_keys_share_their_upper_bits(
    hasher: type[KeyHasher], history: History, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, written(history, rng=random.Random(seed)) as log:
        patch.setattr(liveness_module, "KeyHasher", hasher)
        log.compact(EAGER)
        found = [(record.op, record.key, record.body) for record in log.records()]
        assert state_of(found) == state_of(history)


# --- memory ---------------------------------------------------------------------------------------

KEYS_IN_A_SEGMENT: Final = 20_000


def batches(number: int) -> list[Batch]:
    """A segment of keys that no other has."""
    first = number * KEYS_IN_A_SEGMENT
    puts = [Update(Op.PUT, b"key %09d" % n) for n in range(first, first + KEYS_IN_A_SEGMENT)]
    return [Batch.of(encode(first + 1, puts, ts_us=0))]


def peak_of(scan: NewestFirst, segment: list[Batch]) -> int:
    """Return how many bytes more than before were in use while a segment was looked at."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    scan.segment(iter(segment))
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


def test_a_survey_takes_few_bytes_a_key_at_its_peak() -> None:
    """12 bytes a key stay. While runs are merged, both and their product are there, and what sorting
    needs: 40 bytes a key in all at the most. What the segment at hand takes (its entries and their
    hashes) does not grow with the log; it is measured as the peak over a segment that has nothing
    new, for which nothing is merged, and taken off."""
    segments = [batches(number) for number in range(10)]
    tracemalloc.start()
    try:
        scan = NewestFirst()
        worst = 0.0
        for number, segment in enumerate(segments, 1):
            kept = scan.seen.nbytes
            peak = peak_of(scan, segment)
            of_the_segment = peak_of(scan, segment)
            worst = max(worst, (kept + peak - of_the_segment) / (number * KEYS_IN_A_SEGMENT))
    finally:
        tracemalloc.stop()
    assert len(scan.seen) == 200_000
    assert scan.seen.nbytes == 12 * 200_000
    print(f"{worst:.1f} bytes a key at the peak")
    assert worst <= 40


def test_few_large_batches_are_held_at_a_time() -> None:
    body = bytes(1 << 20)
    batches = (Batch.of(encode(seq, [Update(Op.PUT, b"k", body)], 0)) for seq in range(1, 41))
    sizes = [len(group) for group in liveness_module._grouped(batches)]
    assert (max(sizes), sum(sizes)) == (16, 40)
