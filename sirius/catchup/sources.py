"""Whom to ask.

A source that could not help is shunned for a while: passed over as long as there is another. Shunning is a preference
and no verdict, so a node that is refused everywhere keeps trying.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sirius.catchup.context import Context
from sirius.paxos.members import Member
from sirius.types import NodeId


class Source(NamedTuple):
    """A node that may be asked. `primary`: it votes, so it follows nobody."""

    member: Member
    region: str = ""
    distance: float = 0.0
    primary: bool = False

    @property
    def node(self) -> NodeId:
        return self.member.node


class Sources:
    """The possible sources, and which of them are shunned until when."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.all: tuple[Source, ...] = ()
        self._shunned: dict[NodeId, float] = {}

    def replace(self, sources: Sequence[Source]) -> None:
        """These are the sources from now on. A node is no source of itself."""
        me = self._context.me.node
        self.all = tuple(source for source in sources if source.node != me)
        nodes = [source.node for source in self.all]
        self._shunned = {node: at for node, at in self._shunned.items() if node in nodes}

    def shun(self, source: Source) -> None:
        self._shunned[source.node] = self._context.now + self._context.config.shun_s

    def fresh(self, allowed: Sequence[Source]) -> Source | None:
        """Choose one that is not shunned."""
        now = self._context.now
        return self.choose([each for each in allowed if self._shunned.get(each.node, now) <= now])

    def choose(self, sources: Sequence[Source]) -> Source | None:
        """Choose a random one, of the nearest if they are preferred."""
        if not sources:
            return None
        if self._context.config.prefer == "nearest":
            distance = min(source.distance for source in sources)
            sources = [source for source in sources if source.distance == distance]
        return self._context.rng.choice(sources)
