"""A stream's history: everything from 1 on that has not been collected, and holes for the rest.

Key GC in a history is what compaction is in a log. `MemoryHistory` keeps it in this process, and `LogHistory` in a
Sirius log; a chain of replicas (`sirius.broadcast.chain`) decides when a batch gets into one. All pass the same
conformance suite.
"""

from __future__ import annotations

from typing import Protocol

from sirius.broadcast.events import EventBatch
from sirius.broadcast.history.memory import ANYTHING, MemoryHistory, Published, predicates_of
from sirius.types import Seq


class History(Protocol):
    """One stream at one proxy. Called by the one task that owns the proxy; nothing may block."""

    @property
    def last(self) -> Seq:
        """The end: everything up to here is known, as an event or as a hole. 0: nothing."""

    @property
    def last_time(self) -> int:
        """The time of the last event; the next one must not be older."""

    @property
    def nbytes(self) -> int:
        """What is alive takes about this much."""

    def attribute_names(self, *, exact: bool) -> set[str]:
        """Return the names of attributes that live events have; a few more, if it need not be exact."""

    def prepare(self, batch: EventBatch) -> None:
        """Take care of what will be appended once it is `ready`. It has been checked, and comes next."""

    @property
    def ready(self) -> Seq:
        """What was prepared up to here may be appended: it is as safe as this history makes it."""

    def append(self, batch: EventBatch) -> None:
        """Add what comes next, and collect what it makes needless.

        Raises `OutOfOrder` if it does not begin behind `last`, and `BadMessage`, without any change, if it holds a
        predicate that cannot be read or times that fall.
        """

    def read(self, first: Seq, last: Seq, bytes_max: int) -> EventBatch:
        """Return what is left of a range that begins at `first`: to `last`, or less if it is much.

        It covers at least one sequence number. A hole alone may go on behind `last`. With keys and payloads it is not
        larger than `bytes_max`, except by one event.
        """

    def published(self, publisher: int) -> Published | None:
        """Return the last batch of a publisher, unless it was long ago."""

    def publishers(self, first: Seq, last: Seq) -> list[tuple[int, Published]]:
        """Return all publishers whose last batch ends in a range: what `read` does not tell."""

    def note(self, publisher: int, published: Published) -> None:
        """Take over what another history knows of a publisher, unless something newer is known."""


__all__ = ["ANYTHING", "History", "MemoryHistory", "Published", "predicates_of"]
