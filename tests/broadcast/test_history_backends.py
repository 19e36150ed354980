"""Histories that survive: in a log, and in a chain of replicas. Both pass the suite that the one in memory passes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.broadcast.config import ProxyConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.disk.history import LogHistory
from sirius.broadcast.disk.records import block_of, events_in
from sirius.broadcast.events import Event, EventBatch
from sirius.broadcast.history import History
from sirius.broadcast.messages import Peer, Published, Refused
from sirius.broadcast.proxy import Layout, Proxy
from sirius.errors import BadMessage, CorruptLog
from sirius.testing.filesystem import MemoryFileSystem
from sirius.types import Seq
from sirius.wal.batch import Batch
from sirius.wal.config import Durability, LogConfig
from sirius.wal.log import Log
from sirius.wal.record import DEFAULT_LIMITS, Limits
from tests.broadcast.chains import ChainHistory, S
from tests.broadcast.histories import (
    HistoryConformance,
    ModelHistory,
    data,
    events_of,
    gc,
    keyed,
    read_all,
)
from tests.broadcast.strategies import batch_of
from tests.broadcast.test_history import runs

SMALL = LogConfig(durability=Durability.OS, segment_records_max=2)


class TestLog(HistoryConformance):
    """Compacted, closed and opened again, it is the same."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.opened = 0

    def make(self) -> LogHistory:
        self.opened += 1
        return LogHistory.open(self.path / str(self.opened), SMALL)

    def again(self, history: History) -> History:
        assert isinstance(history, LogHistory)
        history.compact(dead_fraction_min=0)
        history.close()
        return LogHistory.open(self.path / str(self.opened), SMALL)


class TestChain(HistoryConformance):
    """Every replica dies, one after the other, and another one takes its place: it is the same."""

    def make(self) -> ChainHistory:
        return ChainHistory()

    def again(self, history: History) -> History:
        assert isinstance(history, ChainHistory)
        line = history.line
        for name in list(line.names):
            line.kill(name)
            line.run(1.0)
            line.start(name)
            line.run(2.0)
        assert len(line.names) == 3
        return history


# ---------------------------------------------------------------------- the log, more closely

SLOW = settings(deadline=None, max_examples=40)


def memory_log(fs: MemoryFileSystem, **options: object) -> LogHistory:
    config = LogConfig(background=False, reserve_bytes=0, **options)  # type: ignore[arg-type]
    return LogHistory.open("/h", config, fs=fs)


def closed(history: LogHistory, fs: MemoryFileSystem) -> LogHistory:
    history.close()
    return memory_log(fs)


@SLOW
@given(runs(), st.lists(st.integers(0, 5), max_size=3))
def test_a_log_is_what_the_model_says_across_restarts_and_compaction(
    batches: list[list[Event]], breaks: list[int]
) -> None:
    fs = MemoryFileSystem()
    history = memory_log(fs, segment_records_max=4)
    model = ModelHistory()
    for number, events in enumerate(batches):
        history.append(batch_of(events, history.last + 1, events[-1].seq))
        model.append(events)
        if number in breaks:
            history.compact(dead_fraction_min=0)
            history = closed(history, fs)
        TestLog().check(history, model)
    TestLog().check(closed(history, fs), model)


@SLOW
@given(runs())
def test_events_are_the_same_after_a_log(batches: list[list[Event]]) -> None:
    first = 1
    for events in batches:
        batch = batch_of(events, first, events[-1].seq)
        assert events_in(Batch.of(block_of(batch, DEFAULT_LIMITS))).events() == events
        first = events[-1].seq + 1


def test_what_is_prepared_counts_when_it_is_on_disk() -> None:
    fs = MemoryFileSystem()
    history = memory_log(fs)
    history.prepare(keyed(1, "a"))
    assert (history.ready, history.last) == (0, 0)
    history._log.flush()
    assert history.ready == 1
    history.append(keyed(1, "a"))
    assert history.last == 1


def test_what_counts_survives_a_loss_of_power_and_a_batch_does_as_a_whole() -> None:
    """Whatever a crash leaves: a prefix of whole batches, with at least everything that was ready."""
    fs = MemoryFileSystem()
    history = memory_log(fs)
    history.append(keyed(1, "a", "b"))
    history.prepare(keyed(3, "a", "c", "d"))
    lasts = set()
    for state in fs.crash_states():
        found = memory_log(state)
        lasts.add(int(found.last))
        left = [event.seq for event in events_of(read_all(found))]
        assert left == ([1, 2] if found.last == 2 else [2, 3, 4, 5])
    assert lasts <= {2, 5}


def test_compaction_removes_what_predicates_and_keys_have_collected(tmp_path: Path) -> None:
    config = LogConfig(durability=Durability.OS, segment_records_max=10)
    history = LogHistory.open(tmp_path / "s", config)
    for first in range(1, 101, 10):
        history.append(keyed(first, *"abcdefghij"))
    history.append(data(101, *"klmnopqrst"))
    history.append(gc(111, 'key prefix "k" or key = "l"'))
    history.append(data(112, *"0123456789"))
    assert history.grown == 121
    result = history.compact(dead_fraction_min=0)
    assert result.records_dropped == 92
    assert history.grown == 0
    with history._log.snapshot() as snapshot:
        seqs = [record.seq for record in snapshot.records()]
    assert seqs == [*range(91, 101), *range(103, 111), 111, *range(112, 122)]
    before = events_of(read_all(history))
    history.close()
    assert events_of(read_all(LogHistory.open(tmp_path / "s", config))) == before


def test_a_batch_that_is_too_large_for_a_block_is_refused_and_changes_nothing() -> None:
    fs = MemoryFileSystem()
    history = memory_log(fs, limits=Limits(block_bytes_max=4096))
    with pytest.raises(BadMessage, match="do not go into the log"):
        history.append(keyed(1, *map(str, range(1000))))
    history.append(keyed(1, "a"))
    assert closed(history, fs).last == 1


def test_damage_to_what_is_known_of_publishers_is_found() -> None:
    fs = MemoryFileSystem()
    history = memory_log(fs)
    history.append(EventBatch.of([b"a"]).numbered(Seq(1), 0, publisher=7, serial=3))
    history.compact()
    fs.flip("/h/publishers", 9)
    with pytest.raises(CorruptLog, match="publishers is damaged"):
        closed(history, fs)


def test_a_log_of_something_else_is_no_history() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/h")
    with Log.open("/h/log", LogConfig(background=False, reserve_bytes=0), fs=fs) as log:
        log.put("Kx", b"1")
    with pytest.raises(CorruptLog, match="not the key of an event"):
        memory_log(fs)


def test_a_proxy_answers_when_what_was_published_is_on_disk() -> None:
    """The same proxy, whatever its history: only when it counts is it told to anybody."""
    fs = MemoryFileSystem()
    history = memory_log(fs)
    layout = Layout((Peer("A"),), {S: Peer("A")})
    proxy = Proxy(
        Peer("A"), layout, lambda _: history, ProxyConfig(), random.Random(1), now=0.0, life=1
    )
    assert proxy.publish(S, EventBatch.of([b"a"]), 5, 1) == (None, Effects())
    assert proxy.counts == ((S, 0),)
    again, _ = proxy.publish(S, EventBatch.of([b"a"]), 5, 1)
    assert again is None
    history._log.flush()
    effects = proxy.settle()
    assert effects.answers == [Published(S, 5, 1, Seq(1), Seq(1))]
    assert proxy.counts == ((S, 1),)


def test_a_full_disk_is_said_to_the_publisher_who_tries_again() -> None:
    fs = MemoryFileSystem()
    history = memory_log(fs, durability=Durability.OS)
    layout = Layout((Peer("A"),), {S: Peer("A")})
    proxy = Proxy(
        Peer("A"), layout, lambda _: history, ProxyConfig(), random.Random(1), now=0.0, life=1
    )
    fs.capacity_bytes = fs.used_bytes
    answer, _ = proxy.publish(S, EventBatch.of([b"a" * 1000]), 5, 1)
    assert isinstance(answer, Refused)
    assert answer.again
