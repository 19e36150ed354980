"""One node of a region pulls from outside, the others pull from it.

Nodes of a region tell each other that they are there (`Here`). The one with the lowest id of all that were heard of
lately pulls from other regions. There is no agreement, and none is needed: two of them for a while cost bandwidth and
nothing else. In a region with a primary everybody pulls inside.

**A puller without a way out** says so (`able`), and the next one takes over. From then on it takes from wherever it
can, tries a source outside now and then, and is able again with the first answer. **A node for which nothing comes**
from inside, although there is more, looks outside by itself: elections by signs of life cannot see everything.
"""

from __future__ import annotations

from typing import NamedTuple

from sirius.catchup.context import Context
from sirius.catchup.messages import Here
from sirius.catchup.sources import Source, Sources
from sirius.paxos.members import Member
from sirius.types import NodeId, Seq


class _Neighbour(NamedTuple):
    heard_at: float
    able: bool


class Region:
    """What a node knows of its region. Without a name there is none."""

    def __init__(self, context: Context, name: str, sources: Sources) -> None:
        self._context = context
        self.name = name
        self._sources = sources
        self._neighbours: dict[NodeId, _Neighbour] = {}
        self._here_due = context.now
        self._outside_at = context.now
        self._probe_due = context.now
        self._able = True

    def tick(self, position: Seq) -> None:
        """Forget who is silent, judge oneself, and say that one is there."""
        now, config = self._context.now, self._context.config
        if self._neighbours:
            self._neighbours = {
                node: each
                for node, each in self._neighbours.items()
                if now - each.heard_at < config.region_timeout_s
            }
        if not self.pulls_outside:
            self._outside_at = now
        elif now - self._outside_at >= config.region_patience_s:
            self._able = False
        if self.name and now >= self._here_due:
            self._here_due = now + config.here_s
            for source in self._inside:
                self._context.send(source.member, Here(self.name, position, self._able))

    def here(self, sender: Member, message: Here) -> None:
        full = len(self._neighbours) >= self._context.config.region_nodes_max
        if message.region == self.name and (sender.node in self._neighbours or not full):
            self._neighbours[sender.node] = _Neighbour(self._context.now, message.able)

    def answered(self, source: Source) -> None:
        """A source answered. If it is outside, this node can pull for the others."""
        if source.region != self.name:
            self._outside_at = self._context.now
            self._able = True

    @property
    def pulls_outside(self) -> bool:
        """Whether this node pulls from other regions for the others of its own."""
        if self._context.is_voter or not self._is_split:
            return False
        able = [node for node, each in self._neighbours.items() if each.able]
        return self._able and all(self._context.me.node < node for node in able)

    @property
    def is_probe_due(self) -> bool:
        """Whether a node that had no way out should see whether it has one now."""
        return not self._able and self._context.now >= self._probe_due

    def probe(self) -> Source | None:
        """Return a source outside if it is time to try one, whoever else feeds this node."""
        if not self.is_probe_due:
            return None
        self._probe_due = self._context.now + self._context.config.region_patience_s
        return self._sources.choose(self._outside)

    def allowed(self, *, is_stuck: bool) -> list[Source]:
        """Return the sources that this node should use now."""
        everybody, inside = list(self._sources.all), self._inside
        if not self.name or not inside or self._context.is_voter or is_stuck:
            return everybody
        if self.pulls_outside:
            return self._outside
        return inside if self._able else everybody

    @property
    def _is_split(self) -> bool:
        """Whether what is new comes from other regions."""
        if not self.name:
            return False
        inside = self._inside
        has_primary = any(source.primary for source in inside)
        return bool(inside and self._outside) and not has_primary

    @property
    def _outside(self) -> list[Source]:
        return [source for source in self._sources.all if source.region != self.name]

    @property
    def _inside(self) -> list[Source]:
        return [source for source in self._sources.all if source.region == self.name]
