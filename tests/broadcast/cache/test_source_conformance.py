"""What every `InvalidationSource` does: the stream in memory, a node's own log, the log of a remote node, and the
broadcast layer."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from sirius import Sirius, SiriusConfig
from sirius.broadcast import LocalProxy, connect
from sirius.broadcast.cache import InvalidationSource, LogStream, MemoryStream, NearCache, feed
from sirius.broadcast.cache.tail import TailSource
from sirius.errors import UsageError
from sirius.testing.processes import free_ports
from tests.broadcast.cache.fakes import PATIENCE_S, Recorder, Truth
from tests.node.nodes import FAST, SMALL, Dict, config


class World(Protocol):
    """A stream, and a way to make it say something."""

    def write(self, *keys: str) -> int:
        """Change keys; return the sequence number of the last change."""
        ...

    def source(self) -> InvalidationSource: ...

    def lose(self) -> InvalidationSource:
        """Return a source that cannot resume from 1."""
        ...


class InMemory:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stream = MemoryStream(history_max=50)

    def write(self, *keys: str) -> int:
        return self._stream.publish(*keys)

    def source(self) -> InvalidationSource:
        return self._stream.source()

    def lose(self) -> InvalidationSource:
        for _ in range(51):
            self._stream.publish()
        return self._stream.source()


class OwnLog:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stream = LogStream(Dict(), history_max=50)
        self._node = stack.enter_context(Sirius(self._stream.handler, config(folder)))
        self._stream.watch(self._node)

    def write(self, *keys: str) -> int:
        seqs = [self._node.enqueue_put(key, b"v").result(PATIENCE_S).seq for key in keys]
        return int(seqs[-1] or 0)

    def source(self) -> InvalidationSource:
        return self._stream.source()

    def lose(self) -> InvalidationSource:
        self.write(*(f"k{number}" for number in range(51)))
        return self._stream.source()


class RemoteLog:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._address = f"127.0.0.1:{free_ports(1)[0]}"
        settings = SiriusConfig(
            name=self._address,
            members=[self._address],
            data=folder / "data",
            paxos=FAST,
            log=SMALL,
            durability="os",
        )
        self._node = stack.enter_context(Sirius(Dict(), settings))

    def write(self, *keys: str) -> int:
        seqs = [self._node.enqueue_put(key, b"v").result(PATIENCE_S).seq for key in keys]
        return int(seqs[-1] or 0)

    def source(self) -> InvalidationSource:
        return TailSource([self._address], timeout_s=PATIENCE_S)

    def lose(self) -> InvalidationSource:
        # The node's log is another one: see `test_tail_source` for holes.
        source = TailSource([self._address], timeout_s=PATIENCE_S)
        source._cluster = "another"
        return source


class LiveStream:
    def __init__(self, stack: ExitStack, folder: Path) -> None:
        proxy = stack.enter_context(LocalProxy(["films"]))
        self._broadcast = stack.enter_context(connect(proxy.address))

    def write(self, *keys: str) -> int:
        return self._broadcast.publish_many("films", keys).result(PATIENCE_S).last

    def source(self) -> InvalidationSource:
        return self._broadcast.invalidations("films")

    def lose(self) -> InvalidationSource:
        # The proxy has lost everything before its life began, and 1 is long before.
        return self._broadcast.invalidations("films")


WORLDS: dict[str, Callable[[ExitStack, Path], World]] = {
    "memory": InMemory,
    "own log": OwnLog,
    "remote log": RemoteLog,
    "live stream": LiveStream,
}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield WORLDS[request.param](stack, tmp_path)


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(int(1000 * PATIENCE_S)):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not come to that")


def reaches(cache: NearCache[int], seq: int) -> bool:
    return (cache.position or 0) >= seq


def test_a_sink_without_a_position_begins_at_the_end_with_a_gap(world: World) -> None:
    last = world.write("before")
    sink, source = Recorder(), world.source()
    source.start(sink, None)
    sink.until(lambda: sink.told)
    assert sink.told[0] == ("gap", last)
    world.write("after")
    sink.until(lambda: sink.keys)
    assert sink.keys == ["after"]
    source.close()


def test_what_was_missed_comes_in_order_and_once(world: World) -> None:
    first = world.write("a")
    sink = Recorder()
    world.write("b", "c")
    source = world.source()
    source.start(sink, first)
    last = world.write("d")
    sink.until(lambda: sink.position == last)
    source.close()
    assert sink.seqs("gap") == []
    assert sink.keys == ["b", "c", "d"]
    seqs = sink.seqs("invalidated")
    assert seqs == sorted(set(seqs))


def test_a_sink_goes_on_where_it_was_when_it_left(world: World) -> None:
    sink = Recorder()
    world.write("a")
    for key in ("b", "c"):
        source = world.source()
        source.start(sink, sink.position)
        sink.until(lambda: sink.position is not None)
        source.close()
        world.write(key)
    source = world.source()
    source.start(sink, sink.position)
    sink.until(lambda: sink.keys == ["b", "c"])
    source.close()
    assert len(sink.seqs("gap")) == 1


def test_a_source_that_cannot_resume_says_so(world: World) -> None:
    world.write("a")
    source, sink = world.lose(), Recorder()
    source.start(sink, 1)
    sink.until(lambda: sink.told)
    assert sink.told[0][0] == "gap"
    last = world.write("z")
    sink.until(lambda: sink.position == last)
    assert sink.keys[-1] == "z"
    source.close()


def test_a_beat_vouches_for_what_was_told(world: World) -> None:
    cache: NearCache[int] = NearCache()
    source = world.source()
    world.write("a")
    with feed(cache, source, beat_s=0.01):
        sink = Recorder()
        other = world.source()
        other.start(sink, None)
        sink.until(lambda: sink.told)
        other.beat()
        assert sink.ages[-1] < PATIENCE_S
        other.close()
        eventually(lambda: not math.isinf(cache.staleness()))
    assert cache.staleness() < PATIENCE_S


def test_nothing_is_told_after_the_end(world: World) -> None:
    sink, source = Recorder(), world.source()
    source.start(sink, None)
    sink.until(lambda: sink.told)
    source.close()
    told = list(sink.told)
    world.write("late")
    source.beat()
    source.close()
    assert sink.told == told


def test_a_source_is_started_once(world: World) -> None:
    source = world.source()
    source.start(Recorder(), None)
    with pytest.raises(UsageError, match="started once"):
        source.start(Recorder(), None)
    source.close()


def test_a_sink_that_raises_misses_nothing(world: World) -> None:
    sink, source = Recorder(), world.source()
    source.start(sink, None)
    sink.until(lambda: sink.told)
    sink.refusing = 1
    world.write("a")
    sink.until(lambda: not sink.refusing)
    last = world.write("b")
    sink.until(lambda: sink.position == last)
    assert "a" in sink.keys or len(sink.seqs("gap")) == 2
    source.close()


def test_a_cache_that_is_fed_never_reads_what_changed(world: World) -> None:
    truth = Truth()
    cache = NearCache(truth.load)
    with feed(cache, world.source(), beat_s=0.01):
        for _ in range(20):
            assert cache.get("a") <= truth.versions["a"]
            version = truth.write("a")
            seq = world.write("a")
            eventually(partial(reaches, cache, seq))
            assert cache.get("a") == version
