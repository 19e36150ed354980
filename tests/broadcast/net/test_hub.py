"""Proxies and clients on real ports."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

import grpc
import pytest

from sirius.broadcast.client.machine import Client
from sirius.broadcast.config import ClientConfig, ProxyConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import EventBatch, Kind, Stream
from sirius.broadcast.history import MemoryHistory
from sirius.broadcast.messages import Advertise, Forward, Message, Peer
from sirius.broadcast.net.asking import status_of
from sirius.broadcast.net.codec import Letter, encode
from sirius.broadcast.net.homes import ClientHome, ProxyHome
from sirius.broadcast.net.hub import Hub
from sirius.broadcast.proxy.machine import Proxy
from sirius.broadcast.proxy.shelf import Layout
from sirius.errors import Unreachable
from sirius.transport.packets import frame
from sirius.transport.security import Plaintext, Role
from sirius.types import Seq

LINK = "/sirius.broadcast.v1.Broadcast/Link"


class World:
    """Three proxies, a hub each, and clients of all three regions in a fourth hub."""

    def __init__(self) -> None:
        self.hubs = [Hub("127.0.0.1:0", Plaintext()) for _ in range(4)]
        self.got: dict[tuple[Peer, Stream], list[tuple[int, bytes]]] = defaultdict(list)
        self.proxies: list[Proxy] = []
        self.clients: dict[Peer, Client] = {}

    async def __aenter__(self) -> World:
        names = [Peer(await hub.start()) for hub in self.hubs]
        self.names, self.home = names[:3], names[3]
        owners = {Stream(f"s{number}"): name for number, name in enumerate(self.names)}
        self.layout = Layout(tuple(self.names), owners)
        for number in range(3):
            self.begin_proxy(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for hub in self.hubs:
            await hub.close()

    def begin_proxy(self, number: int) -> None:
        name = self.names[number]
        proxy = Proxy(
            name,
            self.layout,
            lambda _: MemoryHistory(),
            ProxyConfig(),
            random.Random(number),
            now=time.monotonic(),
            life=time.time_ns(),
        )
        self.proxies.append(proxy)
        self.hubs[number].take_in(name, ProxyHome(proxy), lambda _: None)

    def begin_client(self, number: int, after: int = 0) -> Peer:
        name = Peer(f"{self.home}/c{number}")
        client = Client(
            name,
            self.names[number % 3],
            self.layout.owners,
            ClientConfig(),
            random.Random(100 + number),
            now=time.monotonic(),
            publisher=1000 + number,
        )
        for stream in self.layout.owners:
            client.subscribe(stream, Seq(after))
        self.clients[name] = client
        self.hubs[3].take_in(name, ClientHome(client), self._taker(name))
        return name

    def _taker(self, name: Peer) -> Callable[[Effects], None]:
        def take(effects: Effects) -> None:
            for stream, batch in effects.deliver:
                self.got[name, stream] += [(event.seq, event.key) for event in batch.events()]
                self.hubs[3].carry_out(name, self.clients[name].consumed(stream, batch.last))

        return take

    def publish(self, name: Peer, stream: Stream, keys: Iterable[bytes]) -> None:
        _, effects = self.clients[name].publish(stream, EventBatch.of(list(keys), Kind.DATA))
        self.hubs[3].carry_out(name, effects)

    async def until(self, what: Callable[[], bool], timeout_s: float = 60) -> None:
        async with asyncio.timeout(timeout_s):
            while not what():
                await asyncio.sleep(0.005)

    def has(self, name: Peer, count: int) -> bool:
        return all(len(self.got[name, stream]) >= count for stream in self.layout.owners)


def keys(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


async def _everything_everywhere() -> None:
    async with World() as world:
        names = [world.begin_client(number) for number in range(6)]
        for at in range(10):
            for number, stream in enumerate(world.layout.owners):
                world.publish(names[number], stream, keys(1000 * at, 1000))
        await world.until(lambda: all(world.has(name, 10_000) for name in names))
        wanted = list(enumerate(keys(0, 10_000), 1))
        assert all(world.got[name, stream] == wanted for name, stream in world.got)
        assert len(world.got) == 18


def test_every_event_comes_to_every_client_of_every_region_once_and_in_order() -> None:
    asyncio.run(_everything_everywhere())


async def _a_late_client() -> None:
    async with World() as world:
        early = world.begin_client(0)
        stream = next(iter(world.layout.owners))
        world.publish(early, stream, keys(0, 5000))
        await world.until(lambda: len(world.got[early, stream]) == 5000)
        late = world.begin_client(1, after=4000)
        await world.until(lambda: len(world.got[late, stream]) == 1000)
        assert world.got[late, stream] == world.got[early, stream][4000:]


def test_a_client_that_comes_late_begins_where_it_says() -> None:
    asyncio.run(_a_late_client())


async def _garbage() -> None:
    async with World() as world:
        name = world.begin_client(0)
        hub = world.hubs[0]
        async with grpc.aio.insecure_channel(hub.address) as channel:
            call = channel.stream_stream(LINK)()
            await call.read()
            await call.write(b"\xff" * 100)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await call.read()
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert hub.bad_messages == 1
        stream = next(iter(world.layout.owners))
        world.publish(name, stream, keys(0, 10))
        await world.until(lambda: len(world.got[name, stream]) == 10)


def test_garbage_ends_its_own_stream_and_nothing_else() -> None:
    asyncio.run(_garbage())


class ClientsOnly(Plaintext):
    """As if every certificate were a client's."""

    def roles(self, context: Any) -> Collection[Role]:
        return (Role.CLIENT,)


async def _refused() -> None:
    hub = Hub("127.0.0.1:0", ClientsOnly())
    me = Peer(await hub.start())
    owners = {Stream("films"): Peer("127.0.0.1:9")}
    layout = Layout((me, Peer("127.0.0.1:9")), owners)
    proxy = Proxy(
        me,
        layout,
        lambda _: MemoryHistory(),
        ProxyConfig(),
        random.Random(1),
        now=time.monotonic(),
        life=1,
    )
    hub.take_in(me, ProxyHome(proxy), lambda _: None)
    forged = Forward(Stream("films"), EventBatch.of([b"k"]).numbered(Seq(1), 1))
    letters = [Letter(Peer("127.0.0.1:9"), me, each) for each in (forged, Advertise(()))]
    try:
        async with grpc.aio.insecure_channel(hub.address) as channel:
            call = channel.stream_stream(LINK)()
            await call.read()
            await call.write(frame(map(encode, letters)))
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
        assert hub.refused_messages == 2
        assert proxy.counts == ((Stream("films"), 0),)
    finally:
        await hub.close()


def test_a_client_cannot_put_events_into_streams_as_a_proxy_does() -> None:
    asyncio.run(_refused())


class Broken:
    """A machine with a bug."""

    def step(self, now: float, sender: Peer, message: Message) -> Effects:
        raise ValueError(f"a bug at {now} with {message} of {sender}")

    def tick(self, now: float) -> Effects:
        raise ValueError(f"a bug at {now}")


async def _broken() -> None:
    async with World() as world:
        name = world.begin_client(0)
        hub = world.hubs[3]
        hub.take_in(Peer(f"{hub.address}/broken"), Broken(), lambda _: None)
        await world.until(lambda: hub.failures > 2)
        stream = next(iter(world.layout.owners))
        world.publish(name, stream, keys(0, 10))
        await world.until(lambda: len(world.got[name, stream]) == 10)


def test_a_machine_that_fails_does_not_stop_the_others() -> None:
    asyncio.run(_broken())


async def _status() -> None:
    hub = Hub("127.0.0.1:0", Plaintext(), status=lambda: {"name": "me"})
    address = await hub.start()
    try:
        told = await asyncio.to_thread(status_of, address, Plaintext(), 60.0)
        assert told == {"name": "me"}
    finally:
        await hub.close()
    with pytest.raises(Unreachable, match=address):
        await asyncio.to_thread(status_of, address, Plaintext(), 5.0)


def test_a_process_says_what_there_is_to_say() -> None:
    asyncio.run(_status())
