"""Loads under way. A flight is one load of one key; whoever wants the key meanwhile waits for it.

An invalidation takes the key's flight out of the table. It lands all the same, for those who boarded before: they
asked before the invalidation. Who asks later finds no flight, and begins another. A flight that is not in the table
when it lands fills nothing. So no number has to be kept for a key that is not there.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from sirius.errors import UsageError

V = TypeVar("V")


class Abandoned(Exception):
    """The load was given up with its thread or task; whoever waited for it begins another."""


class Flight(Generic[V]):
    """See above. `settled` changes under the cache's lock, once; the future is completed after that, without it."""

    __slots__ = ("future", "key", "loop", "settled", "task", "thread")

    def __init__(self, key: str) -> None:
        self.key = key
        self.future: Future[V] = Future()
        # One who waits and is cancelled must not cancel it for the others.
        self.future.set_running_or_notify_cancel()
        self.thread = threading.get_ident()
        """Who runs it."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self.settled = False

    @property
    def is_lost(self) -> bool:
        """Whether its event loop was closed before it landed."""
        return self.loop is not None and self.loop.is_closed() and not self.settled

    def wait(self) -> V:
        """Wait until it lands; raise what the loader raised."""
        if not self.settled and self.thread == threading.get_ident():
            raise UsageError(
                f"{self.key!r} is being loaded by this very thread: a loader must not ask for its own key, and "
                f"on the thread of an event loop it is `await cache.aget(key)`"
            )
        return self.future.result()

    async def wait_async(self) -> V:
        """Do the same for a task."""
        if not self.settled and self.task is not None and self.task is asyncio.current_task():
            raise UsageError(f"the loader of {self.key!r} asks for its own key")
        return await asyncio.wrap_future(self.future)


class Boarded(NamedTuple, Generic[V]):
    """A flight, and whether the caller has to run it."""

    flight: Flight[V]
    is_mine: bool
