"""Compaction of a log that is in use: threads, stops, rates, damage, and closing in the middle."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sirius.errors import LogClosed, RangeUnavailable
from sirius.testing import MemoryFileSystem
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Durability, Log, LogConfig, Op, Record, SegmentInfo, State
from sirius.wal.compaction import rewrite as rewrite_module
from sirius.wal.compaction.plan import Throttle, plan
from tests.wal.bookkeeping import EAGER, SMALL, Books, state_of
from tests.wal.histories import History, random_history, random_policy, updates, written

DEADLINE_S = 60.0


@contextmanager
def threads(*jobs: Callable[[], None]) -> Iterator[None]:
    """Run jobs beside the body; afterwards raise what any of them raised."""
    failures: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        for thread in running:
            thread.join(DEADLINE_S)
        if failures:
            raise failures[0]
    assert not any(thread.is_alive() for thread in running), "a thread hangs"


def wait_until(condition: Callable[[], bool]) -> None:
    never, end = threading.Event(), time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "waited too long"
        never.wait(0.001)


@dataclass
class Busy:
    """A log that one thread writes, others read and one compacts, until all is written."""

    log: Log
    history: History
    done: threading.Event = field(default_factory=threading.Event)
    passes: int = 0

    def write(self) -> None:
        try:
            for at in range(0, len(self.history), 5):
                self.log.write(updates(self.history[at : at + 5]))
                if at % 20 == 0:
                    self.log.flush()
                if at == len(self.history) // 2:
                    # However the threads take turns, some of it is written before a pass and some behind it.
                    wait_until(lambda: self.passes > 0)
            self.log.flush()
        finally:
            self.done.set()

    def read(self) -> None:
        while not self.done.is_set():
            with self.log.snapshot() as snapshot:
                first = [(r.seq, r.op, r.key, r.body) for r in snapshot.records()]
                state = state_of((op, key, body) for _, op, key, body in first)
                assert state == state_of(self.history[: snapshot.last])
                second = [(r.seq, r.op, r.key, r.body) for r in snapshot.records()]
                assert first == second, "a snapshot changed"

    def compact(self) -> None:
        rng = random.Random(1)
        while not self.done.is_set():
            policy = random_policy(rng, len(self.history))
            self.log.compact(replace(policy, drop_deletes_upto=Seq(0)))
            self.log.retire(at_once=True)
            self.passes += 1


@pytest.mark.parametrize("durability", [Durability.OS, Durability.FSYNC])
def test_nothing_is_lost_while_others_append_and_read(
    tmp_path: Path, durability: Durability
) -> None:
    config = LogConfig(
        durability=durability, segment_bytes_max=6000, retire_after_s=0.0, reserve_bytes=0
    )
    history = random_history(random.Random(3), 1500, keys=50)
    with Log.open(tmp_path / "log", config) as log:
        busy = Busy(log, history)
        with threads(busy.read, busy.read, busy.compact):
            busy.write()
        Books(history, flushed=len(history)).check(log)
    with Log.open(tmp_path / "log", config) as log:
        assert Books(history, flushed=len(history)).check(log) == len(history)


def test_a_snapshot_shows_the_same_through_any_number_of_passes() -> None:
    history = random_history(random.Random(4), 200, keys=10)
    with written(history) as log, log.snapshot() as snapshot:
        before = list(snapshot.records())
        for _ in range(3):
            log.compact(replace(EAGER, drop_deletes_upto=Seq(200)))
            log.retire(at_once=True)
            assert list(snapshot.records()) == before
            assert [snapshot.record(r.seq) for r in before] == before
        assert len(list(log.records())) < len(before)


def test_what_a_snapshot_pins_goes_with_it() -> None:
    fs = MemoryFileSystem()
    with written(random_history(random.Random(4), 200, keys=10), fs=fs) as log:
        snapshot = log.snapshot()
        log.compact(EAGER)
        held = fs.used_bytes
        snapshot.close()
        log.retire(at_once=True)
        assert fs.used_bytes < held / 2
        assert len(fs.listdir("log/segments")) == len(log.manifest.segments)


# --- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", range(0, 60, 4))
def test_a_pass_that_was_stopped_can_be_run_again(calls: int) -> None:
    history = random_history(random.Random(5), 150, keys=6)
    left = iter(range(calls))
    with written(history) as log:
        result = log.compact(EAGER, should_stop=lambda: next(left, None) is None)
        Books(history, flushed=150).check(log)
        assert result.stopped
        assert not [name for name in log.store.fs.listdir("log/segments") if ".tmp" in name]
        again = log.compact(EAGER)
        assert not again.stopped
        Books(history, flushed=150).check(log)
        assert log.compact(EAGER).bytes_written == 0


def test_a_pass_stops_in_the_middle_of_a_segment() -> None:
    """One large segment: what was read of it so far is given up, and nothing is swapped."""
    config = replace(SMALL, segment_bytes_max=3_000_000)
    history: History = [(Op.PUT, f"key{n % 3}", bytes(700_000)) for n in range(6)]
    with written([*history, (Op.PUT, "z", b"")], config=config, rng=OneByOne()) as log:
        asked = 0

        def should_stop() -> bool:
            nonlocal asked
            asked += 1
            return asked > 5

        version = log.manifest.version
        assert log.compact(EAGER, should_stop=should_stop).stopped
        assert log.manifest.version == version


class OneByOne(random.Random):
    """Draws blocks of one entry."""

    def choice(self, seq: object) -> object:  # type: ignore[override]
        return 1


def test_closing_a_log_ends_a_running_pass_before_the_lock_goes(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes_max=4000, reserve_bytes=0, retire_after_s=0.0)
    history = random_history(random.Random(6), 400, keys=300)
    log = Log.open(tmp_path / "log", config)
    log.write(updates(history))
    log.rotate()
    in_pass = threading.Event()

    def hold(_done: int, _total: int) -> None:
        in_pass.set()
        wait_until(lambda: log._closed)

    def close() -> None:
        assert in_pass.wait(DEADLINE_S)
        log.close()
        with Log.open(tmp_path / "log", config) as again:
            Books(history, flushed=400).check(again)
            again.compact(EAGER)
            Books(history, flushed=400).check(again)

    with threads(close):
        assert log.compact(EAGER, on_progress=hold).stopped


def test_a_closed_log_is_not_compacted() -> None:
    log = written(random_history(random.Random(7), 50, keys=3))
    log.close()
    with pytest.raises(LogClosed):
        log.compact(EAGER)
    with pytest.raises(LogClosed):
        log.quarantine(log.manifest.segments[0].id, "too late")


# --- rate -----------------------------------------------------------------------------------------


@dataclass
class FakeTime:
    """A clock that only sleeping moves."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds


def test_a_throttle_keeps_the_rate_on_average() -> None:
    clock = FakeTime()
    throttle = Throttle(100.0, clock.monotonic, clock.sleep)
    for _ in range(10):
        throttle.spend(50)
    assert clock.now == pytest.approx(5.0)
    clock.now += 10.0
    throttle.spend(500)
    assert clock.now == pytest.approx(15.0), "what was not used may be used later"
    throttle.spend(1000)
    assert clock.now == pytest.approx(20.0)


def test_without_a_rate_nobody_sleeps() -> None:
    clock = FakeTime()
    Throttle(None, clock.monotonic, clock.sleep).spend(1 << 40)
    assert clock.slept == []


def test_a_pass_reads_and_writes_no_faster_than_its_policy_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeTime()
    stand_in = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep, time_ns=lambda: 0)
    monkeypatch.setattr(rewrite_module, "time", stand_in)
    with written(random_history(random.Random(8), 300, keys=30)) as log:
        result = log.compact(replace(EAGER, rate_bytes_per_s=1000.0))
    moved = result.bytes_read + result.bytes_written
    assert len(clock.slept) > 5
    # Headers and marks are not counted, and what is read a second time only by keys and bodies.
    assert 0.6 * moved / 1000 <= clock.now <= 1.1 * moved / 1000


# --- damage ---------------------------------------------------------------------------------------


def data_of(info: SegmentInfo) -> str:
    return f"log/segments/{info.name}/data"


def states(log: Log) -> list[State]:
    return [info.state for info in log.manifest.segments]


@pytest.mark.parametrize("position", [0, 1, -2])
def test_a_damaged_segment_is_set_apart_and_the_rest_goes_on(position: int) -> None:
    fs = MemoryFileSystem()
    history = random_history(random.Random(9), 200, keys=8)
    with written(history, fs=fs) as log:
        bad = log.manifest.segments[position]
        fs.flip(data_of(bad), bad.bytes // 2)
        result = log.compact(EAGER)
        assert result.damaged == (bad.id,)
        assert states(log).count(State.QUARANTINED) == 1
        assert result.records_dropped > 0
        with pytest.raises(RangeUnavailable) as refused:
            list(log.records())
        assert refused.value.first == bad.first
        check_outside(log, bad, history)


def check_outside(log: Log, bad: SegmentInfo, history: History) -> None:
    """Everything that can be read is right, and a second pass finds nothing more to set apart."""
    found: list[Record] = list(log.records(bad.last + 1))
    if bad.first > 1:
        found += list(log.records(1, bad.first - 1))
    for record in found:
        assert (record.op, record.key, record.body) == history[record.seq - 1]
    assert log.compact(EAGER).damaged == ()
    log.put("more", b"")
    assert log.flush() == len(history) + 1


def test_a_damaged_active_segment_is_sealed_and_set_apart() -> None:
    fs = MemoryFileSystem()
    history = random_history(random.Random(10), 60, keys=8)
    with written([*history, (Op.PUT, "last", bytes(100))], fs=fs) as log:
        active = log.manifest.active
        fs.flip(data_of(active), 200)
        assert log.compact(EAGER).damaged == (active.id,)
        assert states(log)[-2:] == [State.QUARANTINED, State.ACTIVE]
        assert log.put("more", b"") == 62
        assert log.flush() == 62
        assert log.record(62) is not None


def test_damage_that_comes_between_survey_and_rewrite_is_met_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = MemoryFileSystem()
    history = random_history(random.Random(11), 200, keys=8)
    with written(history, fs=fs) as log:
        bad = log.manifest.segments[2]

        def plan_then_rot(*args: object, **kwargs: object) -> object:
            fs.flip(data_of(bad), bad.bytes // 2)
            return plan(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(rewrite_module, "plan", plan_then_rot)
        result = log.compact(CompactionPolicy(dead_fraction_min=0.0))
        monkeypatch.undo()
        assert result.damaged == (bad.id,)
        assert not [name for name in fs.listdir("log/segments") if ".tmp" in name]
        check_outside(log, bad, history)


def test_a_manifest_that_rots_under_a_log_in_use_costs_no_segment() -> None:
    fs = MemoryFileSystem()
    history = random_history(random.Random(12), 100, keys=8)
    with written(history, fs=fs) as log:
        fs.flip(log.store.manifest_path(log.manifest.version), 70)
        log.retire(at_once=True)
        Books(history, flushed=100).check(log)
        log.compact(EAGER)
        Books(history, flushed=100).check(log)
