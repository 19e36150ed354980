"""Digests and diffs: only keys and values count, never how a log came to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.errors import UsageError
from sirius.testing import MemoryFileSystem
from sirius.wal import (
    CompactionPolicy,
    Difference,
    Durability,
    Log,
    LogConfig,
    Op,
    StateDigest,
    Update,
    diff,
    state_digest,
)
from sirius.wal.state import Side

CONFIG = LogConfig(
    durability=Durability.OS, segment_bytes_max=900, reserve_bytes=0, retire_after_s=0
)
State = dict[str, bytes]
History = list[tuple[str, bytes | None]]

KEYS = st.sampled_from([f"k{number}" for number in range(6)] + ["é", "k" * 70])
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=5)), max_size=40)


def state_of(history: History) -> State:
    state: State = {}
    for key, body in history:
        state.pop(key, None)
        if body is not None:
            state[key] = body
    return state


@contextmanager
def log_of(history: History, config: LogConfig = CONFIG, per_block: int = 3) -> Iterator[Log]:
    with Log.open("log", config, fs=MemoryFileSystem()) as log:
        for at in range(0, len(history), per_block):
            log.write(
                Update(Op.PUT, key.encode(), body)
                if body is not None
                else Update(Op.DELETE, key.encode())
                for key, body in history[at : at + per_block]
            )
        yield log


def digest_of(log: Log, ranges: int = 16) -> StateDigest:
    with log.snapshot() as snapshot:
        return state_digest(snapshot, ranges)


@given(CHANGES)
def test_the_digest_is_that_of_the_state_however_it_came_about(history: History) -> None:
    shuffled: History = [(key, body) for key, body in state_of(history).items()]
    random.Random(len(history)).shuffle(shuffled)
    with log_of(history) as log, log_of(shuffled, per_block=1) as other:
        assert digest_of(log) == digest_of(other)
        assert digest_of(log).total.keys == len(state_of(history))


@given(CHANGES)
def test_the_digest_does_not_change_under_compaction(history: History) -> None:
    with log_of(history) as log:
        before = digest_of(log)
        for _ in range(3):
            log.compact(CompactionPolicy(0.0, drop_deletes_upto=log.durable_seq))
            assert digest_of(log) == before


@given(CHANGES, CHANGES)
def test_digests_are_equal_only_if_states_are(left: History, right: History) -> None:
    with log_of(left) as log, log_of(right) as other:
        same = state_of(left) == state_of(right)
        assert (digest_of(log) == digest_of(other)) == same
        assert (digest_of(log).hex == digest_of(other).hex) == same
        assert bool(digest_of(log).differing(digest_of(other))) != same


def test_key_and_body_are_told_apart() -> None:
    with log_of([("ab", b"c")]) as log, log_of([("a", b"bc")]) as other:
        assert digest_of(log).hex != digest_of(other).hex


@settings(max_examples=25)
@given(CHANGES)
def test_the_total_does_not_depend_on_the_ranges(history: History) -> None:
    with log_of(history) as log:
        totals = {digest_of(log, ranges).total for ranges in (1, 2, 256, 65536)}
    assert len(totals) == 1


def test_a_prefix_narrows_the_digest() -> None:
    history: History = [("a/1", b"x"), ("b/1", b"y")]
    with log_of(history) as log, log_of(history[:1]) as other, log.snapshot() as snapshot:
        assert state_digest(snapshot, prefix="a/").hex == digest_of(other).hex


@pytest.mark.parametrize("ranges", [0, 3, 1 << 17])
def test_a_number_of_ranges_that_is_no_power_of_two_is_refused(ranges: int) -> None:
    with log_of([]) as log, pytest.raises(UsageError):
        digest_of(log, ranges)


def brute_force(left: State, right: State) -> dict[str, Side]:
    found = {}
    for key in left.keys() | right.keys():
        if key not in right:
            found[key] = Side.LEFT
        elif key not in left:
            found[key] = Side.RIGHT
        elif left[key] != right[key]:
            found[key] = Side.BOTH
    return found


@settings(max_examples=25)
@given(CHANGES, CHANGES)
def test_diff_finds_what_brute_force_finds_sorted_by_key(left: History, right: History) -> None:
    big = replace(CONFIG, segment_bytes_max=1 << 20)
    with log_of(left) as log, log_of(right, big) as other:
        with log.snapshot() as mine, other.snapshot() as theirs:
            found: list[Difference] = list(diff(mine, theirs))
        assert {item.key: item.side for item in found} == brute_force(
            state_of(left), state_of(right)
        )
        assert [item.key.encode() for item in found] == sorted(item.key.encode() for item in found)
        for item in found:
            check_seq(log, item.left_seq, item.key)
            check_seq(other, item.right_seq, item.key)


def check_seq(log: Log, seq: int | None, key: str) -> None:
    """The sequence number of a difference is that of the newest value of its key."""
    if seq is not None:
        newest = max(record.seq for record in log.records() if record.key == key)
        assert seq == newest
