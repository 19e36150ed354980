"""Snapshots: reading a log at one moment.

A snapshot is a manifest and the point up to which the active segment counts. It never changes: what is appended,
compacted or removed afterwards does not show. Reads prove their coverage: the ranges they yield follow each other
without a gap from the first to the last sequence number asked for, or an error says which range this log cannot give.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sirius.errors import CorruptFile, MissingSegment, RangeUnavailable, UsageError
from sirius.types import SegmentId, Seq
from sirius.wal.batch import Batch
from sirius.wal.block import Block
from sirius.wal.frames import Chunk
from sirius.wal.index import Index, IndexTable
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.parts import Part
from sirius.wal.record import Limits, Record
from sirius.wal.segment import Segment, batches_of
from sirius.wal.store import Store

_OPEN_MAX: Final = 256


class SegmentCache:
    """Keeps sealed segments open, the least recently used of them closed beyond a number."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._open: OrderedDict[SegmentId, tuple[Segment, Index]] = OrderedDict()
        self._lock = threading.Lock()

    def sealed(self, info: SegmentInfo) -> tuple[Segment, Index]:
        """Return a sealed segment and its index."""
        with self._lock:
            found = self._open.get(info.id)
            if found is None:
                segment = self.open(info)
                found = self._open[info.id] = (segment, segment.sealed_index())
            self._open.move_to_end(info.id)
            if len(self._open) > _OPEN_MAX:
                # Whoever still reads it holds it; the file closes with the last of them.
                self._open.popitem(last=False)
        return found

    def open(self, info: SegmentInfo) -> Segment:
        """Open a segment on its own."""
        folder = self._store.segment_dir(info.id)
        try:
            return Segment(self._store.fs, folder, info, self._limits)
        except FileNotFoundError:
            raise MissingSegment(f"{folder}: segment {info.id} is missing") from None

    def forget(self, segment: SegmentId) -> None:
        """Drop a segment that is no longer what it was."""
        with self._lock:
            self._open.pop(segment, None)


@dataclass(frozen=True, slots=True)
class ActiveView:
    """The active segment as far as it counts."""

    segment: Segment
    index: Index
    damage: str | None = None
    """Why what stands behind the last block of the index cannot be read, if there is anything."""


class Snapshot:
    """A fixed view of a log. Close it when done, or use it in a `with` block: it pins what it shows."""

    def __init__(
        self,
        manifest: Manifest,
        cache: SegmentCache,
        active: ActiveView,
        last: int,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.manifest = manifest
        self.last = Seq(last)
        self._cache = cache
        self._active = active
        self._on_close = on_close
        self._closed = False

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the pin back. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._on_close()

    def __del__(self) -> None:
        self.close()

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        return self.manifest.segments

    def batches(self, first: int = 1, last: int | None = None) -> Iterator[Batch]:
        """Yield decoded entries that cover `first` to `last` completely, in order."""
        first, last = self._range(first, last)
        for segment, chunk in self._chunks(first, last):
            for batch in batches_of(chunk, segment.path):
                yield batch.between(first, last)

    def segment_batches(self, info: SegmentInfo) -> Iterator[Batch]:
        """Yield all decoded entries of one segment, as far as it counts."""
        expected, end = int(info.first), self._end_of(info)
        if expected <= end:
            self._refuse_quarantined(info, expected, end)
            segment, index = self._reader(info)
            for chunk in segment.chunks(index, expected, end):
                expected = self._proven(segment, chunk, expected)
                yield from batches_of(chunk, segment.path)
            self._require(expected > end, expected, end)

    def records(self, first: int = 1, last: int | None = None) -> Iterator[Record]:
        """Yield entries one by one, control entries among them."""
        for batch in self.batches(first, last):
            yield from batch.records()

    def blocks(self, first: int = 1, last: int | None = None) -> Iterator[Block]:
        """Yield encoded blocks that cover exactly `first` to `last`, cut at the edges only."""
        first, last = self._range(first, last)
        for _, chunk in self._chunks(first, last):
            for at, header in chunk.spans:
                block = Block(chunk.buf[at : at + header.size], header)
                yield block.cut(max(first, block.first), min(last, block.last))

    def record(self, seq: int) -> Record | None:
        """Return one entry, or None if the number is a hole."""
        if not 1 <= seq <= self.last:
            raise UsageError(f"sequence number {seq} is not within 1 to {self.last}")
        info = self._segment_of(seq)
        self._refuse_quarantined(info, seq, seq)
        segment, index = self._reader(info)
        self._require(index.position(seq) < len(index), seq, seq)
        return segment.record(index, seq)

    def index(self, info: SegmentInfo) -> IndexTable:
        """Return the index entries of one of the segments, as far as this view goes."""
        table = self._reader(info)[1].table
        return table[table["last"] <= self.last]

    def parts(self, first: int) -> Iterator[Part]:
        """Yield what files hold from `first` on: parts that follow each other, from a block on that begins there or
        behind. They end at the first segment that is set apart."""
        begun = False
        for info in self.segments:
            if begun and info.state == State.QUARANTINED:
                return
            if self._end_of(info) < first or info.state == State.QUARANTINED:
                continue
            rows = self.index(info)
            rows = rows[rows["first"] >= first]
            if len(rows):
                begun = True
                yield Part.of(info.id, rows)

    def _range(self, first: int, last: int | None) -> tuple[int, int]:
        last = self.last if last is None else last
        if first < 1 or last > self.last:
            raise UsageError(f"{first} to {last} is not within 1 to {self.last}")
        return first, last

    def _chunks(self, first: int, last: int) -> Iterator[tuple[Segment, Chunk]]:
        expected = first
        for info in self.segments:
            end = self._end_of(info)
            if expected > last:
                return
            if end < expected:
                continue
            self._refuse_quarantined(info, expected, min(end, last))
            segment, index = self._reader(info)
            for chunk in segment.chunks(index, expected, min(end, last)):
                expected = self._proven(segment, chunk, expected)
                yield segment, chunk
        self._require(expected > last, expected, last)

    def _require(self, proven: bool, first: int, last: int) -> None:
        if not proven:
            reason = self._active.damage or "the log's segments end before it"
            raise RangeUnavailable(first, last, reason)

    @staticmethod
    def _proven(segment: Segment, chunk: Chunk, expected: int) -> int:
        """Check that a chunk covers `expected`; return the first number that it does not cover."""
        first, last = chunk.spans[0][1].first, chunk.spans[-1][1].last
        if not first <= expected <= last:
            raise CorruptFile(
                segment.path,
                chunk.base,
                f"blocks for {first} to {last} stand where {expected} belongs",
            )
        return last + 1

    def _end_of(self, info: SegmentInfo) -> int:
        return self.last if info.state == State.ACTIVE else info.last

    def _reader(self, info: SegmentInfo) -> tuple[Segment, Index]:
        if info.state == State.ACTIVE:
            return self._active.segment, self._active.index
        return self._cache.sealed(info)

    @staticmethod
    def _refuse_quarantined(info: SegmentInfo, first: int, last: int) -> None:
        if info.state == State.QUARANTINED:
            raise RangeUnavailable(
                max(first, info.first), last, f"segment {info.id} is quarantined: {info.reason}"
            )

    def _segment_of(self, seq: int) -> SegmentInfo:
        low, high = 0, len(self.segments) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.segments[middle].first <= seq else (low, middle - 1)
        return self.segments[low]
