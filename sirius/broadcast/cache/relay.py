"""A sink that waits for a network, behind a thread of its own: the source never waits for it.

What was not taken yet is kept, up to a bound; beyond it the waiting batches become one gap, which takes no room. A sink
that raises is asked again until it does not: deleting twice does no harm.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection
from typing import Final, Self

from sirius.broadcast.cache.source import InvalidationSink
from sirius.errors import UsageError

_log = logging.getLogger("sirius.broadcast")
KEYS_MAX: Final = 100_000
BATCHES_MAX: Final = 10_000
Step = tuple[str, tuple[object, ...]]


class Relay:
    """See above. Close it after its feed."""

    def __init__(
        self, sink: InvalidationSink, keys_max: int = KEYS_MAX, retry_s: float = 1.0
    ) -> None:
        if keys_max <= 0:
            raise UsageError(f"keys_max is above 0, not {keys_max}")
        self._sink = sink
        self._keys_max = keys_max
        self._retry_s = retry_s
        self._closed = threading.Event()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Collection[str]]] = deque()
        self._keys = 0
        self._gap: int | None = None
        self._beat: tuple[int, float] | None = None
        self._is_idle = True
        self._thread = threading.Thread(target=self._run, name="sirius-relay", daemon=True)
        self._thread.start()

    @property
    def position(self) -> int | None:
        """How far the sink itself is: what still waits here would come again."""
        return self._sink.position

    # ------------------------------------------------------------------ for the source

    def invalidated(self, seq: int, keys: Collection[str]) -> None:
        """Keep a batch until the sink takes it."""
        with self._changed:
            self._waiting.append((seq, keys))
            self._keys += len(keys)
            if self._keys > self._keys_max or len(self._waiting) > BATCHES_MAX:
                self._give_up(seq)
            self._changed.notify_all()

    def gap(self, seq: int) -> None:
        """Forget what waits: it is part of the gap."""
        with self._changed:
            self._give_up(seq)
            self._changed.notify_all()

    def alive(self, seq: int, age_s: float = 0.0) -> None:
        """Hand a beat on when its turn comes; a newer one takes its place."""
        with self._changed:
            self._beat = (seq, time.monotonic() - age_s)
            self._changed.notify_all()

    def _give_up(self, seq: int) -> None:
        self._waiting.clear()
        self._keys = 0
        self._gap = seq

    # ------------------------------------------------------------------ for its owner

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until the sink has taken everything; say whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle and not self._has_work(), timeout)

    def close(self) -> None:
        """Stop, whatever still waits. Closing twice is harmless."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while (step := self._next()) is not None:
            self._hand(*step)

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._gap is not None or self._beat is not None

    def _next(self) -> Step | None:
        """Wait for something to do. A gap comes first. Beats may overtake batches: they say what they are about."""
        with self._changed:
            self._is_idle = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed.is_set() or self._has_work())
            self._is_idle = False
            return None if self._closed.is_set() else self._take()

    def _take(self) -> Step:
        if self._gap is not None:
            seq, self._gap = self._gap, None
            return "gap", (seq,)
        if self._beat is not None:
            (seq, as_of), self._beat = self._beat, None
            return "alive", (seq, time.monotonic() - as_of)
        seq, keys = self._waiting.popleft()
        self._keys -= len(keys)
        return "invalidated", (seq, keys)

    def _hand(self, method: str, arguments: tuple[object, ...]) -> None:
        while True:
            try:
                getattr(self._sink, method)(*arguments)
                return
            except Exception as error:
                _log.warning("a cache could not take %s(%s): %r", method, arguments[0], error)
            # A gap that has come meanwhile takes the place of this.
            if self._closed.wait(self._retry_s) or self._gap is not None:
                return
