"""What callers hand in, on its way to the loop: a bounded queue without a lock.

A caller appends, which is atomic, and wakes the loop if it sleeps: once for however many requests come until it looks.
The bound holds from here until the answer. The loop, which alone knows what is under way, closes the gate when there is
too much; callers that find it closed wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sirius.driver.acks import Ack
from sirius.errors import NodeError, Overloaded
from sirius.wal.record import Update


class Asked(NamedTuple):
    """An update, and who wants to know of it."""

    update: Update
    ack: Ack


class Inbox:
    """Many threads put, one loop takes."""

    def __init__(self, wake: Callable[[], None], count_max: int, bytes_max: int) -> None:
        self._wake = wake
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._queue: deque[Asked] = deque()
        self._sleeping = True
        self._open = threading.Event()
        self._open.set()
        self._refusal: Callable[[], NodeError] | None = None
        self._held = 0
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def outstanding(self) -> int:
        """How many requests wait here or for their answer."""
        return len(self._queue) + self._held

    # ------------------------------------------------------------------ callers

    def put(self, asked: Asked, timeout_s: float) -> None:
        """Hand a request in; wait for room if there is none."""
        if (
            self._refusal is not None
            or not self._open.is_set()
            or len(self._queue) >= self._count_max
        ):
            self._wait(timeout_s)
        self._queue.append(asked)
        if self._sleeping:
            self._sleeping = False
            self._wake()
        if self._refusal is not None:
            # It was shut just now; the loop may have taken its last look.
            self._wake()

    def _wait(self, timeout_s: float) -> None:
        if self._refusal is None and len(self._queue) >= self._count_max:
            self._open.clear()
            self._wake()
        is_open = self._open.wait(timeout_s)
        if self._refusal is not None:
            raise self._refusal()
        if not is_open:
            raise Overloaded(
                f"{self.outstanding:,} requests are waiting, and none was answered within {timeout_s:g} s"
            )

    @property
    def has_room(self) -> bool:
        """Whether `put` would not wait."""
        return self._refusal is None and self._open.is_set() and len(self._queue) < self._count_max

    # ------------------------------------------------------------------ the loop

    def take(self, count_max: int, bytes_max: int) -> list[Asked]:
        """Take what is there, up to a batch. At least one, whatever its size."""
        queue, size = self._queue, 0
        taken: list[Asked] = []
        while queue and len(taken) < count_max and size < bytes_max:
            asked = queue.popleft()
            size += size_of(asked.update)
            taken.append(asked)
        self._held += len(taken)
        self._held_bytes += size
        if self._held >= self._count_max or self._held_bytes >= self._bytes_max:
            self._open.clear()
        else:
            self._reopen()
        return taken

    def release(self, count: int, size: int) -> None:
        """Requests were answered."""
        self._held -= count
        self._held_bytes -= size
        self._reopen()

    def _reopen(self) -> None:
        if not self._open.is_set() and (
            self._held < self._count_max
            and self._held_bytes < self._bytes_max
            and len(self._queue) < self._count_max
        ):
            self._open.set()

    def rest(self) -> bool:
        """Say that the loop is about to sleep; False if there is something to do first."""
        self._sleeping = True
        self._reopen()
        if not self._queue:
            return True
        self._sleeping = False
        return False

    def shut(self, refusal: Callable[[], NodeError]) -> list[Asked]:
        """Take nothing more, and say why; return what nobody took."""
        self._refusal = refusal
        self._open.set()
        left = []
        while self._queue:
            left.append(self._queue.popleft())
        return left


def size_of(update: Update) -> int:
    """How much a request counts against the bound."""
    return len(update.key) + len(update.body) + 64
