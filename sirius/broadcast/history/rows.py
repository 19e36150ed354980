"""The events of a history as flat columns that grow at their end.

Rows stand in order of their sequence numbers. A row that is dead stays where it is until the columns are packed, so
that marking thousands of them is one assignment. Room grows by doubling.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sirius.broadcast.columns import (
    AnyColumn,
    Bytes,
    Ints,
    Lengths,
    Mask,
    constant,
    gather,
    starts,
)
from sirius.broadcast.events import ABSENT, EventBatch
from sirius.broadcast.history.keys import U32, U64, Hashes
from sirius.broadcast.predicates import Table
from sirius.types import Seq

_ROOM_MIN: Final = 256
_SLACK: Final = 8
"""More than so many times the room that is needed is given back."""


class _Growing:
    """A column with room at its end."""

    __slots__ = ("count", "room")

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.room: AnyColumn = np.empty(_ROOM_MIN, dtype)
        self.count = 0

    def extend(self, values: Any, count: int) -> None:
        end = self.count + count
        if end > len(self.room):
            room = np.empty(max(end, 2 * len(self.room)), self.room.dtype)
            room[: self.count] = self.room[: self.count]
            self.room = room
        self.room[self.count : end] = values
        self.count = end

    @property
    def values(self) -> AnyColumn:
        return self.room[: self.count]

    def replace(self, values: AnyColumn) -> None:
        """Hold other, fewer values. Room that will soon be needed again is kept: fresh memory is dear."""
        if len(self.room) > _SLACK * max(len(values), _ROOM_MIN):
            self.room = np.empty(2 * len(values), self.room.dtype)
        self.count = 0
        self.extend(values, len(values))


_COLUMNS: Final[dict[str, npt.DTypeLike]] = {
    "seqs": np.int64,
    "times": np.int64,
    "kinds": np.uint8,
    "topic_ids": np.int32,
    "key_starts": np.int64,
    "key_lengths": np.uint32,
    "payload_starts": np.int64,
    "payload_lengths": np.uint32,
    "sizes": np.uint32,
    "finds": np.uint64,
    "checks": np.uint32,
    "live": np.bool_,
}
ROW_BYTES: Final = sum(np.dtype(dtype).itemsize for dtype in _COLUMNS.values())


class Rows:
    """See above."""

    def __init__(self) -> None:
        self._columns = {name: _Growing(dtype) for name, dtype in _COLUMNS.items()}
        self._attributes: dict[str, _Growing] = {}
        self._keys = _Growing(np.uint8)
        self._payloads = _Growing(np.uint8)

    def __len__(self) -> int:
        return self._columns["seqs"].count

    # ------------------------------------------------------------------ columns

    @property
    def seqs(self) -> Ints:
        return self._columns["seqs"].values

    @property
    def kinds(self) -> npt.NDArray[np.uint8]:
        return self._columns["kinds"].values

    @property
    def topic_ids(self) -> npt.NDArray[np.int32]:
        return self._columns["topic_ids"].values

    @property
    def finds(self) -> U64:
        return self._columns["finds"].values

    @property
    def checks(self) -> U32:
        return self._columns["checks"].values

    @property
    def live(self) -> Mask:
        return self._columns["live"].values

    @property
    def sizes(self) -> Lengths:
        """What each event holds, key and payload."""
        return self._columns["sizes"].values

    @property
    def attribute_names(self) -> set[str]:
        return set(self._attributes)

    def table(self, topics: list[str]) -> Table:
        """Return the columns as predicates want them."""
        columns = self._columns
        return Table(
            seqs=self.seqs,
            times=columns["times"].values,
            topics=topics,
            topic_ids=self.topic_ids,
            key_starts=columns["key_starts"].values,
            key_lengths=columns["key_lengths"].values,
            keys=self._keys.values,
            attributes={name: column.values for name, column in self._attributes.items()},
        )

    # ------------------------------------------------------------------ in and out

    def extend(self, batch: EventBatch, topic_ids: AnyColumn, hashes: Hashes) -> None:
        """Add the records of a batch."""
        count = len(batch)
        values: dict[str, Any] = {
            "seqs": batch.seqs,
            "times": batch.times,
            "kinds": batch.kinds,
            "topic_ids": topic_ids,
            "key_starts": starts(batch.key_lengths) + self._keys.count,
            "key_lengths": batch.key_lengths,
            "payload_starts": starts(batch.payload_lengths) + self._payloads.count,
            "payload_lengths": batch.payload_lengths,
            "sizes": batch.key_lengths + batch.payload_lengths,
            "finds": hashes.find,
            "checks": hashes.check,
            "live": True,
        }
        self._extend_attributes(batch, count)
        for name, column in self._columns.items():
            column.extend(values[name], count)
        self._keys.extend(_octets(batch.keys), len(batch.keys))
        self._payloads.extend(_octets(batch.payloads), len(batch.payloads))

    def _extend_attributes(self, batch: EventBatch, count: int) -> None:
        for name in batch.attributes:
            if name not in self._attributes:
                self._attributes[name] = _Growing(np.int64)
                self._attributes[name].extend(ABSENT, len(self))
        for name, column in self._attributes.items():
            column.extend(batch.attributes.get(name, ABSENT), count)

    def batch(self, rows: Ints, first: Seq, last: Seq, topics: list[str]) -> EventBatch:
        """Put rows together into a batch that covers a range."""
        columns = self._columns
        seqs = self.seqs[rows]
        is_dense = len(rows) == last - first + 1
        names, ids = _renumbered(self.topic_ids[rows], topics)
        key_lengths = columns["key_lengths"].values[rows]
        payload_lengths = columns["payload_lengths"].values[rows]
        return EventBatch(
            first=first,
            last=last,
            places=None if is_dense else (seqs - first).astype(np.uint32),
            kinds=self.kinds[rows],
            times=columns["times"].values[rows],
            topics=names,
            topic_ids=ids.astype(np.uint16),
            key_lengths=key_lengths,
            keys=gather(self._keys.room, columns["key_starts"].values[rows], key_lengths),
            payload_lengths=payload_lengths,
            payloads=gather(
                self._payloads.room, columns["payload_starts"].values[rows], payload_lengths
            ),
            attributes=self._attributes_of(rows),
        )

    def _attributes_of(self, rows: Ints) -> dict[str, Ints]:
        found = {name: column.values[rows] for name, column in self._attributes.items()}
        return {name: values for name, values in found.items() if bool((values != ABSENT).any())}

    def pack(self) -> None:
        """Leave out the dead rows. O(rows)."""
        rows = np.flatnonzero(self.live)
        for text, name in ((self._keys, "key"), (self._payloads, "payload")):
            lengths = self._columns[f"{name}_lengths"].values[rows]
            begins = self._columns[f"{name}_starts"]
            text.replace(_octets(gather(text.room, begins.values[rows], lengths)))
            begins.values[rows] = starts(lengths)
        for column in (*self._columns.values(), *self._attributes.values()):
            column.replace(column.values[rows])
        self._attributes = {
            name: column
            for name, column in self._attributes.items()
            if bool((column.values != ABSENT).any())
        }

    def renumber_topics(self, topics: list[str]) -> list[str]:
        """Leave out the topics that no row has; return those that are left."""
        names, numbers = _renumbered(self.topic_ids, topics)
        self._columns["topic_ids"].replace(numbers)
        return list(names)


def _octets(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def _renumbered(
    ids: npt.NDArray[np.int32], topics: list[str]
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Number the topics of some rows from 0 on."""
    if len(topics) == 1:
        return tuple(topics), constant(0, len(ids), np.int32)
    is_used = np.bincount(ids, minlength=len(topics)) > 0
    numbers = np.cumsum(is_used) - 1
    names = tuple(topics[number] for number in np.flatnonzero(is_used).tolist())
    return names, numbers[ids].astype(np.int32)
