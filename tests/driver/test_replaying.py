"""Replaying a log: three ways to the same state; and what is gone when another log takes its place."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sirius.driver.calls import Caller, Patience
from sirius.driver.replaying import Replay, Replayer, gone
from sirius.errors import HandlerFailed
from sirius.handler import HandledUpdate, RequestHandler, SiriusResult
from sirius.testing import MemoryFileSystem
from sirius.testing.logs import SMALL_LOG, write_log
from sirius.wal import CompactionPolicy, Log, LogConfig, Op, Update

TINY = LogConfig(reserve_bytes=0, background=False, segment_records_max=7)
NONE = SiriusResult.none()

PUT = st.tuples(
    st.just(Op.PUT),
    st.sampled_from([b"a", b"b", b"c", "é".encode(), b"d/e"]),
    st.binary(max_size=3),
)
DELETE = st.tuples(st.just(Op.DELETE), st.sampled_from([b"a", b"b", b"c", b"zz"]))
UPDATE = st.one_of(PUT, DELETE, st.just((Op.NOOP, b""))).map(lambda fields: Update(*fields))
HISTORY = st.lists(st.lists(UPDATE, min_size=1, max_size=6), max_size=12)


class State(RequestHandler):
    """Everything that a handler can be told, from any thread."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.keys: list[str] = []
        self.threads: set[str] = set()
        self._lock = threading.Lock()

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        with self._lock:
            self.values[key] = body
            self._note(key)
        return NONE

    def handle_delete(self, key: str) -> SiriusResult:
        with self._lock:
            self.values.pop(key, None)
            self._note(key)
        return NONE

    def _note(self, key: str) -> None:
        self.keys.append(key)
        self.threads.add(threading.current_thread().name)


def model(history: Sequence[Sequence[Update]]) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    for op, key, body, *_ in (update for group in history for update in group):
        if op == Op.PUT:
            values[key.decode()] = body
        elif op == Op.DELETE:
            values.pop(key.decode(), None)
    return values


def replay(log: Log, way: Replay, handler: RequestHandler | None = None, threads: int = 3) -> State:
    state = handler or State()
    counted: list[int] = []
    replayer = Replayer(lambda: Caller(state, Patience(0, 0)), way, threads, counted.append)
    with log.snapshot() as snapshot:
        assert replayer.run(snapshot, lambda: False)
    assert isinstance(state, State)
    return state


@settings(max_examples=40)
@given(HISTORY, st.booleans())
@example([], False)
@example([[Update(Op.DELETE, b"zz")]], True)
def test_all_ways_give_the_same_state(history: list[list[Update]], is_compacted: bool) -> None:
    fs = MemoryFileSystem()
    write_log(fs, "/log", history, TINY)
    with Log.open("/log", TINY, fs=fs) as log:
        if is_compacted:
            log.rotate()
            log.compact(CompactionPolicy(dead_fraction_min=0))
        for way in Replay:
            assert replay(log, way).values == model(history), way
        assert replay(log, Replay.PARALLEL, threads=1).values == model(history)


def test_serial_is_as_it_happened_and_newest_is_the_least() -> None:
    fs = MemoryFileSystem()
    put, delete = Update(Op.PUT, b"a", b"1"), Update(Op.DELETE, b"a")
    write_log(fs, "/log", [[put, Update(Op.NOOP, b""), delete], [put, Update(Op.PUT, b"b")]])
    with Log.open("/log", SMALL_LOG, fs=fs) as log:
        assert replay(log, Replay.SERIAL).keys == ["a", "a", "a", "b"]
        assert sorted(replay(log, Replay.NEWEST).keys) == ["a", "b"]


def test_parallel_uses_several_threads_and_keeps_the_order_of_each_key() -> None:
    class Meeting(State):
        """Goes on when a second thread has come."""

        met = threading.Event()

        def handle_put(self, key: str, body: bytes) -> SiriusResult:
            result = super().handle_put(key, body)
            if len(self.threads) > 1:
                self.met.set()
            assert self.met.wait(30), "one thread does it all"
            return result

    fs = MemoryFileSystem()
    updates = [Update(Op.PUT, b"%d" % (n % 50), b"%d" % n) for n in range(1000)]
    write_log(fs, "/log", [updates[:500], updates[500:]])
    with Log.open("/log", SMALL_LOG, fs=fs) as log:
        state = replay(log, Replay.PARALLEL, Meeting(), threads=4)
    assert state.values == model([updates])


@pytest.mark.parametrize("way", list(Replay))
def test_a_replay_stops_when_it_is_told_to(way: Replay) -> None:
    fs = MemoryFileSystem()
    write_log(fs, "/log", [[Update(Op.PUT, b"k")]] * 3, TINY)
    state, progress = State(), list[int]()
    replayer = Replayer(lambda: Caller(state, Patience(0, 0)), way, 2, progress.append)
    with Log.open("/log", TINY, fs=fs) as log, log.snapshot() as snapshot:
        assert not replayer.run(snapshot, lambda: True)
    assert (state.keys, progress) == ([], [])


@pytest.mark.parametrize("way", list(Replay))
def test_a_handler_that_fails_ends_the_replay(way: Replay) -> None:
    class Poisoned(State):
        def handle_put(self, key: str, body: bytes) -> SiriusResult:
            if key == "bad":
                raise ValueError("poison")
            return super().handle_put(key, body)

    fs = MemoryFileSystem()
    write_log(fs, "/log", [[Update(Op.PUT, b"good")], [Update(Op.PUT, b"bad")]], TINY)
    with (
        Log.open("/log", TINY, fs=fs) as log,
        pytest.raises(HandlerFailed, match="ValueError at 2") as caught,
    ):
        replay(log, way, Poisoned())
    assert caught.value.seq == 2


def test_progress_counts_every_record() -> None:
    fs = MemoryFileSystem()
    history = [[Update(Op.PUT, b"k")] * 5, [Update(Op.NOOP, b"")], [Update(Op.DELETE, b"k")]]
    write_log(fs, "/log", history, TINY)
    for way in (Replay.SERIAL, Replay.PARALLEL):
        progress: list[int] = []
        replayer = Replayer(lambda: Caller(State(), Patience(0, 0)), way, 2, progress.append)
        with Log.open("/log", TINY, fs=fs) as log, log.snapshot() as snapshot:
            replayer.run(snapshot, lambda: False)
        assert sum(progress) == 7


@settings(max_examples=40)
@given(HISTORY, HISTORY)
def test_gone_are_exactly_the_keys_that_vanished(
    before: list[list[Update]], after: list[list[Update]]
) -> None:
    fs = MemoryFileSystem()
    write_log(fs, "/old", before, TINY)
    write_log(fs, "/new", [*after, [Update(Op.NOOP, b"")]], TINY)
    with (
        Log.open("/old", TINY, fs=fs) as old,
        Log.open("/new", TINY, fs=fs) as new,
        old.snapshot() as was,
        new.snapshot() as now,
    ):
        deletes = [record for batch in gone(was, now) for record in batch.records()]
        end = now.last
    assert {record.key for record in deletes} == set(model(before)) - set(model(after))
    assert all((record.op, record.seq) == (Op.DELETE, end) for record in deletes)
    assert len({record.key for record in deletes}) == len(deletes)


def test_many_that_are_gone_come_in_batches_that_a_handler_can_take() -> None:
    class ByBatch(State):
        def handle_batch(self, updates: Sequence[HandledUpdate]) -> None:
            self.keys += [update.key for update in updates]
            assert {(update.seq, update.body) for update in updates} == {(1, None)}

    fs = MemoryFileSystem()
    write_log(fs, "/old", [[Update(Op.PUT, b"%d" % n) for n in range(10_000)]])
    write_log(fs, "/new", [[Update(Op.PUT, b"7")]])
    state = ByBatch()
    with (
        Log.open("/old", SMALL_LOG, fs=fs) as old,
        Log.open("/new", SMALL_LOG, fs=fs) as new,
        old.snapshot() as was,
        new.snapshot() as now,
    ):
        for batch in gone(was, now):
            Caller(state, Patience(0, 0)).apply(batch)
    assert sorted(state.keys) == sorted(str(n) for n in range(10_000) if n != 7)
