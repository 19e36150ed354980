"""Events on their way in.

A subscription is a client of its own (`sirius.broadcast.client`): it has its own place in each stream, and one that is
slow holds up nobody else. What was delivered waits here until the application takes it. The client knows how much that
is, and beyond its bound it asks nobody for more: nothing piles up for an application that does not keep up, here or
elsewhere.

A batch counts as taken when the application asks for the next one. `positions` says how far it got: whoever keeps that
can go on there in another life.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from sirius.broadcast.context import Delivery, Effects
from sirius.broadcast.events import EventBatch, Kind, Stream
from sirius.broadcast.live.selecting import with_topic

log = logging.getLogger("sirius.broadcast")


class Received(NamedTuple):
    """One event."""

    stream: str
    seq: int
    kind: Kind
    topic: str
    key: bytes
    payload: bytes
    time: int
    """Microseconds of the day's time, by the clock of the stream's owner."""
    attributes: Mapping[str, int]


Consumed = Callable[[Stream, int], None]
"""Tells the client that everything up to a sequence number was taken. Called on any thread."""


class Subscription:
    """Iterate over it, with `for` or `async for`, or over its `batches`. For one reader at a time."""

    def __init__(
        self,
        after: Mapping[Stream, int],
        topic: str | None,
        consumed: Consumed,
        closing: Callable[[Subscription], None],
    ) -> None:
        self._topic = topic
        self._consumed = consumed
        self._closing = closing
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._events: deque[Received] = deque()
        self._positions: dict[str, int] = {str(stream): seq for stream, seq in after.items()}
        self._taken: Delivery | None = None
        self._is_closed = False
        self.error: BaseException | None = None
        """What a callback raised: it is called no more."""

    @property
    def positions(self) -> Mapping[str, int]:
        """How far the application got in each stream: everything up to here was handed to it, or is a hole."""
        return dict(self._positions)

    @property
    def position(self) -> int:
        """The same, of the only stream."""
        (position,) = self._positions.values()
        return position

    @property
    def closed(self) -> bool:
        return self._is_closed

    # ------------------------------------------------------------------ batches

    def next_batch(self, timeout: float | None = None) -> Delivery | None:
        """Wait for what comes next; None: it was closed. Raises `TimeoutError`."""
        self._finish()
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting or self._is_closed, timeout):
                raise TimeoutError(f"nothing came in {timeout} s")
            return self._take()

    async def anext_batch(self) -> Delivery | None:
        """Do the same without blocking the event loop."""
        self._finish()
        while True:
            with self._changed:
                if self._waiting or self._is_closed:
                    return self._take()
                loop = asyncio.get_running_loop()
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiters.append((loop, waiter))
            try:
                await waiter
            finally:
                self._forget(waiter)

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        """One who waits may give up, again and again, before anything comes."""
        with self._changed:
            self._waiters = [each for each in self._waiters if each[1] is not waiter]

    def batches(self) -> Iterator[Delivery]:
        """Yield stream and batch of whatever comes: for those who want columns. Ends when it is closed."""
        while (delivery := self.next_batch()) is not None:
            yield delivery

    async def abatches(self) -> AsyncIterator[Delivery]:
        """Likewise, for `async for`."""
        while (delivery := await self.anext_batch()) is not None:
            yield delivery

    def _take(self) -> Delivery | None:
        if self._is_closed:
            return None
        stream, batch = taken = self._waiting.popleft()
        self._taken = taken
        return taken if self._topic is None else Delivery(stream, with_topic(batch, self._topic))

    def _finish(self) -> None:
        """What was taken before is done with."""
        taken, self._taken = self._taken, None
        if taken is not None:
            self._positions[taken.stream] = taken.batch.last
            self._consumed(taken.stream, taken.batch.last)

    # ------------------------------------------------------------------ one by one

    def get(self, timeout: float | None = None) -> Received | None:
        """Wait for the next event; None: it was closed. Raises `TimeoutError`."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._events:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._open(self.next_batch(left)):
                return None
        return self._hand_out()

    async def aget(self) -> Received | None:
        """Do the same without blocking the event loop."""
        while not self._events:
            if not self._open(await self.anext_batch()):
                return None
        return self._hand_out()

    def _open(self, delivery: Delivery | None) -> bool:
        if delivery is None:
            return False
        self._events.extend(events_of(*delivery))
        return True

    def _hand_out(self) -> Received:
        event = self._events.popleft()
        self._positions[event.stream] = event.seq
        return event

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received:
        if (event := self.get()) is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received:
        if (event := await self.aget()) is None:
            raise StopAsyncIteration
        return event

    # ------------------------------------------------------------------ callbacks

    def call(self, on_event: Callable[[Received], object]) -> None:
        """Have a thread call `on_event` for each event. What it raises ends the subscription, and is in `error`."""
        self._start(lambda delivery: [on_event(event) for event in events_of(*delivery)])

    def call_with_batches(self, on_batch: Callable[[str, EventBatch], object]) -> None:
        """Likewise, with stream and batch."""
        self._start(lambda delivery: on_batch(*delivery))

    def _start(self, handle: Callable[[Delivery], object]) -> None:
        def run() -> None:
            try:
                for delivery in self.batches():
                    handle(delivery)
            except Exception as error:
                self.error = error
                log.exception("a subscription ends because its callback failed")
                self.close()

        threading.Thread(target=run, name="sirius-subscription", daemon=True).start()

    # ------------------------------------------------------------------ the other side

    def take(self, effects: Effects) -> None:
        """The client delivers. Called on the loop."""
        with self._changed:
            self._waiting.extend(effects.deliver)
            self._notify()

    def close(self) -> None:
        """Take nothing any more; iterators end. What was delivered and not taken is dropped: it comes again to
        whoever resumes. Closing twice is harmless."""
        with self._changed:
            was_closed, self._is_closed = self._is_closed, True
            self._waiting.clear()
            self._notify()
        if not was_closed:
            self._closing(self)

    def _notify(self) -> None:
        self._changed.notify_all()
        waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            _wake(loop, waiter)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def events_of(stream: Stream, batch: EventBatch) -> list[Received]:
    """Return the events of a batch one by one."""
    return [Received(stream, *event) for event in batch.events()]


def _wake(loop: Any, waiter: asyncio.Future[None]) -> None:
    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    try:
        loop.call_soon_threadsafe(wake)
    except RuntimeError:
        log.debug("the event loop of a reader is closed")
