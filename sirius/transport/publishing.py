"""The part of a server that clients write through: batches in, sequence numbers out, in order.

A stream has several batches under way, so that consensus can put them together; when there are `batches_max` of them,
or too many bytes, the server stops reading, gRPC's flow control stops the client, and nothing grows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import grpc

from sirius.errors import OutcomeUnknown, SiriusError
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Envelope
from sirius.paxos.values import Numbers
from sirius.transport import sirius_pb2 as pb
from sirius.transport.columns import from_columns
from sirius.transport.limits import TransportLimits
from sirius.transport.shapes import numbers_back
from sirius.transport.wire import parsed
from sirius.types import Seq
from sirius.wal.block import Block
from sirius.wal.record import Update

log = logging.getLogger("sirius.transport")


class Membership(NamedTuple):
    """Who is there, as far as a node knows."""

    configuration: Configuration | None
    leader: Member | None


class Backend(Protocol):
    """A node, as its clients and administrators see it.

    Called on the loop's thread; nothing here may block it. An error of `sirius.errors` is told to the caller with its
    name, its words and `outcome_unknown`; any other is logged, and told as a failure of unknown outcome.
    """

    def publish(self, updates: Sequence[Update], numbers: Numbers | None = None) -> Awaitable[Seq]:
        """Put updates into the log, all or none, and return the last one's sequence number when they are decided.

        They were checked, and there is at least one. The order of the calls is the order in the log, however many are
        under way. The awaitable is cancelled when its client is gone; the updates may be in the log nevertheless. It
        has to end some day: there is no other time-out here.

        With `numbers` they take effect once, however often they come, through whichever node.
        """
        ...

    def status(self) -> Mapping[str, Any]:
        """Return what there is to say about the node, as JSON knows it."""
        ...

    def tail(self, first: Seq, follow: bool) -> AsyncIterator[Block]:
        """Yield what is decided from `first` on; with `follow`, also what comes. Closed when the client is gone."""
        ...

    def give(self, envelope: Envelope) -> AsyncIterator[bytes]:
        """Yield the bytes that a node asks for by `PullFile`. Closed when it is gone."""
        ...

    async def transfer_leadership(self, to: str | None) -> None:
        """Hand leadership to this name, or to whoever is best placed; return when it is done."""
        ...

    def members(self) -> Membership: ...


class Publishing:
    """One publishing stream."""

    def __init__(self, backend: Backend, limits: TransportLimits) -> None:
        self._backend = backend
        self._limits = limits
        self._pending: deque[tuple[asyncio.Future[Seq], int]] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self._over = False

    async def serve(self, context: Any, closing: asyncio.Event) -> None:
        """Answer until the client has said everything, or the server closes; then what is under way, and return."""
        answering = asyncio.create_task(self._answer(context))
        try:
            await first_of(self._read(context), closing.wait(), answering)
            self._over = True
            self._changed.set()
            await answering
        finally:
            answering.cancel()
            futures = [future for future, _ in self._pending]
            for future in futures:
                future.cancel()
            await asyncio.gather(answering, *futures, return_exceptions=True)

    async def _read(self, context: Any) -> None:
        while True:
            while self._is_full():
                self._changed.clear()
                await self._changed.wait()
            data = await context.read()
            if data is grpc.aio.EOF:
                return
            self._pending.append((self._submit(data), len(data)))
            self._bytes += len(data)
            self._changed.set()

    def _is_full(self) -> bool:
        limits = self._limits
        return len(self._pending) >= limits.batches_max or self._bytes >= limits.batches_bytes_max

    def _submit(self, data: bytes) -> asyncio.Future[Seq]:
        try:
            request = parsed(pb.PublishRequest, data)
            updates = from_columns(request.updates, self._limits.log)
            numbers = numbers_back(request, len(updates))
            return asyncio.ensure_future(self._backend.publish(updates, numbers))
        except Exception as error:
            failed: asyncio.Future[Seq] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def _answer(self, context: Any) -> None:
        while self._pending or not self._over:
            if not self._pending:
                self._changed.clear()
                await self._changed.wait()
                continue
            future, size = self._pending[0]
            reply = await _reply(future)
            # It is out of the window when the client can know of it, not before: who does not read is not served.
            await context.write(reply.SerializeToString())
            self._pending.popleft()
            self._bytes -= size
            self._changed.set()


async def _reply(future: asyncio.Future[Seq]) -> Any:
    await asyncio.wait({future})
    if future.cancelled():
        return pb.PublishReply(failure=failure_of(OutcomeUnknown("the node has given up waiting")))
    if error := future.exception():
        return pb.PublishReply(failure=failure_of(error))
    return pb.PublishReply(last=future.result())


def failure_of(error: BaseException) -> Any:
    """Return what a client is told of an error. Of one that nobody foresaw it learns the name alone."""
    kind = type(error).__name__
    if isinstance(error, SiriusError):
        return pb.Failure(kind=kind, reason=str(error), outcome_unknown=error.outcome_unknown)
    log.error("a batch failed", exc_info=error)
    return pb.Failure(kind=kind, reason="an internal error", outcome_unknown=True)


async def first_of(*awaitables: Awaitable[Any]) -> None:
    """Wait for the first of some, and cancel those that were made for this; raises what the first one raised."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    made = [task for task, each in zip(tasks, awaitables, strict=True) if task is not each]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in made:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)
