"""Other caches that drop what is invalidated: mappings behind a lock, Redis, and either behind a relay."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest

from sirius.broadcast.cache import (
    InvalidationSink,
    MappingSink,
    MemoryStream,
    NearCache,
    RedisSink,
    Relay,
    Translated,
)
from sirius.errors import UsageError
from tests.broadcast.cache.fakes import PATIENCE_S, Clock, Recorder


class Redis:
    """A client of Redis, as far as it goes; `sent` has what went over the wire, a list a round trip."""

    def __init__(self, *names: str) -> None:
        self.names = dict.fromkeys(names)
        self.sent: list[list[tuple[str, ...]]] = []
        self.is_down = False

    def delete(self, *names: str) -> None:
        self.flush([names])

    def flush(self, commands: list[tuple[str, ...]]) -> None:
        if self.is_down:
            raise ConnectionError("down")
        self.sent.append(commands)
        for name in (name for names in commands for name in names):
            self.names.pop(name, None)

    def scan_iter(self, match: str) -> Iterator[str]:
        parts = re.findall(r"\\.|.", match)
        pattern = "".join(".*" if part == "*" else re.escape(part[-1]) for part in parts)
        yield from [name for name in self.names if re.fullmatch(pattern, name)]


class Pipelined(Redis):
    def pipeline(self, transaction: bool) -> Pipeline:
        assert not transaction
        return Pipeline(self)


class Pipeline:
    def __init__(self, client: Redis) -> None:
        self._client = client
        self._commands: list[tuple[str, ...]] = []

    def delete(self, *names: str) -> None:
        self._commands.append(names)

    def execute(self) -> None:
        self._client.flush(self._commands)


# ---------------------------------------------------------------------- what all sinks do


def near() -> InvalidationSink:
    return NearCache()


def mapping() -> InvalidationSink:
    return MappingSink({}, threading.Lock())


def redis() -> InvalidationSink:
    return RedisSink(Redis(), "films/")


def translated() -> InvalidationSink:
    return Translated(NearCache(), lambda key: [key])


@pytest.mark.parametrize("make", [near, mapping, redis, translated])
def test_a_sink_knows_where_it_is(make: Any) -> None:
    sink: InvalidationSink = make()
    positions = [sink.position]
    sink.gap(5)
    positions.append(sink.position)
    sink.alive(9)
    sink.invalidated(7, ["a"])
    positions.append(sink.position)
    sink.gap(2)
    positions.append(sink.position)
    assert positions == [None, 5, 7, 2]


@pytest.mark.parametrize("make", [near, mapping, redis])
def test_a_sink_takes_texts_alone(make: Any) -> None:
    sink: InvalidationSink = make()
    with pytest.raises(UsageError, match="a key is a str, not bytes"):
        sink.invalidated(1, [b"a"])  # type: ignore[list-item]
    assert sink.position is None


# ---------------------------------------------------------------------- mappings


def test_keys_of_a_mapping_are_dropped_under_its_lock() -> None:
    held: list[bool] = []

    class Watched(OrderedDict[str, int]):
        def __delitem__(self, key: str) -> None:
            held.append(lock.locked())
            super().__delitem__(key)

        def clear(self) -> None:
            held.append(lock.locked())
            super().clear()

    lock = threading.Lock()
    cache = Watched(a=1, b=2, c=3)
    sink = MappingSink(cache, lock)
    sink.invalidated(1, ["a", "c", "unknown"])
    assert dict(cache) == {"b": 2}
    sink.gap(2)
    assert not cache
    assert held == [True, True, True, True]


def test_keys_of_a_mapping_may_look_different() -> None:
    cache = {("a",): 1, ("b",): 2}
    sink = MappingSink(cache, threading.RLock(), lambda key: (key,))
    sink.invalidated(1, ["a"])
    assert cache == {("b",): 2}


def test_a_mapping_has_a_staleness() -> None:
    clock = Clock()
    sink = MappingSink({}, threading.Lock(), clock=clock)
    sink.gap(1)
    sink.alive(1, 3)
    clock.now += 4
    assert sink.staleness() == 7


def test_cachetools_is_such_a_mapping() -> None:
    cachetools = pytest.importorskip("cachetools")
    cache, lock, asked = cachetools.TTLCache(10, 1000), threading.Lock(), []

    @cachetools.cached(cache, lock=lock)
    def year(title: str) -> int:
        asked.append(title)
        return 1942

    stream = MemoryStream()
    stream.source().start(MappingSink(cache, lock, cachetools.keys.hashkey), None)
    year("casablanca")
    year("casablanca")
    stream.publish("casablanca")
    year("casablanca")
    assert asked == ["casablanca", "casablanca"]


@pytest.mark.parametrize(
    ("cache", "lock", "message"),
    [
        ([], threading.Lock(), "a cache is a mapping, not list"),
        ({}, None, "a lock is a context manager, not NoneType"),
    ],
)
def test_a_mapping_and_a_lock_are_wanted(cache: Any, lock: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MappingSink(cache, lock)


# ---------------------------------------------------------------------- Redis


def test_keys_are_deleted_in_batches_of_one_round_trip() -> None:
    client = Pipelined()
    sink = RedisSink(client, "films/", batch_keys=2)
    sink.invalidated(1, ["a", "b", "c"])
    assert client.sent == [[("films/a", "films/b"), ("films/c",)]]
    sink.invalidated(2, ["d"])
    assert client.sent[1:] == [[("films/d",)]]
    sink.invalidated(3, [])
    assert (len(client.sent), sink.position) == (2, 3)


def test_a_client_without_pipelines_will_do() -> None:
    client = Redis()
    RedisSink(client, on_gap=list, batch_keys=2).invalidated(1, ["a", "b", "c"])
    assert client.sent == [[("a", "b")], [("c",)]]


def test_after_a_gap_everything_under_the_prefix_is_deleted() -> None:
    client = Pipelined("f[1]*/a", "f[1]*/b", "f[1]*/c", "f[1]x/d")
    RedisSink(client, "f[1]*/", batch_keys=2).gap(4)
    assert list(client.names) == ["f[1]x/d"]


def test_what_a_gap_means_can_be_said() -> None:
    called: list[int] = []
    sink = RedisSink(Redis(), on_gap=lambda: called.append(1))
    sink.gap(4)
    assert (called, sink.position) == ([1], 4)


def test_the_position_moves_when_the_keys_are_gone() -> None:
    client = Redis()
    client.is_down = True
    sink = RedisSink(client, "films/")
    with pytest.raises(ConnectionError):
        sink.invalidated(1, ["a"])
    assert sink.position is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"client": object(), "prefix": "a"}, r"a client has delete\(\*keys\): object has not"),
        ({"client": Redis()}, "say what to do when everything has to go"),
        ({"client": Redis(), "prefix": "a", "batch_keys": 0}, "batch_keys is above 0, not 0"),
    ],
)
def test_a_redis_sink_that_makes_no_sense_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RedisSink(**arguments)


# ---------------------------------------------------------------------- relays


class Slow(Recorder):
    """A sink that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work = threading.Event()
        self.go_on = threading.Event()

    def invalidated(self, seq: int, keys: Any) -> None:
        self.at_work.set()
        assert self.go_on.wait(PATIENCE_S)
        super().invalidated(seq, keys)


def test_a_relay_hands_on_in_order() -> None:
    sink = Recorder()
    with Relay(sink) as relay:
        relay.gap(1)
        relay.invalidated(2, ["a"])
        relay.invalidated(3, ["b"])
        relay.alive(3, 1.0)
        assert relay.drain(PATIENCE_S)
        assert relay.position == 3
    assert [seq for what, seq in sink.told if what != "alive"] == [1, 2, 3]
    assert sink.keys == ["a", "b"]
    assert sink.seqs("alive") == [3]
    assert sink.ages[0] >= 1.0


def test_nobody_waits_for_a_slow_sink_and_what_is_too_much_becomes_a_gap() -> None:
    sink = Slow()
    with Relay(sink, keys_max=3) as relay:
        relay.invalidated(1, ["a"])
        assert sink.at_work.wait(PATIENCE_S)
        for seq in range(2, 6):
            relay.invalidated(seq, ["b", "c"])
        sink.go_on.set()
        assert relay.drain(PATIENCE_S)
    assert sink.told == [("invalidated", 1), ("gap", 5)]
    assert sink.position == 5


def test_a_sink_that_fails_is_asked_again() -> None:
    sink = Recorder()
    sink.refusing = 3
    with Relay(sink, retry_s=0.001) as relay:
        relay.invalidated(1, ["a"])
        relay.invalidated(2, ["b"])
        assert relay.drain(PATIENCE_S)
    assert sink.keys == ["a", "b"]


class Refusing(Slow):
    """A sink that takes no batch at all."""

    def invalidated(self, seq: int, keys: Any) -> None:
        self.at_work.set()
        raise ConnectionError("down")


def test_a_gap_takes_the_place_of_what_could_not_be_handed_on() -> None:
    sink = Refusing()
    with Relay(sink, retry_s=0.001) as relay:
        relay.invalidated(1, ["a"])
        assert sink.at_work.wait(PATIENCE_S)
        relay.gap(2)
        assert relay.drain(PATIENCE_S)
    assert sink.told == [("gap", 2)]


def test_a_relay_can_be_closed_while_its_sink_fails() -> None:
    client = Redis()
    client.is_down = True
    relay = Relay(RedisSink(client, "films/"), retry_s=1000)
    relay.invalidated(1, ["a"])
    relay.close()
    relay.close()
    assert relay.position is None
    with pytest.raises(UsageError, match="keys_max is above 0"):
        Relay(Recorder(), keys_max=0)
