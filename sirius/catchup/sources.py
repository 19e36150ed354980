"""Whom to ask.

A source that could not help is shunned for a while: passed over as long as there is another. Shunning is a preference
and no verdict, so a node that is refused everywhere keeps trying. Waits grow while nobody helps, and may outlast any
shunning: so those that failed least often since somebody last helped come first, however near the others are. Whoever
is there is found in as many questions as there are sources, also among members that are gone for good.
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
        self._failures: dict[NodeId, int] = {}
        """How often each could not help since somebody did."""

    def replace(self, sources: Sequence[Source]) -> None:
        """These are the sources from now on. A node is no source of itself."""
        me = self._context.me.node
        self.all = tuple(source for source in sources if source.node != me)
        nodes = [source.node for source in self.all]
        self._shunned = {node: at for node, at in self._shunned.items() if node in nodes}
        self._failures = {node: n for node, n in self._failures.items() if node in nodes}

    def shun(self, source: Source) -> None:
        self._shunned[source.node] = self._context.now + self._context.config.shun_s
        self._failures[source.node] = self._failures.get(source.node, 0) + 1

    def succeeded(self) -> None:
        """Somebody has helped."""
        self._failures.clear()

    def fresh(self, allowed: Sequence[Source]) -> Source | None:
        """Choose one that is not shunned."""
        now = self._context.now
        return self.choose([each for each in allowed if self._shunned.get(each.node, now) <= now])

    def nearer(self, than: Source, allowed: Sequence[Source]) -> Source | None:
        """Choose one that is nearer than another, if near ones are preferred."""
        if self._context.config.prefer != "nearest":
            return None
        return self.fresh([each for each in allowed if each.distance < than.distance])

    def choose(self, sources: Sequence[Source]) -> Source | None:
        """Choose a random one of those that failed least often, of the nearest of these if near ones are preferred."""
        if not sources:
            return None
        best = min(map(self._rank, sources))
        return self._context.rng.choice([each for each in sources if self._rank(each) == best])

    def _rank(self, source: Source) -> tuple[int, float]:
        counts_distance = self._context.config.prefer == "nearest"
        failures = self._failures.get(source.node, 0)
        return failures, source.distance if counts_distance else 0.0
