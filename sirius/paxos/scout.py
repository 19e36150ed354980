"""The scout: phase 1, one ballot's attempt to become the leader.

It collects promises until they are a majority, and then tells what has to be proposed again: for every slot behind the
decided ones, the value that was accepted under the highest ballot. If a value for that slot was ever decided, this
is it.

Two things make it wait although it has a majority:

- A promise says that more is decided than this node knows. Values up to there are in other nodes' logs and no longer
  in their journals. They must be fetched first, not the least because they may name other voters.
- An accepted value changes the voters. Slots behind it may have been decided by the new ones, so a majority of those
  must have promised as well. What they accepted may change the voters again.
"""

from __future__ import annotations

from collections.abc import Callable

from sirius.paxos.members import Configuration
from sirius.paxos.messages import Promise
from sirius.paxos.values import Span, Spans, Value
from sirius.types import Ballot, NodeId


class Scout:
    """One attempt. Its ballot is used once, whatever comes of it."""

    def __init__(self, ballot: Ballot, started: float, handed_over: bool = False) -> None:
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

    def adopted(self, decided: int) -> list[Span]:
        """Return what to propose again behind `decided`: in slot order, by the highest ballot."""
        spans = Spans()
        found = (pvalue for promise in self.promises.values() for pvalue in promise.accepted)
        for ballot, value in sorted(found, key=lambda pvalue: pvalue.ballot):
            spans.put(Span(value.first, value.last, ballot, value))
        return spans.within(decided + 1, 1 << 63)

    def is_adopted(
        self,
        configuration: Configuration,
        decided: int,
        configuration_in: Callable[[Value], Configuration | None],
    ) -> bool:
        """Say whether this node, knowing `decided`, may lead with the ballot."""
        return (
            not self.missing(configuration, decided, configuration_in) and decided >= self.decided
        )

    def missing(
        self,
        configuration: Configuration,
        decided: int,
        configuration_in: Callable[[Value], Configuration | None],
    ) -> list[Configuration]:
        """Return the configurations of which no majority has promised yet."""
        wanted = [configuration]
        for span in self.adopted(decided):
            if (found := configuration_in(span.value)) is not None:
                wanted.append(found)
        return [each for each in wanted if not each.is_quorum(self.promises)]
