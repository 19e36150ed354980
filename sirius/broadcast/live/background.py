"""A thread with an event loop, for those who have none of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from sirius.errors import NodeClosed

T = TypeVar("T")
_LAST_S: Final = 0.5


class Background:
    """Started when it is made; ended by `close`. A daemon: it keeps no process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closing = False
        self._lock = threading.Lock()
        """Held by who begins something: what is begun before the end is seen to its end."""
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether this is called on the thread itself, which must not wait for itself."""
        return threading.current_thread() is self._thread

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Do something on the loop, and wait for it. Raises `NodeClosed` if another thread closes it before that."""
        try:
            return self._begin(work).result(timeout_s)
        except CancelledError:
            raise NodeClosed("it was closed meanwhile") from None

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if not self._is_closing:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise NodeClosed("it was closed before")

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call something on the loop, some time. After `close` nothing is called any more."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """End what still runs, stop the loop and wait for the thread."""
        with self._lock:
            is_first, self._is_closing = not self._is_closing, True
        if is_first:
            asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _end_all() -> None:
    """See every other task to its end: one that is left when its loop is closed complains on standard error."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, others = await asyncio.wait(others, timeout=_LAST_S)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
