"""Compaction keeps what the log stands for: for every cut point, across many passes and crashes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.errors import ResyncRequired
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Log, Op
from sirius.wal.block import encode
from sirius.wal.manifest import State as SegmentState
from sirius.wal.record import Record
from sirius.wal.state import live_batches, state_digest
from tests.wal.bookkeeping import (
    EAGER,
    ROOT,
    SMALL,
    Books,
    Issued,
    State,
    issued_as,
    open_log,
    state_of,
)
from tests.wal.crashlab import SOAK
from tests.wal.histories import (
    POLICIES,
    History,
    entries,
    log_of_state,
    random_history,
    random_policy,
    updates,
    written,
)


def apply(state: State, records: Iterable[Record]) -> State:
    """Replay records upon a state, as a follower does that stood at the first of them."""
    result = dict(state)
    for record in records:
        if record.op == Op.PUT:
            result[record.key] = record.body
        elif record.op == Op.DELETE:
            result.pop(record.key, None)
    return result


def live(log: Log) -> State:
    with log.snapshot() as snapshot:
        return {
            record.key: record.body
            for batch in live_batches(snapshot)
            for record in batch.records()
        }


def check_every_cut(log: Log, history: Sequence[Issued]) -> None:
    """A follower at any point that the tombstone floor allows ends up with the whole state."""
    whole = state_of(history)
    state: State = {}
    for cut in range(len(history) + 1):
        if cut:
            state = apply_one(state, history[cut - 1])
        if cut >= log.tombstone_floor:
            assert apply(state, log.records(cut + 1)) == whole, f"after {cut}"
        else:
            newest = live(log)
            kept = {key: body for key, body in state.items() if key in newest}
            assert {**kept, **newest} == whole, f"whole state at {cut}"


def apply_one(state: State, entry: Issued) -> State:
    op, key, body = entry
    if op == Op.PUT:
        return {**state, key: body}
    return {other: value for other, value in state.items() if other != key or op != Op.DELETE}


@given(
    history=st.lists(entries(), min_size=1, max_size=60),
    policies=st.lists(POLICIES, min_size=1, max_size=4),
    seed=st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_a_prefix_and_the_compacted_suffix_are_the_full_replay(
    history: History, policies: list[CompactionPolicy], seed: int
) -> None:
    with written(history, rng=random.Random(seed)) as log:
        for policy in policies:
            log.compact(policy)
            check_every_cut(log, history)


@pytest.mark.parametrize("seed", range(4))
def test_every_cut_point_of_a_longer_history(seed: int) -> None:
    every_cut_point(seed, 250)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 1000 if SOAK else 116))
def test_every_cut_point_of_many_histories(seed: int) -> None:
    every_cut_point(seed, 400)


def every_cut_point(seed: int, count: int) -> None:
    rng = random.Random(seed)
    history = random_history(rng, count, keys=rng.choice([3, 12, 60]))
    with written(history, rng=rng) as log:
        for _ in range(3):
            log.compact(random_policy(rng, count))
        check_every_cut(log, history)
        assert live(log) == state_of(history)


def test_the_cut_points_below_the_floor_need_the_whole_state() -> None:
    """The floor is no excuse: a follower below it that took the suffix would keep a deleted key."""
    history: History = [(Op.PUT, "a", b"1"), (Op.PUT, "b", b"2"), (Op.DELETE, "a", b"")]
    history += [(Op.PUT, f"filler{n}", bytes(500)) for n in range(3)]
    with written(history) as log:
        log.compact(EAGER)
        log.compact(replace(EAGER, drop_deletes_upto=Seq(3)))
        assert log.tombstone_floor == 3
        wrong = apply(state_of(history[:1]), log.records(2))
        assert "a" in wrong, "if this is not so, the floor guards nothing"
        check_every_cut(log, history)


@pytest.mark.parametrize("seed", range(8))
def test_deletes_do_not_come_back_across_crashes_and_quarantines(seed: int) -> None:
    Ordeal(seed).run(passes=5)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1000, 20_000 if SOAK else 1060))
def test_deletes_do_not_come_back_in_many_ordeals(seed: int) -> None:
    Ordeal(seed).run(passes=16)


class Ordeal:
    """Many passes with random policies over one log; crashes between any two calls of a pass;
    segments that are set apart, and repaired from the pristine history some passes later."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        count = self.rng.randint(20, 120)
        self.books = Books(random_history(self.rng, count, keys=self.rng.choice([2, 5, 20])))
        self.books.flushed = count
        self.fs = MemoryFileSystem()
        self.log = written(self.books.issued, rng=self.rng, fs=self.fs)

    def run(self, passes: int) -> None:
        for _ in range(passes):
            self._pass()
            if self.rng.random() < 0.3:
                self._quarantine()
            if self.rng.random() < 0.4:
                self._append()
            if not self._repair():
                return
        self._check()

    def _pass(self) -> None:
        policy = random_policy(self.rng, len(self.books.issued))
        self.books.dropped_upto = max(self.books.dropped_upto, policy.drop_deletes_upto)
        self.fs.crash_at = len(self.fs.operations) + self.rng.randint(1, 120)
        try:
            self.log.compact(policy)
            self.fs.crash_at = None
        except SimulatedCrash:
            left = self.rng.choice([self.fs.kill(), *self.fs.crash_states(3, seed=self.rng)])
            self.fs, self.log = left, open_log(left)
        if self._whole():
            self.books.check(self.log)

    def _append(self) -> None:
        history = random_history(self.rng, self.rng.randint(1, 12), keys=5)
        self.books.issued += history
        self.log.write(updates(history))
        self.log.flush()
        self.books.flushed = len(self.books.issued)

    def _whole(self) -> bool:
        return all(info.state != SegmentState.QUARANTINED for info in self.log.manifest.segments)

    def _quarantine(self) -> None:
        sealed = self.log.manifest.segments[:-1]
        if sealed:
            self.log.quarantine(self.rng.choice(sealed).id, "a test wants it so")

    def _repair(self) -> bool:
        """Repair what is set apart, sometimes; return False where only a new copy would help."""
        for info in self.log.manifest.segments:
            if info.state == SegmentState.QUARANTINED and self.rng.random() < 0.7:
                block = encode(
                    info.first, updates(self.books.issued[info.first - 1 : info.last]), ts_us=0
                )
                try:
                    self.log.replace(info.first, info.last, [block], source_floor=0)
                except ResyncRequired:
                    assert info.last < self.log.tombstone_floor
                    return False
        return True

    def _check(self) -> None:
        for info in self.log.manifest.segments:
            if info.state == SegmentState.QUARANTINED:
                return
        self.books.check(self.log)
        assert live(self.log) == state_of(self.books.issued)
        check_every_cut(self.log, self.books.issued)


def test_a_second_pass_over_a_settled_log_writes_nothing() -> None:
    history = random_history(random.Random(5), 300, keys=40)
    fs = MemoryFileSystem()
    policy = replace(EAGER, drop_deletes_upto=Seq(300))
    with written(history, fs=fs) as log:
        passes = [log.compact(policy) for _ in range(4)]
        assert passes[0].bytes_written > 0
        before, version = segment_bytes(fs), log.manifest.version
        idle = log.compact(policy)
        assert (idle.bytes_written, idle.records_dropped, idle.segments_after) == (
            0,
            0,
            idle.segments_before,
        )
        assert segment_bytes(fs) == before
        assert log.manifest.version == version


def segment_bytes(fs: MemoryFileSystem) -> dict[str, bytes]:
    return {path: data for path, data in fs.tree().items() if path.endswith("/data")}


@given(history=st.lists(entries(), min_size=1, max_size=80), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_passes_settle_after_a_few_rounds(history: History, seed: int) -> None:
    with written(history, rng=random.Random(seed)) as log:
        results = [log.compact(replace(EAGER, drop_deletes_upto=Seq(99))) for _ in range(6)]
        assert results[-1].bytes_written == 0, [result.bytes_written for result in results]


def test_what_is_left_is_exactly_the_newest_of_each_key() -> None:
    history = random_history(random.Random(6), 200, keys=9)
    with written([*history, (Op.PUT, "last", bytes(700))]) as log:
        log.compact(EAGER)
        newest = {entry[:2] if entry[0] > Op.DELETE else entry[1]: entry for entry in history}
        kept = [entry for _, entry in issued_as(log.records()) if entry[1] != "last"]
        wanted = [entry for entry in newest.values() if entry[0] != Op.NOOP]
        assert sorted(kept) == sorted(wanted)


def test_the_digest_is_that_of_a_log_built_from_the_state() -> None:
    history = random_history(random.Random(7), 200, keys=9)
    with written(history) as log, log_of_state(state_of(history)) as other:
        before = state_digest(log.snapshot())
        log.compact(EAGER)
        assert state_digest(log.snapshot()) == before == state_digest(other.snapshot())


def test_no_batch_of_records_ends_up_in_a_block_beyond_the_limit() -> None:
    limits = replace(SMALL.limits, body_bytes_max=1000, block_bytes_max=2000)
    config = replace(SMALL, segment_bytes_max=20_000, limits=limits)
    history: History = [(Op.PUT, f"key{n % 60}", bytes(150)) for n in range(200)]
    fs = MemoryFileSystem()
    log = written(history, config=config, fs=fs)
    log.compact(EAGER)
    log.close()
    with Log.open(ROOT, config, fs=fs) as again:
        assert live(again) == state_of(history)
        assert max(len(block) for block in again.blocks()) <= 2000
