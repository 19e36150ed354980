"""Publishing: one batch at a time for each stream, repeated until it is answered.

So the order is kept, and whoever takes them needs to remember no more than the last one to take each once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from sirius.broadcast.config import ClientConfig
from sirius.broadcast.context import Context
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.messages import Peer, Publish, Published, Refused
from sirius.errors import Overloaded, UsageError


@dataclass(slots=True)
class _Queue:
    owner: Peer
    serial: int = 0
    """Of the last batch that was taken on."""
    waiting: deque[tuple[int, EventBatch]] = field(default_factory=deque)
    """The first one is under way."""
    sent_at: float = 0.0


class Publisher:
    """The publications of one client, which has a number that nobody else has."""

    def __init__(
        self, context: Context, config: ClientConfig, owners: Mapping[Stream, Peer], number: int
    ) -> None:
        self._context, self._config, self._number = context, config, number
        self._queues = {stream: _Queue(owner) for stream, owner in owners.items()}

    @property
    def waiting(self) -> int:
        """How many batches have not been answered."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    def publish(self, stream: Stream, batch: EventBatch) -> int:
        """Take a batch on; return its serial, which the answer will carry. Raises `Overloaded`."""
        queue = self._queues.get(stream)
        if queue is None:
            raise UsageError(f"there is no stream {stream!r}")
        if self.waiting >= self._config.publish_waiting_max:
            raise Overloaded(f"{self.waiting} batches wait to be published")
        queue.serial += 1
        queue.waiting.append((queue.serial, batch))
        if len(queue.waiting) == 1:
            self._send(stream, queue)
        return queue.serial

    def _send(self, stream: Stream, queue: _Queue) -> None:
        queue.sent_at = self._context.now
        serial, batch = queue.waiting[0]
        self._context.send(queue.owner, Publish(stream, self._number, serial, batch))

    def answered(self, sender: Peer, message: Published | Refused) -> None:
        """The owner has spoken. What may be taken later on is tried again."""
        queue = self._queues.get(message.stream)
        if queue is None or sender != queue.owner or message.publisher != self._number:
            return
        if not queue.waiting or queue.waiting[0][0] != message.serial:
            return
        if isinstance(message, Refused) and message.again:
            return
        queue.waiting.popleft()
        self._context.out.answers.append(message)
        if queue.waiting:
            self._send(message.stream, queue)

    def tick(self) -> None:
        """Repeat what was not answered."""
        for stream, queue in self._queues.items():
            waited = self._context.now - queue.sent_at
            if queue.waiting and waited >= self._config.publish_retry_s:
                self._send(stream, queue)
