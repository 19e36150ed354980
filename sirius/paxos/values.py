"""What the machine sees of the values that it agrees on: a range of slots and a length. The rest is the codec's."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol, Self

from sirius.paxos.members import Configuration
from sirius.types import Ballot, Seq

SLOT_MAX: Final = (1 << 63) - 1
PUBLISHERS: Final = 1 << 63
"""Sessions from here on are those of publishers, which number their updates themselves; the others are nodes'."""


class Value(Protocol):
    """A block of encoded entries for the slots `first` to `last`; its length is in bytes."""

    @property
    def first(self) -> Seq: ...
    @property
    def last(self) -> Seq: ...
    def __len__(self) -> int: ...
    def cut(self, first: int, last: int) -> Self:
        """Return the part for some of its slots."""
        ...


class Numbers(NamedTuple):
    """How a publisher has numbered the updates of a request.

    The first one has `serial`. It is taken when `after` is in the log, and everything else of the session between the
    two is not: so serials may leave gaps, and what was sent first is never overtaken.
    """

    session: int
    serial: int
    after: int


class Request(NamedTuple):
    """Updates of one session, in order, that are decided together or not at all.

    `serial` is the number of the first one; they have consecutive ones. `opened` is how far its node had got when
    it opened the session: see `sirius.paxos.sessions`. A cancelled request takes its serials, and does nothing.
    """

    session: int
    serial: int
    opened: Seq
    updates: Sequence[Any]
    size: int
    cancelled: bool = False
    after: int | None = None
    """The serial that has to be there first, if it is not the one before: see `Numbers`."""

    @property
    def previous(self) -> int:
        return self.serial - 1 if self.after is None else self.after

    def beyond(self, serial: int) -> Request:
        """Return the part behind a serial that it holds."""
        return self._replace(serial=serial + 1, updates=self.updates[serial + 1 - self.serial :])

    @property
    def last_serial(self) -> int:
        return self.serial + len(self.updates) - 1


class Run(NamedTuple):
    """Consecutive entries of one session in a value: the last serial, and its slot."""

    session: int
    last_serial: int
    last_slot: Seq


class Content(NamedTuple):
    """What a decided value says to the machine. With holes the runs are those of publishers alone."""

    runs: tuple[Run, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    has_holes: bool = False

    @property
    def configuration(self) -> Configuration | None:
        """The one that counts behind the value, if there is one."""
        return self.configurations[-1] if self.configurations else None


class Codec(Protocol):
    """Makes values and looks into them. Called by the machine, on its thread; must not block."""

    def encode(self, first: int, requests: Sequence[Request]) -> Value:
        """Give the updates of the requests the slots from `first` on.

        Behind each request of a publisher stands a mark, an entry with the session and the serial of its last update,
        of which compaction keeps the newest of each session.
        """
        ...

    def join(self, values: Sequence[Any]) -> Value:
        """Make one value of some that follow each other."""
        ...

    def membership(self, slot: int, configuration: Configuration) -> Value: ...

    def content(self, value: Any) -> Content: ...


class PValue(NamedTuple):
    """Accepted under this ballot: this value. The paper's <b, s, c>, for many slots at once."""

    ballot: Ballot
    value: Value


class Span(NamedTuple):
    """A pvalue, or a part of one: its slots `first` to `last` alone."""

    first: int
    last: int
    ballot: Ballot
    value: Value

    @property
    def cut(self) -> Value:
        if (self.first, self.last) == (self.value.first, self.value.last):
            return self.value
        return self.value.cut(self.first, self.last)


class Spans:
    """Disjoint spans in slot order. Finding is O(log n), adding at the end O(1), anywhere else O(n)."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self.bytes = 0
        """The memory that the values hold; one that was cut in two counts twice."""

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def put(self, span: Span) -> None:
        """Add a span; it takes the place of whatever it overlaps."""
        spans = self._spans
        if not spans or spans[-1].last < span.first:
            spans.append(span)
            self.bytes += len(span.value)
            return
        kept = [piece for old in spans for piece in _outside(old, span.first, span.last)]
        self._set(sorted([*kept, span], key=_first))

    def forget(self, last: int) -> None:
        """Drop everything up to and with `last`."""
        spans = self._spans
        high = bisect_right(spans, last, key=_first)
        if high:
            self._set([*_outside(spans[high - 1], 0, last), *spans[high:]])

    def drop(self, first: int) -> None:
        """Drop everything from `first` on."""
        spans = self._spans
        low = bisect_left(spans, first, key=_last)
        if low < len(spans):
            self._set([*spans[:low], *_outside(spans[low], first, SLOT_MAX)])

    def within(self, first: int, last: int) -> list[Span]:
        """Return the spans between two slots, cut to fit."""
        spans = self._spans
        low = bisect_left(spans, first, key=_last)
        high = bisect_right(spans, last, key=_first)
        return [
            span._replace(first=max(span.first, first), last=min(span.last, last))
            for span in spans[low:high]
        ]

    def at(self, slot: int) -> Span | None:
        """Return the span that covers a slot."""
        low = bisect_left(self._spans, slot, key=_last)
        if low < len(self._spans) and self._spans[low].first <= slot:
            return self._spans[low]
        return None

    def _set(self, spans: list[Span]) -> None:
        self._spans = spans
        self.bytes = sum(len(span.value) for span in spans)


_first = attrgetter("first")
_last = attrgetter("last")


def _outside(old: Span, first: int, last: int) -> list[Span]:
    """Return what is left of a span without the slots `first` to `last`."""
    left = [old._replace(last=min(old.last, first - 1))] if old.first < first else []
    right = [old._replace(first=max(old.first, last + 1))] if old.last > last else []
    return left + right
