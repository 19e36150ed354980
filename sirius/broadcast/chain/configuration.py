"""Who the replicas of a proxy are, and in which order.

Configurations are numbered, and each follows from the one before: a member leaves, somebody joins at the end, or he who
joined has caught up and is the new tail. A service that everybody trusts, a Sirius log, decides: of all that
are proposed with the next number, the first one counts.
"""

from __future__ import annotations

from typing import NamedTuple

from sirius.broadcast.messages import Peer


class Member(NamedTuple):
    """A replica in one life. One that starts again has lost what it had, and is somebody else."""

    peer: Peer
    life: int


class Chain(NamedTuple):
    """A configuration. Number 0 is the one that no chain has any more."""

    number: int = 0
    members: tuple[Member, ...] = ()
    """From head to tail."""
    joining: Member | None = None
    """Is being fed by the tail, and will be the tail. It does not count yet."""

    @property
    def peers(self) -> tuple[Peer, ...]:
        return tuple(member.peer for member in self.members)

    def neighbours(self, me: Member) -> tuple[Member | None, Member | None]:
        """Return who stands before somebody and who behind; whoever joins stands behind the tail."""
        line = [None, *self.members, self.joining, None]
        if me not in line:
            return None, None
        at = line.index(me)
        return line[at - 1], line[at + 1]

    def without(self, member: Member) -> Chain | None:
        """Return what is left when one is gone. The last one cannot be spared."""
        if member == self.joining:
            return Chain(self.number + 1, self.members)
        left = tuple(each for each in self.members if each != member)
        return Chain(self.number + 1, left, self.joining) if left else None

    def joined(self, member: Member) -> Chain | None:
        """Return the chain with somebody new behind it, if there is room for him: one at a time."""
        if not self.members:
            return Chain(self.number + 1, (member,))
        return None if self.joining else Chain(self.number + 1, self.members, member)

    def extended(self) -> Chain:
        """Return the chain in which he who joined is the tail."""
        if self.joining is None:
            return self
        return Chain(self.number + 1, (*self.members, self.joining))
