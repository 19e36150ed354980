"""Futures that are cheap by the thousand.

A `concurrent.futures.Future` makes a lock and a condition of its own, and completing one wakes a thread: 16 µs a
request between threads. All acks of a process share one condition instead. A batch is completed under one acquisition,
and whoever waits for an ack is woken alone, by a waiter of its own. To everybody else (`concurrent.futures.wait`,
`as_completed`, `asyncio.wrap_future`) an ack is a future like any other, which has begun and cannot be cancelled.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from sirius.handler import SiriusResult

_log = logging.getLogger("sirius.node")
_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"
_changed = threading.Condition(threading.RLock())
"""Shared by all acks of the process: it is only ever held for moments."""


def _renew() -> None:
    """In the child of a fork: a thread that held the lock is not there to let it go, and a new node needs it."""
    global _changed  # noqa: PLW0603
    _changed = threading.Condition(threading.RLock())


os.register_at_fork(after_in_child=_renew)


class Ack(Future[SiriusResult]):
    """The outcome of one request."""

    def __init__(self) -> None:
        # Not that of the base class, which would make a condition.
        self._condition = _changed
        self._state = _RUNNING
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    def result(self, timeout: float | None = None) -> SiriusResult:
        """Wait for the outcome, and return or raise it."""
        if self._state is not _FINISHED:
            self._wait(timeout)
        if self._exception is not None:
            raise self._exception
        return self._result  # type: ignore[return-value]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome, and return the error if it is one."""
        if self._state is not _FINISHED:
            self._wait(timeout)
        return self._exception

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._state is _FINISHED

    def add_done_callback(self, fn: Callable[[Future[SiriusResult]], object]) -> None:
        """Have a function called with this ack when it is done, or at once if it is."""
        # Without the lock, which a batch that is being completed may hold. Whoever sees both the function and the end
        # takes the function out and calls it: that is this thread, or the other one, and never both.
        self._done_callbacks.append(fn)
        if self._state is _FINISHED:
            self._invoke_callbacks()

    def _invoke_callbacks(self) -> None:
        callbacks = self._done_callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:
                return
            try:
                callback(self)
            except Exception:
                _log.exception("a callback of %r failed", self)

    def _wait(self, timeout: float | None) -> None:
        waiter = _Waiter()
        with self._condition:
            if self._state is _FINISHED:
                return
            self._waiters.append(waiter)
        try:
            if not waiter.done.wait(timeout) and self._state is not _FINISHED:
                raise TimeoutError
        finally:
            with self._condition:
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
    # Before any of them is touched: all are told or none.
    pairs = list(zip(acks, results, strict=True))
    with _changed:
        for ack, result in pairs:
            ack._result = result
            ack._state = _FINISHED
            if ack._waiters:
                for waiter in ack._waiters:
                    waiter.add_result(ack)
    for ack in acks:
        if ack._done_callbacks:
            ack._invoke_callbacks()


def fail(acks: Sequence[Ack], error: Exception) -> None:
    """Give all of them the same error."""
    # Each its own: raising one adds to its traceback, and would keep the frames of all who waited.
    errors = [error, *(_twin(error) for _ in acks[1:])]
    with _changed:
        for ack, each in zip(acks, errors, strict=False):
            ack._exception = each
            ack._state = _FINISHED
            for waiter in ack._waiters:
                waiter.add_exception(ack)
    for ack in acks:
        if ack._done_callbacks:
            ack._invoke_callbacks()


_Error = TypeVar("_Error", bound=BaseException)


def _twin(error: _Error) -> _Error:
    """Return the like of an error, whatever its class wants to be made of."""
    kind = type(error)
    twin = kind.__new__(kind, *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin
