"""Events, and batches of them: columns that cover a range of a stream.

An event is *data*; or *keyed*: it collects the earlier keyed events of its topic and key; or a *GC event*: its payload
is a predicate, and it collects the earlier events that match (Sprinkler, sections 2.1 and 3.4). Collected events leave
a hole.

A batch says `first`, `last`, and which records there are in between. What is not a record is a hole: so a batch
always covers its range, and neighbouring holes are one hole. A hole alone is a batch without records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple, NewType

import numpy as np
import numpy.typing as npt

from sirius.broadcast.columns import (
    AnyColumn,
    Ints,
    Lengths,
    constant,
    gather,
    is_constant,
    lengths_of,
    picked,
    pieces,
    repeated,
    starts,
    together,
    total,
)
from sirius.errors import InvariantViolation, UsageError
from sirius.types import Seq

Stream = NewType("Stream", str)
"""The name of a stream."""

ABSENT: Final = -(2**63)
"""In a column of attributes: this event has none of that name."""


TOPICS_MAX: Final = 1 << 16
"""Different topics that a batch can have: they are numbered with 16 bits."""


class Kind(IntEnum):
    """What an event does to earlier ones."""

    DATA = 0
    KEYED = 1
    GC = 2


class Hole(NamedTuple):
    """A range that is left out, and known to be rightly so."""

    first: int
    last: int


class Event(NamedTuple):
    """One event, for those who want them one by one."""

    seq: int
    kind: Kind
    topic: str
    key: bytes
    payload: bytes
    time: int
    attributes: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class EventBatch:
    """Events of one stream that cover `first` to `last`. All columns have one value an event."""

    first: Seq
    last: Seq
    places: npt.NDArray[np.uint32] | None
    """Where the records stand, counted from `first`; None: there is no hole."""
    kinds: npt.NDArray[np.uint8]
    times: Ints
    """Microseconds, given by the stream's owner; they never fall along a stream."""
    topics: tuple[str, ...]
    topic_ids: npt.NDArray[np.uint16]
    """Which of `topics` each event has."""
    key_lengths: Lengths
    keys: bytes
    payload_lengths: Lengths
    payloads: bytes
    attributes: Mapping[str, Ints] = field(default_factory=dict)
    publisher: int = 0
    serial: int = 0
    """Of a batch as it was published: by whom, and his how-manieth. 0: it was put together later."""
    body: bytes | None = None
    """The encoded columns, if they are known: whoever passes a batch on does not encode it again."""

    @classmethod
    def of(
        cls,
        keys: Sequence[bytes],
        kind: Kind | Sequence[Kind] = Kind.KEYED,
        topic: str | Sequence[str] = "",
        payloads: Sequence[bytes] = (),
        attributes: Mapping[str, Sequence[int] | Ints] | None = None,
    ) -> EventBatch:
        """Make a batch to publish; its owner will number it."""
        count = len(keys)
        topics = [topic] * count if isinstance(topic, str) else list(topic)
        names = tuple(dict.fromkeys(topics))
        if len(names) > TOPICS_MAX:
            raise UsageError(f"{len(names)} topics are more than {TOPICS_MAX}")
        ids = {name: number for number, name in enumerate(names)}
        bodies = list(payloads) or [b""] * count
        kinds = constant(kind, count, np.uint8) if isinstance(kind, Kind) else np.array(kind, "u1")
        numbers = {name: np.array(each, np.int64) for name, each in (attributes or {}).items()}
        return cls(
            first=Seq(1),
            last=Seq(count),
            places=None,
            kinds=kinds,
            times=constant(0, count, np.int64),
            topics=names,
            topic_ids=np.fromiter(map(ids.__getitem__, topics), np.uint16, count),
            key_lengths=lengths_of(list(keys)),
            keys=b"".join(keys),
            payload_lengths=lengths_of(bodies),
            payloads=b"".join(bodies),
            attributes=numbers,
        )

    @classmethod
    def packed(cls, keys: bytes, width: int, kind: Kind = Kind.KEYED) -> EventBatch:
        """Make a batch to publish of keys of one width that stand end to end. Costs nothing an event."""
        count = len(keys) // width
        if count * width != len(keys):
            raise UsageError(f"{len(keys)} bytes are not keys of {width} bytes each")
        return replace(
            hole(Seq(1), Seq(count)),
            places=None,
            kinds=constant(kind, count, np.uint8),
            times=constant(0, count, np.int64),
            topics=("",),
            topic_ids=constant(0, count, np.uint16),
            key_lengths=constant(width, count, np.uint32),
            keys=keys,
            payload_lengths=constant(0, count, np.uint32),
        )

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.kinds)

    def __bool__(self) -> bool:
        """A batch without records is a hole, and not nothing."""
        return True

    @property
    def nbytes(self) -> int:
        """Return how much its events hold, without what they are wrapped in."""
        return len(self.keys) + len(self.payloads)

    @property
    def seqs(self) -> Ints:
        """Return the sequence numbers of the records."""
        if self.places is None:
            return np.arange(self.first, self.last + 1, dtype=np.int64)
        return self.places.astype(np.int64) + self.first

    @property
    def has_holes(self) -> bool:
        return len(self) < self.last - self.first + 1

    def numbered(self, first: Seq, time: int, publisher: int = 0, serial: int = 0) -> EventBatch:
        """Give sequence numbers and a time to a published batch. Its columns stay as they are."""
        if self.has_holes or not (len(self.times) and is_constant(self.times)):
            raise InvariantViolation("a batch with holes or times of its own is not to be numbered")
        return replace(
            self,
            first=first,
            last=Seq(first + len(self) - 1),
            times=constant(time, len(self), np.int64),
            publisher=publisher,
            serial=serial,
        )

    def behind(self, position: Seq) -> EventBatch:
        """Leave out what is not behind `position`, which lies inside the batch."""
        if position < self.first:
            return self
        if position >= self.last:
            raise InvariantViolation(f"nothing of {self.first} to {self.last} is behind {position}")
        if not len(self):
            return hole(Seq(position + 1), self.last)
        skip = int(np.searchsorted(self.seqs, position, side="right"))
        key_at = total(self.key_lengths[:skip])
        payload_at = total(self.payload_lengths[:skip])
        shift = np.uint32(position + 1 - self.first)
        return replace(
            self,
            first=Seq(position + 1),
            places=None if self.places is None else self.places[skip:] - shift,
            kinds=self.kinds[skip:],
            times=self.times[skip:],
            topic_ids=self.topic_ids[skip:],
            key_lengths=self.key_lengths[skip:],
            keys=self.keys[key_at:],
            payload_lengths=self.payload_lengths[skip:],
            payloads=self.payloads[payload_at:],
            attributes={name: column[skip:] for name, column in self.attributes.items()},
            publisher=0,
            serial=0,
            body=None,
        )

    def selected(self, rows: Ints) -> EventBatch:
        """Leave out all records but these. The batch covers the same range."""
        places = rows if self.places is None else self.places[rows]
        return replace(
            self,
            places=places.astype(np.uint32),
            kinds=picked(self.kinds, rows),
            times=picked(self.times, rows),
            topic_ids=picked(self.topic_ids, rows),
            key_lengths=picked(self.key_lengths, rows),
            keys=_selected(self.keys, self.key_lengths, rows),
            payload_lengths=picked(self.payload_lengths, rows),
            payloads=_selected(self.payloads, self.payload_lengths, rows),
            attributes={name: picked(column, rows) for name, column in self.attributes.items()},
            body=None,
        )

    def events(self) -> list[Event]:
        """Return every event by itself: for applications and tests, never on the way."""
        topics = [self.topics[number] for number in self.topic_ids.tolist()]
        rows = zip(
            self.seqs.tolist(),
            map(Kind, self.kinds.tolist()),
            topics,
            pieces(self.keys, self.key_lengths),
            pieces(self.payloads, self.payload_lengths),
            self.times.tolist(),
            self._attribute_rows(),
            strict=True,
        )
        return [Event(*row) for row in rows]

    def _attribute_rows(self) -> list[dict[str, int]]:
        rows: list[dict[str, int]] = [{} for _ in range(len(self))]
        for name, column in self.attributes.items():
            for row, value in zip(rows, column.tolist(), strict=True):
                if value != ABSENT:
                    row[name] = value
        return rows

    def gc_payloads(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of the record and the predicate of each GC event."""
        rows = np.flatnonzero(self.kinds == Kind.GC).tolist()
        if rows:
            begins = starts(self.payload_lengths)
        for row in rows:
            begin = int(begins[row])
            yield row, self.payloads[begin : begin + int(self.payload_lengths[row])]


def _selected(buffer: bytes, lengths: Lengths, rows: Ints) -> bytes:
    return gather(buffer, starts(lengths)[rows], picked(lengths, rows)) if buffer else b""


def hole(first: Seq, last: Seq) -> EventBatch:
    """Return a batch without records."""

    def empty(dtype: npt.DTypeLike) -> AnyColumn:
        return np.empty(0, dtype)

    return EventBatch(
        first=first,
        last=last,
        places=empty(np.uint32),
        kinds=empty(np.uint8),
        times=empty(np.int64),
        topics=(),
        topic_ids=empty(np.uint16),
        key_lengths=empty(np.uint32),
        keys=b"",
        payload_lengths=empty(np.uint32),
        payloads=b"",
    )


def joined(batches: Sequence[EventBatch]) -> EventBatch:
    """Put batches to publish together, in their order. A column of one value stays one if they agree."""
    if len(batches) == 1:
        return batches[0]
    count = sum(map(len, batches))
    topics = tuple(dict.fromkeys(topic for batch in batches for topic in batch.topics))
    ids = {topic: number for number, topic in enumerate(topics)}
    names = dict.fromkeys(name for batch in batches for name in batch.attributes)
    return replace(
        hole(Seq(1), Seq(count)),
        places=None,
        kinds=together([batch.kinds for batch in batches]),
        times=constant(0, count, np.int64),
        topics=topics,
        topic_ids=together([_renumbered(batch, ids) for batch in batches]),
        key_lengths=together([batch.key_lengths for batch in batches]),
        keys=b"".join([batch.keys for batch in batches]),
        payload_lengths=together([batch.payload_lengths for batch in batches]),
        payloads=b"".join([batch.payloads for batch in batches]),
        attributes={name: together([_values(each, name) for each in batches]) for name in names},
    )


def _renumbered(batch: EventBatch, ids: Mapping[str, int]) -> AnyColumn:
    numbers = np.array([ids[topic] for topic in batch.topics], np.uint16)
    if batch.topic_ids.strides == (0,):
        return repeated(numbers[batch.topic_ids[:1]], len(batch))
    return numbers[batch.topic_ids]


def _values(batch: EventBatch, name: str) -> AnyColumn:
    column = batch.attributes.get(name)
    return constant(ABSENT, len(batch), np.int64) if column is None else column


def holes(batches: Iterable[EventBatch]) -> list[Hole]:
    """Return the holes in batches that follow each other; holes that meet are one."""
    found: list[Hole] = []
    end: int | None = None
    for batch in batches:
        if end is not None and batch.first != end + 1:
            raise InvariantViolation(f"a batch from {batch.first} on does not follow {end}")
        end = batch.last
        for begin, stop in _holes_in(batch):
            if found and found[-1].last + 1 == begin:
                found[-1] = Hole(found[-1].first, stop)
            else:
                found.append(Hole(begin, stop))
    return found


def _holes_in(batch: EventBatch) -> Iterator[tuple[int, int]]:
    edges = np.concatenate(([batch.first - 1], batch.seqs, [batch.last + 1]))
    at = np.flatnonzero(np.diff(edges) > 1)
    return zip((edges[at] + 1).tolist(), (edges[at + 1] - 1).tolist(), strict=True)
