"""Reading the ancestor's logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

import numpy as np

from sirius.errors import (
    CorruptFile,
    NotALog,
    UsageError,
)
from sirius.types import ByteOffset, SegmentId
from sirius.wal.ancestor.format import (
    FLAGS,
    INDEX,
    LEFTOVERS,
    MARKER,
    AncestorColumns,
    AncestorSegment,
    Layout,
    detect,
    index_checksums,
    pair,
)
from sirius.wal.ancestor.scan import Scanner, TornTail, Window, first_fault, in_batches
from sirius.wal.fs import FileSystem


class AncestorReader:
    """Reads a log of the ancestor. The folder is listed once, when the reader is made.

    Not thread-safe, and blocks on the disk. Read a log at rest: one that the ancestor still writes
    to may seem to have a torn tail.

    `leftovers` are the paths of what a crash left and nobody reads. `torn_tail` is where the last
    pass found the log cut off: the pass ends there with `allow_torn`, and raises without it.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        verify: bool = True,
        allow_torn: bool = False,
        key_bytes_max: int,
        body_bytes_max: int,
    ) -> None:
        layout = detect(fs, path)
        if layout is None:
            raise NotALog(f"{path}: neither {MARKER} nor 1.data is there")
        self.layout: Final[Layout] = layout
        self.torn_tail: tuple[str, ByteOffset] | None = None
        self._fs = fs
        self._path = path
        self._allow_torn = allow_torn
        self._new_scanner = partial(Scanner, fs, verify, key_bytes_max, body_bytes_max)
        names = fs.listdir(path)
        segments = {1: "1"} if layout == "legacy" else self._segment_names(names)
        self._segments = tuple(self._segment(*item) for item in sorted(segments.items()))
        self.leftovers: Final = tuple(
            f"{path}/{name}"
            for name in names
            if name.endswith(LEFTOVERS) and name not in segments.values()
        )

    def _segment_names(self, names: Sequence[str]) -> dict[int, str]:
        folders = [name for name in names if self._fs.isdir(f"{self._path}/{name}")]
        found = {int(name): name for name in folders if name.isdecimal()}
        for name in folders:
            stem = name.removesuffix(".temp")
            if stem != name and stem.isdecimal():
                found.setdefault(int(stem), name)
        return found

    def _segment(self, number: int, name: str) -> AncestorSegment:
        folder, data_path, index_path = pair(self.layout, self._path, name)
        flags = tuple(flag for flag in FLAGS if self._fs.exists(f"{folder}/{flag}"))
        entries = self._size(index_path) // INDEX.itemsize
        return AncestorSegment(SegmentId(number), folder, data_path, index_path, flags, entries)

    def _size(self, path: str) -> int:
        """Return a file's size. One that is missing is empty, as it is for the ancestor."""
        if not self._fs.exists(path):
            return 0
        with closing(self._fs.open(path, "r")) as file:
            return file.size()

    def segments(self) -> tuple[AncestorSegment, ...]:
        """Return the segments in order. A legacy log is one segment."""
        return self._segments

    def batches(self, records: int = 4096) -> Iterator[AncestorColumns]:
        """Yield all entries, at most `records` and a few MiB (or one entry) at a time.

        Entries ahead of damage are yielded before `CorruptFile` is raised.
        """
        for _, columns in self.by_segment(records):
            yield from columns

    def by_segment(
        self, records: int = 4096
    ) -> Iterator[tuple[AncestorSegment, Iterator[AncestorColumns]]]:
        """Yield every segment with its batches; take those before you ask for the next segment."""
        if records < 1:
            raise UsageError(f"a batch has at least 1 record, not {records}")
        scanner = self._begin_pass()
        for segment in self._segments:
            yield segment, in_batches(self._windows(scanner, segment), records)

    def check_index(self) -> None:
        """Raise `CorruptFile` unless every index matches its data, entry by entry."""
        scanner = self._begin_pass()
        for segment in self._segments:
            count = 0
            for window in self._windows(scanner, segment):
                self._check_index(segment, count, window)
                count += len(window.offsets)
            end = count * INDEX.itemsize
            if self._size(segment.index_path) > end:
                raise CorruptFile(segment.index_path, end, "more entries than the data file has")

    def _check_index(self, segment: AncestorSegment, count: int, window: Window) -> None:
        """Compare the index from entry number `count` on with the entries of a window."""
        at, raw = count * INDEX.itemsize, b""
        if self._fs.exists(segment.index_path):
            with closing(self._fs.open(segment.index_path, "r")) as file:
                raw = file.read(at, len(window.offsets) * INDEX.itemsize)
        index = np.frombuffer(raw, INDEX, len(raw) // INDEX.itemsize)
        head, offsets = window.head[: len(index)], window.offsets[: len(index)]
        bad, reason = first_fault(
            ("a checksum that does not match", index["checksum"] != index_checksums(index)),
            ("not the data's sequence number", index["seq"] != head["seq"]),
            ("not the data's offset", index["offset"] != window.base + offsets),
        )
        if bad < len(window.offsets):
            reason = reason or f"no entry for sequence number {window.head['seq'][bad]}"
            raise CorruptFile(segment.index_path, at + bad * INDEX.itemsize, reason)

    def _begin_pass(self) -> Scanner:
        self.torn_tail = None
        return self._new_scanner()

    def _windows(self, scanner: Scanner, segment: AncestorSegment) -> Iterator[Window]:
        path = segment.data_path
        if not self._fs.exists(path):
            if segment.index_entries:
                raise CorruptFile(path, 0, "the file is missing, its index is not")
            return
        try:
            yield from scanner.windows(path)
        except TornTail as torn:
            if segment is not self._segments[-1]:
                raise
            self.torn_tail = (path, ByteOffset(torn.offset))
            if not self._allow_torn:
                raise
