"""When to follow, when to ask for an election, and when to let others have one.

**Stable leader.** Whoever sees a higher ballot follows it, and asks for an election only after it has heard nothing of
a leader for a time that is drawn anew each time, so that two rarely ask at once.

**Pre-vote.** It asks first whether a majority would promise. A node says yes only if it has not heard of a leader for
an election time-out either, and if the other knows at least as many decisions. So a node that hears but is not heard,
or comes back after a long time, cannot unseat a leader that works.
"""

from __future__ import annotations

import random

from sirius.paxos.config import PaxosConfig
from sirius.paxos.members import Configuration, Member
from sirius.types import Ballot, NodeId


class Election:
    """One node's view of who leads."""

    def __init__(self, config: PaxosConfig, rng: random.Random, now: float) -> None:
        self._timeout_s = config.election_timeout_s
        self._rng = rng
        self.leader: Member | None = None
        self.ballot: Ballot | None = None
        self.heard_at = now
        """When a leader was heard of last. A node that was just started may have forgotten one."""
        self.asking: Ballot | None = None
        self._granted: set[NodeId] = set()
        self.rest(now)

    def heard(self, leader: Member, ballot: Ballot, now: float) -> bool:
        """Follow a leader; say whether it is another one than before."""
        changed = ballot != self.ballot
        self.leader, self.ballot = leader, ballot
        self.heard_at = now
        self.rest(now)
        return changed

    def rest(self, now: float) -> None:
        """Sit still for a while."""
        self.asking = None
        self.deadline = now + self._rng.uniform(self._timeout_s, 2 * self._timeout_s)

    def forget_leader(self) -> None:
        self.leader = self.ballot = None

    def is_silent(self, now: float) -> bool:
        """Say whether no leader was heard of for an election time-out."""
        return now - self.heard_at >= self._timeout_s

    def is_due(self, now: float) -> bool:
        return now >= self.deadline

    def ask(self, ballot: Ballot, now: float) -> None:
        """Begin to ask whether others would promise a ballot."""
        self.forget_leader()
        self.rest(now)
        self.asking = ballot
        self._granted = set()

    def granted(self, node: NodeId, ballot: Ballot, configuration: Configuration) -> bool:
        """Count a yes; say whether they are a majority now."""
        if ballot != self.asking:
            return False
        self._granted.add(node)
        return configuration.is_quorum(self._granted)
