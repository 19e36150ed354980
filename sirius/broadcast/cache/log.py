"""The log of a node in this process as a stream: every update is an invalidation with the log's own number.

::

    stream = LogStream(handler)
    with Sirius(stream.handler, config) as node, feed(cache, stream.source()):
        stream.watch(node)

The keys of an update are dropped on the thread that applies it, after the handler has taken it and before whoever
wrote it is answered. So with `ack = "applied"` a writer that has its answer finds no older value in a cache of its
own process.

**Replay.** While a log is replayed, at the start or because it was taken anew from other nodes, updates come again, in
no particular order if so configured, and deletes of long ago are not among them. So nothing is told then, and
everything is dropped in the end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from sirius.broadcast.cache.source import InvalidationSource
from sirius.broadcast.cache.stream import MemoryStream
from sirius.handler import HandledUpdate, RequestHandler, SiriusResult


class Watched(Protocol):
    """A node, as far as it matters here: `sirius.Sirius` is one."""

    def staleness(self) -> float:
        """How long ago the node knew that it had everything, in seconds."""
        ...


class LogStream:
    """What a handler is given, told to any number of caches. `handler` is what the node gets in its place."""

    def __init__(self, handler: RequestHandler, *, history_max: int = 1024) -> None:
        self._stream = MemoryStream(history_max=history_max, age_s=self._age_s)
        self._node: Watched | None = None
        self._lock = threading.Lock()
        self._is_replaying = False
        self._replayed = 0
        kind = _Batches if _has(handler, "handle_batch") else _Updates
        self.handler: RequestHandler = kind(handler, self)

    def watch(self, node: Watched) -> None:
        """Take a node's word for how fresh its log is. Until then, no cache is vouched for."""
        self._node = node

    def _age_s(self) -> float:
        return float("inf") if self._node is None else self._node.staleness()

    @property
    def position(self) -> int:
        """The sequence number of the last update that was told."""
        return self._stream.position

    def source(self) -> InvalidationSource:
        """Return a source for one more cache."""
        return self._stream.source()

    # ------------------------------------------------------------------ for the handler, on the apply thread

    def applied(self, seq: int, keys: Sequence[str]) -> None:
        """The handler has taken these updates, the last of which has this number."""
        if self._is_replaying:
            # By several threads, if the replay is a parallel one.
            with self._lock:
                self._replayed = max(self._replayed, seq)
        elif seq > self._stream.position:
            self._stream.tell(seq, keys)
        else:
            # It never goes back. If it did, nobody could say what else is not as it was.
            self._stream.gap(seq)

    def replay(self) -> None:
        """The handler is about to be given everything once more."""
        self._replayed = 0
        self._is_replaying = True

    def replayed(self) -> None:
        """It was."""
        self._is_replaying = False
        self._stream.gap(max(self._replayed, self._stream.position))


class _Updates(RequestHandler):
    """A handler for single updates that tells of each."""

    def __init__(self, handler: RequestHandler, stream: LogStream) -> None:
        self._handler = handler
        self._stream = stream
        self._takes_updates = _has(handler, "handle_update")

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        return self._handler.handle_put(key, body)

    def handle_delete(self, key: str) -> SiriusResult:
        return self._handler.handle_delete(key)

    def handle_get(self, key: str) -> SiriusResult:
        return self._handler.handle_get(key)

    def handle_update(self, update: HandledUpdate) -> SiriusResult:
        result = self._result(update)
        self._stream.applied(update.seq, (update.key,))
        return result

    def _result(self, update: HandledUpdate) -> SiriusResult:
        if self._takes_updates:
            return self._handler.handle_update(update)
        if update.body is None:
            return self._handler.handle_delete(update.key)
        return self._handler.handle_put(update.key, update.body)

    def on_bootstrap_starting(self) -> None:
        self._stream.replay()
        self._handler.on_bootstrap_starting()

    def on_bootstrap_complete(self) -> None:
        self._handler.on_bootstrap_complete()
        self._stream.replayed()


class _Batches(_Updates):
    """The same for a handler of whole batches."""

    def handle_batch(self, updates: Sequence[HandledUpdate]) -> Sequence[SiriusResult] | None:
        results = self._handler.handle_batch(updates)
        self._stream.applied(updates[-1].seq, [update.key for update in updates])
        return results


def _has(handler: RequestHandler, name: str) -> bool:
    """Say whether a handler's class brings an optional method of its own."""
    return getattr(type(handler), name, None) not in (None, getattr(RequestHandler, name))
