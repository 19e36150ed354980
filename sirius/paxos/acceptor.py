"""The acceptor: promises, and remembers what it accepted.

Its rules outlive a crash, because the driver lets no answer out before the journal has what it says:

- It promises a ballot only if that is not below what it promised before.
- It accepts a value only under a ballot not below its promise, and accepting is promising.
- It accepts no value behind a gap: whatever lies between the decided slots and the value, it has accepted under the
  same ballot.
- Behind the decided slots it holds values of **one** ballot, its last: with the first value of a higher one it forgets
  what it held from there on. That is safe because the first value of a ballot is everything at once that its leader
  took over from the ballots before: whatever may have been decided under those is in it.

So what an acceptor holds behind the decided slots is the beginning of what one leader proposed. If it were a patchwork,
slot by slot, a leader could find a part of one proposal behind a part of another: half a request, or the second of two
requests of a session without the first.

It keeps values for slots that are not durable in its log yet: below that point the log is the better memory, and
says so with `decided` in every promise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sirius.paxos.values import SLOT_MAX, PValue, Span, Spans, Value
from sirius.types import NO_BALLOT, Ballot


class Under(NamedTuple):
    """The ballot under which an acceptor accepted last, and the first slot of that."""

    ballot: Ballot = NO_BALLOT
    first: int = 1


class Acceptor:
    """One acceptor's state in memory. It runs ahead of the disk: the driver holds the answers back."""

    def __init__(
        self,
        promised: Ballot = NO_BALLOT,
        accepted: Iterable[PValue] = (),
        under: Under | None = None,
    ) -> None:
        self.promised = promised
        self.under = under or Under()
        """It counts also when all values are in the log."""
        self.spans = Spans()
        for ballot, value in sorted(accepted, key=lambda pvalue: pvalue.ballot):
            self._recall(ballot, value)

    def _recall(self, ballot: Ballot, value: Value) -> None:
        """Take a value from disk, which may still hold what was forgotten; a crash may have come before the note."""
        if ballot > self.under.ballot:
            self._begin(ballot, value.first)
        last = value.last if ballot == self.under.ballot else min(value.last, self.under.first - 1)
        if last >= value.first:
            self.spans.put(Span(value.first, last, ballot, value))

    def _begin(self, ballot: Ballot, first: int) -> None:
        self.under = Under(ballot, first)
        self.spans.drop(first)

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
        if ballot != self.under.ballot:
            self._begin(ballot, value.first)
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
