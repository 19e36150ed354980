"""What a proxy has of every stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.history import History
from sirius.broadcast.messages import Counts, Peer
from sirius.broadcast.proxy.book import Book
from sirius.types import Seq

OpenHistory = Callable[[Stream], History]
"""Returns the history of a stream: an empty one, or what has survived a restart."""


class Layout(NamedTuple):
    """Which proxies there are, and which streams, with their owners: the same everywhere."""

    proxies: tuple[Peer, ...]
    owners: Mapping[Stream, Peer]


class Shelf:
    """All streams that there are."""

    def __init__(self, layout: Layout, open_history: OpenHistory, recent_bytes_max: int) -> None:
        self.owners = dict(layout.owners)
        self.books = {
            stream: Book(open_history(stream), recent_bytes_max) for stream in self.owners
        }

    def __contains__(self, stream: Stream) -> bool:
        return stream in self.books

    @property
    def counts(self) -> Counts:
        return tuple((stream, book.count) for stream, book in self.books.items())

    @property
    def ends(self) -> Counts:
        return tuple((stream, book.end) for stream, book in self.books.items())

    def count(self, stream: Stream) -> Seq:
        """How far this proxy is: this is what it tells others and gives out."""
        return self.books[stream].count

    def end(self, stream: Stream) -> Seq:
        """How far it is with what does not count yet: this is where it goes on."""
        return self.books[stream].end

    def read(self, stream: Stream, first: Seq, last: Seq, bytes_max: int) -> tuple[EventBatch, ...]:
        """Return what counts from `first` on."""
        return self.books[stream].read(first, last, bytes_max)
