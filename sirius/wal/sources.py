"""Logs to read from, whatever their format: for the tools and for Spark.

==================  ================================================================
kind                what it is
==================  ================================================================
sirius              the folder of a log of ours, live or not; no lock is taken
single              a log of ours in one file
ancestor-segmented  a folder of the Scala Sirius with the marker SEGMENTED-1.0
ancestor-legacy     a folder of the Scala Sirius with 1.data and 1.index
==================  ================================================================
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from typing import Final, Protocol, Self

import numpy as np

from sirius.errors import MissingSegment, NotALog
from sirius.wal import Batch, LogReader, OsFileSystem, State
from sirius.wal import ancestor as _ancestor
from sirius.wal.ancestor import AncestorColumns, AncestorReader, AncestorSegment
from sirius.wal.block import ENTRY, assemble
from sirius.wal.frames import FILE_MAGIC
from sirius.wal.record import DEFAULT_LIMITS
from sirius.wal.single import SingleFileReader
from sirius.wal.store import MANIFESTS, Store
from sirius.wal.wide import wide_batches

_INDEX_ENTRY: Final = struct.Struct(">8xqq")


class Source(Protocol):
    """A log to read from. Used by one thread; every call may block on the disk."""

    @property
    def kind(self) -> str:
        """The log's format, as in the table above."""
        ...

    @property
    def path(self) -> str: ...

    @property
    def last(self) -> int:
        """The newest sequence number when the source was opened; 0 if the log is empty."""
        ...

    @property
    def seekable(self) -> bool:
        """Whether reading a range costs the range and not the log."""
        ...

    def batches(self, first: int = 1, last: int | None = None) -> Iterator[Batch]:
        """Yield checked entries that cover `first` to `last` completely, in order."""
        ...

    def time_bounds(self, since_us: int | None, until_us: int | None) -> tuple[int, int]:
        """Return sequence numbers outside of which no entry has a time from `since` to before `until`."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class SiriusSource:
    """The folder of a log of ours, as far as it reached when it was opened."""

    kind = "sirius"
    seekable = True

    def __init__(self, path: str) -> None:
        self.path = path
        self.store = Store(OsFileSystem(), path)
        self.reader = LogReader.open(path)
        self.last = int(self.reader.last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.reader.close()

    def batches(self, first: int = 1, last: int | None = None) -> Iterator[Batch]:
        # `follow` finds its place again when compaction replaces segments during a long scan.
        return self.reader.follow(first, lambda: False, self.last if last is None else last)

    def wide_batches(self) -> Iterator[Batch]:
        """Yield all entries, many blocks to a batch: see `sirius.wal.wide`. Finds its place again as `batches` does."""
        position, reader = 1, self.reader
        while position <= self.last:
            reader.refresh()
            version = reader.manifest.version
            try:
                for batch in wide_batches(reader.snapshot(), position, self.last):
                    position = batch.last + 1
                    yield batch
            except (MissingSegment, FileNotFoundError):
                reader.refresh()
                if reader.manifest.version == version:
                    raise

    def follow(self, first: int, wait: Callable[[], bool], last: int | None) -> Iterator[Batch]:
        """Yield what arrives from `first` on; see `LogReader.follow`."""
        return self.reader.follow(first, wait, last)

    def time_bounds(self, since_us: int | None, until_us: int | None) -> tuple[int, int]:
        if since_us is None and until_us is None:
            return 1, self.last
        first, last = self.last + 1, 0
        snapshot = self.reader.snapshot()
        for info in snapshot.segments:
            if info.state == State.QUARANTINED:
                continue
            table = snapshot.index(info)
            hit = table["count"] > 0
            if since_us is not None:
                hit &= table["ts_max"] >= since_us
            if until_us is not None:
                hit &= table["ts_min"] < until_us
            if hit.any():
                first = min(first, int(table["first"][hit][0]))
                last = max(last, int(table["last"][hit][-1]))
        return first, last


class SingleSource:
    """A log of ours in one file."""

    kind = "single"
    seekable = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.reader = SingleFileReader(OsFileSystem(), path)
        self.last = int(self.reader.last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.reader.close()

    def batches(self, first: int = 1, last: int | None = None) -> Iterator[Batch]:
        return self.reader.batches(first, last)

    def time_bounds(self, since_us: int | None, until_us: int | None) -> tuple[int, int]:  # noqa: ARG002
        return 1, self.last


class AncestorSource:
    """A log of the Scala Sirius. Numbers that it has no entry for become holes."""

    seekable = False

    def __init__(self, path: str, *, verify: bool = True) -> None:
        self.path = path
        self._fs = OsFileSystem()
        self.reader = AncestorReader(
            self._fs,
            path,
            verify=verify,
            allow_torn=True,
            key_bytes_max=DEFAULT_LIMITS.key_bytes_max,
            body_bytes_max=DEFAULT_LIMITS.body_bytes_max,
        )
        self.kind = f"ancestor-{self.reader.layout}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing stays open between two passes."""

    @cached_property
    def last(self) -> int:
        spans = [self.span(segment) for segment in self.reader.segments()]
        return max((span[1] for span in spans if span), default=0)

    def span(self, segment: AncestorSegment) -> tuple[int, int] | None:
        """Return a segment's first and last sequence number, by its index."""
        if not segment.index_entries:
            return None
        with closing(self._fs.open(segment.index_path, "r")) as file:
            ends = (0, (segment.index_entries - 1) * _INDEX_ENTRY.size)
            first, last = (_INDEX_ENTRY.unpack(file.read(at, _INDEX_ENTRY.size))[0] for at in ends)
        return first, last

    def batches(self, first: int = 1, last: int | None = None) -> Iterator[Batch]:
        begin = 1
        for columns in self.reader.batches():
            end = int(columns.seq[-1])
            if end >= first:
                yield _batch(begin, end, columns).between(first, end if last is None else last)
            begin = end + 1
            if last is not None and end >= last:
                return

    def segment_batches(self, segment: AncestorSegment) -> Iterator[Batch]:
        """Yield the entries of one segment."""
        for found, batches in self.reader.by_segment():
            if found == segment:
                for columns in batches:
                    yield _batch(int(columns.seq[0]), int(columns.seq[-1]), columns)

    def time_bounds(self, since_us: int | None, until_us: int | None) -> tuple[int, int]:  # noqa: ARG002
        return 1, self.last


def _batch(first: int, last: int, columns: AncestorColumns) -> Batch:
    entries = np.zeros(len(columns), ENTRY)
    entries["op"] = columns.op
    entries["seq"] = columns.seq
    entries["ts"] = columns.ts_ms * 1000
    return Batch.of(assemble(first, last, entries, columns.keys, columns.bodies))


def kind_of(path: str) -> str:
    """Say which format a log has, by its names alone; raise `NotALog` or an `OSError` if it is none."""
    os.stat(path)
    fs = OsFileSystem()
    if os.path.isfile(path):
        return _kind_of_file(path)
    if Store(fs, path).is_log():
        return "sirius"
    if layout := _ancestor.detect(fs, path):
        return f"ancestor-{layout}"
    os.listdir(path)
    marks = f"neither manifests/ nor {_ancestor.MARKER} nor 1.data"
    raise NotALog(f"{path} is not a log: it has {marks}")


def _kind_of_file(path: str) -> str:
    with open(path, "rb") as file:
        is_ours = file.read(len(FILE_MAGIC)) == FILE_MAGIC
    if not is_ours:
        raise NotALog(f"{path} is a file and not a log")
    if os.path.isdir(f"{os.path.dirname(os.path.abspath(path))}/../../{MANIFESTS}"):
        raise NotALog(f"{path} is one file of a log; give the folder that holds manifests/")
    return "single"


_OPENERS: dict[str, Callable[[str], Source]] = {
    "sirius": SiriusSource,
    "single": SingleSource,
    "ancestor-segmented": AncestorSource,
    "ancestor-legacy": AncestorSource,
}


def open_source(path: str) -> Source:
    """Open a log of any format for reading."""
    return _OPENERS[kind_of(path)](path)
