"""The scout: phase 1, one ballot's attempt to become the leader.

It collects promises until they are a majority, and then tells what has to be proposed again: for every slot behind the
decided ones, the value that was accepted under the highest ballot. If a value for that slot was ever decided, this
is it.

Two things make it wait although it has a majority:

- A promise says that more is decided than this node knows. Values up to there are in other nodes' logs and no longer
  in their journals. They must be fetched first, not the least because they may name other voters.
- An accepted value changes the voters. Slots behind it may have been decided by the new ones, so a majority of those
  must have promised as well. What they accepted may change the voters again.

**Reigns.** A leader begins its reign with an entry that states the configuration and the leader's ballot, and gives
slots to requests only when that entry is decided. Without it a request could take effect twice:

1. A proposes something for slot 10 and the request for slot 11; nobody but A accepts either.
2. B leads with C, hears of neither, gets the request once more from its node, and decides it in slot 10.
3. C leads with A, and finds the request in slot 11, under A's old ballot: it would propose it again.

With it, B's entry stands in slot 10 and C knows it, decided or among the promises. Whatever was accepted behind it
under a ballot below B's cannot have been decided, for B would have found it. It is left out.
"""

from __future__ import annotations

from collections.abc import Callable

from sirius.paxos.members import Configuration
from sirius.paxos.messages import Promise
from sirius.paxos.values import SLOT_MAX, Span, Spans, Value
from sirius.types import Ballot, NodeId


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

    def adopted(
        self,
        decided: int,
        reign: Ballot,
        configuration_in: Callable[[Value], Configuration | None],
    ) -> list[Span]:
        """Return what to propose again behind `decided`: in slot order, by the highest ballot.

        `reign` is the one of the last decided configuration; what was accepted below the reign in force is void.
        """
        spans = Spans()
        found = (pvalue for promise in self.promises.values() for pvalue in promise.accepted)
        for ballot, value in sorted(found, key=lambda pvalue: pvalue.ballot):
            spans.put(Span(value.first, value.last, ballot, value))
        adopted = []
        for span in spans.within(decided + 1, SLOT_MAX):
            if span.ballot >= reign:
                adopted.append(span)
                configuration = configuration_in(span.value)
                reign = max(reign, configuration.reign) if configuration else reign
        return adopted
