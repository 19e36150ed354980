"""A stream of invalidations inside a process: one teller, any number of listeners, and a short memory.

The memory lets a listener go on where it was, if that is not too long ago. `LogStream` tells it what a node's log
says; a test, or an application with invalidations of its own, tells it directly.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable

from sirius.broadcast.cache.keys import each_of
from sirius.broadcast.cache.source import InvalidationSink
from sirius.errors import UsageError

_log = logging.getLogger("sirius.broadcast")


class MemoryStream:
    """See above. For any thread: tellers wait for each other, and for the listeners, which are quick."""

    def __init__(
        self,
        position: int = 0,
        *,
        history_max: int = 1024,
        age_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`history_max` is how many batches are remembered; `age_s` tells when the stream last knew that it had all."""
        if history_max < 0:
            raise UsageError(f"history_max is 0 or more, not {history_max}")
        self._lock = threading.Lock()
        self._listeners: list[MemorySource] = []
        self._position = position
        self._history: deque[tuple[int, Collection[str]]] = deque(maxlen=history_max)
        self._known_from = position
        """Everything behind this is remembered."""
        self.age_s = age_s

    @property
    def position(self) -> int:
        """The sequence number that was told last."""
        return self._position

    def publish(self, *keys: str) -> int:
        """Tell that keys changed, with the next sequence number; return it."""
        with self._lock:
            self._tell(self._position + 1, each_of(keys))
            return self._position

    def tell(self, seq: int, keys: Iterable[str]) -> None:
        """Tell that keys changed: with this, everything up to `seq` is told."""
        with self._lock:
            if seq <= self._position:
                raise UsageError(f"{seq} was told before: the stream is at {self._position}")
            self._tell(seq, each_of(keys))

    def _tell(self, seq: int, keys: Collection[str]) -> None:
        self._remember(seq, keys)
        self._position = seq
        for listener in self._listeners:
            listener.told(seq, keys)

    def _remember(self, seq: int, keys: Collection[str]) -> None:
        if len(self._history) == self._history.maxlen:
            # What is pushed out is not known any more; with no room at all, nothing is.
            self._known_from = self._history[0][0] if self._history else seq
        self._history.append((seq, keys))

    def gap(self, seq: int) -> None:
        """Tell that whatever was before `seq` is not known, and forget it."""
        with self._lock:
            self._history.clear()
            self._position = self._known_from = seq
            for listener in self._listeners:
                listener.lost(seq)

    def source(self) -> MemorySource:
        """Return a source for one more sink."""
        return MemorySource(self)

    # ------------------------------------------------------------------ for the sources

    def join(self, listener: MemorySource, after: int | None) -> None:
        """Tell a new listener what it missed, or that it missed too much."""
        with self._lock:
            if after is None or not self._known_from <= after <= self._position:
                listener.lost(self._position)
            else:
                for seq, keys in self._history:
                    if seq > after:
                        listener.told(seq, keys)
            self._listeners.append(listener)

    def leave(self, listener: MemorySource) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def beat(self, listener: MemorySource) -> None:
        # The age first: what is told between that and the lock does no harm, what is not yet told would.
        age_s = self.age_s()
        with self._lock:
            if listener in self._listeners:
                listener.lives(self._position, age_s)


class MemorySource:
    """What one sink hears of a `MemoryStream`. A sink that raises is told to drop everything the next time."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream
        self._sink: InvalidationSink | None = None
        self._has_failed = False

    def start(self, sink: InvalidationSink, after: int | None) -> None:
        """Begin; what is remembered was told when this returns."""
        if self._sink is not None:
            raise UsageError("a source is started once")
        self._sink = sink
        self._stream.join(self, after)

    def beat(self) -> None:
        """Tell the sink how fresh it is."""
        self._stream.beat(self)

    def close(self) -> None:
        """Leave the stream."""
        self._stream.leave(self)

    # ------------------------------------------------------------------ for the stream, which holds its lock

    def told(self, seq: int, keys: Collection[str]) -> None:
        """Hand a batch on."""
        if self._has_failed:
            self.lost(seq)
        else:
            self._call("invalidated", seq, keys)

    def lost(self, seq: int) -> None:
        """Hand a gap on."""
        self._has_failed = False
        self._call("gap", seq)

    def lives(self, seq: int, age_s: float) -> None:
        """Hand a beat on."""
        if self._has_failed:
            self.lost(seq)
        self._call("alive", seq, age_s)

    def _call(self, method: str, *arguments: object) -> None:
        if self._has_failed:
            return
        try:
            getattr(self._sink, method)(*arguments)
        except Exception:
            # The teller may be the thread that applies updates: it must go on.
            self._has_failed = True
            _log.exception("a cache could not take %s%r", method, arguments[:1])
