"""The incoming side: one port for nodes, clients and administrators.

Whoever calls is asked for its role first; `METHODS` says which roles a method takes. Everything is decoded and handed
on by the loop's thread: a link is read frame by frame, and not again before its messages were handed over, so gRPC's
flow control holds back whoever sends faster than the node takes. A message that is none ends its stream and no more.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Any, Final, cast, get_args

import grpc

from sirius.errors import (
    BadMessage,
    NodeClosed,
    Overloaded,
    SiriusError,
    TransportError,
    UsageError,
)
from sirius.paxos import messages as paxos
from sirius.paxos.messages import Envelope
from sirius.transport import sirius_pb2 as pb
from sirius.transport import wire
from sirius.transport.failures import FAILURE
from sirius.transport.limits import TransportLimits
from sirius.transport.publishing import Backend, Membership, Publishing, failure_of
from sirius.transport.security import Role, Security
from sirius.transport.shapes import Shape, slot

log = logging.getLogger("sirius.transport")

_NODES: Final = frozenset({Role.MEMBER, Role.FOLLOWER})
_CLIENTS: Final = frozenset({Role.CLIENT, Role.MEMBER, Role.ADMIN})
_ADMINS: Final = frozenset({Role.ADMIN})

FILE: Final = "/sirius.v1.Nodes/File"

METHODS: Final[dict[str, Collection[Role]]] = {
    "Nodes/Link": _NODES,
    "Nodes/File": _NODES,
    "Clients/Publish": _CLIENTS,
    "Clients/Status": _CLIENTS,
    "Clients/Tail": _CLIENTS,
    "Admin/TransferLeadership": _ADMINS,
    "Admin/Members": _ADMINS,
}

FOLLOWERS_SAY: Final = frozenset({paxos.Forward, paxos.AskIndex, paxos.Hello, paxos.Welcome})
"""What a node without a vote has to say in consensus; catch-up is for all. What counts as a vote or an order is taken
from members alone."""
_MEMBERS_SAY: Final = frozenset(get_args(paxos.Message)) - FOLLOWERS_SAY
_MEMBERSHIP: Final = Shape(Membership)


class Server:
    """A gRPC server. Started and closed once, on the thread of one asyncio loop."""

    def __init__(self, listen: str, security: Security, limits: TransportLimits) -> None:
        self.listen = listen
        self.port = 0
        self.links = 0
        """How many are open."""
        self.frames = 0
        self.messages = 0
        self.bad_messages = 0
        self.refused_messages = 0
        self._security = security
        self._limits = limits
        self._server: Any = None
        self._closing = asyncio.Event()
        self._publishing: set[asyncio.Task[Any]] = set()

    async def start(
        self,
        on_envelope: Callable[[Envelope], None],
        backend: Backend | None = None,
        on_link: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Open the port and return its number, also if it was 0. Messages go to `on_envelope`, in order, on this loop.

        Without a backend there are links alone. `on_link` gets the name of a node that has linked up, with its first
        message.
        """
        self._on_envelope = on_envelope
        self._on_link = on_link
        self._backend = backend
        self._server = grpc.aio.server(options=self._limits.server_options())
        self._server.add_generic_rpc_handlers(self._handlers())
        try:
            self.port = self._security.bind(self._server, self.listen)
        except RuntimeError as error:
            raise TransportError(f"cannot listen on {self.listen}: {error}") from None
        await self._server.start()
        return self.port

    async def close(self, grace_s: float = 1.0) -> None:
        """Answer what was published, for at most `grace_s`; then end every call and close the port."""
        self._closing.set()
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=grace_s)
        if self._server:
            await self._server.stop(None)

    # ------------------------------------------------------------------ methods

    async def _link(self, _: Any, context: Any) -> None:
        refused = _refused(self._security.roles(context))
        known: str | None = None
        await context.write(_bytes(pb.LinkReply()))
        self.links += 1
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                self.frames += 1
                for envelope in wire.decode(data, self._limits.log):
                    self.messages += 1
                    if envelope.sender.name != known:
                        known = await self._known(context, envelope.sender.name)
                    if type(envelope.message) in refused:
                        self._refuse(envelope, context)
                    else:
                        self._on_envelope(envelope)
        finally:
            self.links -= 1

    async def _file(self, request: bytes, context: Any) -> None:
        """Send a file in pieces, which are its bytes and nothing else."""
        envelopes = list(wire.decode(request, self._limits.log))
        if len(envelopes) != 1:
            raise BadMessage(f"{len(envelopes)} questions for one file")
        await self._known(context, envelopes[0].sender.name)
        pieces: Any = self._node.give(envelopes[0])
        async with aclosing(pieces):
            async for piece in pieces:
                await context.write(piece)

    async def _known(self, context: Any, name: str) -> str:
        """Return the name as which a caller speaks, once it is known that it may."""
        if why_not := self._security.why_not(context, name):
            await _deny(context, why_not)
        self._on_link(name)
        return name

    def _refuse(self, envelope: Envelope, context: Any) -> None:
        if not self.refused_messages:
            name = type(envelope.message).__name__
            log.warning("%s: a follower sends %s: dropped, as all such", context.peer(), name)
        self.refused_messages += 1

    async def _publish(self, _: Any, context: Any) -> None:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._publishing.add(task)
        try:
            publishing = Publishing(self._node, self._limits)
            # The client sends when it has heard that somebody listens: until then it can go elsewhere.
            await context.write(_bytes(pb.PublishReply()))
            await publishing.serve(context, self._closing)
        finally:
            self._publishing.discard(task)

    async def _tail(self, request: bytes, context: Any) -> None:
        fields = wire.parsed(pb.TailRequest, request)
        blocks: Any = self._node.tail(slot(fields.first), fields.follow)
        async with aclosing(blocks):
            async for block in blocks:
                await context.write(_bytes(pb.TailReply(block=block.raw)))

    async def _status(self, _: bytes, __: Any) -> bytes:
        return _bytes(pb.StatusReply(json=json.dumps(self._node.status())))

    async def _transfer_leadership(self, request: bytes, _: Any) -> bytes:
        fields = wire.parsed(pb.TransferLeadershipRequest, request)
        await self._node.transfer_leadership(fields.to if fields.HasField("to") else None)
        return _bytes(pb.TransferLeadershipReply())

    async def _members(self, _: bytes, __: Any) -> bytes:
        return _bytes(pb.MembersReply(**_MEMBERSHIP.to_dict(self._node.members(), [])))

    # ------------------------------------------------------------------ around them

    @property
    def _node(self) -> Backend:
        if self._backend is None or self._closing.is_set():
            raise NodeClosed("this node serves no clients now")
        return self._backend

    def _handlers(self) -> tuple[Any, ...]:
        stream, answers, call = (
            grpc.stream_stream_rpc_method_handler,
            grpc.unary_stream_rpc_method_handler,
            grpc.unary_unary_rpc_method_handler,
        )
        methods = {
            "Nodes/Link": (stream, self._link),
            "Nodes/File": (answers, self._file),
            "Clients/Publish": (stream, self._publish),
            "Clients/Status": (call, self._status),
            "Clients/Tail": (answers, self._tail),
            "Admin/TransferLeadership": (call, self._transfer_leadership),
            "Admin/Members": (call, self._members),
        }
        return tuple(
            grpc.method_handlers_generic_handler(
                f"sirius.v1.{service}",
                {
                    path.partition("/")[2]: kind(self._guarded(path, method))
                    for path, (kind, method) in methods.items()
                    if path.startswith(f"{service}/")
                },
            )
            for service in ("Nodes", "Clients", "Admin")
        )

    def _guarded(
        self, path: str, method: Callable[[Any, Any], Awaitable[Any]]
    ) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return a method that lets in who may come in, and tells a caller what went wrong."""
        allowed = frozenset(METHODS[path])

        async def guarded(request: Any, context: Any) -> Any:
            if allowed.isdisjoint(self._security.roles(context)):
                await _deny(context, f"{path} is for {', '.join(sorted(allowed))}")
            try:
                return await method(request, context)
            except SiriusError as error:
                if isinstance(error, BadMessage):
                    self.bad_messages += 1
                    log.warning("%s: %s: %s", context.peer(), path, error)
                failure = (FAILURE, failure_of(error).SerializeToString())
                await context.abort(_code(error), str(error), trailing_metadata=(failure,))
            except grpc.aio.AbortError:
                raise
            except Exception:
                # Its words may tell a stranger more than it should know.
                log.exception("%s: %s", context.peer(), path)
                await context.abort(grpc.StatusCode.INTERNAL, "an internal error")

        return guarded


def _refused(roles: Collection[Role]) -> Collection[type]:
    """Return what a caller with these roles may not send over a link."""
    return () if Role.MEMBER in roles else _MEMBERS_SAY


def _code(error: SiriusError) -> Any:
    match error:
        case BadMessage() | UsageError():
            return grpc.StatusCode.INVALID_ARGUMENT
        case NodeClosed() | Overloaded():
            return grpc.StatusCode.UNAVAILABLE
    return grpc.StatusCode.FAILED_PRECONDITION


async def _deny(context: Any, reason: str) -> None:
    log.warning("%s: not permitted: %s", context.peer(), reason)
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())
