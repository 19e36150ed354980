"""The whole log against a list: writes, lookups, compactions, snapshots, crashes, in any order.

The list is `Books.issued`: entry n has sequence number n. What the log may lack of it is told by
`bookkeeping.check_entries`. A hole that came from elsewhere stands in the list as a no-op.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sirius.errors import CorruptFile, OutOfOrder, UsageError
from sirius.testing import MemoryFileSystem
from sirius.types import Seq
from sirius.wal import (
    Block,
    CompactionPolicy,
    Durability,
    LogReader,
    Op,
    Record,
    Snapshot,
    encode,
    state_digest,
)
from sirius.wal.store import Store
from tests.wal.bookkeeping import (
    ROOT,
    SMALL,
    Books,
    Issued,
    check_coverage,
    check_entries,
    issued_as,
    open_log,
    promise,
    state_of,
)
from tests.wal.crashlab import SOAK
from tests.wal.histories import entries, log_of_state, updates

HOLE: Issued = (Op.NOOP, "", b"")


@dataclass
class Kept:
    """A snapshot that stays open, and what it showed at first."""

    snapshot: Snapshot
    showed: list[Record]


class LogMachine(RuleBasedStateMachine):
    """One log at a time; a power loss that the log may refuse begins the next."""

    @initialize(
        durability=st.sampled_from(Durability),
        segment_bytes_max=st.sampled_from([300, 700, 3000]),
        segment_records_max=st.sampled_from([2, 1000]),
        retire_after_s=st.sampled_from([0.0, 600.0]),
    )
    def begin(
        self,
        durability: Durability,
        segment_bytes_max: int,
        segment_records_max: int,
        retire_after_s: float,
    ) -> None:
        self.config = replace(
            SMALL,
            durability=durability,
            segment_bytes_max=segment_bytes_max,
            segment_records_max=segment_records_max,
            retire_after_s=retire_after_s,
        )
        self.start_anew()

    def start_anew(self) -> None:
        self.fs = MemoryFileSystem()
        self.books = Books()
        self.kept: list[Kept] = []
        self.open()

    def open(self) -> None:
        self.log = open_log(self.fs, self.config)
        self.reader = LogReader.open(ROOT, fs=self.fs)
        self.checked: tuple[int, int] | None = None

    # -- writing

    def note(self, issued: list[Issued]) -> None:
        self.books.issued += issued
        self.books.appended = len(self.books.issued)
        if self.config.durability == Durability.OS:
            self.books.flushed = self.books.appended

    @rule(batch=st.lists(entries(), min_size=1, max_size=5))
    def write(self, batch: list[Issued]) -> None:
        assert self.log.write(updates(batch)) == len(self.books.issued) + len(batch)
        self.note(batch)

    @rule(key=st.sampled_from(["key0", "key1", "another", "é"]), body=st.binary(max_size=300))
    def put(self, key: str, body: bytes) -> None:
        assert self.log.put(key, body) == len(self.books.issued) + 1
        self.note([(Op.PUT, key, body)])

    @rule(key=st.sampled_from(["key0", "key1", "another", "é"]))
    def delete(self, key: str) -> None:
        assert self.log.delete(key) == len(self.books.issued) + 1
        self.note([(Op.DELETE, key, b"")])

    @rule(batch=st.lists(entries(), min_size=1, max_size=3), holes=st.integers(0, 3))
    def append_from_elsewhere(self, batch: list[Issued], holes: int) -> None:
        first = len(self.books.issued) + 1
        self.log.append(encode(first, updates(batch), ts_us=7))
        self.note(batch)
        if holes:
            last = self.log.next_seq + holes - 1
            self.log.append(Block.hole(self.log.next_seq, last))
            self.note([HOLE] * holes)

    @rule(wrong=st.sampled_from([-1, 1, 5]))
    def append_out_of_order(self, wrong: int) -> None:
        first = max(1, len(self.books.issued) + 1 + wrong)
        if first != len(self.books.issued) + 1:
            with pytest.raises(OutOfOrder):
                self.log.append(Block.hole(first, first))

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == len(self.books.issued)
        self.books.flushed = len(self.books.issued)

    # -- segments

    @rule(
        fraction=st.sampled_from([0.0, 0.25, 0.9]),
        upto=st.none() | st.integers(0, 40),
        drop=st.integers(0, 40) | st.just(1000),
        stop_after=st.none() | st.integers(0, 8),
    )
    def compact(self, fraction: float, upto: int | None, drop: int, stop_after: int | None) -> None:
        policy = CompactionPolicy(fraction, None if upto is None else Seq(upto), Seq(drop))
        self.books.dropped_upto = max(self.books.dropped_upto, drop)
        asked = iter(range(1 << 30 if stop_after is None else stop_after))
        result = self.log.compact(policy, should_stop=lambda: next(asked, None) is None)
        assert result.damaged == ()
        assert result.tombstone_floor == self.log.tombstone_floor <= self.books.dropped_upto

    @rule()
    def rotate(self) -> None:
        self.log.rotate()
        self.books.flushed = len(self.books.issued)

    @rule()
    def retire(self) -> None:
        self.log.retire(at_once=True)

    # -- crashing

    @rule()
    def reopen(self) -> None:
        self.let_go()
        self.log.close()
        self.books.flushed = self.books.closed = len(self.books.issued)
        self.open()
        assert self.books.check(self.log) == len(self.books.issued)

    @rule()
    def kill(self) -> None:
        self.let_go()
        self.books.promise = promise(self.config.durability, power_is_lost=False)
        self.come_back(self.fs.kill())

    @rule(seed=st.integers(0, 99), pick=st.integers(0, 9))
    def lose_power(self, seed: int, pick: int) -> None:
        self.let_go()
        self.books.promise = promise(self.config.durability, power_is_lost=True)
        states = list(self.fs.crash_states(10, seed=seed))
        try:
            self.come_back(states[pick % len(states)])
        except CorruptFile as damage:
            # Manifests and sealed segments are synced in every mode; only the active segment is not.
            active = Store(self.fs, ROOT).load().active
            self.expect_damage_of(active.name, damage)
            self.start_anew()

    def expect_damage_of(self, segment: str, damage: CorruptFile) -> None:
        assert self.config.durability != Durability.FSYNC, damage
        assert damage.path == f"{ROOT}/segments/{segment}/data", damage

    def come_back(self, fs: MemoryFileSystem) -> None:
        self.fs = fs
        self.open()
        self.books = self.books.cut(self.books.check(self.log))

    def let_go(self) -> None:
        for kept in self.kept:
            kept.snapshot.close()
        self.kept.clear()
        self.reader.close()

    # -- reading

    @precondition(lambda self: len(self.kept) < 3)
    @rule()
    def keep_a_snapshot(self) -> None:
        snapshot = self.log.snapshot()
        self.kept.append(Kept(snapshot, list(snapshot.records())))

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 2))
    def let_a_snapshot_go(self, which: int) -> None:
        self.kept.pop(which % len(self.kept)).snapshot.close()

    @rule(seq=st.integers(-1, 60))
    def look_one_up(self, seq: int) -> None:
        with self.log.snapshot() as snapshot:
            if not 1 <= seq <= snapshot.last:
                with pytest.raises(UsageError):
                    snapshot.record(seq)
                return
            there = {record.seq: record for record in snapshot.records()}
            assert snapshot.record(seq) == there.get(Seq(seq))
            assert self.log.record(seq) == there.get(Seq(seq))

    @precondition(lambda self: self.books.flushed)
    @rule(data=st.data())
    def read_a_range(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(1, self.books.flushed), "first")
        last = data.draw(st.integers(first, self.books.flushed), "last")
        within = [record for record in self.log.records() if first <= record.seq <= last]
        assert list(self.log.records(first, last)) == within
        assert [r for batch in self.log.batches(first, last) for r in batch.records()] == within
        blocks = list(self.log.blocks(first, last))
        check_coverage(blocks, last, first)
        assert sum(block.count for block in blocks) == len(within)

    @rule()
    def refresh_the_reader(self) -> None:
        assert self.reader.refresh() == self.books.flushed
        with self.reader.snapshot() as snapshot:
            self.books.check_snapshot(snapshot)

    # -- always

    @invariant()
    def everything_written_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        now = (self.log.manifest.version, self.books.flushed)
        if self.checked != now:
            with self.log.snapshot() as snapshot:
                assert snapshot.last == self.books.flushed
                self.books.check_snapshot(snapshot)
                self.compare_digest(snapshot)
            self.checked = now

    def compare_digest(self, snapshot: Snapshot) -> None:
        """The digest must be that of a log which came to the same state another way."""
        state = state_of(self.books.issued[: self.books.flushed])
        with log_of_state(state) as other, other.snapshot() as theirs:
            assert state_digest(snapshot) == state_digest(theirs)

    @invariant()
    def snapshots_never_change(self) -> None:
        for kept in getattr(self, "kept", []):
            assert list(kept.snapshot.records()) == kept.showed
            check_entries(
                issued_as(kept.showed),
                self.books.issued[: kept.snapshot.last],
                kept.snapshot.manifest.tombstone_floor,
            )

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.let_go()
            self.log.close()


def test_the_log_behaves_like_a_list() -> None:
    run_state_machine_as_test(
        LogMachine, settings=settings(max_examples=50, stateful_step_count=30)
    )


@pytest.mark.deep
def test_the_log_behaves_like_a_list_for_long() -> None:
    """A soak draws other examples each time: see `tests/conftest.py`."""
    run_state_machine_as_test(
        LogMachine,
        settings=settings(max_examples=20_000 if SOAK else 80, stateful_step_count=60),
    )
