"""What the tests of the transport share: real sockets on free ports, and waits that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar

from sirius.catchup.messages import PullFile
from sirius.errors import RangeUnavailable
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Beat, Envelope
from sirius.paxos.values import Numbers
from sirius.testing.processes import free_ports
from sirius.transport import wire
from sirius.transport.fetching import fetch
from sirius.transport.limits import TransportLimits
from sirius.transport.links import Link, Links
from sirius.transport.publishing import Backend, Membership
from sirius.transport.security import Plaintext, Security
from sirius.transport.server import FILE, Server
from sirius.types import Ballot, NodeId, Seq
from sirius.wal.block import Block, encode
from sirius.wal.record import Op, Update

PATIENCE_S = 30.0
LIMITS = TransportLimits(
    backoff_s_min=0.01,
    backoff_s_max=0.05,
    # The machine may be busy, and what is sent to nobody is dropped.
    connect_timeout_s=PATIENCE_S,
    handshake_timeout_s=PATIENCE_S,
)
ME = Member(NodeId(7), "me")
T = TypeVar("T")


def run(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run one test's coroutine on a loop of its own."""

    async def bounded() -> T:
        async with asyncio.timeout(3 * PATIENCE_S):
            return await test()

    return asyncio.run(bounded())


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


def beat(number: int) -> Envelope:
    return Envelope(1, 2, ME, NodeId(8), Beat(Ballot(1, 7), number, Seq(0)))


def block_of(size: int, first: int = 1) -> Block:
    return encode(first, [Update(Op.PUT, b"key", bytes(size))], 0)


def puts(count: int, size: int = 4) -> list[Update]:
    return [Update(Op.PUT, f"key/{number}".encode(), bytes(size)) for number in range(count)]


@asynccontextmanager
async def serving(
    got: Callable[[Envelope], None] = lambda _: None,
    backend: Backend | None = None,
    *,
    listen: str = "127.0.0.1:0",
    security: Security | None = None,
    limits: TransportLimits = LIMITS,
) -> AsyncIterator[Server]:
    server = Server(listen, security or Plaintext(), limits)
    await server.start(got, backend)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def linking(
    limits: TransportLimits = LIMITS, security: Security | None = None
) -> AsyncIterator[Links]:
    links = Links("me", limits, security or Plaintext())
    try:
        yield links
    finally:
        await links.close()


def pull(*questions: PullFile, sender: Member = ME) -> bytes:
    """A frame that asks for files."""
    envelopes = (Envelope(1, 2, sender, NodeId(8), question) for question in questions)
    return wire.frame([wire.encode(envelope) for envelope in envelopes])


async def fetched(server: Server, request: bytes, security: Security = Plaintext()) -> bytes:  # noqa: B008
    """Have a server send a file, and return all of it."""

    def read() -> bytes:
        content, buffer = b"", bytearray(1000)
        with closing(fetch(address_of(server), FILE, request, security, PATIENCE_S)) as call:
            while count := call.read_into(memoryview(buffer)):
                content += buffer[:count]
        return content

    return await asyncio.to_thread(read)


def free_address() -> str:
    """Where nobody listens, and nobody else will for a while."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def address_of(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


def peer(server: Server) -> Member:
    return Member(NodeId(8), address_of(server))


def link_to(links: Links, server: Server) -> Link:
    return links.by_name[address_of(server)]


class FakeNode:
    """A backend that has a list for a log."""

    def __init__(self) -> None:
        self.log: list[Update] = []
        self.batches: list[int] = []
        self.numbers: list[Numbers | None] = []
        self.transfers: list[str | None] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: dict[int, BaseException] = {}
        """What the batch of this number fails with, or the byte of a file."""
        self.questions: list[PullFile] = []
        self.tails = 0

    def publish(self, updates: Sequence[Update], numbers: Numbers | None = None) -> Awaitable[Seq]:
        self.numbers.append(numbers)
        self.batches.append(len(updates))
        return self._publish(len(self.batches), updates)

    async def _publish(self, number: int, updates: Sequence[Update]) -> Seq:
        await self.gate.wait()
        if number in self.errors:
            raise self.errors[number]
        self.log.extend(updates)
        return Seq(len(self.log))

    def status(self) -> Mapping[str, Any]:
        return {"state": "ready", "log": {"last": len(self.log)}}

    async def give(self, envelope: Envelope) -> AsyncIterator[bytes]:
        """Give the bytes that were asked for, of a file that counts."""
        question = envelope.message
        assert isinstance(question, PullFile)
        self.questions.append(question)
        for at in range(question.offset, question.offset + question.bytes):
            await self.gate.wait()
            if at in self.errors:
                raise self.errors[at]
            yield bytes([at % 256])

    async def tail(self, first: Seq, follow: bool) -> AsyncIterator[Block]:
        if first > len(self.log) + 1:
            raise RangeUnavailable(first, first, "there is a hole")
        self.tails += 1
        try:
            for at in range(first, len(self.log) + 1):
                yield encode(at, [self.log[at - 1]], 0)
            if follow:
                await asyncio.Event().wait()
        finally:
            self.tails -= 1

    async def transfer_leadership(self, to: str | None) -> None:
        self.transfers.append(to)

    def members(self) -> Membership:
        a, b = Member(NodeId(1), "a:1"), Member(NodeId(2), "b:1")
        return Membership(Configuration(9, 3, (a, b), (), Ballot(4, 1)), b)
