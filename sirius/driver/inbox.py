"""What callers hand in, on its way to the loop: a bounded queue, and a line in front of it.

A caller that finds room appends its request, and wakes the loop if it sleeps: once for however many come until it
looks. The bound, in requests and bytes, holds from here until `release`. A caller that finds no room stands in line.
Whoever makes room puts the first in line into the queue himself: so nobody who comes later passes those who wait,
nobody is woken in vain, and however many wait, no more than there is room for get in. The lock is held for moments.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from sirius.driver.acks import Ack
from sirius.errors import NodeError, Overloaded
from sirius.wal.record import Update

Told = Callable[[NodeError | None], None]
"""Tells one in line: it is in, or why it never will be. Called on the loop, so it must not block."""


class Asked(NamedTuple):
    """An update, and who wants to know of it."""

    update: Update
    ack: Ack


class Inbox:
    """Many threads put, one loop takes. The last one let in may exceed the bound on bytes."""

    def __init__(self, wake: Callable[[], None], count_max: int, bytes_max: int) -> None:
        self._wake = wake
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._queue: deque[Asked] = deque()
        self._line: OrderedDict[Ack, tuple[Asked, Told]] = OrderedDict()
        self._sleeping = True
        self._refusal: Callable[[], NodeError] | None = None
        self._count = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def next_size(self) -> int:
        """How much the next request counts; 0 if there is none. For the loop."""
        return size_of(self._queue[0].update) if self._queue else 0

    @property
    def outstanding(self) -> int:
        """How many requests wait here or for their answer."""
        return self._count

    @property
    def outstanding_bytes(self) -> int:
        """How many bytes these have."""
        return self._bytes

    @property
    def in_line(self) -> int:
        """How many wait for room."""
        return len(self._line)

    # ------------------------------------------------------------------ callers

    def put(self, asked: Asked, timeout_s: float) -> None:
        """Hand a request in; wait for room if there is none."""
        if self.offer(asked):
            return
        outcome: SimpleQueue[NodeError | None] = SimpleQueue()
        self.line_up(asked, outcome.put)
        try:
            refusal = outcome.get(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))
        except Empty:
            if self.leave(asked):
                raise self.overloaded(timeout_s) from None
            refusal = outcome.get()
        except BaseException:
            self.leave(asked)
            raise
        if refusal is not None:
            raise refusal

    def offer(self, asked: Asked) -> bool:
        """Hand a request in if there is room; say whether there was."""
        size = size_of(asked.update)
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            if self._line or self._count >= self._count_max or self._bytes >= self._bytes_max:
                return False
            # What `_add` does, without the calls: this is the way of every request.
            self._count += 1
            self._bytes += size
            self._queue.append(asked)
            wake, self._sleeping = self._sleeping, False
        if wake:
            self._wake()
        return True

    def line_up(self, asked: Asked, told: Told) -> None:
        """Stand in line with a request. `told` is called when it is in, or refused; not if it leaves before."""
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            self._line[asked.ack] = (asked, told)
            let_in, wake = self._let_in()
        self._tell(let_in, wake)

    def leave(self, asked: Asked) -> bool:
        """Stand in line no longer; False if it is in, was refused, or never stood there."""
        with self._lock:
            return self._line.pop(asked.ack, None) is not None

    def overloaded(self, timeout_s: float) -> Overloaded:
        """What to tell a caller that has waited in vain."""
        return Overloaded(
            f"{self._count:,} requests with {self._bytes:,} bytes are under way, and {len(self._line):,} callers wait: "
            f"there was no room for another within {timeout_s:g} s"
        )

    # ------------------------------------------------------------------ with the lock held

    @property
    def _has_room(self) -> bool:
        return self._count < self._count_max and self._bytes < self._bytes_max

    def _add(self, asked: Asked) -> bool:
        """Put a request into the queue; say whether the loop has to be woken."""
        self._count += 1
        self._bytes += size_of(asked.update)
        self._queue.append(asked)
        wake, self._sleeping = self._sleeping, False
        return wake

    def _let_in(self) -> tuple[list[Told], bool]:
        """Let in as many as there is room for; return whom to tell, and whether to wake the loop."""
        let_in, wake = [], False
        while self._line and self._has_room:
            asked, told = self._line.popitem(last=False)[1]
            wake |= self._add(asked)
            let_in.append(told)
        return let_in, wake

    # ------------------------------------------------------------------ the loop

    def take(self, count_max: int, bytes_max: int) -> list[Asked]:
        """Take what is there, up to a batch. At least one, whatever its size."""
        queue, size = self._queue, 0
        taken: list[Asked] = []
        # Nobody else takes, so what stands first stays there.
        while queue and len(taken) < count_max:
            size += size_of(queue[0].update)
            if taken and size > bytes_max:
                break
            taken.append(queue.popleft())
        return taken

    def release(self, count: int, size: int) -> None:
        """Requests were answered."""
        with self._lock:
            self._count -= count
            self._bytes -= size
            let_in, wake = self._let_in()
        self._tell(let_in, wake)

    def _tell(self, let_in: list[Told], wake: bool) -> None:
        for told in let_in:
            told(None)
        if wake:
            self._wake()

    def rest(self) -> bool:
        """Say that the loop is about to sleep; False if there is something to do first."""
        with self._lock:
            self._sleeping = not self._queue
            return self._sleeping

    def shut(self, refusal: Callable[[], NodeError]) -> list[Asked]:
        """Take nothing more, and say why; return what nobody took."""
        with self._lock:
            self._refusal = refusal
            left, line = list(self._queue), list(self._line.values())
            self._queue.clear()
            self._line.clear()
            self._count -= len(left)
            self._bytes -= sum(size_of(asked.update) for asked in left)
        for _, told in line:
            told(refusal())
        return left


def size_of(update: Update) -> int:
    """How much a request counts against the bound."""
    return len(update.key) + len(update.body) + 64
