"""Hashes and sets of keys, against a dict and a set that are too simple to be wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.wal.batch import Batch
from sirius.wal.block import Entries, encode
from sirius.wal.compaction.keyset import Hashes, KeyHasher, KeySet, newest
from sirius.wal.record import Op, Update

KEYS = st.lists(st.binary(min_size=1, max_size=90).map(lambda raw: raw.hex().encode()), min_size=1)


def columns(keys: list[bytes], op: Op = Op.PUT) -> tuple[Entries, bytes]:
    batch = Batch.of(encode(1, [Update(op, key) for key in keys], 0))
    return batch.entries, batch.key_column.blob()


def as_numbers(hashes: Hashes) -> list[tuple[int, int]]:
    return list(zip(hashes.high.tolist(), hashes.low.tolist(), strict=True))


def made_up(numbers: list[tuple[int, int]]) -> Hashes:
    high, low = zip(*numbers, strict=True) if numbers else ((), ())
    return Hashes(np.array(high, np.uint64), np.array(low, np.uint32))


@given(KEYS)
def test_equal_keys_have_equal_hashes_and_others_have_not(keys: list[bytes]) -> None:
    hashes = as_numbers(KeyHasher().hash(*columns(keys + keys)))
    assert hashes[: len(keys)] == hashes[len(keys) :]
    assert len(set(hashes)) == len(set(keys))


@pytest.mark.parametrize("length", [1, 3, 4, 5, 63, 64, 65, 200])
def test_every_bit_of_a_key_counts(length: int) -> None:
    base = b"a" * length
    keys = [base, *(base[:at] + b"b" + base[at + 1 :] for at in range(length))]
    assert len(set(as_numbers(KeyHasher().hash(*columns(keys))))) == len(keys)


def test_a_key_is_not_its_own_beginning() -> None:
    keys = [b"\0" * length for length in range(1, 70)]
    assert len(set(as_numbers(KeyHasher().hash(*columns(keys))))) == len(keys)


def test_control_entries_are_no_keys() -> None:
    hasher = KeyHasher()
    put, control = (hasher.hash(*columns([b"k"], op)) for op in (Op.PUT, Op.MEMBERSHIP))
    assert as_numbers(put) != as_numbers(control)


def test_two_passes_have_two_secrets() -> None:
    first, second = (KeyHasher().hash(*columns([b"key"])) for _ in range(2))
    assert as_numbers(first) != as_numbers(second)


# Few distinct numbers, so that keys share their upper bits, or all 64 of them, all the time.
HIGHS = st.sampled_from([0, 1, 2, 3, 1 << 20, (1 << 20) + 1, 1 << 63, (1 << 64) - 1])
COLLIDING = st.lists(st.tuples(HIGHS, st.integers(0, 3)), max_size=60)


@given(COLLIDING)
def test_newest_finds_the_last_row_of_each_hash_whatever_they_share(
    numbers: list[tuple[int, int]],
) -> None:
    found = newest(made_up(numbers))
    last = {number: row for row, number in enumerate(numbers)}
    assert sorted(found.rows.tolist()) == sorted(last.values())
    counts = [numbers.count(numbers[row]) for row in found.rows.tolist()]
    assert found.counts.tolist() == counts
    highs = [numbers[row][0] for row in found.rows.tolist()]
    assert highs == sorted(highs)


@given(st.lists(COLLIDING, max_size=8), COLLIDING)
def test_a_key_set_is_a_set(
    parts: list[list[tuple[int, int]]], asked: list[tuple[int, int]]
) -> None:
    keys, model = KeySet(), set[tuple[int, int]]()
    for part in parts:
        fresh = sorted(set(part) - model)
        assert keys.find(made_up(part)).tolist() == [number in model for number in part]
        keys.add(made_up(fresh))
        model |= set(fresh)
    assert len(keys) == len(model)
    assert keys.find(made_up(asked)).tolist() == [number in model for number in asked]


def test_a_key_set_takes_twelve_bytes_a_key() -> None:
    keys, rng = KeySet(), random.Random(1)
    for _ in range(20):
        numbers = sorted((rng.randrange(1 << 64), 0) for _ in range(1000))
        keys.add(made_up(numbers))
    assert keys.nbytes == 12 * len(keys) == 12 * 20_000
