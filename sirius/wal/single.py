"""A log in one file: easy to mail, to archive and to pipe, not made to be appended to.

The file is what the data file of a log's only segment would be (see `sirius.wal.frames`)::

    file      header (64): kind 1, segment 1, first sequence 1 | mark | block | block | … | closing mark

The blocks cover 1 to the last sequence number without a gap. The closing mark is synced and names that last number: a
file that does not end with one was cut, and no part of it is taken for the whole.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, Self

from sirius.errors import CorruptFile, NotALog, UsageError
from sirius.types import Seq
from sirius.wal.batch import Batch
from sirius.wal.block import Block
from sirius.wal.frames import (
    FILE_HEADER_BYTES,
    MARK_BYTES,
    Chunk,
    FileHeader,
    FileKind,
    Mark,
    Mode,
    Walk,
    parse_mark,
    read_file_header,
)
from sirius.wal.fs import FileSystem, remove_tree
from sirius.wal.index import Index, IndexTable, row_of
from sirius.wal.record import DEFAULT_LIMITS, Limits
from sirius.wal.segment import DATA, SegmentWriter, batches_of

_WRITING: Final = ".writing"


class SingleFileReader:
    """Reads a log in one file, front to back; every byte that leaves was checked. One thread at a time."""

    def __init__(self, fs: FileSystem, path: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = path
        self._limits = limits
        self._file = fs.open(path, "r")
        try:
            self.size = self._file.size()
            self.header = self._checked_header()
            self.last = Seq(self._closing_mark().last)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def _checked_header(self) -> FileHeader:
        header = read_file_header(self._file, self.path)
        if (header.kind, header.segment, header.first) != (FileKind.SEGMENT, 1, 1):
            raise NotALog(f"{self.path} is one file of a log and not a log in one file")
        return header

    def _closing_mark(self) -> Mark:
        at = max(self.size - MARK_BYTES, FILE_HEADER_BYTES)
        mark = parse_mark(self._file.read(at, MARK_BYTES), at, self.header)
        if mark is None or not mark.synced:
            raise self._cut()
        return mark

    def _cut(self) -> CorruptFile:
        """Say how much of a file is whole that does not end as it should."""
        walk = self._walk()
        for _ in walk.chunks():
            pass
        whole = (
            f"1 to {walk.next_first - 1} are whole" if walk.next_first > 1 else "nothing is whole"
        )
        return CorruptFile(self.path, walk.position, f"the file has no closing mark: {whole}")

    def _walk(self) -> Walk:
        return Walk(self._file, self.header, FILE_HEADER_BYTES, self.size, 1, limits=self._limits)

    def chunks(self, first: int = 1, last: int | None = None) -> Iterator[Chunk]:
        """Yield verified blocks that cover `first` to `last`, and maybe more on either side."""
        first, last = self._range(first, last)
        walk = self._walk()
        for chunk in walk.chunks():
            if chunk.spans[-1][1].last >= first:
                yield chunk
            if walk.next_first > last:
                return
        if walk.fault is not None:
            raise CorruptFile(self.path, walk.position, walk.fault)
        if walk.next_first <= last:
            reason = f"the blocks end with {walk.next_first - 1}, the closing mark says {self.last}"
            raise CorruptFile(self.path, walk.position, reason)

    def batches(self, first: int = 1, last: int | None = None) -> Iterator[Batch]:
        """Yield entries that cover `first` to `last` completely, in order. Reads from the file's beginning."""
        first, last = self._range(first, last)
        for chunk in self.chunks(first, last):
            for batch in batches_of(chunk, self.path):
                if batch.last >= first and batch.first <= last:
                    yield batch.between(first, last)

    def blocks(self) -> Iterator[Block]:
        """Yield every block as it stands in the file."""
        for chunk in self.chunks():
            for at, header in chunk.spans:
                yield Block(chunk.buf[at : at + header.size], header)

    def index(self) -> IndexTable:
        """Return where each block stands, by the headers alone: payloads are not checked."""
        walk, index = replace(self._walk(), payloads=False), Index()
        for chunk in walk.chunks():
            for at, header in chunk.spans:
                index.append(row_of(header, chunk.base + at))
        if walk.fault is not None:
            raise CorruptFile(self.path, walk.position, walk.fault)
        return index.table

    def _range(self, first: int, last: int | None) -> tuple[int, int]:
        last = self.last if last is None else last
        if first < 1 or last > self.last:
            raise UsageError(f"{first} to {last} is not within 1 to {self.last}")
        return first, last


def write_single(
    fs: FileSystem,
    path: str,
    blocks: Iterable[Block],
    *,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Seq:
    """Write blocks, which follow each other from 1 on, as a log in one file; return the last number.

    Everything is written below `<path>.writing` and gets its name at the end, once all of it is on disk. Both names
    have to be free. Blocks on the disk.
    """
    folder = path + _WRITING
    for name in (path, folder):
        if fs.exists(name):
            raise UsageError(f"{name} is there already; only a new file is written")
    header = FileHeader(FileKind.SEGMENT, 1, int.from_bytes(os.urandom(8)), 1, now_us())
    try:
        last = _write(fs, folder, header, blocks)
        fs.replace(f"{folder}/{DATA}", path)
        fs.sync_dir(posixpath.dirname(path) or ".")
    finally:
        remove_tree(fs, folder)
    return last


def _write(fs: FileSystem, folder: str, header: FileHeader, blocks: Iterable[Block]) -> Seq:
    """Write a segment: it has an index, too, but a log in one file can do without."""
    writer = SegmentWriter.create(fs, folder, header, Mode.FSYNC)
    try:
        for block in blocks:
            if block.first != writer.last + 1:
                raise UsageError(f"a block from {block.first} on cannot follow {writer.last}")
            writer.append([block])
        return writer.seal(Mode.FSYNC).last
    finally:
        writer.abandon()
