"""Writing the ancestor's formats, so that what came from there can go back byte for byte.

A log of the Scala Sirius has what ours has not: segments that begin and end at certain entries, have numbers of their
own and carry flags. Converting one to ours notes them in the manifest, as the tag `ancestor_segments`::

    [[1, 3, 3, []], [4, 6, 1, ["keys-collected"]]]      id, last sequence number, entries, flags

The other way round there is more to lose, and nothing goes without being asked for or at least told: times finer than a
millisecond, control entries, sessions.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from sirius.errors import CorruptLog, UsageError
from sirius.wal import Batch, Op, OsFileSystem
from sirius.wal.ancestor import AncestorColumns, AncestorSegment, AncestorWriter, Layout
from sirius.wal.record import CONTROL_FROM
from waltool.source import AncestorSource, SiriusSource, Source
from waltool.text import iso

TAG: Final = "ancestor_segments"
_INDEX_ENTRY: Final = struct.Struct(">16xq")
_LENGTH: Final = struct.Struct(">i")
_FRAME_BYTES: Final = 12
EVENTS_PER_SEGMENT: Final = 1_000_000


class Slice(NamedTuple):
    """One segment of the ancestor's: the entries up to `last` that are in no segment before it."""

    id: int
    last: int
    entries: int
    flags: tuple[str, ...]


def slices_of(source: Source) -> tuple[Slice, ...]:
    """Return the ancestor's segments that a log has, or had before it was converted to ours."""
    if isinstance(source, AncestorSource) and source.reader.layout == "segmented":
        return tuple(_own_slices(source))
    if isinstance(source, SiriusSource):
        return decode(source.reader.manifest.tags.get(TAG, "[]"), source.path)
    return ()


def _own_slices(source: AncestorSource) -> Iterator[Slice]:
    last = 0
    for segment in source.reader.segments():
        span = source.span(segment)
        if span and _index_is_whole(segment):
            last, entries = span[1], segment.index_entries
        else:
            last, entries = _measured(source, segment, last)
        yield Slice(segment.segment_id, last, entries, segment.flags)


def _index_is_whole(segment: AncestorSegment) -> bool:
    """Say whether the entry that an index names last is the last of the data."""
    if not os.path.exists(segment.data_path):
        return False
    with open(segment.index_path, "rb") as index, open(segment.data_path, "rb") as data:
        index.seek((segment.index_entries - 1) * _INDEX_ENTRY.size)
        (offset,) = _INDEX_ENTRY.unpack(index.read(_INDEX_ENTRY.size))
        data.seek(max(offset, 0))
        length = data.read(_LENGTH.size).rjust(_LENGTH.size, b"\0")
        return bool(offset + _FRAME_BYTES + _LENGTH.unpack(length)[0] == data.seek(0, os.SEEK_END))


def _measured(source: AncestorSource, segment: AncestorSegment, last: int) -> tuple[int, int]:
    """Return the last sequence number and the number of entries, by reading the data."""
    entries = 0
    for found, batches in source.reader.by_segment():
        if found == segment:
            for columns in batches:
                last, entries = int(columns.seq[-1]), entries + len(columns)
    return last, entries


def encode(slices: Sequence[Slice]) -> str:
    return json.dumps(slices)


def decode(text: str, path: str) -> tuple[Slice, ...]:
    try:
        rows = json.loads(text)
        return tuple(Slice(int(a), int(b), int(c), tuple(flags)) for a, b, c, flags in rows)
    except (ValueError, TypeError) as error:
        raise CorruptLog(f"{path}: the tag {TAG} makes no sense: {error}") from None


@dataclass(slots=True)
class Losses:
    """What the ancestor's formats have no place for."""

    noops: int = 0
    control: int = 0
    sessions: int = 0
    times: int = 0

    def as_json(self) -> dict[str, int]:
        return {
            "noops_dropped": self.noops,
            "control_dropped": self.control,
            "sessions_dropped": self.sessions,
            "times_truncated": self.times,
        }


@dataclass(slots=True)
class Fitter:
    """Turns batches into what the ancestor can hold, and counts what is left out."""

    drop_control: bool = False
    truncate_times: bool = False
    losses: Losses = field(default_factory=Losses)

    def columns(self, batch: Batch) -> AncestorColumns:
        """Return the entries that the ancestor knows; raise if something would be lost unasked."""
        self._control(batch)
        updates = batch.updates()
        self._times(updates)
        self.losses.sessions += int((updates.entries["session"] != 0).sum())
        return AncestorColumns(
            seq=updates.seq.astype(np.int64),
            ts_ms=updates.entries["ts"] // 1000,
            op=updates.op,
            keys=updates.key_blobs(),
            bodies=updates.bodies(),
        )

    def _control(self, batch: Batch) -> None:
        noop = batch.op == Op.NOOP
        control = (batch.op >= CONTROL_FROM) & ~noop
        self.losses.noops += int(noop.sum())
        self.losses.control += int(control.sum())
        if control.any() and not self.drop_control:
            seq = batch.seq[control.argmax()]
            raise UsageError(
                f"record {seq} says who is a member of the cluster, for which the Scala Sirius has "
                "no place; --drop-control leaves such records out"
            )

    def _times(self, updates: Batch) -> None:
        ts = updates.entries["ts"]
        fine = ts % 1000 != 0
        self.losses.times += int(fine.sum())
        if fine.any() and not self.truncate_times:
            at = int(fine.argmax())
            raise UsageError(
                f"record {updates.seq[at]} is of {iso(int(ts[at]), 'microseconds')}, and the Scala "
                "Sirius knows milliseconds only; --truncate-times cuts the rest off"
            )


class AncestorTarget:
    """Writes a log of the Scala Sirius: with the segments of `slices`, or with so many events each."""

    def __init__(
        self,
        path: str,
        layout: Layout,
        slices: Sequence[Slice] = (),
        events_per_segment: int = EVENTS_PER_SEGMENT,
    ) -> None:
        self._writer = AncestorWriter(
            OsFileSystem(), path, layout=layout, events_per_segment=events_per_segment
        )
        self._slices = list(slices) if layout == "segmented" else []
        self._sliced = bool(self._slices)
        self._events_max = events_per_segment
        self._room_upto = 0
        self._events = 0
        self.records = 0
        self.last = 0

    def __enter__(self) -> AncestorTarget:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is None:
            while self._slices:
                self._skip_or_begin(self._slices.pop(0), wanted=False)
            self._writer.close()
        else:
            self._writer.abort()

    def add(self, columns: AncestorColumns) -> None:
        """Write entries behind those before."""
        if not len(columns):
            return
        self.records += len(columns)
        self.last = int(columns.seq[-1])
        if not self._sliced:
            self._writer.append(columns)
            return
        at = 0
        while at < len(columns):
            end = at + self._fitting(columns, at)
            self._writer.append(_rows(columns, at, end))
            self._events += end - at
            at = end

    def _fitting(self, columns: AncestorColumns, at: int) -> int:
        """Return how many entries from `at` on the segment takes, after beginning one if need be."""
        seq = int(columns.seq[at])
        while self._slices and seq > self._room_upto:
            following = self._slices.pop(0)
            self._skip_or_begin(following, wanted=seq <= following.last)
        if seq <= self._room_upto:
            return int(np.searchsorted(columns.seq, self._room_upto, "right")) - at
        return self._behind_all(len(columns) - at)

    def _skip_or_begin(self, following: Slice, *, wanted: bool) -> None:
        """Begin a segment that has something in it, or never had."""
        if wanted or not following.entries:
            self._writer.new_segment(following.flags, following.id)
        self._room_upto = following.last
        self._events = self._events_max

    def _behind_all(self, count: int) -> int:
        """The log has grown beyond the ancestor's segments: more of them follow, of the usual size."""
        if self._events >= self._events_max:
            self._writer.new_segment()
            self._events = 0
        return min(count, self._events_max - self._events)


def _rows(columns: AncestorColumns, at: int, end: int) -> AncestorColumns:
    rows = slice(at, end)
    return AncestorColumns(
        columns.seq[rows],
        columns.ts_ms[rows],
        columns.op[rows],
        columns.keys[rows],
        columns.bodies[rows],
    )
