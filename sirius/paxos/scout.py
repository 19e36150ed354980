"""The scout: phase 1, one ballot's attempt to become the leader.

It collects promises until they are a majority, and then tells what has to be taken over: of those who promised, what
the one holds that accepted last, by ballot, and furthest. If anything behind the decided slots was ever decided, it is
in there. For a majority accepted it, so one of them promised; and whoever accepted under a later ballot got everything
with that ballot's first value that its own scout had found (`sirius.paxos.acceptor`). What others hold behind that
from earlier ballots was never decided, and is left out.

An acceptor that missed something may lack slots that were decided when it took what follows. In those the value of the
highest ballot among all promises is the decided one, as in the paper.

Three things make it wait although it has a majority:

- A promise says that more is decided than this node knows. Values up to there are in other nodes' logs and no longer
  in their journals. They must be fetched first, not the least because they may name other voters.
- An accepted value changes the voters. Slots behind it may have been decided by the new ones, so a majority of those
  must have promised as well. What they accepted may change the voters again.
- Nobody knows that the cluster has begun. Then all its founders must have promised (`sirius.paxos.genesis`).
"""

from __future__ import annotations

from sirius.paxos.messages import Promise
from sirius.paxos.values import Span, Spans, Value
from sirius.types import NO_BALLOT, Ballot, NodeId


class Scout:
    """One attempt. Its ballot is used once, whatever comes of it."""

    def __init__(self, ballot: Ballot, started: float, handed_over: Ballot | None = None) -> None:
        self.ballot = ballot
        self.started = started
        self.handed_over = handed_over
        self.sent_at = started
        self.promises: dict[NodeId, Promise] = {}

    def promised(self, node: NodeId, promise: Promise) -> None:
        self.promises.setdefault(node, promise)

    @property
    def decided(self) -> int:
        """The highest slot up to which a promise knows everything to be decided."""
        return max((promise.decided for promise in self.promises.values()), default=0)

    @property
    def has_begun(self) -> bool:
        """Whether a promise shows that something was proposed before."""
        return any(promise.accepted or promise.decided for promise in self.promises.values())

    def adopted(self, decided: int) -> list[Value]:
        """Return what has to be proposed again behind `decided`, in slot order.

        A gap means that something is missing which others know to be decided.
        """
        last = max(map(_accepted_last, self.promises.values()), default=(NO_BALLOT, 0))[1]
        spans = Spans()
        found = (pvalue for promise in self.promises.values() for pvalue in promise.accepted)
        for ballot, value in sorted(found, key=lambda pvalue: pvalue.ballot):
            spans.put(Span(value.first, value.last, ballot, value))
        return [span.cut for span in spans.within(decided + 1, last)]


def _accepted_last(promise: Promise) -> tuple[Ballot, int]:
    return promise.under, promise.accepted[-1].value.last if promise.accepted else promise.decided
