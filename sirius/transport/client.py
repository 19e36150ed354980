"""A client without asyncio, for scripts, tools and Spark. Any number of threads may use one.

**Nothing is sent twice** unless it can do no harm. Updates without numbers are nothing that a node could know again,
so a batch whose answer did not come may be in the log, or come there yet: that is reported as `OutcomeUnknown`, and the
caller decides. What was certainly not sent goes to the next address. Updates with a session and serials take effect
once, so they are sent again until they are acknowledged (`sirius.transport.resending`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import grpc

from sirius.errors import NodeClosed, SiriusError, Unreachable, UsageError
from sirius.transport import sirius_pb2 as pb
from sirius.transport import wire
from sirius.transport.failures import error_of, failed, open_channel
from sirius.transport.limits import TransportLimits
from sirius.transport.publishing import Membership
from sirius.transport.resending import Resending, numbered
from sirius.transport.security import Plaintext, Security
from sirius.transport.sending import Stream, batches
from sirius.transport.shapes import Blobs, Shape
from sirius.types import Seq
from sirius.wal.block import Block
from sirius.wal.record import Update

_T = TypeVar("_T")
_MEMBERSHIP = Shape(Membership)


class Acknowledged(NamedTuple):
    """So many more updates are in the log; the last of them has this sequence number."""

    updates: int
    last: Seq


class Client:
    """Talks to one of some nodes: to the one that answered last, and when it does not, to the next."""

    def __init__(
        self,
        addresses: Sequence[str],
        security: Security | None = None,
        limits: TransportLimits | None = None,
        timeout_s: float = 15.0,
    ) -> None:
        """Nothing is connected before the first call. `timeout_s` is how long one answer may take."""
        if not addresses:
            raise UsageError("a client needs at least one address")
        self._security = security or Plaintext()
        self._limits = limits or TransportLimits()
        self._timeout_s = timeout_s
        self._addresses = list(addresses)
        self._channels: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every call."""
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    # ------------------------------------------------------------------ calls

    def publish(
        self,
        updates: Iterable[Update],
        in_flight: int = 8,
        *,
        session: str | None = None,
        first_serial: int = 1,
        after: int | None = None,
        patience_s: float = 60.0,
    ) -> Seq | None:
        """Put updates into the log in this order, and return the last one's sequence number.

        Raises what stopped it; a note on the error says what is in the log. With `in_flight=1` that is everything
        before the batch that failed, and nothing behind it.

        With a `session`, a name that is this publisher's alone, each update takes effect at most once: they have the
        serials from `first_serial` on, and whoever calls this again with the same session, serials and updates, after
        whatever error or from another process, changes nothing about what is in the log already. So the client itself
        tries again, at all its addresses, until nobody has answered for `patience_s`. A session's serials go up;
        `after` is the one that has to be in the log first, the one before `first_serial` if it is not given. For an
        update that was in the log before, the sequence number may be that of a later one of its session.
        """
        last = None
        for acknowledged in self.acknowledgements(
            updates,
            in_flight,
            session=session,
            first_serial=first_serial,
            after=after,
            patience_s=patience_s,
        ):
            last = acknowledged.last
        return last

    def acknowledgements(
        self,
        updates: Iterable[Update],
        in_flight: int = 8,
        *,
        session: str | None = None,
        first_serial: int = 1,
        after: int | None = None,
        patience_s: float = 60.0,
    ) -> Iterator[Acknowledged]:
        """Do the same, and tell of each batch when it is in the log."""
        if session is None:
            yield from self._once(batches(updates, self._limits.log), in_flight)
            return
        after = first_serial - 1 if after is None else after
        runs = [(first_serial, updates)]
        yield from self.runs(runs, session, after, in_flight=in_flight, patience_s=patience_s)

    def runs(
        self,
        runs: Iterable[tuple[int, Iterable[Update]]],
        session: str,
        after: int = 0,
        *,
        in_flight: int = 8,
        patience_s: float = 60.0,
    ) -> Iterator[Acknowledged]:
        """Do the same with updates whose serials leave gaps: those of a run are consecutive, from its number on.

        Who has a number for each update that stays with it, come what may, can leave some out when sending again.
        """
        cut = ((serial, batches(updates, self._limits.log)) for serial, updates in runs)
        resending = Resending(self._open_first, self._avoid, max(1, in_flight), patience_s)
        for count, last in resending.acknowledgements(numbered(cut, session, after)):
            yield Acknowledged(count, last)

    def _once(self, found: Iterator[list[Update]], in_flight: int) -> Iterator[Acknowledged]:
        stream: Stream | None = None
        try:
            for batch in found:
                if stream and len(stream.pending) >= max(1, in_flight):
                    yield Acknowledged(*stream.answer())
                if stream and stream.is_over and not stream.pending:
                    stream.close()
                    stream = None
                stream = stream or self._open_first()
                stream.send(batch)
            while stream and stream.pending:
                yield Acknowledged(*stream.answer())
        finally:
            if stream:
                stream.close()

    def tail(self, first: int = 1, follow: bool = False) -> Iterator[Block]:
        """Yield what is decided from `first` on; with `follow`, for ever. Goes on at another node if one is lost."""
        position = first
        while True:
            began = position
            try:
                for block in self._first(partial(self._tail, position, follow)):
                    yield block
                    position = block.last + 1
                return
            except Unreachable:
                if position == began:
                    raise

    def status(self) -> dict[str, Any]:
        """Return what a node says about itself."""
        reply = self._call("Clients/Status", pb.StatusRequest(), pb.StatusReply)
        status: dict[str, Any] = json.loads(reply.json)
        return status

    def members(self) -> Membership:
        """Return who is a member, and who leads."""
        reply = self._call("Admin/Members", pb.MembersRequest(), pb.MembersReply)
        membership: Membership = _MEMBERSHIP.from_fields(reply, Blobs((), self._limits.log))
        return membership

    def transfer_leadership(self, to: str | None = None) -> None:
        """Have leadership handed to this name, or to whoever is best placed."""
        request = pb.TransferLeadershipRequest(to=to)
        self._call("Admin/TransferLeadership", request, pb.TransferLeadershipReply)

    # ------------------------------------------------------------------ how

    def _call(self, method: str, request: Any, reply: Any) -> Any:
        def call(address: str) -> Any:
            bound = self._channel(address).unary_unary(f"/sirius.v1.{method}")
            try:
                with open_channel(address):
                    data = bound(request.SerializeToString(), timeout=self._timeout_s)
            except grpc.RpcError as error:
                raise error_of(error, address, self._security) from None
            return wire.parsed(reply, data)

        return self._first(call)

    def _open_first(self) -> Stream:
        return self._first(self._open)

    def _open(self, address: str) -> Stream:
        return Stream(self._channel(address), address, self._security, self._timeout_s)

    def _tail(self, first: int, follow: bool, address: str) -> Iterator[Block]:
        request = pb.TailRequest(first=first, follow=follow).SerializeToString()
        method = self._channel(address).unary_stream("/sirius.v1.Clients/Tail")
        with open_channel(address):
            call = method(request)
        blocks = self._blocks(call, address)
        head = next(blocks, None)
        return _with_head(head, blocks)

    def _blocks(self, call: Any, address: str) -> Iterator[Block]:
        try:
            for data in call:
                yield Blobs([wire.parsed(pb.TailReply, data).block], self._limits.log).block()
        except grpc.RpcError as error:
            raise error_of(error, address, self._security) from None
        finally:
            call.cancel()

    def _first(self, attempt: Callable[[str], _T]) -> _T:
        """Return what the first node that can be reached answers."""
        errors: list[SiriusError] = []
        for address in list(self._addresses):
            try:
                answer = attempt(address)
            except (Unreachable, NodeClosed) as error:
                errors.append(error)
                continue
            self._prefer(address)
            return answer
        raise failed(errors)

    def _prefer(self, address: str) -> None:
        with self._lock:
            if self._addresses[0] != address:
                self._addresses.remove(address)
                self._addresses.insert(0, address)

    def _avoid(self, address: str) -> None:
        """Ask the others first."""
        with self._lock:
            self._addresses.remove(address)
            self._addresses.append(address)

    def _channel(self, address: str) -> Any:
        with self._lock:
            if address not in self._channels:
                options = self._limits.channel_options()
                self._channels[address] = self._security.blocking_channel(address, options)
            return self._channels[address]


def _with_head(head: Block | None, blocks: Iterator[Block]) -> Iterator[Block]:
    if head is not None:
        yield head
        yield from blocks
