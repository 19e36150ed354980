"""One publishing stream, as its client sees it."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import grpc

from sirius.errors import BadMessage, OutcomeUnknown, SiriusError, Unreachable
from sirius.paxos.values import Numbers
from sirius.transport import sirius_pb2 as pb
from sirius.transport import wire
from sirius.transport.columns import to_columns
from sirius.transport.failures import error_of, open_channel, rebuilt
from sirius.transport.security import Security
from sirius.types import Seq
from sirius.wal.record import Limits, Update, check_updates

BATCH_UPDATES: Final = 1000
BATCH_BYTES: Final = 1024 * 1024


class Stream:
    """A stream to one node. A thread waits for its replies, since gRPC's own waiting has no time-out."""

    def __init__(self, channel: Any, address: str, security: Security, timeout_s: float) -> None:
        """Open it; raises `Unreachable` and the like, and then nothing was sent."""
        self.pending: deque[int] = deque()
        """How many updates each batch has that was not answered."""
        self.address = address
        self._security = security
        self._timeout_s = timeout_s
        self._acknowledged = 0
        self._last: Seq | None = None
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[bytes | SiriusError] = queue.SimpleQueue()
        method = channel.stream_stream("/sirius.v1.Clients/Publish")
        with open_channel(address):
            self._call = method(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read, name="sirius-replies", daemon=True)
        self._reader.start()
        self._open()

    @property
    def is_over(self) -> bool:
        """Whether the other end has ended it."""
        return not self._call.is_active()

    def send(self, updates: Sequence[Update], numbers: Numbers | None = None) -> None:
        own = numbers and pb.Numbers(**numbers._asdict())
        request = pb.PublishRequest(updates=to_columns(updates), numbers=own)
        self.pending.append(len(updates))
        self._requests.put(request.SerializeToString())

    def answer(self) -> tuple[int, Seq]:
        """Return how many updates the oldest batch has and where its last one is; raises why it is not there."""
        try:
            reply = wire.parsed(pb.PublishReply, self._reply())
        except SiriusError as error:
            raise self._noted(OutcomeUnknown(f"the answer did not come: {error}")) from None
        if reply.HasField("failure"):
            raise self._noted(rebuilt(reply.failure))
        last = Seq(reply.last)
        count = self.pending.popleft()
        self._acknowledged += count
        self._last = last
        return count, last

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._reader.join()

    def _open(self) -> None:
        try:
            reply = self._reply()
        except SiriusError:
            self.close()
            raise
        if pb.PublishReply.FromString(reply).WhichOneof("outcome"):
            self.close()
            raise BadMessage(f"{self.address} does not open the stream")

    def _reply(self) -> bytes:
        try:
            reply = self._replies.get(timeout=self._timeout_s)
        except queue.Empty:
            reply = Unreachable(f"{self.address} did not answer within {self._timeout_s} s")
        if isinstance(reply, SiriusError):
            raise reply
        return reply

    def _read(self) -> None:
        try:
            for reply in self._call:
                self._replies.put(reply)
            self._replies.put(Unreachable(f"{self.address} has closed the stream"))
        except grpc.RpcError as error:
            self._replies.put(error_of(error, self.address, self._security))

    def _noted(self, error: SiriusError) -> SiriusError:
        """Add to an error what is known of all the updates of the stream."""
        failed, *behind = self.pending
        done = f"{self._acknowledged} updates before it are in the log"
        if self._last is not None:
            done += f", up to sequence number {self._last}"
        error.add_note(f"a batch of {failed} updates failed; {done}")
        if behind:
            error.add_note(
                f"{sum(behind)} updates behind it were under way: their outcome is unknown"
            )
        return error


def batches(updates: Iterable[Update], limits: Limits) -> Iterator[list[Update]]:
    """Cut updates into batches that are worth a message each; raises what the log would not take."""
    batch: list[Update] = []
    size = 0
    for update in updates:
        check_updates((update,), limits)
        length = len(update.key) + len(update.body)
        if batch and (len(batch) >= BATCH_UPDATES or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(update)
        size += length
    if batch:
        yield batch
