"""The hub of a process: one port, one loop, and the machines that live there.

A process is the home of a proxy, of one client or of hundreds. Their names begin with the address of the hub, so that
everybody knows where to send: `films1:7500` is a proxy, `app7:7600/c3` a client. Messages between two machines of one
hub take no network. Whatever a machine asks for is carried out before the next message comes to it.

The loop's thread owns everything here. Nothing waits: a link that is full loses messages, and the machines send
again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import grpc

from sirius.broadcast import messages
from sirius.broadcast.chain.routes import PATIENCE_S, Routes
from sirius.broadcast.context import Effects
from sirius.broadcast.limits import Limits
from sirius.broadcast.messages import Message, Peer
from sirius.broadcast.net.codec import Letter, decode, encode
from sirius.errors import BadMessage, TransportError
from sirius.transport import broadcast_pb2 as pb
from sirius.transport.limits import TransportLimits
from sirius.transport.links import LinkSet
from sirius.transport.security import Role, Security

log = logging.getLogger("sirius.broadcast")

_SERVICE: Final = "sirius.broadcast.v1.Broadcast"
TICK_S: Final = 0.01
_GRACE_S: Final = 0.5
_TIDY_S: Final = 5.0
_TURNS: Final = 3
"""How often the loop comes round until what waited for a call is done, too."""
_LINK: Final = f"/{_SERVICE}/Link"
STATUS: Final = f"/{_SERVICE}/Status"
_PROXIES_SAY: Final = frozenset(
    {
        messages.Advertise,
        messages.Subscribe,
        messages.Unsubscribe,
        messages.Forward,
        messages.ChainPush,
        messages.ChainPull,
        messages.ChainBeat,
        messages.ChainIs,
    }
)
"""What counts only if a proxy says it: whoever may send these can put events into streams that are not his."""


class Machine(Protocol):
    """A proxy or a client, as the hub sees it."""

    def step(self, now: float, sender: Peer, message: Message) -> Effects:
        """Take a message."""
        ...

    def tick(self, now: float) -> Effects:
        """Let time pass."""
        ...


Taker = Callable[[Effects], None]
"""Gets what a machine has for its application."""
Status = Callable[[], Mapping[str, Any]]
"""Tells what there is to say about a process, as JSON can have it."""


@dataclass(slots=True)
class _Home:
    machine: Machine
    taker: Taker
    tick_s: float
    due: float = 0.0


def address_of(peer: Peer) -> str:
    """Return where a proxy or client lives."""
    return peer.partition("/")[0]


class Hub:
    """See the module. Made and used on the thread of one asyncio loop."""

    def __init__(
        self,
        listen: str,
        security: Security,
        limits: TransportLimits | None = None,
        events: Limits | None = None,
        *,
        name: str | None = None,
        status: Status = dict,
        routes: Routes | None = None,
    ) -> None:
        """`name` is the address that others use, if it is not the one to listen on. `routes` leads to proxies that
        are chains of replicas: these are called by a name that is no address."""
        self.listen = listen
        self.address = name or listen
        self.bad_messages = 0
        self.refused_messages = 0
        self.received = 0
        """Messages that came over the network."""
        self.failures = 0
        """How often a machine raised: a bug, or a disk that failed."""
        self._name = name
        self._status = status
        self.routes = routes or Routes({}, PATIENCE_S)
        self._security = security
        self._limits = limits or TransportLimits()
        self._events = events or Limits()
        self._links = LinkSet(self._limits, security, _LINK, logging.INFO)
        self._homes: dict[Peer, _Home] = {}
        self._server: Any = None
        self._ticking: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[Any]] = set()

    async def start(self) -> str:
        """Open the port; return the address, with the port's number also if it was 0."""
        server = self._server = grpc.aio.server(options=self._limits.server_options())
        handlers = {
            "Link": grpc.stream_stream_rpc_method_handler(self._link),
            "Status": grpc.unary_unary_rpc_method_handler(self._tell_status),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        try:
            port = self._security.bind(server, self.listen)
        except RuntimeError as error:
            raise TransportError(f"cannot listen on {self.listen}: {error}") from None
        await server.start()
        self.address = self._name or f"{self.listen.rpartition(':')[0]}:{port}"
        self._ticking = asyncio.create_task(self._tick(), name="broadcast ticks")
        return self.address

    async def close(self) -> None:
        """Say what is left to say, and listen no more."""
        if self._ticking is not None:
            self._ticking.cancel()
        self._homes.clear()
        await self._links.close(_GRACE_S)
        if self._server is not None:
            await self._server.stop(None)
            await self._end_calls()

    async def _end_calls(self) -> None:
        """Let calls that were cut off come to their end: gRPC complains of those that end with the loop."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=_GRACE_S)
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    # ------------------------------------------------------------------ the machines

    def take_in(self, peer: Peer, machine: Machine, taker: Taker, tick_s: float = TICK_S) -> None:
        """Give a machine a home. Time passes for it every `tick_s`, about."""
        self._homes[peer] = _Home(machine, taker, tick_s)

    def let_go(self, peer: Peer) -> None:
        """A machine is gone: what is sent to it is lost."""
        self._homes.pop(peer, None)

    def carry_out(self, peer: Peer, effects: Effects) -> None:
        """Do what a machine asks for."""
        home = self._homes.get(peer)
        if home is not None and (effects.deliver or effects.answers):
            home.taker(effects)
        for to, message in effects.send:
            self._send(Letter(peer, to, message))

    def post(self, sender: Peer, to: Peer, message: Message) -> None:
        """Send one message, for a machine that has more names than one."""
        self._send(Letter(sender, to, message))

    def _send(self, letter: Letter) -> None:
        target = self.routes.target(letter.to, letter.message, time.monotonic())
        if target in self._homes and letter.to in self._homes:
            # Not at once: the machine may be in the middle of something.
            asyncio.get_running_loop().call_soon(self._receive, letter)
        elif (address := address_of(target)) != self.address:
            self._links.put(address, partial(encode, letter))

    def _receive(self, letter: Letter) -> None:
        if isinstance(letter.message, messages.ChainIs):
            self.routes.learn(letter.message)
            return
        self.routes.heard(letter.sender, letter.message)
        home = self._homes.get(letter.to)
        if home is not None:
            step = partial(home.machine.step, time.monotonic(), letter.sender, letter.message)
            self._run(letter.to, step)

    def _run(self, peer: Peer, step: Callable[[], Effects]) -> None:
        """Let a machine do something. What it raises is its own trouble: the others go on."""
        try:
            self.carry_out(peer, step())
        except Exception:
            self.failures += 1
            log.exception("%s failed", peer)

    async def _tick(self) -> None:
        tidy_at = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for peer, home in [each for each in self._homes.items() if each[1].due <= now]:
                home.due = now + home.tick_s
                self._run(peer, partial(home.machine.tick, now))
            if now >= tidy_at:
                # Clients come and go, and nobody says which links will be needed again.
                tidy_at = now + _TIDY_S
                self._links.keep(())

    # ------------------------------------------------------------------ the port

    async def _tell_status(self, _: bytes, context: Any) -> bytes:
        await self._roles(context)
        reply = pb.StatusReply(json=json.dumps(self._status()))
        return bytes(reply.SerializeToString())

    async def _roles(self, context: Any) -> Collection[Role]:
        roles = self._security.roles(context)
        if not roles:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this certificate has no role")
        return roles

    async def _link(self, _: Any, context: Any) -> None:
        if (call := asyncio.current_task()) is not None:
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        roles = await self._roles(context)
        refused = frozenset[type]() if Role.MEMBER in roles else _PROXIES_SAY
        await context.write(pb.LinkReply().SerializeToString())
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                for letter in decode(data, self._events):
                    self._admit(letter, refused, context)
        except BadMessage as error:
            self.bad_messages += 1
            log.warning("%s: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _admit(self, letter: Letter, refused: frozenset[type], context: Any) -> None:
        self.received += 1
        if type(letter.message) not in refused:
            self._receive(letter)
            return
        if not self.refused_messages:
            what = type(letter.message).__name__
            log.warning("%s: %s is for proxies: dropped, as all such", context.peer(), what)
        self.refused_messages += 1
