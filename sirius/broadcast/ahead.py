"""What came before its turn waits here. What does not fit is dropped; whoever notices the gap asks for it again."""

from __future__ import annotations

from bisect import bisect_left

from sirius.broadcast.events import EventBatch
from sirius.broadcast.recent import size_of
from sirius.types import Seq


class Ahead:
    """Batches of one stream that wait for those before them, in order."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._firsts: list[int] = []
        self._batches: list[EventBatch] = []
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, batch: EventBatch) -> bool:
        """Have a batch wait; say whether there was room. Of two that begin alike the longer one is kept."""
        at = bisect_left(self._firsts, batch.first)
        if at < len(self._firsts) and self._firsts[at] == batch.first:
            if batch.last <= self._batches[at].last:
                return True
            self._drop(at)
        if self.nbytes + size_of(batch) > self._bytes_max:
            return False
        self._firsts.insert(at, batch.first)
        self._batches.insert(at, batch)
        self.nbytes += size_of(batch)
        return True

    def take(self, position: Seq) -> EventBatch | None:
        """Take out what is behind `position` without a gap, if there is something."""
        while self._firsts and self._firsts[0] <= position + 1:
            batch = self._drop(0)
            if batch.last > position:
                return batch.behind(position)
        return None

    def _drop(self, at: int) -> EventBatch:
        del self._firsts[at]
        batch = self._batches.pop(at)
        self.nbytes -= size_of(batch)
        return batch
