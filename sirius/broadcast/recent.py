"""The newest batches of a stream, as they came: a client's Recv (Sprinkler, Figure 3), and a proxy's short way.

Old ones are discarded when there is no room. What is asked for is answered with whole batches, which may begin
before the range or end behind it: whoever asked cuts off what he has, and nobody encodes anything again.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from sirius.broadcast.events import EventBatch
from sirius.broadcast.history.rows import ROW_BYTES
from sirius.types import Seq

_BATCHES_MAX: Final = 4096


class Recent:
    """Batches that follow each other, up to a size."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._batches: list[EventBatch] = []
        self._firsts: list[int] = []
        self.nbytes = 0

    @property
    def first(self) -> int:
        """Where it begins; far away if it is empty."""
        return self._firsts[0] if self._firsts else 1 << 62

    def add(self, batch: EventBatch) -> None:
        """Add what follows the last one. The last one is kept, however large it is."""
        self._batches.append(batch)
        self._firsts.append(batch.first)
        self.nbytes += size_of(batch)
        drop = 0
        while self._is_full(len(self._batches) - drop):
            self.nbytes -= size_of(self._batches[drop])
            drop += 1
        if drop:
            del self._batches[:drop], self._firsts[:drop]

    def _is_full(self, count: int) -> bool:
        return count > 1 and (self.nbytes > self._bytes_max or count > _BATCHES_MAX)

    def read(self, first: Seq, last: Seq, bytes_max: int) -> tuple[EventBatch, ...]:
        """Return batches from the one with `first` on; none if it was discarded, or has not come."""
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or self._batches[at].last < first:
            return ()
        found = [self._batches[at]]
        size = size_of(found[0])
        for batch in self._batches[at + 1 :]:
            size += size_of(batch)
            if size > bytes_max or batch.first > last:
                break
            found.append(batch)
        return tuple(found)


def size_of(batch: EventBatch) -> int:
    """Return about how much room a batch takes."""
    beside = 8 * len(batch.attributes) * len(batch) + sum(map(len, batch.topics))
    return batch.nbytes + beside + ROW_BYTES
