"""Group commit: many things to write, one write and one sync.

Whoever has something to write puts it into the open group and gets a ticket: 1, 2, 3 and so on. One thread at a time
closes the open group and has it written as a whole; while the disk works, the next group gathers. So groups grow with
load, and `durable`, the highest ticket that is safe, moves in order.

A group that fails takes with it all that was put behind it, for it may build on what failed: none of these tickets
ever becomes durable. From then on everything is refused with the error, until `resume` if that was a full disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sirius.errors import DiskFull, LogClosed, LogError, LogFailed

Item = TypeVar("Item")
_log = logging.getLogger("sirius.wal")


class _Group(Generic[Item]):
    """What is written together, and what became of it."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.bytes = 0
        self.last = 0
        self.done = False
        self.error: LogError | None = None


class GroupCommit(Generic[Item]):
    """Gathers items into groups. Any thread may call anything.

    `write` makes one group safe or raises. `after` is called when the group has been reported; a failure there does
    not harm the group but stops what follows. Both run under `committing`, so never twice at a time.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[list[Item]], None],
        after: Callable[[], None],
        *,
        background: bool,
        bytes_max: int,
    ) -> None:
        self._name = name
        self._write = write
        self._after = after
        self._bytes_max = bytes_max
        self.committing = threading.RLock()
        self._changed = threading.Condition()
        self._open: _Group[Item] = _Group()
        self._closing: _Group[Item] = _Group()
        self._closing.done = True
        self._wanted = False
        self._closed = False
        self.asked = 0
        """The last ticket given."""
        self.durable = 0
        """The highest ticket that is safe."""
        self.failure: LogError | None = None
        self.on_durable: Callable[[int], None] | None = None
        self._thread = self._start() if background else None

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name=f"sirius-sync {self._name}", daemon=True)
        thread.start()
        return thread

    # ------------------------------------------------------------------ asking

    def put(self, item: Item, size: int) -> int:
        """Add to the open group; return the ticket.

        Where the open group holds more than `bytes_max` it waits for the thread, or commits if there is none.
        """
        with self._changed:
            self._wait_for_room()
            self.check()
            self.asked += 1
            group = self._open
            group.items.append(item)
            group.bytes += size
            group.last = self.asked
            ticket = self.asked
        if self._thread is None and group.bytes > self._bytes_max:
            self.commit()
        return ticket

    def _wait_for_room(self) -> None:
        while self._thread is not None and self._open.bytes > self._bytes_max and not self._stopped:
            self._wanted = True
            self._changed.notify_all()
            self._changed.wait()

    @property
    def _stopped(self) -> bool:
        return self._closed or self.failure is not None

    def check(self) -> None:
        """Raise if nothing can be added."""
        if self._closed:
            raise LogClosed(f"{self._name} is closed")
        if self.failure is not None:
            raise self.failure

    def sync(self) -> int:
        """Have the open group written: by the thread, or here and now. Return the last ticket in it."""
        with self._changed:
            self.check()
            wanted = self.asked
            self._wanted = True
            self._changed.notify_all()
        if self._thread is None:
            self.commit()
        return wanted

    def flush(self, timeout_s: float | None = None) -> int:
        """Return once all that was put in before is safe, or raise what became of it."""
        with self._changed:
            group = self._open if self._open.items else self._closing
            self._wanted = True
            self._changed.notify_all()
        if self._thread in (None, threading.current_thread()):
            self.commit()
        with self._changed:
            if not self._changed.wait_for(lambda: group.done or group.error, timeout_s):
                raise TimeoutError(f"{self._name}: {group.last} was not safe after {timeout_s} s")
        if group.error is not None:
            raise group.error
        return self.durable

    # ------------------------------------------------------------------ writing

    def _run(self) -> None:
        while self._wait_for_work():
            try:
                self.commit()
            except LogError as error:
                _log.error("%s: %s", self._name, error)

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._wanted and self._open.items))
            return not self._closed

    def commit(self) -> None:
        """Write the open group in this thread."""
        with self.committing:
            group = self._close_group()
            if not group.items:
                return
            try:
                self._write(group.items)
                self._report(group)
                self._after()
            except BaseException as error:
                self.stop(error)
                if not (group.done and isinstance(error, LogError)):
                    raise
                _log.error("%s: %s", self._name, error)

    def _close_group(self) -> _Group[Item]:
        with self._changed:
            group = self._open
            if group.items:
                self._open, self._closing, self._wanted = _Group(), group, False
            return group

    def _report(self, group: _Group[Item]) -> None:
        with self._changed:
            self.durable = group.last
            group.done = True
            group.items = []
            self._changed.notify_all()
        if self.on_durable is not None:
            self.on_durable(group.last)

    # ------------------------------------------------------------------ failing

    def stop(self, error: BaseException) -> None:
        """Refuse everything from now on, and give up what is not safe yet."""
        failure = error if isinstance(error, LogError) else LogFailed(f"{self._name}: {error!r}")
        with self._changed:
            self.failure = failure
            for group in (self._closing, self._open):
                if not group.done:
                    group.error = failure
            self._open = _Group()
            self._changed.notify_all()

    def resume(self) -> bool:
        """Go on after a full disk; say whether that was the trouble. Tickets above `durable` are void."""
        with self.committing, self._changed:
            if not isinstance(self.failure, DiskFull):
                return False
            self.failure = None
            self._closing = _Group()
            self._closing.done = True
            return True

    def close(self) -> None:
        """Take nothing more, and end the thread. What is waiting is given up: `flush` before."""
        with self.committing, self._changed:
            self._closed = True
            self._open.error = LogClosed(f"{self._name} was closed")
            self._open = _Group()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
