"""Logs of any format, as they are at one moment: what a query reads, from its first task to its last.

The manifest is the snapshot. The driver reads it once, with the end of the active segment; tasks open segments by name
and never look at a manifest. Whatever is appended, compacted or rotated meanwhile does not show. What compaction
replaces stays on disk for `retire_after_s`; a task that comes later than that fails and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from sirius.errors import CorruptFile, RangeUnavailable, UsageError
from sirius.wal import LogReader, OsFileSystem, SegmentInfo, Snapshot, State
from sirius.wal.frames import FILE_HEADER_BYTES
from sirius.wal.index import IndexTable
from sirius.wal.segment import DATA
from sirius.wal.single import SingleFileReader
from sirius.wal.sources import AncestorSource, kind_of
from sirius.wal.store import Store
from spark_connector.paths import local_path
from spark_connector.reading.pieces import Live, Piece, Run, cut, end_of, runs_of

if TYPE_CHECKING:
    from sirius.wal.batch import Mask
    from sirius.wal.block import Ints
    from spark_connector.reading.scan import Scan


@dataclass(eq=False)
class Stretch:
    """One data file of a pinned log, on the driver. `table` is its index; None where it has none."""

    log: str
    path: str
    segment: int
    first: int
    last: int
    nbytes: int
    blocks: int
    records: int
    load_table: Callable[[], IndexTable | None] = field(repr=False)
    ancestor: bool = False

    @cached_property
    def table(self) -> IndexTable | None:
        return self.load_table()

    def whole(self) -> Piece:
        """Return all of it."""
        start = 0 if self.ancestor else FILE_HEADER_BYTES
        run = Run(start, self.nbytes, self.first, self.last, self.blocks)
        return self.piece([run])

    def piece(self, runs: Sequence[Run]) -> Piece:
        """Return parts of it."""
        return Piece(self.log, self.path, self.segment, self.first, tuple(runs), self.ancestor)

    def cut(self, run: Run, at: Sequence[int]) -> list[Run]:
        """Cut a run at the blocks nearest to some offsets, if there is an index to find them by."""
        return [run] if self.table is None else cut(run, self.table, at)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A range that is known to be damaged before anything is read."""

    first: int
    last: int
    reason: str


@dataclass(frozen=True)
class Pinned:
    """A log at one moment. `stretches` are in order of sequence."""

    path: str
    kind: str
    last: int
    stretches: Sequence[Stretch]
    unreadable: Sequence[Unreadable] = ()
    tombstone_floor: int = 0
    version: int = 0

    def require_readable(self, first: int, last: int) -> None:
        """Raise if something between two numbers is known to be damaged."""
        for each in self.unreadable:
            if each.first <= last and each.last >= first:
                raise RangeUnavailable(each.first, each.last, f"{self.path}: {each.reason}")


def pin(path: str) -> Pinned:
    """Fix a log of any format as it is now."""
    path = local_path(path)
    kind = _kind_of(path)
    if kind == "sirius":
        with LogReader.open(path) as reader:
            return pin_reader(path, reader)
    return _pin_single(path) if kind == "single" else _pin_ancestor(path, kind)


def check_paths(paths: Iterable[str]) -> None:
    """Raise for a path that holds no log, by its names alone."""
    for path in paths:
        _kind_of(local_path(path))


def _kind_of(path: str) -> str:
    try:
        return kind_of(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file or folder") from None


def pin_reader(path: str, reader: LogReader) -> Pinned:
    """Fix what a reader saw last: for those who look at a log again and again."""
    with reader.snapshot() as snapshot:
        sealed = [info for info in snapshot.segments if info.state == State.SEALED]
        stretches = [_sealed(path, info, snapshot) for info in sealed]
        stretches += _active(path, snapshot)
        return Pinned(
            path,
            "sirius",
            int(snapshot.last),
            stretches,
            tuple(_unreadable(snapshot, stretches, reader.damage)),
            int(snapshot.manifest.tombstone_floor),
            snapshot.manifest.version,
        )


def _data_path(path: str, info: SegmentInfo) -> str:
    return f"{Store(OsFileSystem(), path).segment_dir(info.id)}/{DATA}"


def _sealed(path: str, info: SegmentInfo, snapshot: Snapshot) -> Stretch:
    return Stretch(
        path,
        _data_path(path, info),
        info.id,
        info.first,
        info.last,
        info.bytes,
        info.blocks,
        info.records,
        lambda: snapshot.index(info),
    )


def _active(path: str, snapshot: Snapshot) -> Iterator[Stretch]:
    info = snapshot.manifest.active
    table = snapshot.index(info)
    if len(table):
        yield Stretch(
            path,
            _data_path(path, info),
            info.id,
            info.first,
            int(table["last"][-1]),
            end_of(table, -1),
            len(table),
            int(table["count"].sum()),
            lambda: table,
        )


def _unreadable(
    snapshot: Snapshot, stretches: Sequence[Stretch], damage: str | None
) -> Iterator[Unreadable]:
    for info in snapshot.segments:
        if info.state == State.QUARANTINED:
            reason = f"segment {info.id} is quarantined: {info.reason}"
            yield Unreadable(info.first, info.last, reason)
    active = snapshot.manifest.active
    known = max([active.first - 1, *(each.last for each in stretches)])
    if known < snapshot.last:
        yield Unreadable(known + 1, snapshot.last, damage or "its end is damaged")


def _pin_single(path: str) -> Pinned:
    with SingleFileReader(OsFileSystem(), path) as reader:
        size, last = reader.size, int(reader.last)

    def table() -> IndexTable:
        with SingleFileReader(OsFileSystem(), path) as reader:
            return reader.index()

    # Nothing but a walk over the file tells how many blocks it has: one for each record at worst.
    stretch = Stretch(path, path, 1, 1, last, size, max(last, 1), -1, table)
    return Pinned(path, "single", last, [stretch] if last else [])


def _pin_ancestor(path: str, kind: str) -> Pinned:
    source = AncestorSource(path)
    stretches = []
    for segment in source.reader.segments():
        if span := source.span(segment):
            size = os.stat(segment.data_path).st_size
            stretches.append(
                Stretch(
                    path,
                    segment.data_path,
                    int(segment.segment_id),
                    *span,
                    size,
                    1,
                    segment.index_entries,
                    lambda: None,
                    ancestor=True,
                )
            )
    return Pinned(path, kind, source.last, stretches)


# ---------------------------------------------------------------------- choosing what to read


def pieces_of(log: Pinned, scan: Scan, live: dict[int, Ints] | None = None) -> list[Piece]:
    """Return what has to be read, one piece a segment at most. `live` are the rows that count, by segment."""
    chosen = [
        _piece(stretch, scan, None if live is None else live.get(stretch.segment, _NONE))
        for stretch in log.stretches
    ]
    return [piece for piece in chosen if piece is not None]


_NONE: Final = np.zeros(0, np.int64)


def seq_bounds(scan: Scan) -> tuple[int, int]:
    """Return the sequence numbers between which rows may be wanted."""
    low, high = scan.predicate.bounds("seq") or (scan.first, scan.last)
    return max(low, scan.first), min(high, scan.last)


def _piece(stretch: Stretch, scan: Scan, live: Ints | None) -> Piece | None:
    first, last = seq_bounds(scan)
    if stretch.last < first or stretch.first > last or first > last:
        return None
    if not scan.predicate.takes_segment(stretch.segment) or (live is not None and not len(live)):
        return None
    cuts = stretch.first < first or stretch.last > last
    if not cuts and scan.predicate.bounds("ts") is None and live is None:
        return stretch.whole()
    return _part(stretch, scan, live)


def _part(stretch: Stretch, scan: Scan, live: Ints | None) -> Piece | None:
    table = _table_or_none(stretch, scan)
    if table is None:
        whole = stretch.whole()
        return stretch.piece([_marked(run, live) for run in whole.runs])
    runs = runs_of(table, _wanted(table, scan, live))
    return stretch.piece([_marked(run, live) for run in runs]) if runs else None


def _table_or_none(stretch: Stretch, scan: Scan) -> IndexTable | None:
    """Return the index. Where the file is so damaged that there is none, the task may find out what can be read."""
    try:
        return stretch.table
    except CorruptFile:
        if scan.skip_corrupt:
            return None
        raise


def _wanted(table: IndexTable, scan: Scan, live: Ints | None) -> Mask:
    """Say which blocks may hold rows that are wanted."""
    first, last = seq_bounds(scan)
    wanted: Mask = (table["last"] >= first) & (table["first"] <= last) & (table["count"] > 0)
    if bounds := scan.predicate.bounds("ts"):
        wanted &= (table["ts_max"] >= bounds[0]) & (table["ts_min"] <= bounds[1])
    if live is not None:
        edges = np.searchsorted(live, [table["first"], table["last"].astype(np.int64) + 1])
        wanted &= edges[0] < edges[1]
    return wanted


def _marked(run: Run, live: Ints | None) -> Run:
    if live is None:
        return run
    low, high = np.searchsorted(live, [run.first, run.last + 1]).tolist()
    return replace(run, live=Live.of(live[low:high], run.first, run.last))
