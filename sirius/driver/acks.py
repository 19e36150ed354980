"""Futures that are cheap by the thousand.

A `concurrent.futures.Future` makes a lock and a condition of its own, and completing one wakes a thread: 16 µs a
request between threads. All acks of a node share one condition instead. A batch is completed under one acquisition, and
whoever waits for an ack is woken alone, by a waiter of its own. To everybody else (`concurrent.futures.wait`,
`as_completed`, `asyncio.wrap_future`) an ack is a future like any other, which has begun and cannot be cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from sirius.handler import SiriusResult

_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"
_CHANGED: Final = threading.Condition(threading.RLock())
"""Shared by all acks of the process: it is only ever held for moments."""


class Ack(Future[SiriusResult]):
    """The outcome of one request."""

    def __init__(self) -> None:
        # Not that of the base class, which would make a condition.
        self._condition = _CHANGED
        self._state = _RUNNING
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    def result(self, timeout: float | None = None) -> SiriusResult:
        """Wait for the outcome, and return or raise it."""
        self._wait(timeout)
        # The state is final, so this does not wait.
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome, and return the error if it is one."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if self._state is _FINISHED:
            return
        waiter = _Waiter()
        with _CHANGED:
            if self._state is _FINISHED:
                return
            self._waiters.append(waiter)
        if not waiter.done.wait(timeout):
            with _CHANGED:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)


class _Waiter:
    """One thread that waits for one ack; the interface is that of the waiters of `concurrent.futures`."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def add_result(self, _future: Future[Any]) -> None:
        self.done.set()

    add_exception = add_cancelled = add_result


def complete(acks: Sequence[Ack], results: Iterable[SiriusResult]) -> None:
    """Give each ack its result, all at once."""
    with _CHANGED:
        for ack, result in zip(acks, results, strict=True):
            ack._result = result
            ack._state = _FINISHED
        waited = [ack for ack in acks if ack._waiters]
        called = [ack for ack in acks if ack._done_callbacks]
        for ack in waited:
            for waiter in ack._waiters:
                waiter.add_result(ack)
    for ack in called:
        ack._invoke_callbacks()  # type: ignore[attr-defined]


def fail(acks: Sequence[Ack], error: Exception) -> None:
    """Give all of them the same error."""
    with _CHANGED:
        for ack in acks:
            ack._exception = error
            ack._state = _FINISHED
            for waiter in ack._waiters:
                waiter.add_exception(ack)
    for ack in acks:
        if ack._done_callbacks:
            ack._invoke_callbacks()  # type: ignore[attr-defined]
