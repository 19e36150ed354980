"""Taking the whole log anew.

Below the tombstone floor of every source a node may hold keys whose deletes nobody has any more. It takes all of
*one* source's log, from slot 1 on, into a staging place, while its own log stays as it is: readable, and as far as
others know its position. When the staged log has got to where the source was at the beginning, and so past the floor
and past the node's own position, the driver swaps the two and has the application drop the keys that the new one
lacks.

The staged log is a tail like any other (`sirius.catchup.ranges`) with the source and era as its basis. When the source
fails or its log drops deletes that the staged part may need, all of it is rubbish, and so it is after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence

from sirius.catchup.context import Context
from sirius.catchup.messages import Standing
from sirius.catchup.ranges import Tail
from sirius.catchup.sources import Source
from sirius.types import NodeId, Seq


class Resyncing:
    """A resync under way."""

    def __init__(self, source: Source, standing: Standing) -> None:
        self.source = source
        self.tail = Tail()
        self.floor = standing.edition.floor
        """The floor that the log will have."""
        self.goal = standing.tip
        self.is_finishing = False

    def raise_floor(self, floor: Seq) -> None:
        self.floor = max(self.floor, floor)

    @property
    def is_complete(self) -> bool:
        return self.tail.position >= max(self.goal, self.floor)


def can_resync(position: Seq, standing: Standing) -> bool:
    """Say whether a node gains by taking all of a source's log.

    A source that is in the middle of taking one over itself has a floor above its tip, and is of no use yet. One that
    is behind would take the node backwards.
    """
    floor = standing.edition.floor
    return 0 < position < floor <= standing.tip and position <= standing.tip


class Floors:
    """The sources that are of no use below their tombstone floors, as far as they have said so."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._said: dict[NodeId, Standing] = {}
        self._failed: dict[NodeId, float] = {}
        self._since = context.now

    def note(self, source: Source, standing: Standing) -> None:
        if not self._said:
            self._since = self._context.now
        self._said[source.node] = standing

    def clear(self) -> None:
        """One of them was of use after all, or will be."""
        self._said.clear()

    def failed(self, source: Source) -> None:
        """A resync from this one came to nothing. Begin none there for a while: it costs a whole log each time."""
        self._failed[source.node] = self._context.now

    @property
    def is_patience_over(self) -> bool:
        """Whether it took too long to ask everybody else."""
        patience_s = self._context.config.resync_patience_s
        return bool(self._said) and self._context.now - self._since >= patience_s

    def candidates(self, position: Seq, sources: Sequence[Source]) -> list[Source]:
        """Return those from whom a whole log may be taken."""
        now, patience_s = self._context.now, self._context.config.resync_patience_s
        recently = [node for node, at in self._failed.items() if now - at < patience_s]
        return [
            source
            for source in sources
            if source.node in self._said
            and source.node not in recently
            and can_resync(position, self._said[source.node])
        ]

    def standing_of(self, source: Source) -> Standing:
        return self._said[source.node]
