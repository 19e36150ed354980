"""One stream at one proxy: its history, and behind it what is taken and does not count yet.

A proxy that stands alone and keeps its history in memory has nothing that waits: what it takes counts at once. On a
disk, a batch counts when it is safe; in a chain, when the tail has it. Until then it is nobody's business but the
chain's: it is not read, collects nothing and can be dropped again. So a history only ever holds what counts, is a
prefix of the stream, and never has to be undone.
"""

from __future__ import annotations

from collections import deque

from sirius.broadcast.events import EventBatch
from sirius.broadcast.history import History, Published, predicates_of
from sirius.broadcast.limits import ATTRIBUTES_MAX
from sirius.broadcast.recent import Recent, size_of
from sirius.errors import BadMessage, OutOfOrder
from sirius.types import Seq


class Book:
    """See above."""

    def __init__(self, history: History, recent_bytes_max: int) -> None:
        self.history = history
        self._recent = Recent(recent_bytes_max)
        self._pending: deque[EventBatch] = deque()
        self._marks: dict[int, Published] = {}
        """Of whom what waits is the last batch."""
        self.pending_bytes = 0

    # ------------------------------------------------------------------ how far it is

    @property
    def count(self) -> Seq:
        """Everything up to here counts."""
        return self.history.last

    @property
    def end(self) -> Seq:
        """Everything up to here is taken."""
        return self._pending[-1].last if self._pending else self.history.last

    @property
    def end_time(self) -> int:
        """The time of the last event that was taken."""
        for batch in reversed(self._pending):
            if len(batch):
                return int(batch.times[-1])
        return self.history.last_time

    def published(self, publisher: int) -> Published | None:
        """Return the last batch of a publisher, whether it counts or not."""
        return self._marks.get(publisher) or self.history.published(publisher)

    # ------------------------------------------------------------------ taking

    def take(self, batch: EventBatch) -> None:
        """Take what comes next. Raises as `History.append` does, without any change."""
        self._check(batch)
        self.history.prepare(batch)
        self._pending.append(batch)
        self.pending_bytes += size_of(batch)
        if batch.publisher:
            self._marks[batch.publisher] = Published(batch.serial, batch.first, batch.last)

    def _check(self, batch: EventBatch) -> None:
        if batch.first != self.end + 1:
            raise OutOfOrder(f"a batch from {batch.first} on does not follow {self.end}")
        predicates_of(batch)
        if len(batch) and int(batch.times[0]) < self.end_time:
            raise BadMessage(f"time falls from {self.end_time} to {batch.times[0]}")
        if batch.attributes and (
            len(self._attributes(batch, exact=False)) > ATTRIBUTES_MAX
            and len(self._attributes(batch, exact=True)) > ATTRIBUTES_MAX
        ):
            raise BadMessage(f"a stream has at most {ATTRIBUTES_MAX} attributes at a time")

    def _attributes(self, batch: EventBatch, *, exact: bool) -> set[str]:
        names = self.history.attribute_names(exact=exact) | set(batch.attributes)
        return names.union(*(each.attributes for each in self._pending))

    def settle(self, upto: int) -> bool:
        """What is taken up to here counts; say whether anything is new. A batch counts as a whole."""
        before = self.count
        while self._pending and self._pending[0].last <= upto:
            batch = self._pending.popleft()
            self.pending_bytes -= size_of(batch)
            self.history.append(batch)
            self._recent.add(batch)
            mark = self._marks.get(batch.publisher)
            if mark is not None and mark.last == batch.last:
                del self._marks[batch.publisher]
        return self.count > before

    def drop_pending(self) -> None:
        """What does not count by now never will."""
        self._pending.clear()
        self._marks.clear()
        self.pending_bytes = 0

    # ------------------------------------------------------------------ reading

    def read(self, first: Seq, last: Seq, bytes_max: int) -> tuple[EventBatch, ...]:
        """Return what counts from `first` on: as it came if it is new, else what the history has left."""
        if first > self.count:
            return ()
        found = self._recent.read(first, last, bytes_max)
        return found or (self.history.read(first, last, bytes_max),)

    def pending(self, first: Seq) -> list[EventBatch]:
        """Return what waits from `first` on, as it came."""
        return [batch for batch in self._pending if batch.first >= first]
