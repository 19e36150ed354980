"""A stream that keeps a cache true: `feed(cache, broadcast.invalidations("films"))`.

**Holes.** An event that a later one of its key collected is not missed: that one comes. But what a GC event collected
is named by nobody. So a GC event that comes behind a hole drops everything: the hole may have held a key of this
cache. At the end of a stream, where nothing is left out yet, it changes nothing. Nobody remembers whether there was a
hole before a cache left, so to one that comes back the first GC event is one behind a hole.

**Beats.** The proxy says how far the stream's owner was, and how long ago it asked him.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import numpy as np

from sirius.broadcast.cache.source import InvalidationSink
from sirius.broadcast.columns import pieces
from sirius.broadcast.events import EventBatch, Kind, Stream
from sirius.errors import UsageError

if TYPE_CHECKING:
    from sirius.broadcast.live.session import Broadcast
    from sirius.broadcast.live.subscription import Subscription

log = logging.getLogger("sirius.broadcast")


class BroadcastSource:
    """See `InvalidationSource`, and above."""

    def __init__(self, broadcast: Broadcast, stream: Stream) -> None:
        self._broadcast = broadcast
        self._stream = stream
        self._telling = threading.Lock()
        self._sink: InvalidationSink | None = None
        self._subscription: Subscription | None = None
        self._is_closed = False
        self._has_holes = False
        self._has_failed = False
        self._position = 0

    def start(self, sink: InvalidationSink, after: int | None) -> None:
        """Begin; what is known is told some time later, by a thread of its own."""
        if self._sink is not None:
            raise UsageError("a source is started once")
        if after is None:
            after = self._broadcast.status()["streams"][self._stream]["count"]
            sink.gap(after)
        else:
            self._has_holes = True
        self._sink, self._position = sink, after
        self._subscription = self._broadcast.subscribe(self._stream, after + 1, on_batch=self._take)

    def beat(self) -> None:
        """Ask the proxy how far the stream's owner was, and tell the sink."""
        seq, age_s = self._broadcast.freshness(self._stream)
        with self._telling:
            if self._sink is None or self._is_closed:
                return
            if self._has_failed:
                self._gap(self._sink, self._position)
            self._sink.alive(seq, age_s)

    def close(self) -> None:
        """Tell nothing any more."""
        if self._subscription is not None:
            self._subscription.close()
        with self._telling:
            self._is_closed = True

    def _take(self, _stream: str, batch: EventBatch) -> None:
        with self._telling:
            if self._sink is None or self._is_closed:
                return
            try:
                self._tell(self._sink, batch)
            except Exception:
                # It may have kept what it should have dropped. The next word to it is that it drops everything.
                self._has_failed = True
                log.exception("a cache could not take what ends at %d", batch.last)
            self._position = batch.last

    def _tell(self, sink: InvalidationSink, batch: EventBatch) -> None:
        self._has_holes |= batch.has_holes
        if self._has_failed or (self._has_holes and bool(np.any(batch.kinds == Kind.GC))):
            self._gap(sink, batch.last)
        elif len(batch):
            sink.invalidated(batch.last, _texts(batch))

    def _gap(self, sink: InvalidationSink, seq: int) -> None:
        sink.gap(seq)
        self._has_holes = self._has_failed = False


def _texts(batch: EventBatch) -> list[str]:
    """A key that is no text is none of a cache's."""
    return [key.decode(errors="surrogateescape") for key in pieces(batch.keys, batch.key_lengths)]
