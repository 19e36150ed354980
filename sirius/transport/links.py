"""The outgoing side: one stream to each peer, for as long as there is something to say to it.

gRPC costs by the message, some 300 µs each, whatever its size. So a link never waits to fill a frame, and never sends
two where one would do: it writes all that waits as one frame, and while that is on its way the next one gathers.

A link that fails is opened anew, after a wait that doubles up to `backoff_s_max` and is drawn at random between half of
that and all of it, so that a node that comes back is not met by everybody at once. One that connects to us is there, so
the wait ends: it could ask for our vote long before our answer could reach it. What waited for an attempt that failed
is dropped: it is old by then, and the machines send again what matters.

A stream that opens proves little: who is not who it says it is, is refused with its first message, every time. So a
link counts as lost, with its last error in sight and its waits growing, until it has stood for `backoff_s_max`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Final

import grpc

from sirius.errors import Unreachable
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.transport import wire
from sirius.transport.failures import error_of
from sirius.transport.limits import TransportLimits
from sirius.transport.outbox import Outbox
from sirius.transport.security import Security

log = logging.getLogger("sirius.transport")

LINK: Final = "/sirius.v1.Nodes/Link"


class Link:
    """The stream to one peer, and its counters. One task owns the stream."""

    def __init__(
        self,
        name: str,
        limits: TransportLimits,
        security: Security,
        method: str = LINK,
        loss_level: int = logging.WARNING,
    ) -> None:
        self.name = name
        self._method = method
        self._loss_level = loss_level
        self.frames = 0
        self.messages = 0
        self.bytes = 0
        self.dropped = 0
        self.connected = False
        self.connects = 0
        self.failures = 0
        self.last_error = ""
        self.used_at = 0.0
        self._limits = limits
        self._security = security
        self._outbox = Outbox(limits)
        self._wake = asyncio.Event()
        self._is_there = asyncio.Event()
        self._closing = False
        self._wait_s = limits.backoff_s_min
        self._task = asyncio.create_task(self._run(), name=f"link to {name}")

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._outbox)

    def put(self, packet: wire.Packet, wait_s: float = 0.0) -> None:
        """Send a packet when it is its turn. One that may wait goes with the next that may not, if that comes in time:
        a frame costs more than what is in it."""
        if not self._outbox.put(packet):
            self.dropped += 1
        elif wait_s:
            asyncio.get_running_loop().call_later(wait_s, self._wake.set)
        else:
            self._wake.set()

    def nudge(self) -> None:
        """The other end is there: the next attempt to connect need not wait."""
        self._is_there.set()

    async def close(self, grace_s: float) -> None:
        """Send what waits, if there is somebody to take it within `grace_s`, and end the stream."""
        self._closing = True
        self._wake.set()
        if self.connected:
            await asyncio.wait({self._task}, timeout=grace_s)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._closing:
            self._is_there.clear()
            try:
                await self._session()
            except Exception as error:
                # Whatever it is, there is nobody else to try again.
                await self._lost(error)
            if not self._closing:
                await self._rest(self._wait_s * random.uniform(0.5, 1))
            self._wait_s = min(2 * self._wait_s, self._limits.backoff_s_max)

    async def _rest(self, wait_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._is_there.wait()

    async def _session(self) -> None:
        """Open the stream and send until it fails, which raises, or until the link is closed."""
        channel = self._security.channel(self.name, self._limits.channel_options())
        try:
            call = channel.stream_stream(self._method)()
            await self._open(call)
            end = asyncio.create_task(_end_of(call))
            end.add_done_callback(lambda _: self._wake.set())
            loop = asyncio.get_running_loop()
            proof = loop.call_later(self._limits.backoff_s_max, self._found)
            try:
                await self._pump(call, end)
                await call.done_writing()
                await end
            finally:
                proof.cancel()
                end.cancel()
                await asyncio.gather(end, return_exceptions=True)
        finally:
            self.connected = False
            await channel.close()

    async def _open(self, call: Any) -> None:
        """Wait for the other end's word that it takes the stream."""
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                reply = await call.read()
        except TimeoutError:
            raise Unreachable(f"no answer within {self._limits.connect_timeout_s} s") from None
        if reply is grpc.aio.EOF:
            raise Unreachable("it takes no links")
        self.connected = True
        self.connects += 1

    def _found(self) -> None:
        """The stream has stood for a while."""
        self._wait_s = self._limits.backoff_s_min
        if self.last_error:
            log.info("%s: found again", self.name)
        self.last_error = ""

    async def _pump(self, call: Any, end: asyncio.Task[None]) -> None:
        while not end.done():
            # First of all: whoever wakes us during a write must not be forgotten, least of all the stream's end.
            self._wake.clear()
            while packets := self._outbox.take():
                data = wire.frame(packets)
                try:
                    await call.write(data)
                except asyncio.InvalidStateError:
                    break  # It is over, and `end` is about to say why.
                self.frames += 1
                self.messages += len(packets)
                self.bytes += len(data)
            if self._closing:
                return
            await self._wake.wait()
        await end
        raise Unreachable("the other end has closed")

    async def _lost(self, error: Exception) -> None:
        self.failures += 1
        self.dropped += self._outbox.clear()
        if isinstance(error, grpc.RpcError):
            # It may look at the other end's certificate, which takes a while.
            error = await asyncio.to_thread(error_of, error, self.name, self._security)
        if not self.last_error:
            log.log(self._loss_level, "%s: lost: %s", self.name, error)
        self.last_error = str(error) or type(error).__name__


class LinkSet:
    """All links of a process. Everything is called on the thread of one asyncio loop."""

    def __init__(
        self,
        limits: TransportLimits,
        security: Security,
        method: str = LINK,
        loss_level: int = logging.WARNING,
    ) -> None:
        """`loss_level` is how loudly the log tells of a link that is lost: where peers come and go, it is nothing."""
        self.by_name: dict[str, Link] = {}
        """For status and metrics."""
        self.dropped = 0
        """Messages that got to no link at all; each link counts its own."""
        self._limits = limits
        self._security = security
        self._method = method
        self._loss_level = loss_level
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def put(self, name: str, make: Callable[[], wire.Packet], wait_s: float = 0.0) -> None:
        """Send a packet some time, or lose it. Never waits, never raises; the packet may wait for `wait_s`."""
        link = self.by_name.get(name) or self._new(name)
        if link is None:
            self.dropped += 1
            return
        try:
            packet = make()
        except Exception:
            log.exception("a message to %s cannot be sent", name)
            self.dropped += 1
            return
        link.used_at = asyncio.get_running_loop().time()
        link.put(packet, wait_s)

    def nudge(self, name: str) -> None:
        """A node has connected to us: it can be reached, if there is anything to say to it."""
        if (link := self.by_name.get(name)) is not None and not link.connected:
            link.nudge()

    def keep(self, names: Collection[str]) -> None:
        """Close the links to others than these, if they were not used for `link_idle_s`. Does not wait for it."""
        before = asyncio.get_running_loop().time() - self._limits.link_idle_s
        for name, link in list(self.by_name.items()):
            if name not in names and link.used_at <= before:
                del self.by_name[name]
                task = asyncio.create_task(link.close(0.0))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self, grace_s: float = 0.5) -> None:
        """Send what waits, for at most `grace_s`, and end all streams. Messages are dropped from then on."""
        self._closed = True
        links, self.by_name = self.by_name, {}
        await asyncio.gather(*(link.close(grace_s) for link in links.values()), *self._closing)

    def _new(self, name: str) -> Link | None:
        if self._closed or len(self.by_name) >= self._limits.links_max:
            return None
        link = Link(name, self._limits, self._security, self._method, self._loss_level)
        self.by_name[name] = link
        return link


class Links(LinkSet):
    """Those of a node."""

    def __init__(self, me_name: str, limits: TransportLimits, security: Security) -> None:
        super().__init__(limits, security)
        self.me_name = me_name

    def send(self, to: Member, envelope: Envelope, wait_s: float = 0.0) -> None:
        """Send a message some time, or lose it."""
        self.put(to.name, partial(wire.encode, envelope), wait_s)


async def _end_of(call: Any) -> None:
    """Wait until the other end has nothing more to say; raises why, if it was not by choice."""
    while await call.read() is not grpc.aio.EOF:
        pass
