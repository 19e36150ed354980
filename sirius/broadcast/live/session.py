"""`Broadcast`: a session of an application with the broadcast layer.

A session has one thread with an event loop, one port and any number of clients: one that publishes, and one for each
subscription. Clients of a region pass events on to each other, so others have to reach that port: on this machine by
default if the proxy is there, else at the address with which this machine reaches the proxy.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from typing import Any, Final, Self, TypeVar

from sirius.broadcast.chain.routes import PATIENCE_S, Routes, chains_of
from sirius.broadcast.client.machine import Client
from sirius.broadcast.config import ClientConfig, RegionConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import EventBatch, Kind, Stream
from sirius.broadcast.limits import SEQ_MAX, Limits
from sirius.broadcast.live.background import Background
from sirius.broadcast.live.checking import Checking, Text, columns, octets
from sirius.broadcast.live.publishing import Outgoing, Publishing, Single
from sirius.broadcast.live.receipts import Receipt, Span
from sirius.broadcast.live.selecting import check_pattern
from sirius.broadcast.live.settings import SessionSettings, ask, own_host, told
from sirius.broadcast.live.source import BroadcastSource
from sirius.broadcast.live.subscription import Received, Subscription
from sirius.broadcast.messages import Peer
from sirius.broadcast.net.asking import Json
from sirius.broadcast.net.homes import ClientHome
from sirius.broadcast.net.hub import Hub
from sirius.broadcast.predicates import parse
from sirius.errors import NodeClosed, OutcomeUnknown, Overloaded, Unreachable, UsageError
from sirius.transport.security import Plaintext
from sirius.types import Seq

log = logging.getLogger("sirius.broadcast")
_ASK_S: Final = 5.0
_TICK_S: Final = 0.03
"""Whether time passes more often makes no difference to a client, and there may be hundreds."""
T = TypeVar("T")


class Broadcast:
    """A session. Thread-safe. `with connect(…) as broadcast:`"""

    def __init__(self, proxy: str, status: Json, settings: SessionSettings) -> None:
        self._settings = settings
        self._proxy = Peer(status["name"])
        self._proxy_address = proxy
        self._chains = chains_of(status.get("chains", {}))
        self._owners = {
            Stream(name): Peer(each["owner"]) for name, each in status["streams"].items()
        }
        limits = told(Limits, status.get("limits", {}))
        region = told(RegionConfig, status.get("region", {}))
        self._client = settings.client or ClientConfig(region=region)
        self._checking = Checking(limits)
        self._numbers = count(1)
        self._subscriptions: dict[Subscription, Peer] = {}
        self._is_closed = False
        self._background = Background("sirius-broadcast")
        try:
            self._hub = self._background.run(self._open(limits))
        except BaseException:
            self._background.close()
            raise
        self._outgoing = {stream: self._new_outgoing(stream, limits) for stream in self._owners}
        self._me = Peer(f"{self._hub.address}/p")
        self._publishing = Publishing(
            self._me, self._owners, self._outgoing, self._client, time.monotonic()
        )
        self._background.soon(self._hub.take_in, self._me, self._publishing, self._answered)

    async def _open(self, limits: Limits) -> Hub:
        settings = self._settings
        listen = settings.listen or f"{own_host(self._proxy_address)}:0"
        security = settings.security or Plaintext()
        routes = Routes(self._chains, PATIENCE_S)
        hub = Hub(listen, security, settings.transport, limits, name=settings.name, routes=routes)
        await hub.start()
        self._watching = asyncio.create_task(self._watch(hub))
        return hub

    async def _watch(self, hub: Hub) -> None:
        """Say so if nothing comes: a proxy that cannot reach this port is the likeliest mistake there is."""
        while True:
            before = hub.received
            await asyncio.sleep(self._settings.silence_s)
            if self._subscriptions and hub.received == before:
                log.warning(
                    "nothing came from %s in %g s: can it reach %s? If not, set `listen` and `name`",
                    self._proxy,
                    self._settings.silence_s,
                    hub.address,
                )

    def _new_outgoing(self, stream: Stream, limits: Limits) -> Outgoing:
        wake = partial(self._background.soon, self._begin, stream)
        return Outgoing(wake, self._settings.room, limits)

    # ------------------------------------------------------------------ what there is

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of all streams."""
        return tuple(self._owners)

    @property
    def address(self) -> str:
        """Where other clients reach this one."""
        return self._hub.address

    def status(self, timeout: float = _ASK_S) -> Json:
        """Ask the proxy how it is; if it is replicated, the first replica that answers."""
        addresses = [self._proxy_address, *self._chains.get(self._proxy, ())]
        for address in addresses[:-1]:
            with suppress(Unreachable):
                return ask(address, self._settings, timeout / len(addresses))
        return ask(addresses[-1], self._settings, timeout)

    def freshness(self, stream: str, timeout: float = _ASK_S) -> tuple[int, float]:
        """Return a sequence number, and how many seconds ago at most the stream had nothing beyond it.

        Raises `Unreachable` if the proxy does not answer, or has not heard from the stream's owner.
        """
        self._known(stream)
        began = time.monotonic()
        told = self.status(timeout)["streams"][stream]
        if told["age_s"] is None:
            raise Unreachable(f"{self._proxy} has not heard from {told['owner']} yet")
        return told["known"], told["age_s"] + time.monotonic() - began

    # ------------------------------------------------------------------ publishing

    def publish(
        self,
        stream: str,
        key: Text,
        payload: Text = b"",
        *,
        topic: str = "",
        keyed: bool = True,
        attributes: Mapping[str, int] | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Publish one event; returns at once, unless too many wait.

        A keyed event makes earlier ones of its topic and key needless: who was away gets the last one alone. The
        receipt's `result()` is the sequence number. Raises `UsageError` for what no stream takes, `Overloaded` if
        there was no room within `timeout`.
        """
        kind = Kind.KEYED if keyed else Kind.DATA
        # A copy: it is looked at again when the batch is made, and whoever publishes may use his again.
        own = dict(attributes) if attributes else None
        event = Single(octets(key), octets(payload), topic, kind, own)
        self._checking.single(event)
        return self._to(stream).add(event, timeout)

    def publish_many(  # noqa: PLR0913 (settings, by keyword)
        self,
        stream: str,
        keys: Sequence[Text] | bytes,
        payloads: Sequence[Text] = (),
        *,
        width: int | None = None,
        topic: str | Sequence[str] = "",
        keyed: bool = True,
        attributes: Mapping[str, Sequence[int]] | None = None,
        timeout: float | None = None,
    ) -> Future[Span]:
        """Publish many events as one batch: they travel as columns, and stand next to each other in the stream.

        With `width`, `keys` are bytes in which keys of that many bytes stand end to end: that costs nothing an event.
        """
        batch = columns(
            keys, payloads, width, topic, Kind.KEYED if keyed else Kind.DATA, attributes
        )
        self._checking.batch(batch)
        return self._to(stream).add_batch(batch, timeout)

    async def apublish(self, stream: str, key: Text, payload: Text = b"", **options: Any) -> int:
        """Publish one event and wait until it is in the stream; return its sequence number. Blocks no event loop."""
        publish = partial(self.publish, stream, key, payload, **options)
        receipt = await self._without_blocking(publish, options)
        return (await asyncio.wrap_future(receipt.batch)).first + receipt.at

    async def apublish_many(
        self, stream: str, keys: Sequence[Text] | bytes, **options: Any
    ) -> Span:
        """Publish many events and wait until they are in the stream; return where they stand."""
        publish = partial(self.publish_many, stream, keys, **options)
        return await asyncio.wrap_future(await self._without_blocking(publish, options))

    async def _without_blocking(self, publish: Callable[..., T], options: Mapping[str, Any]) -> T:
        """Only if there is no room is there anything to wait for, and then a thread does it."""
        if options.get("timeout") == 0:
            return publish()
        try:
            return publish(timeout=0)
        except Overloaded:
            return await asyncio.to_thread(publish)

    def collect(self, stream: str, predicate: str) -> Receipt:
        """Publish a GC event: it makes all earlier events needless that match, such as `topic = "/old/*"`.

        It waits for no room. If the stream is full, it goes ahead of what waits. Raises `PredicateError`, which points
        at the place, if the predicate cannot be read.
        """
        parse(predicate)
        event = Single(b"", predicate.encode(), kind=Kind.GC)
        self._checking.single(event)
        return self._to(stream).add_gc(event)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was published before is in its stream. Raises `TimeoutError`."""
        newest = [future for each in self._outgoing.values() for future in each.newest]
        if wait(newest, timeout).not_done:
            raise TimeoutError(f"in {timeout} s not everything was published")

    def _to(self, stream: str) -> Outgoing:
        found = self._outgoing.get(Stream(stream))
        return found if found is not None else self._outgoing[self._known(stream)]

    def _known(self, stream: str) -> Stream:
        if stream not in self._owners:
            there = ", ".join(self._owners) or "none at all"
            raise UsageError(f"there is no stream {stream!r}: there are {there}")
        return Stream(stream)

    def _begin(self, stream: Stream) -> None:
        self._hub.carry_out(self._me, self._publishing.begin(time.monotonic(), stream))

    def _answered(self, effects: Effects) -> None:
        for answer in effects.answers:
            self._publishing.answered(answer)
            self._begin(answer.stream)

    # ------------------------------------------------------------------ subscribing

    def subscribe(
        self,
        pattern: str,
        from_seq: int | Mapping[str, int] | None = None,
        *,
        topic: str | None = None,
        on_event: Callable[[Received], object] | None = None,
        on_batch: Callable[[str, EventBatch], object] | None = None,
    ) -> Subscription:
        """Have the events of a stream, or of all streams that a pattern such as `films*` fits, delivered.

        From `from_seq` on: 1 for everything there is, one more than the last position to go on there; a mapping if
        there are several streams. Without it, everything that is published from now on. `topic` leaves out what has
        another topic: `/movies/*`. With `on_event` or `on_batch` a thread calls that; otherwise iterate.
        """
        if on_event is not None and on_batch is not None:
            raise UsageError("on_event and on_batch are both given: expected one of them")
        if topic is not None:
            check_pattern(topic)
        if self._is_closed:
            raise NodeClosed("the session was closed")
        after = self._after(self._fitting(pattern), from_seq)
        subscription = self._background.run(self._subscribe(after, topic))
        if on_event is not None:
            subscription.call(on_event)
        if on_batch is not None:
            subscription.call_with_batches(on_batch)
        return subscription

    def invalidations(self, stream: str) -> BroadcastSource:
        """Return a source that drops from a cache what the events of a stream name: `feed(cache, source)`."""
        return BroadcastSource(self, self._known(stream))

    def _fitting(self, pattern: str) -> list[Stream]:
        found = [stream for stream in self._owners if fnmatchcase(stream, pattern)]
        return found or [self._known(pattern)]

    def _after(
        self, streams: Collection[Stream], from_seq: int | Mapping[str, int] | None
    ) -> dict[Stream, Seq]:
        if from_seq is None:
            told = self.status()["streams"]
            return {stream: Seq(told[stream]["count"]) for stream in streams}
        if isinstance(from_seq, int):
            from_seq = dict.fromkeys(streams, from_seq)
        if not isinstance(from_seq, Mapping):
            raise UsageError(f"from_seq is a number, or one for each stream, not {from_seq!r}")
        missing = [stream for stream in streams if stream not in from_seq]
        if missing:
            raise UsageError(f"from_seq says nothing of {', '.join(missing)}")
        for seq in from_seq.values():
            if not isinstance(seq, int) or seq < 1:
                raise UsageError(f"from_seq is 1 or more, not {seq!r}")
            if seq > SEQ_MAX:
                raise UsageError(f"from_seq = {seq} is above every sequence number")
        return {stream: Seq(from_seq[stream] - 1) for stream in streams}

    async def _subscribe(self, after: Mapping[Stream, Seq], topic: str | None) -> Subscription:
        name = Peer(f"{self._hub.address}/{next(self._numbers)}")
        client = Client(
            name,
            self._proxy,
            self._owners,
            self._client,
            random.Random(name + str(time.time_ns())),
            now=time.monotonic(),
            publisher=0,
        )
        for stream, position in after.items():
            client.subscribe(stream, position)

        def consumed(stream: Stream, seq: int) -> None:
            self._background.soon(self._consumed, name, client, stream, Seq(seq))

        subscription = Subscription(after, topic, consumed, self._unsubscribe)
        self._subscriptions[subscription] = name
        self._hub.take_in(name, ClientHome(client), subscription.take, _TICK_S)
        return subscription

    def _consumed(self, name: Peer, client: Client, stream: Stream, seq: Seq) -> None:
        client.at(time.monotonic())
        self._hub.carry_out(name, client.consumed(stream, seq))

    def _unsubscribe(self, subscription: Subscription) -> None:
        def forget() -> None:
            self._hub.let_go(self._subscriptions.pop(subscription))

        self._background.soon(forget)

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float = 5.0) -> None:
        """Wait for what is being published, at most `timeout` seconds, and end everything. Closing twice is harmless.

        Whoever still waits for a receipt then gets `OutcomeUnknown` if the event was sent, `NodeClosed` if not.
        """
        if self._is_closed or self._background.is_current:
            return
        with suppress(TimeoutError):
            self.flush(timeout)
        self._is_closed = True
        for subscription in list(self._subscriptions):
            subscription.close()
        self._background.run(self._stop())
        self._background.close()

    async def _stop(self) -> None:
        unsent = NodeClosed("the session was closed before this event was sent")
        sent = OutcomeUnknown("the session was closed before the stream's owner answered")
        self._publishing.give_up(sent, unsent)
        self._watching.cancel()
        await self._hub.close()
        await asyncio.sleep(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broadcast at {self.address} in the region of {self._proxy}>"
