"""Segments: a data file of blocks and its index, in a folder of their own.

`SegmentWriter` writes one: the active segment, or the product of a compaction. `Segment` reads one, whether it is
sealed, still growing, or in another process's hands.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np
from crc32c import crc32c

from sirius.errors import CorruptFile, CorruptLog, DiskFull, NotALog
from sirius.types import SegmentId, Seq
from sirius.wal.batch import Batch
from sirius.wal.block import ENTRY, ENTRY_BYTES, HEADER, HEADER_BYTES, Block, Header, header_fault
from sirius.wal.frames import (
    FILE_HEADER_BYTES,
    Chunk,
    FileHeader,
    FileKind,
    FrameWriter,
    Mode,
    Walk,
    read_file_header,
)
from sirius.wal.fs import File, FileSystem, is_full
from sirius.wal.index import Index, encode_row, row_of
from sirius.wal.manifest import SegmentInfo, State
from sirius.wal.record import DEFAULT_LIMITS, Limits, Op, Record

_log = logging.getLogger("sirius.wal")
DATA = "data"
INDEX = "index"
_SMALL_BLOCK = 64
_ENTRY = struct.Struct("<IIIBBHQqQQ")
_SEQ_AT, _SEQ_BYTES = 16, 8


def load_index(fs: FileSystem, folder: str, crc: int | None) -> Index | None:
    """Read a segment's index file, or return None if it is missing or its checksum is not `crc`."""
    path = f"{folder}/{INDEX}"
    if not fs.exists(path):
        return None
    raw = read_whole(fs, path)
    return Index.from_bytes(raw) if crc is None or crc32c(raw) == crc else None


def read_whole(fs: FileSystem, path: str) -> bytes:
    """Return a small file's bytes."""
    file = fs.open(path, "r")
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def write_whole(fs: FileSystem, path: str, data: bytes) -> None:
    """Write a small file and sync it; its name is for the caller to sync."""
    if fs.exists(path):
        fs.remove(path)
    file = fs.open(path, "x")
    try:
        file.append([data])
        file.sync()
    finally:
        file.close()


class SegmentWriter(FrameWriter):
    """Appends blocks to one segment. Not thread-safe; readers may look on through `index` and `last`."""

    def __init__(self, fs: FileSystem, folder: str, file: File, header: FileHeader) -> None:
        super().__init__(file, f"{folder}/{DATA}", header)
        self._fs = fs
        self._folder = folder
        self.index = Index()
        self.records = 0
        self._unwritten: list[bytes] = []

    @classmethod
    def create(
        cls, fs: FileSystem, folder: str, header: FileHeader, mode: Mode, *, durable: bool = True
    ) -> SegmentWriter:
        """Make a new segment: folder and data file with header and first mark, synced with its names.

        One that is not `durable` is rubbish after a crash anyway until it is sealed, and that syncs everything.
        """
        fs.mkdir(folder)
        file = fs.open(f"{folder}/{DATA}", "x")
        try:
            file.append([header.encode()])
            writer = cls(fs, folder, file, header)
            if durable:
                file.sync()
                write_whole(fs, f"{folder}/{INDEX}", b"")
                fs.sync_dir(folder)
            writer.mark(mode, synced=durable)
            if durable:
                writer.sync()
        except BaseException:
            # Whoever keeps the error keeps its frames, and so would keep the file.
            file.close()
            raise
        return writer

    @classmethod
    def resume(
        cls, fs: FileSystem, folder: str, file: File, walk: Walk, index: Index, mode: Mode
    ) -> SegmentWriter:
        """Go on with a segment that recovery has walked through: cut what is torn, mark what is good."""
        writer = cls(fs, folder, file, walk.header)
        writer._adopt(index)
        writer.go_on_after(walk, mode)
        return writer

    def _adopt(self, index: Index) -> None:
        table = index.table
        raw = table.tobytes()
        try:
            write_whole(self._fs, f"{self._folder}/{INDEX}", raw)
        except OSError as error:
            # A hint; a log on a full disk can be opened without it.
            _log.warning("%s: the index falls behind: %s", self._folder, error)
        self.index = index
        self.records = int(table["count"].sum(dtype=np.int64))
        self.last = Seq(int(table["last"][-1]) if len(table) else self.header.first - 1)
        self._index_crc = crc32c(raw)

    def append(self, blocks: Sequence[Block]) -> None:
        """Write blocks as one piece. If that fails nothing of them is left in the file."""
        at = self.size
        self.write([block.raw for block in blocks])
        for block in blocks:
            row = row_of(block.header, at)
            self.index.append(row)
            self._unwritten.append(encode_row(row))
            self._index_crc = crc32c(self._unwritten[-1], self._index_crc)
            at += len(block)
            self.records += block.count
        self.last = blocks[-1].last

    @property
    def index_lag(self) -> int:
        """How many blocks the index file is behind."""
        return len(self._unwritten)

    def write_index(self) -> None:
        """Bring the index file nearer. A mark should follow, so that it can be believed; a failure does no harm."""
        try:
            self._append_index(b"".join(self._unwritten))
        except OSError as error:
            _log.warning("%s: the index falls behind: %s", self._folder, error)
        self._unwritten.clear()

    def _append_index(self, rows: bytes) -> None:
        file = self._fs.open(f"{self._folder}/{INDEX}", "a")
        try:
            file.append([rows])
        finally:
            file.close()

    def close(self, mode: Mode) -> None:
        """Close the segment so that the next opener finds a synced mark at its end.

        Everything is on disk before the index and the mark are written, so it does no harm if there is no room.
        """
        try:
            self._finish(mode)
        except (DiskFull, OSError) as error:
            if isinstance(error, OSError) and not is_full(error):
                raise
            _log.warning("%s: no room for the index or a mark: %s", self._folder, error)
        self._file.close()

    def _finish(self, mode: Mode) -> None:
        self.sync()
        write_whole(self._fs, f"{self._folder}/{INDEX}", self.index.table.tobytes())
        # The index was written under its name anew: without this, power loss may leave the segment without one.
        self._fs.sync_dir(self._folder)
        self._unwritten.clear()
        self.mark(mode)
        self.sync()

    def seal(self, mode: Mode) -> SegmentInfo:
        """Put everything on disk and return what the manifest should say. If that has no room, it can be done again;
        once a manifest says so, `abandon` the file."""
        self._finish(mode)
        return SegmentInfo(
            SegmentId(self.header.segment),
            Seq(self.header.first),
            self.last,
            State.SEALED,
            self.size,
            len(self.index),
            self.records,
            self._index_crc,
        )


class Segment:
    """Reads one segment. Any thread; every byte that leaves was checked."""

    def __init__(
        self, fs: FileSystem, folder: str, info: SegmentInfo, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self.info = info
        self.path = f"{folder}/{DATA}"
        self._fs = fs
        self._folder = folder
        self._limits = limits
        self._file = fs.open(self.path, "r")
        self.header = self._checked_header()
        self.index_rebuilt = False

    def _checked_header(self) -> FileHeader:
        wanted = (FileKind.SEGMENT, self.info.id, self.info.first)
        try:
            header = read_file_header(self._file, self.path)
        except NotALog as error:
            # The manifest names this file, so it was one.
            raise CorruptFile(self.path, 0, str(error)) from None
        if (header.kind, header.segment, header.first) != wanted:
            raise CorruptFile(
                self.path,
                0,
                f"the file says kind {header.kind}, segment {header.segment}, first sequence "
                f"{header.first}; {wanted[0]}, {wanted[1]}, {wanted[2]} belong here",
            )
        return header

    def close(self) -> None:
        self._file.close()

    def read(self, offset: int, length: int) -> bytes:
        """Return raw bytes of the data file, unchecked."""
        return self._file.read(offset, length)

    def size(self) -> int:
        """Return the data file's present size."""
        return self._file.size()

    def walk(self, start: int, first: int, end: int | None = None) -> Walk:
        """Return a walk over the frames from `start` on, where a block must begin with `first`."""
        stop = self._file.size() if end is None else end
        return Walk(self._file, self.header, start, stop, first, self._limits)

    def walk_all(self) -> Walk:
        """Return a walk over the whole file as it is now."""
        return self.walk(FILE_HEADER_BYTES, self.info.first)

    def sealed_index(self) -> Index:
        """Return the index of a sealed segment, built anew in memory if the file is no good."""
        index = load_index(self._fs, self._folder, self.info.index_crc)
        if index is None:
            self.index_rebuilt = True
            index = Index()
            for chunk in self.chunks_from(FILE_HEADER_BYTES, self.info.first, self.info.bytes):
                for at, header in chunk.spans:
                    index.append(row_of(header, chunk.base + at))
            if crc32c(index.table.tobytes()) != self.info.index_crc:
                raise CorruptFile(self.path, 0, "the blocks are not those that were sealed")
        return index

    def chunks_from(self, start: int, first: int, end: int) -> Iterator[Chunk]:
        """Yield verified blocks between two offsets; the first must begin with `first`."""
        walk = self.walk(start, first, end)
        yield from walk.chunks()
        if walk.fault is not None or walk.position < end:
            raise CorruptFile(self.path, walk.position, walk.fault or "the file ends too early")

    def chunks(self, index: Index, first: int, last: int) -> Iterator[Chunk]:
        """Yield the blocks that cover `first` to `last`, found through the index."""
        low = index.position(first)
        if low == len(index):
            return
        begin = index.row(low)
        high = min(index.position(last), len(index) - 1)
        stop = index.row(high)
        yield from self.chunks_from(begin[2], begin[0], stop[2] + stop[3])

    def record(self, index: Index, seq: int) -> Record | None:
        """Look one entry up, or return None for a hole. O(log n) reads, one of up to half the block's entries."""
        position = index.position(seq)
        if position == len(index):
            raise CorruptFile(self.path, 0, f"the index ends before sequence {seq}")
        first, _, at, size, *_ = index.row(position)
        header = self._block_header(at, first)
        row = self._row(header, at, seq)
        record = None if row is None else self._entry(header, at, row)
        if record is None or record.seq != seq:
            # A hole is a claim about the whole column, so here the whole block has to be right.
            next(self.chunks_from(at, first, at + size))
            return None
        return record

    def _block_header(self, at: int, first: int) -> Header:
        raw = self._file.read(at, HEADER_BYTES)
        if len(raw) < HEADER_BYTES:
            raise CorruptFile(self.path, at, "the file ends inside a block")
        header = Header._make(HEADER.unpack(raw))
        fault = header_fault(header, raw, self._limits)
        if fault is None and header.first != first:
            fault = f"the block begins at sequence {header.first}, not {first}"
        if fault is not None:
            raise CorruptFile(self.path, at, fault)
        return header

    def _row(self, header: Header, at: int, seq: int) -> int | None:
        """Return where the entry of `seq` must be, if anywhere; with no holes around it there is one place only."""
        low = max(0, header.records - 1 - (header.last - seq))
        high = min(header.records, seq - header.first + 1)
        if high - low > 1:
            low += bisect_left(range(low, high), seq, key=lambda row: self._seq(at, row))
        return low if low < high else None

    def _seq(self, at: int, row: int) -> int:
        raw = self._file.read(at + HEADER_BYTES + row * ENTRY_BYTES + _SEQ_AT, _SEQ_BYTES)
        return int.from_bytes(raw, "little")

    def _entry(self, header: Header, at: int, row: int) -> Record:
        raw, key_at, body_at = self._place(header, at, row)
        crc, key_len, body_len, op, _, _, seq, ts, session, serial = _ENTRY.unpack(raw)
        if min(key_at, body_at) < at or max(key_len, body_len) > header.size:
            raise CorruptFile(self.path, at, f"the lengths around entry {seq} leave its block")
        key, body = self._file.read(key_at, key_len), self._file.read(body_at, body_len)
        if crc32c(body, crc32c(key, crc32c(raw[4:]))) != crc:
            raise CorruptFile(self.path, at, f"entry {seq} fails its checksum")
        return Record(seq, ts, Op(op), key.decode(), body, session, serial)

    def _place(self, header: Header, at: int, row: int) -> tuple[bytes, int, int]:
        """Return an entry's bytes and where its key and body are, by the lengths before it or from it on: the fewer."""
        keys_at = at + HEADER_BYTES + header.records * ENTRY_BYTES
        bodies_at = keys_at + header.keys_len
        if 2 * row < header.records:
            raw = self._entries(at, 0, row + 1)
            keys, bodies = _lengths(raw[:-ENTRY_BYTES])
            return raw[-ENTRY_BYTES:], keys_at + keys, bodies_at + bodies
        raw = self._entries(at, row, header.records)
        keys, bodies = _lengths(raw)
        return raw[:ENTRY_BYTES], bodies_at - keys, bodies_at + header.bodies_len - bodies

    def _entries(self, at: int, low: int, high: int) -> bytes:
        """Return the bytes of a block's entries from `low` to before `high`."""
        length = (high - low) * ENTRY_BYTES
        raw = self._file.read(at + HEADER_BYTES + low * ENTRY_BYTES, length)
        if len(raw) < length:
            raise CorruptFile(self.path, at, "the file ends inside a block")
        return raw


def _lengths(raw: bytes) -> tuple[int, int]:
    """Return how long the keys and the bodies of some entries are in all."""
    entries = np.frombuffer(raw, ENTRY)
    keys, bodies = entries["key_len"], entries["body_len"]
    return int(np.add.reduce(keys, dtype=np.int64)), int(np.add.reduce(bodies, dtype=np.int64))


def batches_of(chunk: Chunk, path: str) -> Iterator[Batch]:
    """Decode a chunk: block by block where they are large, all at once where they are small."""
    spans = chunk.spans
    try:
        if sum(header.records for _, header in spans) < _SMALL_BLOCK * len(spans):
            yield Batch.of_spans(chunk.buf, spans)
            return
        for at, header in spans:
            yield Batch.of_span(chunk.buf, at, header)
    except CorruptLog as error:
        raise CorruptFile(path, chunk.base, str(error)) from None
