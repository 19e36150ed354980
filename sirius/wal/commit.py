"""Group commit: many appends, one write and one sync.

Items queue up, bounded in bytes. One thread (or, without one, whoever calls `flush`) takes all that is waiting, hands
it to `write` as one group, and moves the durable point. While a group is being written the next one gathers: so
groups grow with load, and a lone item waits for nothing. Where something else keeps the items safe, a group may also
wait a while for more (`linger_s`), unless somebody waits for it.

A failure is final until `resume`: what was waiting is dropped, and every call from then on raises it. Nothing is ever
written twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from sirius.errors import LogClosed, LogError, LogFailed, SiriusError

Item = TypeVar("Item")
_log = logging.getLogger("sirius.wal")


class GroupCommit(Generic[Item]):
    """Writes items in groups, in order. Any thread may call any method."""

    def __init__(
        self,
        name: str,
        write: Callable[[list[Item]], None],
        *,
        start: int,
        pending_bytes_max: int,
        background: bool,
        linger_s: float = 0.0,
    ) -> None:
        self._name = name
        self._write = write
        self._pending_bytes_max = pending_bytes_max
        self._linger_s = linger_s
        self._urgent = threading.Event()
        """Set when a group should not wait for more."""
        self.changed = threading.Condition()
        """Held by whoever gives out the next number, until its item is queued."""
        self._writing = threading.Lock()
        self._pending: list[Item] = []
        self._pending_bytes = 0
        self.queued = start
        """The point up to which items were queued."""
        self.durable = start
        """The point up to which groups were written."""
        self.failure: LogError | None = None
        self._resumed: list[tuple[int, LogError]] = []
        """The failures that were got over, each with the point up to which everything was written."""
        self._closed = False
        self.on_durable: Callable[[int], None] | None = None
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(target=self._run, name=f"{name}-sync", daemon=True)
            self._thread.start()

    def queue(self, item: Item, size: int, point: int) -> None:
        """Queue an item that moves the log to `point`. Call it with `changed` held."""
        self.check()
        self._pending.append(item)
        self._pending_bytes += size
        self.queued = point
        self.changed.notify_all()
        if 2 * self._pending_bytes > self._pending_bytes_max:
            self._urgent.set()

    def wait_for_room(self) -> None:
        """Wait until an item may be queued. Call it with `changed` held, before giving out a number."""
        self.check()
        while self.crowded and self._thread is not None:
            self.changed.wait()
            self.check()

    @property
    def crowded(self) -> bool:
        """Whether more is waiting than should be."""
        return self._pending_bytes > self._pending_bytes_max

    def check(self) -> None:
        """Raise if nothing can be queued any more."""
        if self._closed:
            raise LogClosed(f"{self._name} is closed")
        if self.failure is not None:
            raise _anew(self.failure)

    def flush(self, timeout_s: float | None = None) -> int:
        """Return once all that was queued before is written; return the durable point."""
        with self.changed:
            wanted, failures = self.queued, len(self._resumed)
        if self._thread is None:
            self.commit()
        self._urgent.set()
        with self.changed:
            done = self.changed.wait_for(
                lambda: (
                    self.durable >= wanted
                    or self.failure is not None
                    or len(self._resumed) > failures
                ),
                timeout_s,
            )
            if len(self._resumed) > failures and self._resumed[failures][0] < wanted:
                # It was dropped, and its number may stand for something else by now.
                raise _anew(self._resumed[failures][1])
            if done:
                self.require(wanted)
        if not done:
            raise TimeoutError(f"{self._name}: {wanted} was not written after {timeout_s} s")
        return self.durable

    def reach(self, point: int) -> None:
        """Everything up to `point` is written, in the middle of a group and whatever becomes of the rest."""
        with self.changed:
            self.durable = max(self.durable, point)
            self.changed.notify_all()

    def require(self, point: int) -> None:
        """Raise the failure if it left `point` unwritten."""
        if self.durable < point and self.failure is not None:
            raise _anew(self.failure)

    def _run(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._pending or self._closed)
                if not self._pending:
                    return
            if self._linger_s:
                # Not on `changed`, which every item that is queued notifies.
                self._urgent.wait(self._linger_s)
                self._urgent.clear()
            try:
                self.commit()
            except SiriusError as error:
                _log.error("%s: %s", self._name, error)

    def commit(self) -> None:
        """Write one group: all that is waiting now."""
        with self._writing:
            with self.changed:
                group, size, point = self._pending, self._pending_bytes, self.queued
                self._pending = []
            if not group:
                return
            before = self.durable
            try:
                self._guarded(group)
            except BaseException:
                if self.durable > before:
                    self._tell(self.durable)
                raise
            with self.changed:
                self._pending_bytes -= size
                self.durable = point
                self.changed.notify_all()
            self._tell(point)

    def _tell(self, point: int) -> None:
        """Call back, in order. A callback that raises must not keep anybody from writing."""
        try:
            if self.on_durable is not None:
                self.on_durable(point)
        except Exception:
            _log.exception("%s: the callback for %d failed", self._name, point)

    def _guarded(self, group: list[Item]) -> None:
        try:
            self._write(group)
        except LogError as error:
            self.fail(error)
            raise
        except OSError as error:
            failure = LogFailed(f"{self._name}: {error}")
            self.fail(failure)
            raise failure from error
        except BaseException as error:
            # Whoever waits must hear of it, whatever it was.
            self.fail(LogFailed(f"{self._name}: {error!r}"))
            raise

    def fail(self, error: LogError) -> None:
        """Take nothing more. What is waiting is dropped."""
        with self.changed:
            self.failure = error
            self._pending.clear()
            self._pending_bytes = 0
            self.changed.notify_all()

    def resume(self, point: int) -> None:
        """Go on after a failure that left everything up to `point` written and nothing behind it."""
        with self._writing, self.changed:
            if self.failure is None:
                return
            self._resumed.append((point, _anew(self.failure)))
            self.failure = None
            self.queued = self.durable = point
            self.changed.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have no group written meanwhile. Items still queue up, unless `changed` is held as well."""
        with self._writing:
            yield

    def rewind(self, point: int) -> None:
        """Go back to `point`, for a log that was truncated. Call it paused, with `changed` held and nothing waiting."""
        cut = LogError(f"{self._name} was truncated after {point}")
        # Whoever waits for a number that is gone must not wait for the one that takes its place.
        self._resumed.append((point, cut))
        self.queued = self.durable = point
        self.changed.notify_all()

    def advance(self, point: int) -> None:
        """Go on to `point`, which was written in another way. Call it as `rewind`."""
        self.queued = self.durable = point
        self.changed.notify_all()

    def close(self) -> bool:
        """Stop the thread once all is written; say whether that went well. Closing twice is harmless."""
        try:
            if not self._closed and self.failure is None:
                self.flush()
        finally:
            with self.changed:
                self._closed = True
                self.changed.notify_all()
            self._urgent.set()
            if self._thread is not None:
                self._thread.join()
        return self.failure is None


def _anew(error: LogError) -> LogError:
    """Return an error to be raised once more. Without this each raise would add to its traceback, and keep frames."""
    return error.with_traceback(None)
