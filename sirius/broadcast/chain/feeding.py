"""What one replica sends to the next.

The next one says how far it is; at most a window is under way to it, and what is not confirmed for a while is sent
again from there. What does not count yet goes as it came, so that nothing is left out because of an event that may
come to nothing. What counts may go as the history has it: then it comes with the marks of those who published it,
which a history that was read does not tell.
"""

from __future__ import annotations

from collections.abc import Iterator

from sirius.broadcast.config import ProxyConfig
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.messages import ChainPush, Mark
from sirius.broadcast.proxy.book import Book
from sirius.broadcast.proxy.window import Window
from sirius.types import Seq


class Feeding:
    """One stream on its way to the next replica."""

    def __init__(self, stream: Stream, book: Book, config: ProxyConfig, now: float) -> None:
        self._stream, self._book, self._config = stream, book, config
        self.has: Seq | None = None
        """How far the next one is; None: it has not said so yet."""
        self._window = Window(Seq(0))
        self._progressed_at = now

    def confirmed(self, end: Seq, now: float) -> None:
        """The next one is this far."""
        if self.has is None:
            self._window.begin(end)
        if self.has is None or end > self.has:
            self.has, self._progressed_at = end, now
            self._window.confirm(end)

    def pushes(self, number: int, now: float, retry_s: float) -> Iterator[ChainPush]:
        """Return what is to be sent now."""
        if self.has is None:
            return
        if self._window.sent > self.has and now - self._progressed_at >= retry_s:
            self._window.begin(self.has)
            self._progressed_at = now
        if self._window.sent == self.has:
            self._progressed_at = now
        while self._window.sent < self._book.end:
            if self._window.nbytes >= self._config.window_bytes:
                return
            first = Seq(self._window.sent + 1)
            for batch, marks in self._following(first):
                yield ChainPush(number, self._stream, self._book.count, marks, batch)
                self._window.add(batch)

    def _following(self, first: Seq) -> list[tuple[EventBatch, tuple[Mark, ...]]]:
        book = self._book
        if first > book.count:
            return [(batch, ()) for batch in book.pending(first)]
        batches = book.read(first, book.count, self._config.forward_bytes_max)
        return [(batch, self._marks(batch)) for batch in batches]

    def _marks(self, batch: EventBatch) -> tuple[Mark, ...]:
        known = self._book.history.publishers(batch.first, batch.last)
        return tuple(Mark(publisher, *published) for publisher, published in known)

    def is_close(self) -> bool:
        """Whether what the next one lacks of what counts fits into one message."""
        book, has = self._book, self.has
        if has is None:
            return False
        if has >= book.count:
            return True
        rest = book.history.read(Seq(has + 1), book.count, self._config.forward_bytes_max)
        return rest.last >= book.count
