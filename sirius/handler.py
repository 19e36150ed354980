"""What an application writes: a handler for the updates of the log, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from sirius.types import Seq


class SiriusResult(NamedTuple):
    """What came of a request: a value, nothing, or the handler's refusal."""

    value: Any = None
    has_value: bool = False
    error: str | None = None
    seq: Seq | None = None
    """The sequence number of an update. Hand it to `wait_for` on any node to read your own write there."""

    @classmethod
    def none(cls) -> SiriusResult:
        """Done, and nothing to return; for a GET: there is no such key."""
        return _NONE

    @classmethod
    def some(cls, value: Any) -> SiriusResult:
        """Done, with a value."""
        return cls(value, True)

    @classmethod
    def rejected(cls, reason: str) -> SiriusResult:
        """The handler does not take this update, and would not on any other node either.

        It is in the log all the same, as the newest of its key: after compaction nothing older of that key is left.
        So remove what the key held before, or check what is wrong with an update before it is enqueued.
        """
        return cls(error=reason)


_NONE = SiriusResult()
"""One for all: a handler returns it for nearly every update."""


class HandledUpdate(NamedTuple):
    """A PUT or DELETE with everything that the log knows of it."""

    seq: Seq
    ts_us: int
    """When the leader took it: microseconds since 1970. Clocks differ, so order goes by `seq` alone."""
    key: str
    body: bytes | None
    """None for a DELETE."""


class RequestHandler(ABC):
    """The application's own data structures, kept up to date.

    Sirius calls it from one thread, in log order: on every node the same updates in the same order, and after a restart
    once more from the beginning of the (compacted) log. So what an update does must depend on nothing but the
    update and the state before it. `handle_get` is called between updates, for those who ask through Sirius;
    whoever reads the structures directly from other threads sees to that himself.
    """

    @abstractmethod
    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        """Put a value under a key."""

    @abstractmethod
    def handle_delete(self, key: str) -> SiriusResult:
        """Remove a key, which may not be there."""

    def handle_get(self, key: str) -> SiriusResult:
        """Look a key up."""
        raise NotImplementedError(f"{type(self).__name__} has no handle_get")

    # Optional. One that a handler has is called in the place of those above.

    def handle_update(self, update: HandledUpdate) -> SiriusResult:
        """Take a PUT or a DELETE with its sequence number and its time."""
        raise NotImplementedError

    def handle_batch(self, updates: Sequence[HandledUpdate]) -> Sequence[SiriusResult] | None:
        """Take many updates at once; None stands for `SiriusResult.none()` for each.

        If it raises, the whole batch comes again: have all of it done, or nothing.
        """
        raise NotImplementedError

    def on_bootstrap_starting(self) -> None:  # noqa: B027 (optional)
        """The log is about to be replayed, from the beginning: at the start, and when it was taken anew from others."""

    def on_bootstrap_complete(self) -> None:  # noqa: B027 (optional)
        """The replay is over. What comes now is new."""
