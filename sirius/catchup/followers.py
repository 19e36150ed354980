"""How far those are who follow this node, so that compaction keeps the deletes that they still need.

Whoever pulls or subscribes is a follower, and says by that how far it is; who takes the whole log anew begins at 0. A
follower that is silent for long is forgotten: should it come back below the floor it has to resync. Nobody speaks for
those who follow it in turn: nodes that ask each other now and then would keep each other's oldest positions alive.
"""

from __future__ import annotations

from sirius.catchup.context import Context
from sirius.paxos.members import Member
from sirius.types import NodeId, Seq


class Followers:
    """Positions, in the order in which they were told: the oldest first."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._told: dict[NodeId, tuple[Member, Seq, float]] = {}

    def register(self, follower: Member, position: Seq) -> None:
        """Note a position. If there are too many followers, the one that was silent the longest is forgotten."""
        self._told.pop(follower.node, None)
        self._told[follower.node] = (follower, position, self._context.now)
        if len(self._told) > self._context.config.followers_max:
            del self._told[next(iter(self._told))]

    def expire(self) -> None:
        oldest = self._context.now - self._context.config.follower_timeout_s
        for node, (_, _, at) in list(self._told.items()):
            if at > oldest:
                break
            del self._told[node]

    @property
    def lowest(self) -> Seq | None:
        """The lowest position, or None if nobody follows."""
        return min((position for _, position, _ in self._told.values()), default=None)

    @property
    def positions(self) -> dict[str, Seq]:
        """How far each of them is, by name."""
        return {member.name: position for member, position, _ in self._told.values()}
