"""What is published goes in here (Sprinkler, Figure 1, `addLocalEvent`).

The owner of a stream numbers what it takes. A publisher repeats a batch until it is answered, so a batch may come
again; the history knows the last one of each publisher, and a repetition is answered and changes nothing. That
holds across a restart if the history does. Nobody is answered before what he published counts.
"""

from __future__ import annotations

from sirius.broadcast.columns import is_constant
from sirius.broadcast.config import ProxyConfig
from sirius.broadcast.context import Context
from sirius.broadcast.events import EventBatch, Kind, Stream
from sirius.broadcast.limits import fault
from sirius.broadcast.messages import Peer, Publish, Published, Refused
from sirius.broadcast.proxy.shelf import Shelf
from sirius.errors import BadMessage, DiskFull
from sirius.types import Seq


class Intake:
    """The publications of one proxy."""

    def __init__(self, context: Context, config: ProxyConfig, shelf: Shelf) -> None:
        self._context, self._config, self._shelf = context, config, shelf
        self._waiting: dict[Stream, dict[Seq, tuple[Peer, Published]]] = {
            stream: {} for stream in shelf.owners
        }
        """Whom to answer once what stands up to there counts. Bounded like what does not count."""
        self.logs: set[Stream] = set()
        """Streams that are logs of their own."""

    def publish(self, sender: Peer, message: Publish, time_us: int) -> Refused | None:
        """Take a batch, or say why not. None: `settled` will tell; or it is older than what he was told already."""
        wrong = self._fault(message.stream, message.batch)
        if wrong is not None:
            return Refused(message.stream, message.publisher, message.serial, wrong, again=False)
        known = self._shelf.books[message.stream].published(message.publisher)
        if known is not None and message.serial <= known.serial:
            answer: Published | Refused | None = _again(message, *known)
        else:
            answer = self._take(message, time_us)
        if not isinstance(answer, Published):
            return answer
        self._waiting[answer.stream][answer.last] = sender, answer
        return None

    def _take(self, message: Publish, time_us: int) -> Published | Refused:
        stream, publisher, serial, batch = message
        book = self._shelf.books[stream]
        if book.history.nbytes > self._config.history_bytes_max and not _makes_room(batch):
            reason = f"stream {stream!r} is full: publish a GC event"
            return Refused(stream, publisher, serial, reason, again=True)
        if book.pending_bytes >= self._config.window_bytes:
            reason = f"stream {stream!r} waits for its disk or its replicas"
            return Refused(stream, publisher, serial, reason, again=True)
        first, time = Seq(book.end + 1), max(time_us, book.end_time)
        try:
            book.take(batch.numbered(first, time, publisher, serial))
        except (BadMessage, DiskFull) as error:
            again = isinstance(error, DiskFull)
            return Refused(stream, publisher, serial, str(error), again)
        return Published(stream, publisher, serial, first, book.end)

    def settled(self, stream: Stream) -> list[tuple[Peer, Published]]:
        """Return whom to answer now, and what."""
        waiting, count = self._waiting[stream], self._shelf.count(stream)
        return [waiting.pop(last) for last in sorted(waiting) if last <= count]

    def forget(self) -> None:
        """Answer nobody: what waits may come to nothing."""
        for waiting in self._waiting.values():
            waiting.clear()

    def _fault(self, stream: Stream, batch: EventBatch) -> str | None:
        if stream not in self._shelf:
            return f"there is no stream {stream!r}"
        owner = self._shelf.owners[stream]
        if owner != self._context.me:
            return f"stream {stream!r} belongs to {owner}, not to {self._context.me}"
        if stream in self.logs:
            return f"stream {stream!r} is the log of a cluster: write to the cluster"
        if not len(batch) or batch.has_holes or not is_constant(batch.times):
            return "what is published has events, no holes, and no times of its own"
        return fault(batch, self._config.limits)


def _again(message: Publish, serial: int, first: Seq, last: Seq) -> Published | None:
    if message.serial < serial:
        return None
    return Published(message.stream, message.publisher, serial, first, last)


def _makes_room(batch: EventBatch) -> bool:
    return bool((batch.kinds == Kind.GC).any())
