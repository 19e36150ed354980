"""How a cluster begins, and how it does not begin twice.

An empty disk means one of two things: the cluster is new, or this node lost its disk. To take the second for the first
is how acknowledged writes get lost, so a cluster begins only if **every** wished node says that its disk is empty. One
of them, the first by name, then draws the cluster's id, makes the founding configuration of the node ids it heard,
keeps it, and tells the others. Each belongs to one cluster and ignores any other. The first leader puts the founding
configuration into slot 1, so that the log tells it to whoever comes later.

What was heard of empty disks may be out of date, and a founding may count on somebody who belongs to another cluster by
then. So the first leader needs the promises of all its founders (`sirius.paxos.running`), and until something is
accepted, who hears that one of them belongs elsewhere leaves (`sirius.paxos.joining`). From then on it is for good.

If one of them was there before, it says so, and the empty one waits to be made a learner. All the voters may be
replaced at once by nodes that know only each other: then the leader in office greets them, and who is wanted founds
nothing. So that the greeting comes in time, a cluster is founded only after an election time-out.

Whoever hears of a cluster that knows it belongs there. So the founder itself belongs to it only when the
configuration is on its disk: should it fail before, nobody has heard of the cluster, and another is founded.
"""

from __future__ import annotations

from collections.abc import Sequence

from sirius.paxos.members import Configuration, Member


class Genesis:
    """What a node without a cluster has heard of the others."""

    def __init__(self, me: Member) -> None:
        self._me = me
        self._fresh: dict[str, Member] = {me.name: me}

    def heard(self, member: Member, fresh: bool) -> None:
        """Somebody says whether its disk is empty."""
        if fresh:
            self._fresh[member.name] = member
        elif member.name != self._me.name:
            self._fresh.pop(member.name, None)

    def found(self, wish: Sequence[str], cluster: int) -> Configuration | None:
        """Return the founding configuration, if it is this node's turn and everybody is there."""
        names = sorted(set(wish))
        if not names or names[0] != self._me.name or any(name not in self._fresh for name in names):
            return None
        return Configuration(cluster, 1, tuple(self._fresh[name] for name in names))
