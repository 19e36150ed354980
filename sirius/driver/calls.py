"""Calling a handler: the way it wants to be called, again if it raises, and never past an update that it cannot take.

A handler that rejects an update returns that as a result: every node does the same, so nothing diverges. One that
raises is called again a few times, since the cause may pass. If it does not, nothing more is applied on this node.
The same goes, at once, for one that returns something else than a result: calling it again would not change that, and
whoever waits for the answer could make nothing of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from sirius.errors import HandlerFailed, ReadFailed
from sirius.handler import HandledUpdate, RequestHandler, SiriusResult
from sirius.wal import Batch, Op

_log = logging.getLogger("sirius.handler")
_NONE = SiriusResult.none()
_PUT = int(Op.PUT)
_new = tuple.__new__


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a handler that raises is called again, and how long to wait before the first time; it doubles then."""

    retries: int = 3
    retry_s: float = 0.1


class Caller:
    """Calls one handler. For one thread at a time. `pause` waits between calls, and may return early."""

    def __init__(
        self,
        handler: RequestHandler,
        patience: Patience,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._handler = handler
        self._patience = patience
        self._pause = pause
        self.busy_since: float | None = None
        """When the batch that is under way began, by the monotonic clock."""
        self.done: list[SiriusResult] = []
        """The answers to the batch so far."""
        self.exceptions = 0
        self._apply = self._way()

    def _way(self) -> Callable[[Batch], Sequence[SiriusResult]]:
        if _has(self._handler, "handle_batch"):
            return self._as_batch
        if _has(self._handler, "handle_update"):
            return self._with_seq
        return self._plain

    def apply(self, batch: Batch) -> Sequence[SiriusResult]:
        """Hand the updates of a batch to the handler; return its answers, one for each."""
        self.busy_since = time.monotonic()
        self.done = []
        try:
            return self._apply(batch)
        finally:
            self.busy_since = None

    def _plain(self, batch: Batch) -> Sequence[SiriusResult]:
        put, delete = self._handler.handle_put, self._handler.handle_delete
        results = self.done
        seqs = batch.seq.tolist()
        updates = zip(batch.op.tolist(), batch.keys(), batch.bodies(), strict=True)
        for op, key, body in updates:
            try:
                result = put(key, body) if op == _PUT else delete(key)
            except BaseException as error:
                call, arguments = (put, (key, body)) if op == _PUT else (delete, (key,))
                result = self._again(seqs[len(results)], error, call, *arguments)
            if result is not None and not isinstance(result, SiriusResult):
                name = "handle_put" if op == _PUT else "handle_delete"
                raise _wrong(result, name, seqs[len(results)])
            results.append(_NONE if result is None else result)
        return results

    def _with_seq(self, batch: Batch) -> Sequence[SiriusResult]:
        handle, results = self._handler.handle_update, self.done
        for update in _handled(batch):
            try:
                result = handle(update)
            except BaseException as error:
                result = self._again(update.seq, error, handle, update)
            if result is not None and not isinstance(result, SiriusResult):
                raise _wrong(result, "handle_update", update.seq)
            results.append(_NONE if result is None else result)
        return results

    def _as_batch(self, batch: Batch) -> Sequence[SiriusResult]:
        updates = _handled(batch)
        if not updates:
            return ()
        try:
            results = self._handler.handle_batch(updates)
        except BaseException as error:
            results = self._again(updates[0].seq, error, self._handler.handle_batch, updates)
        if results is None:
            return [_NONE] * len(updates)
        if not isinstance(results, Sequence):
            raise _wrong(results, "handle_batch", updates[0].seq, "a sequence of SiriusResult")
        if len(results) != len(updates):
            raise HandlerFailed(
                f"handle_batch returned {len(results)} results for {len(updates)} updates",
                updates[0].seq,
            )
        for update, result in zip(updates, results, strict=True):
            if result is not None and not isinstance(result, SiriusResult):
                raise _wrong(result, "handle_batch", update.seq)
        return [_NONE if result is None else result for result in results]

    def _again(
        self, seq: int, error: BaseException, call: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call a handler again that has raised."""
        retries, wait_s = self._patience.retries, self._patience.retry_s
        for attempt in range(1, retries + 1):
            self.exceptions += 1
            _log.warning("the handler raised at %d (retry %d): %r", seq, attempt, error)
            self._pause(wait_s)
            wait_s *= 2
            try:
                return call(*arguments)
            except BaseException as another:
                error = another
        self.exceptions += 1
        raise HandlerFailed(
            f"the handler raised {type(error).__name__} at {seq}, {retries + 1} times: {error}", seq
        ) from error

    def get(self, key: str) -> SiriusResult:
        """Look a key up. Raises what the handler raises."""
        result = self._handler.handle_get(key)
        if result is None:
            return _NONE
        if not isinstance(result, SiriusResult):
            raise ReadFailed(f"handle_get returned {_kind(result)}, not a SiriusResult")
        return result


def _wrong(result: object, name: str, seq: int, expected: str = "a SiriusResult") -> HandlerFailed:
    if isinstance(result, Coroutine):
        # Nobody will await it, and Python would complain of that somewhere else.
        result.close()
    return HandlerFailed(f"{name} returned {_kind(result)} at {seq}, not {expected} or None", seq)


def _kind(result: object) -> str:
    kind = type(result).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _handled(batch: Batch) -> list[HandledUpdate]:
    entries = batch.entries
    ops = entries["op"].tolist()
    bodies = batch.bodies()
    if any(op != _PUT for op in ops):
        pairs = zip(ops, bodies, strict=True)
        bodies = [body if op == _PUT else None for op, body in pairs]  # type: ignore[misc]
    fields = (entries["seq"].tolist(), entries["ts"].tolist(), batch.keys(), bodies)
    return list(map(HandledUpdate, *fields))


def _has(handler: RequestHandler, name: str) -> bool:
    """Say whether a handler's class brings an optional method of its own."""
    return getattr(type(handler), name, None) not in (None, getattr(RequestHandler, name))


def numbered(
    seqs: Sequence[int], results: Sequence[SiriusResult] = (), default: SiriusResult = _NONE
) -> list[SiriusResult]:
    """Return the results with their sequence numbers."""
    found = results or repeat(default, len(seqs))
    # Not by the class, whose constructor takes twice as long as all the rest.
    return [_new(SiriusResult, (*result[:3], seq)) for seq, result in zip(seqs, found, strict=True)]
