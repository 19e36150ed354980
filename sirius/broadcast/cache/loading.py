"""Running loaders: on the caller's thread, many keys in one call, or on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from sirius.broadcast.cache.entries import Entry
from sirius.broadcast.cache.errors import NotCached
from sirius.broadcast.cache.flights import Boarded, Flight
from sirius.broadcast.cache.shelf import Shelf
from sirius.errors import UsageError

V = TypeVar("V")
Loader = Callable[[str], V]
AsyncLoader = Callable[[str], Awaitable[V]]
BatchLoader = Callable[[Collection[str]], Mapping[str, V]]


class Loading(Generic[V]):
    """The loaders of one cache."""

    def __init__(
        self,
        shelf: Shelf[V],
        clock: Callable[[], float],
        loader: Loader[V] | None,
        async_loader: AsyncLoader[V] | None,
        batch_loader: BatchLoader[V] | None,
    ) -> None:
        _check("loader", loader)
        _check("batch_loader", batch_loader)
        _check("async_loader", async_loader, may_be_async=True)
        self._shelf = shelf
        self._clock = clock
        self._batch_loader = batch_loader
        self._loader = loader or (batch_loader and partial(_one, batch_loader))
        self._async_loader = async_loader
        self._tasks: set[asyncio.Task[Any]] = set()
        """Event loops know their tasks by weak references alone."""

    def board(self, key: str) -> Entry[V] | Boarded[V]:
        """Return what is there, or the load to run or to wait for, for one who waits on his thread."""
        found = self._shelf.board(key, self._loader is not None)
        if found is not None:
            return found
        if self._async_loader is not None:
            raise UsageError(f"{key!r} is not cached, and only an async_loader is given: use aget")
        raise NotCached(key, "is not cached, and there is no loader")

    def board_async(self, key: str) -> Entry[V] | Boarded[V]:
        """Do the same for a task."""
        return self._shelf.board(key) if self._async_loader else self.board(key)  # type: ignore[return-value]

    # ------------------------------------------------------------------ on this thread

    def run(self, flight: Flight[V]) -> None:
        """Load one key. The outcome goes to all who wait; only what is no `Exception` is raised here as well."""
        self._run([flight], self._load_one)

    def run_many(self, flights: Sequence[Flight[V]]) -> None:
        """Load many keys: in one call, or one after the other if there is no batch loader."""
        if self._batch_loader is not None and flights:
            self._run(flights, self._load_batch)
        else:
            self._run_each(flights)

    def _run_each(self, flights: Sequence[Flight[V]]) -> None:
        try:
            for flight in flights:
                self.run(flight)
        finally:
            # Those behind one that was interrupted.
            for flight in flights:
                self._shelf.abandon(flight)

    def _run(
        self,
        flights: Sequence[Flight[V]],
        load: Callable[[Sequence[Flight[V]]], dict[str, Entry[V]]],
    ) -> None:
        began = self._clock()
        try:
            found = load(flights)
        except Exception as error:
            self._fail(flights, error, began)
        except BaseException:
            # An interrupt is for this thread alone.
            for flight in flights:
                self._shelf.abandon(flight)
            raise
        else:
            self._land(flights, found, began)

    def _load_one(self, flights: Sequence[Flight[V]]) -> dict[str, Entry[V]]:
        (flight,) = flights
        flight.thread = threading.get_ident()
        value = self._loader(flight.key)  # type: ignore[misc]
        if isinstance(value, Coroutine):
            value.close()
            raise UsageError("the loader returned a coroutine: hand it in as async_loader")
        return {flight.key: self._shelf.entry_of(flight.key, value)}

    def _load_batch(self, flights: Sequence[Flight[V]]) -> dict[str, Entry[V]]:
        keys = [flight.key for flight in flights]
        found = self._batch_loader(keys)  # type: ignore[misc]
        return {key: self._shelf.entry_of(key, found[key]) for key in keys if key in found}

    def _land(self, flights: Sequence[Flight[V]], found: dict[str, Entry[V]], began: float) -> None:
        # The time is counted once for all of them.
        took_s = self._clock() - began
        for flight in flights:
            if (entry := found.get(flight.key)) is not None:
                self._shelf.land(flight, entry, took_s)
            else:
                self._shelf.fail(flight, _unknown(flight.key), took_s)
            took_s = 0.0

    def _fail(self, flights: Sequence[Flight[V]], error: Exception, began: float) -> None:
        took_s = self._clock() - began
        for flight in flights:
            self._shelf.fail(flight, error, took_s)
            took_s = 0.0

    # ------------------------------------------------------------------ on an event loop

    def start(self, flight: Flight[V]) -> None:
        """Begin to load one key, as a task of its own: it outlives the one who asked."""
        loop = asyncio.get_running_loop()
        run = self._load_async if self._async_loader else self._load_on_thread
        flight.loop = loop
        flight.task = task = loop.create_task(run(flight))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, flight))

    async def _load_async(self, flight: Flight[V]) -> None:
        began = self._clock()
        try:
            value = await self._async_loader(flight.key)  # type: ignore[misc]
            entry = self._shelf.entry_of(flight.key, value)
        except Exception as error:
            self._fail([flight], error, began)
        else:
            self._land([flight], {flight.key: entry}, began)

    async def _load_on_thread(self, flight: Flight[V]) -> None:
        await asyncio.to_thread(self.run, flight)

    def _ended(self, flight: Flight[V], task: asyncio.Task[Any]) -> None:
        """Also when the task was cancelled before its first step, as at the end of an event loop."""
        self._tasks.discard(task)
        self._shelf.abandon(flight)
        if not task.cancelled():
            task.exception()


def _one(load: BatchLoader[V], key: str) -> V:
    found = load([key])
    if key not in found:
        raise _unknown(key)
    return found[key]


def _unknown(key: str) -> NotCached:
    return NotCached(key, "is not known to the loader")


def _check(name: str, loader: object, may_be_async: bool = False) -> None:
    if loader is None:
        return
    if not callable(loader):
        raise UsageError(f"{name} is a function, not {type(loader).__name__}")
    if inspect.iscoroutinefunction(loader) and not may_be_async:
        raise UsageError(f"{name} is a coroutine function: hand it in as async_loader")
