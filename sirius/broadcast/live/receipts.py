"""What became of an event, for whoever published it.

Events that are published one by one travel in batches, and a batch has one outcome. So a receipt is two words: its
batch, and the place in it. A hundred thousand a second cost no lock and no condition each; whoever asks for one waits
for the batch's future.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple


class Span(NamedTuple):
    """Where the events of a batch stand in their stream: from `first` to `last`."""

    first: int
    last: int


def outcome() -> Future[Span]:
    """Return the future of a batch. It has begun, so nobody can cancel it for all the others."""
    future: Future[Span] = Future()
    future.set_running_or_notify_cancel()
    return future


class Receipt:
    """Like a future of one event's sequence number, from any thread."""

    __slots__ = ("_batch", "at")

    def __init__(self, batch: Future[Span], at: int) -> None:
        self._batch = batch
        self.at = at

    @property
    def batch(self) -> Future[Span]:
        """The future of the whole batch, for `concurrent.futures.wait` and the like."""
        return self._batch

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.done()

    def result(self, timeout: float | None = None) -> int:
        """Wait until the event is in its stream; return its sequence number, or raise why it is not there."""
        return self._batch.result(timeout).first + self.at

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome; return the error if it is one."""
        return self._batch.exception(timeout)

    def add_done_callback(self, function: Callable[[Receipt], object]) -> None:
        """Have `function` called with this receipt when the outcome is known; on whichever thread knows it."""
        self._batch.add_done_callback(lambda _: function(self))

    def __repr__(self) -> str:
        state = "pending" if not self.done() else f"{self.exception() or self.result()}"
        return f"<Receipt: {state}>"
