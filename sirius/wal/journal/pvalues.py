"""Where an acceptor's journal holds what was accepted for each slot.

A pvalue says: under this ballot, this value for these slots. A later one may overlap earlier ones in any way, and it
wins, for its ballot is never lower: the journal refuses an accept below the promise. What is left is a row of disjoint
ranges in order, each with the place of the frame that holds its value. A range may be a part of its frame's block.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sirius.errors import InvariantViolation


class Span(NamedTuple):
    """A range of slots, and the frame that holds their value."""

    first: int
    last: int
    offset: int
    size: int


class PValues:
    """Disjoint spans in order, in columns: 32 bytes each. Finding is O(log n), so is adding at the end."""

    def __init__(self) -> None:
        self._columns = tuple(array("Q") for _ in Span._fields)
        self._firsts, self._lasts, _, self._sizes = self._columns
        self._forgotten = 0
        self.bytes = 0
        """How much of the file the spans need; a frame that was cut in two counts twice."""

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Span]:
        return map(Span._make, zip(*self._columns, strict=True))

    def put(self, span: Span) -> None:
        """Add a span; it takes the place of whatever it overlaps. What was forgotten stays so."""
        if span.first <= self._forgotten:
            span = span._replace(first=self._forgotten + 1)
        if span.first > span.last:
            return
        low = bisect_left(self._lasts, span.first)
        if low == len(self):
            self._append(span)
            return
        high = bisect_right(self._firsts, span.last)
        spans = [span]
        if low < high:
            left, right = self._span(low), self._span(high - 1)
            if left.first < span.first:
                spans.insert(0, left._replace(last=span.first - 1))
            if right.last > span.last:
                spans.append(right._replace(first=span.last + 1))
        self._splice(low, high, spans)

    def forget(self, last: int) -> None:
        """Drop everything up to and with `last`, now and in future."""
        self._forgotten = max(self._forgotten, last)
        high = bisect_right(self._firsts, last)
        left = [self._span(high - 1)] if high else []
        rest = [span._replace(first=last + 1) for span in left if span.last > last]
        self._splice(0, high, rest)

    def within(self, first: int, last: int) -> list[Span]:
        """Return the spans between two slots, cut to fit."""
        low = bisect_left(self._lasts, first)
        high = bisect_right(self._firsts, last) if first <= last else 0
        found = [self._span(at) for at in range(low, high)]
        return [
            span._replace(first=max(span.first, first), last=min(span.last, last)) for span in found
        ]

    def _span(self, at: int) -> Span:
        return Span._make(column[at] for column in self._columns)

    def _append(self, span: Span) -> None:
        self.bytes += span.size
        for column, value in zip(self._columns, span, strict=True):
            column.append(value)

    def _splice(self, low: int, high: int, spans: Sequence[Span]) -> None:
        self.bytes += sum(span.size for span in spans) - sum(self._sizes[low:high])
        rows = zip(*spans, strict=True) if spans else [()] * len(self._columns)
        for column, values in zip(self._columns, rows, strict=True):
            column[low:high] = array("Q", values)

    def check(self) -> None:
        """Raise if a slot stands in two spans or out of order."""
        before = 0
        for span in self:
            if not before < span.first <= span.last:
                raise InvariantViolation(f"accepted slots {span} do not follow {before}")
            before = span.last
        if self.bytes != sum(self._sizes):
            raise InvariantViolation(f"accepted spans need {sum(self._sizes)}, not {self.bytes}")
