"""The acceptor: promises, and remembers what it accepted.

Three rules, and all outlive a crash because the driver lets no answer out before the journal has what it says:

- It promises a ballot only if that is not below what it promised before.
- It accepts a value only under a ballot not below its promise, and accepting is promising.
- It accepts no value behind a gap: what lies between the decided slots and the value, it has accepted under the same
  ballot. Otherwise the second of two requests of a session could be decided when the first is lost for good: the next
  leader finds the second one alone, and the session's last serial says that both took effect.

It keeps values for slots that are not durable in its log yet: below that point the log is the better memory, and
says so with `decided` in every promise.
"""

from __future__ import annotations

from collections.abc import Iterable

from sirius.paxos.values import SLOT_MAX, PValue, Span, Spans, Value
from sirius.types import NO_BALLOT, Ballot


class Acceptor:
    """One acceptor's state in memory. It runs ahead of the disk: the driver holds the answers back."""

    def __init__(self, promised: Ballot = NO_BALLOT, accepted: Iterable[PValue] = ()) -> None:
        self.promised = promised
        self.spans = Spans()
        for ballot, value in sorted(accepted, key=lambda pvalue: pvalue.ballot):
            self.spans.put(Span(value.first, value.last, ballot, value))

    def prepare(self, ballot: Ballot) -> bool:
        """Promise a ballot, or say no."""
        if ballot < self.promised:
            return False
        self.promised = ballot
        return True

    def accept(self, ballot: Ballot, value: Value) -> bool:
        """Accept a value under a ballot, or say no."""
        if ballot < self.promised:
            return False
        self.promised = ballot
        self.spans.put(Span(value.first, value.last, ballot, value))
        return True

    def follows(self, ballot: Ballot, first: int, decided: int) -> bool:
        """Say whether nothing is missing between the decided slots and a value that begins at `first`."""
        before = self.spans.at(first - 1)
        return first <= decided + 1 or (before is not None and before.ballot == ballot)

    def holds(self, ballot: Ballot, value: Value) -> bool:
        """Say whether exactly this was accepted before: a message that came twice."""
        span = self.spans.at(value.first)
        return span is not None and span.ballot == ballot and span.last >= value.last

    def accepted(self, after: int) -> tuple[PValue, ...]:
        """Return what was accepted behind a slot, cut to fit."""
        return tuple(
            PValue(span.ballot, span.cut) for span in self.spans.within(after + 1, SLOT_MAX)
        )

    def trim(self, stored: int) -> None:
        """Forget values that are durable in the log."""
        self.spans.forget(stored)
