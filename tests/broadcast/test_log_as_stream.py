"""A Sirius log as a stream of a proxy: its numbers, its holes, and deletes that nobody tells of any more."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sirius import Sirius, SiriusConfig
from sirius.broadcast.client import Client
from sirius.broadcast.config import ClientConfig, ProxyConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.disk.stream import events_of_log
from sirius.broadcast.events import Event, EventBatch, Kind, Stream, holes
from sirius.broadcast.history import MemoryHistory
from sirius.broadcast.limits import Limits
from sirius.broadcast.messages import Peer, Refused
from sirius.broadcast.net.homes import ClientHome, ProxyHome
from sirius.broadcast.net.hub import Hub
from sirius.broadcast.net.logs import LogFeed
from sirius.broadcast.proxy import Layout, Proxy
from sirius.errors import OutOfOrder, UsageError
from sirius.testing.filesystem import MemoryFileSystem
from sirius.testing.processes import free_ports
from sirius.transport.security import Plaintext
from sirius.types import Seq
from sirius.wal.batch import Batch
from sirius.wal.block import encode
from sirius.wal.compaction.plan import CompactionPolicy
from sirius.wal.config import LogConfig
from sirius.wal.log import Log
from sirius.wal.record import Op, Update
from tests.broadcast.histories import events_of, read_all
from tests.node.nodes import SMALL, Dict

S = Stream("titles")


def log_of(*updates: Update, now_us: int = 5) -> Log:
    config = LogConfig(background=False, reserve_bytes=0, segment_records_max=4)
    log = Log.open("/log", config, fs=MemoryFileSystem(), now_us=lambda: now_us)
    for update in updates:
        log.write([update])
    log.flush()
    return log


def put(key: str, body: bytes = b"x") -> Update:
    return Update(Op.PUT, key.encode(), body)


def delete(key: str) -> Update:
    return Update(Op.DELETE, key.encode())


def stream_of(log: Log, *, bodies: bool = False) -> list[EventBatch]:
    return [events_of_log(batch, log.tombstone_floor, bodies=bodies) for batch in log.batches()]


def test_every_update_is_an_event_with_its_own_number() -> None:
    events = events_of(stream_of(log_of(put("a", b"1"), delete("a"), put("b", b"2")), bodies=True))
    assert events == [
        Event(1, Kind.KEYED, "", b"a", b"1", 5, {"op": 1}),
        Event(2, Kind.KEYED, "", b"a", b"", 5, {"op": 2}),
        Event(3, Kind.KEYED, "", b"b", b"2", 5, {"op": 1}),
    ]


def test_bodies_stay_where_they_are_unless_they_are_asked_for() -> None:
    assert [event.payload for event in events_of(stream_of(log_of(put("a"))))] == [b""]


def test_control_entries_are_holes() -> None:
    log = log_of(put("a"), Update(Op.NOOP, b""), put("b"))
    parts = stream_of(log)
    assert [event.seq for event in events_of(parts)] == [1, 3]
    assert holes(parts) == [(2, 2)]


def test_holes_of_a_compacted_log_are_holes() -> None:
    log = log_of(*(put(f"k{number % 2}") for number in range(12)))
    log.compact(CompactionPolicy(dead_fraction_min=0))
    parts = stream_of(log)
    assert [event.seq for event in events_of(parts)] == [record.seq for record in log.records()]
    assert parts[0].first == 1
    assert parts[-1].last == 12
    assert len(holes(parts)) >= 1


def test_where_a_delete_may_be_gone_everything_before_is() -> None:
    """The key was put and deleted; both are gone, and the number of the delete is in the floor."""
    log = log_of(put("gone"), delete("gone"), *(put(f"k{number}") for number in range(10)))
    policy = CompactionPolicy(dead_fraction_min=0, drop_deletes_upto=Seq(12))
    log.compact(policy)
    log.compact(policy)
    assert log.tombstone_floor == 2
    events = events_of(stream_of(log))
    assert (events[0].seq, events[0].kind, events[0].payload) == (2, Kind.GC, b"seq < 2")
    assert [event.key for event in events[1:]] == [b"k%d" % number for number in range(10)]
    history = MemoryHistory()
    for part in stream_of(log):
        history.append(part)
    assert [event.seq for event in events_of(read_all(history))] == list(range(2, 13))


@pytest.mark.parametrize(
    ("floor", "purge"), [(0, None), (1, None), (2, None), (3, 3), (4, 4), (5, 4), (6, 4), (9, 7)]
)
def test_the_last_hole_at_or_below_the_floor(floor: int, purge: int | None) -> None:
    batch = Batch.of(encode(1, [put(key) for key in "abcdefg"], 5))
    left = batch.where((batch.seq != 3) & (batch.seq != 4) & (batch.seq != 7))
    found = [event.seq for event in events_of_log(left, floor).events() if event.kind == Kind.GC]
    assert found == ([] if purge is None else [purge])


def test_times_do_not_fall_although_clocks_do() -> None:
    log = log_of(put("a"), now_us=5)
    (batch,) = log.batches()
    assert [event.time for event in events_of_log(batch, 0, time_us=9).events()] == [9]
    assert [event.time for event in events_of_log(batch, 0, time_us=1).events()] == [5]


# ---------------------------------------------------------------------- the proxy


def proxy_of(limits: Limits | None = None, name: str = "A") -> Proxy:
    layout = Layout((Peer(name), Peer("B")), {S: Peer(name), Stream("other"): Peer("B")})
    config = ProxyConfig(limits=limits or Limits())
    rng = random.Random(1)
    return Proxy(Peer(name), layout, lambda _: MemoryHistory(), config, rng, now=0.0, life=1)


def test_a_proxy_takes_what_the_log_says_once_and_nothing_else() -> None:
    proxy = proxy_of()
    parts = stream_of(log_of(put("a"), put("b"), delete("a")))
    for part in (*parts, *parts):
        proxy.extend(S, part)
    assert proxy.counts[0] == (S, 3)
    (whole,) = proxy.shelf.read(S, Seq(2), Seq(3), 1 << 20)
    assert whole.last == 3
    answer, _ = proxy.publish(S, EventBatch.of([b"x"]), 1, 1)
    assert isinstance(answer, Refused)
    assert answer.reason == "stream 'titles' is the log of a cluster: write to the cluster"
    assert not answer.again


def test_a_proxy_takes_nothing_behind_a_gap_and_nothing_for_others() -> None:
    proxy = proxy_of()
    with pytest.raises(OutOfOrder):
        proxy.extend(S, EventBatch.of([b"a"]).numbered(Seq(2), 0))
    with pytest.raises(UsageError, match="does not belong"):
        proxy.extend(Stream("other"), EventBatch.of([b"a"]).numbered(Seq(1), 0))


# ---------------------------------------------------------------------- a node


async def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "it did not come to that"
        await asyncio.sleep(0.005)


def test_what_is_written_to_a_node_comes_to_a_client_with_the_number_of_the_log(
    tmp_path: Path,
) -> None:
    name = f"127.0.0.1:{free_ports(1)[0]}"
    config = SiriusConfig(name=name, members=[name], data=tmp_path, log=SMALL, durability="os")
    got: list[Event] = []

    async def story(node: Sirius) -> list[int]:
        hub = Hub("127.0.0.1:0", Plaintext())
        address = await hub.start()
        proxy = proxy_of(name=address)
        hub.take_in(Peer(address), ProxyHome(proxy), lambda _: None)
        feed = LogFeed(hub, proxy, S, [name])
        client = Client(
            Peer(f"{address}/c"),
            Peer(address),
            {S: Peer(address)},
            ClientConfig(),
            random.Random(2),
            now=time.monotonic(),
            publisher=1,
        )
        client.subscribe(S)

        def take(effects: Effects) -> None:
            got.extend(event for _, batch in effects.deliver for event in batch.events())

        hub.take_in(Peer(f"{address}/c"), ClientHome(client), take)
        try:
            written = []
            for number in range(20):
                future = node.enqueue_put(f"k{number % 3}", b"x")
                written.append(int((await asyncio.wrap_future(future)).seq or 0))
            future = node.enqueue_delete("k0")
            written.append(int((await asyncio.wrap_future(future)).seq or 0))
            await until(lambda: client.counts[0][1] >= written[-1])
            return written
        finally:
            await feed.close()
            await hub.close()

    with Sirius(Dict(), config) as node:
        assert node.wait_until_ready(60)
        written = asyncio.run(story(node))
    mine = [event for event in got if event.key.startswith(b"k")]
    assert mine[-1].seq == written[-1]
    assert mine[-1].attributes == {"op": 2}
    assert {event.seq for event in mine} <= set(written)
    assert [event.seq for event in mine] == sorted({event.seq for event in mine})


def test_a_key_that_is_too_long_for_the_stream_is_said_to_be(tmp_path: Path) -> None:
    name = f"127.0.0.1:{free_ports(1)[0]}"
    config = SiriusConfig(name=name, members=[name], data=tmp_path, log=SMALL, durability="os")

    async def story() -> str | None:
        hub = Hub("127.0.0.1:0", Plaintext())
        address = await hub.start()
        proxy = proxy_of(Limits(key_bytes_max=10), address)
        feed = LogFeed(hub, proxy, S, [name])
        try:
            await until(lambda: feed.failure is not None)
            return feed.failure
        finally:
            await feed.close()
            await hub.close()

    with Sirius(Dict(), config) as node:
        assert node.wait_until_ready(60)
        node.enqueue_put("a-long-key", b"").result(60)
        node.enqueue_put("a-longer-key", b"").result(60)
        assert "a key of 12 bytes is longer than 10" in (asyncio.run(story()) or "")


def test_nobody_publishes_in_a_log_that_has_not_answered_yet_and_it_is_complained_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise a number would be given here that the log gives to something else."""
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    caplog.set_level("DEBUG", "sirius.broadcast")

    def complaints() -> list[str]:
        return [each.levelname for each in caplog.records if nobody in each.getMessage()]

    async def story() -> Refused:
        hub, proxy = Hub("127.0.0.1:0", Plaintext()), proxy_of()
        feed = LogFeed(hub, proxy, S, [nobody])
        try:
            answer, _ = proxy.publish(S, EventBatch.of([b"x"]), 1, 1)
            await until(lambda: len(complaints()) >= 2)
            assert isinstance(answer, Refused)
            return answer
        finally:
            await feed.close()
            await hub.close()

    assert not asyncio.run(story()).again
    assert complaints()[:2] == ["WARNING", "DEBUG"]
