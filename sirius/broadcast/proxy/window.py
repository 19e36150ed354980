"""What is under way to somebody who confirms what has arrived."""

from __future__ import annotations

from collections import deque

from sirius.broadcast.events import EventBatch
from sirius.broadcast.recent import size_of
from sirius.types import Seq


class Window:
    """One stream on its way to one receiver."""

    __slots__ = ("_under_way", "nbytes", "sent")

    def __init__(self, after: Seq) -> None:
        self._under_way: deque[tuple[Seq, int]] = deque()
        """Ends and sizes of what was sent and not confirmed."""
        self.begin(after)

    def begin(self, after: Seq) -> None:
        """Begin behind `after`, whatever was sent."""
        self.sent, self.nbytes = after, 0
        self._under_way.clear()

    def add(self, batch: EventBatch) -> None:
        """This was sent."""
        self.sent = batch.last
        self._under_way.append((batch.last, size_of(batch)))
        self.nbytes += size_of(batch)

    def confirm(self, after: Seq) -> None:
        """Everything up to here has arrived."""
        self.sent = max(self.sent, after)
        while self._under_way and self._under_way[0][0] <= after:
            self.nbytes -= self._under_way.popleft()[1]
