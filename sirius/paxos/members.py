"""Who votes, and how one set of voters becomes another.

The voters stand in the log: a **configuration** is an entry like any other, and counts from the next slot on. A member
is a name, which is an address, and a node id, which is one life of its disk. A node whose disk was lost comes back
under the same name with another id. It is nobody's voter then, whatever it remembers or does not.

**One voter at a time.** Between two neighbouring configurations at most one voter comes or goes, so every majority of
the one meets every majority of the other. Any wished set is reached by such steps, each of which waits until the one
before is decided: whoever is wished and missing becomes a learner, a learner that is level becomes a voter, and then
those go who are not wished any more. The leader goes last, after it has handed over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from sirius.types import NO_BALLOT, Ballot, NodeId


class Member(NamedTuple):
    """A node: one life of its disk, and the name under which it is reached."""

    node: NodeId
    name: str


@dataclass(frozen=True)
class Configuration:
    """The voters and learners from some slot on. The founding one has number 1, each next one more."""

    cluster: int
    number: int
    voters: tuple[Member, ...]
    learners: tuple[Member, ...] = ()
    reign: Ballot = NO_BALLOT
    """The ballot of the leader that proposed the entry, for people who read the log."""

    @cached_property
    def voter_ids(self) -> tuple[NodeId, ...]:
        return tuple(member.node for member in self.voters)

    @cached_property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Voters, then learners."""
        return (*self.voters, *self.learners)

    def is_voter(self, node: NodeId) -> bool:
        return node in self.voter_ids

    def is_quorum(self, nodes: Collection[NodeId]) -> bool:
        """Say whether the voters among some nodes are a majority."""
        return sum(node in nodes for node in self.voter_ids) >= self.majority

    def with_learner(self, member: Member) -> Configuration:
        return self._next(learners=(*self.learners, member))

    def without(self, member: Member) -> Configuration:
        return self._next(
            voters=tuple(each for each in self.voters if each != member),
            learners=tuple(each for each in self.learners if each != member),
        )

    def promoted(self, member: Member) -> Configuration:
        learners = tuple(each for each in self.learners if each != member)
        return self._next(voters=(*self.voters, member), learners=learners)

    def _next(
        self,
        *,
        voters: tuple[Member, ...] | None = None,
        learners: tuple[Member, ...] | None = None,
    ) -> Configuration:
        return replace(
            self,
            number=self.number + 1,
            voters=self.voters if voters is None else voters,
            learners=self.learners if learners is None else learners,
        )


def next_step(
    now: Configuration,
    wish: Sequence[str],
    seen: Mapping[str, NodeId],
    level: Collection[NodeId],
    leader: NodeId,
) -> Configuration | None:
    """Return the configuration that brings the voters one step closer to the wished names.

    `seen` says which life of a name greeted last, `level` who is alive and not behind. None if there is nothing to
    do, or nothing that can be done now. The leader itself is never taken out: it has to hand over first. A voter that
    is alive keeps its place, whatever was seen: a greeting of an earlier life may come late.
    """
    lives = {member.name: member.node for member in now.members} | dict(seen)
    lives |= {member.name: member.node for member in now.voters if member.node in level}
    wished = tuple(Member(lives[name], name) for name in wish if name in lives)
    for member in wished:
        if member not in now.members:
            return now.with_learner(member)
    for member in wished:
        if member in now.learners and member.node in level:
            return _if_alive(now.promoted(member), level)
    if any(member not in now.voters for member in wished) or len(wished) < len(set(wish)):
        return _replaced_life(now, wished, level)
    for member in (*now.learners, *now.voters):
        if member not in wished and member.node != leader:
            return _if_alive(now.without(member), level)
    return None


def _replaced_life(
    now: Configuration, wished: Collection[Member], level: Collection[NodeId]
) -> Configuration | None:
    """While somebody is still missing, only the dead lives of wished names go, to make room for the living."""
    names = {member.name for member in wished}
    for member in now.members:
        if member.name in names and member not in wished:
            return _if_alive(now.without(member), level)
    return None


def _if_alive(step: Configuration, level: Collection[NodeId]) -> Configuration | None:
    """Take no step after which the living would be no majority."""
    return step if step.voters and step.is_quorum(level) else None
