"""Files of frames: what segments and journals have in common.

A file begins with a header and goes on with frames, one after the other, each a multiple of 8 bytes long::

    file      header (64) | frame | frame | …

    header     0  magic "SIRIUSWL"        24  log's unique id  u64     mark    0  magic "SMRK"
               8  checksum        u32     32  first sequence   u64             4  checksum        u32
              12  version 1       u16     40  created, µs      i64             8  mode            u8
              14  kind            u16     48  reserved (0)                     9  synced          u8
              16  segment         u64                                         10  reserved (0)    u16
                                                                              12  index checksum  u32
    A frame is a block ("SBLK", see `sirius.wal.block`) or a mark.            16  log's unique id u64
    The checksum of a header or mark covers all its bytes                     24  segment         u64
    but the checksum itself and the magic in front of it.                     32  own offset      u64
                                                                              40  last sequence   u64

**Marks and torn tails.** A synced mark says: everything before me was on disk when I was written. In mode `fsync` the
log writes one group at a time: the blocks that were waiting, a sync, then a mark; nothing else is written until the
sync has returned. So whatever a crash destroys lies behind the last mark. When a file stops making sense at some byte:

- a valid mark behind that byte proves that the byte had been on disk: this is **corruption**;
- no mark behind it, and the last mark in front says `fsync`: a **torn tail**, never acknowledged, cut off;
- no synced mark behind it, and the last mark in front says `os` (the kernel decided what to write when) or there is
  none: torn if nothing valid follows; if a valid frame follows we do not guess, and it counts as corruption.

A mark carries its own offset and the file's unique id, so bytes that look like one inside somebody's body prove
nothing. A zero-filled tail holds no magic and does not parse.

A mark also holds the checksum of the index entries of all blocks before it, so that a reader who finds one where the
index file ends may believe that index without reading the data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import ClassVar, Final, NamedTuple

from crc32c import crc32c

from sirius.errors import CorruptFile, DiskFull, LogFailed, NotALog
from sirius.types import ByteOffset, Seq
from sirius.wal import block as _block
from sirius.wal.block import HEADER, HEADER_BYTES, Header, header_fault
from sirius.wal.fs import File, is_full
from sirius.wal.record import DEFAULT_LIMITS, Limits

FILE_MAGIC: Final = b"SIRIUSWL"
FILE_VERSION: Final = 1
_FILE_HEADER: Final = struct.Struct("<8sIHHQQQq16x")
FILE_HEADER_BYTES: Final = _FILE_HEADER.size
MARK_MAGIC: Final = b"SMRK"
_MARK: Final = struct.Struct("<4sIBB2xIQQQQ")
MARK_BYTES: Final = _MARK.size
CHUNK_BYTES: Final = 1 << 20


class FileKind(IntEnum):
    """What a file of frames is for."""

    SEGMENT = 1
    JOURNAL = 2


class Mode(IntEnum):
    """How the frames behind a mark are being written."""

    FSYNC = 1
    OS = 2


_KINDS: Final = frozenset(map(int, FileKind))
_MODES: Final = frozenset(map(int, Mode))


class FileHeader(NamedTuple):
    """The first 64 bytes of a file of frames."""

    kind: FileKind
    segment: int
    uid: int
    first: int
    created_us: int

    def encode(self) -> bytes:
        raw = _FILE_HEADER.pack(FILE_MAGIC, 0, FILE_VERSION, *self)
        return raw[:8] + crc32c(raw[12:]).to_bytes(4, "little") + raw[12:]


def read_file_header(file: File, path: str) -> FileHeader:
    """Read and check the header of a file of frames."""
    raw = file.read(0, FILE_HEADER_BYTES)
    if raw[:8] != FILE_MAGIC:
        raise NotALog(f"{path} is not a Sirius log file")
    if len(raw) < FILE_HEADER_BYTES:
        raise CorruptFile(path, len(raw), "the file ends inside its header")
    _, crc, version, kind, *rest = _FILE_HEADER.unpack(raw)
    if crc32c(raw[12:]) != crc:
        raise CorruptFile(path, 0, "the file header's checksum does not match")
    if version != FILE_VERSION or kind not in _KINDS:
        raise CorruptFile(
            path, 0, f"file format {version}, kind {kind}, is not known to this version"
        )
    return FileHeader(FileKind(kind), *rest)


class Mark(NamedTuple):
    """If `synced`, everything before `offset` was on disk when this was written."""

    mode: Mode
    synced: bool
    index_crc: int
    uid: int
    segment: int
    offset: int
    last: int

    def encode(self) -> bytes:
        raw = _MARK.pack(MARK_MAGIC, 0, *self)
        return raw[:4] + crc32c(raw[8:]).to_bytes(4, "little") + raw[8:]


def parse_mark(raw: bytes | memoryview, offset: int, header: FileHeader) -> Mark | None:
    """Return the mark that `raw` holds if it is whole and stands where it says it does."""
    if len(raw) < MARK_BYTES or raw[:4] != MARK_MAGIC:
        return None
    _, crc, mode, synced, index_crc, *place, last = _MARK.unpack_from(raw)
    if crc32c(raw[8:MARK_BYTES]) != crc or place != [header.uid, header.segment, offset]:
        return None
    if mode not in _MODES:
        return None
    return Mark(Mode(mode), bool(synced), index_crc, header.uid, header.segment, offset, last)


@dataclass(slots=True)
class Chunk:
    """Verified blocks that follow each other in one buffer read from a file."""

    buf: bytes
    base: ByteOffset
    spans: list[tuple[int, Header]] = field(default_factory=list)


@dataclass(slots=True)
class Walk:
    """Goes through the frames of a file, checking each, up to `end` or to the first that fails.

    After the chunks are exhausted `position` is where it stopped, `fault` says why if that was not the end, and `mark`
    is the last mark seen. `next_first` is the sequence number that the next block must begin with.
    """

    file: File
    header: FileHeader
    position: int
    end: int
    next_first: int
    magic: ClassVar[bytes] = _block.MAGIC
    """What every frame but a mark begins with. Another kind of file has a subclass with its own `_frame`."""
    limits: Limits = DEFAULT_LIMITS
    payloads: bool = True
    fault: str | None = None
    mark: Mark | None = None
    behind: int = 0
    """Where the frame that failed ends, if its head could be believed: what looks like a frame before is in a body."""

    def chunks(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
        """Yield chunks of whole blocks. Memory: one chunk, or one block where that is larger."""
        wanted = chunk_bytes
        while self.fault is None and self.position < self.end:
            length = min(wanted, self.end - self.position)
            buf = self.file.read(self.position, length)
            if len(buf) < length:
                # The writer took something back while this reader was looking.
                self.end = self.position + len(buf)
            chunk = Chunk(buf, ByteOffset(self.position))
            needed = self._take(chunk)
            if chunk.spans:
                yield chunk
            wanted = max(needed, chunk_bytes)

    def _take(self, chunk: Chunk) -> int:
        """Move over the whole frames of a chunk; return how many bytes the next frame needs."""
        buf, base, at, length = memoryview(chunk.buf), chunk.base, 0, len(chunk.buf)
        while at < length:
            if length - at < MARK_BYTES:
                # No frame is shorter than a mark, and only whole magics can be told apart.
                return self._more(MARK_BYTES, base + at)
            is_mark = bytes(buf[at : at + len(MARK_MAGIC)]) == MARK_MAGIC
            size = self._mark(buf, at) if is_mark else self._frame(chunk, buf, at)
            if self.fault is not None:
                break
            if size > length - at:
                return self._more(size, base + at)
            at += size
            self.position = base + at
        return 0

    def _more(self, size: int, at: int) -> int:
        if at + size > self.end:
            self.fault = "the file ends inside a frame"
            self.behind = self.end
        return size

    def _mark(self, buf: memoryview, at: int) -> int:
        if at + MARK_BYTES <= len(buf):
            mark = parse_mark(buf[at : at + MARK_BYTES], self.position, self.header)
            if mark is None:
                self.fault = "a mark fails its checksum or stands in the wrong place"
            else:
                self.mark = mark
        return MARK_BYTES

    def _frame(self, chunk: Chunk, buf: memoryview, at: int) -> int:
        """Check the frame at `at`, which is no mark; return its size, or what is needed to know it."""
        payload_at = at + HEADER_BYTES
        if payload_at > len(buf):
            return HEADER_BYTES
        header = Header._make(HEADER.unpack_from(buf, at))
        size = header.size
        fault = header_fault(header, buf[at:payload_at], self.limits)
        if fault is None and header.first != self.next_first:
            fault = (
                f"a block that begins at sequence {header.first} stands where "
                f"{self.next_first} belongs"
            )
        if fault is None and at + size <= len(buf):
            if self.payloads and crc32c(buf[payload_at : at + size]) != header.payload_crc:
                fault = "a block's payload checksum does not match"
                self.behind = self.position + size
            else:
                chunk.spans.append((at, header))
                self.next_first = header.last + 1
        self.fault = fault
        return size

    def whole_at(self, at: int) -> bool:
        """Say whether a whole frame stands at `at` that could belong there."""
        return _valid_block(self, at) is not None


class FrameWriter:
    """Appends to one file of frames: all or nothing, and never again after a failure but a full disk."""

    def __init__(self, file: File, path: str, header: FileHeader) -> None:
        self._file = file
        self._path = path
        self.header = header
        self.size = file.size()
        self.last = Seq(header.first - 1)
        self._index_crc = 0

    def write(self, buffers: Sequence[bytes]) -> None:
        """Append. If that fails nothing of it is left in the file."""
        try:
            self._file.append(buffers)
        except OSError as error:
            self._take_back(error)
            if is_full(error):
                raise DiskFull(f"{self._path}: the disk is full: {error.strerror}") from error
            raise LogFailed(f"{self._path}: write failed: {error}") from error
        self.size += sum(map(len, buffers))

    def _take_back(self, error: OSError) -> None:
        try:
            self._file.truncate(self.size)
            # Synced, or a power loss could bring back what was refused.
            self._file.sync()
        except OSError as second:
            raise LogFailed(f"{self._path}: write failed: {error}, then {second}") from error

    def sync(self) -> None:
        """Put all that was appended on disk. A failure is final: the pages may be gone for good."""
        try:
            self._file.sync()
        except OSError as error:
            raise LogFailed(f"{self._path}: sync failed and is not retried: {error}") from error

    def mark(self, mode: Mode, *, synced: bool = True) -> None:
        """Write a mark. `synced` may be said only when all that was appended is on disk."""
        self.write([self._mark(mode, synced, self.size)])

    def _mark(self, mode: Mode, synced: bool, at: int) -> bytes:
        place = (self.header.uid, self.header.segment, at)
        return Mark(mode, synced, self._index_crc, *place, self.last).encode()

    def go_on_after(self, walk: Walk, mode: Mode) -> None:
        """Go on with a file that was walked through: cut what is torn, mark what is good."""
        if self.size > walk.position:
            self._file.truncate(walk.position)
            self.size = walk.position
            self.sync()
        mark, wanted = walk.mark, (mode, True, walk.position - MARK_BYTES)
        if mark is None or (mark.mode, mark.synced, mark.offset) != wanted:
            # By this mark's mode the next torn tail is judged, so it is synced. Where it says nothing new, a full disk
            # does not keep the file from being opened.
            try:
                self.mark(mode)
            except DiskFull:
                if mark is None or mark.mode != mode:
                    raise
            self.sync()

    def abandon(self) -> None:
        """Let go of the file as it is."""
        self._file.close()


class End(Enum):
    """How a file of frames ends."""

    CLEAN = "clean"
    TORN = "torn"
    CORRUPT = "corrupt"


def diagnose(walk: Walk) -> End:
    """Tell a clean end, a torn tail and corruption apart, for a walk that went to the file's end."""
    if walk.fault is None:
        return End.CLEAN
    if any(mark.synced for mark in marks_behind(walk)):
        return End.CORRUPT
    if walk.mark is not None and walk.mark.mode == Mode.FSYNC:
        return End.TORN
    return End.CORRUPT if _frame_behind(walk) else End.TORN


def _frame_behind(walk: Walk) -> bool:
    return any(True for _ in marks_behind(walk)) or any(
        at >= walk.behind and walk.whole_at(at) for at in _find(walk, walk.magic)
    )


def marks_behind(walk: Walk) -> Iterator[Mark]:
    """Yield every mark that stands behind a fault."""
    for at in _find(walk, MARK_MAGIC):
        if mark := parse_mark(walk.file.read(at, MARK_BYTES), at, walk.header):
            yield mark


def blocks_behind(walk: Walk) -> Iterator[tuple[int, Header]]:
    """Yield every whole block, with its offset, that stands behind a fault and could belong there."""
    end = walk.behind
    for at in _find(walk, _block.MAGIC):
        if at >= end and (header := _valid_block(walk, at)):
            end = at + header.size
            yield at, header


def _valid_block(walk: Walk, at: int) -> Header | None:
    raw = walk.file.read(at, HEADER_BYTES)
    if len(raw) < HEADER_BYTES:
        return None
    header = Header._make(HEADER.unpack(raw))
    if header_fault(header, raw, walk.limits) or at + header.size > walk.end:
        return None
    payload = walk.file.read(at + HEADER_BYTES, header.size - HEADER_BYTES)
    whole = header.first >= walk.next_first and crc32c(payload) == header.payload_crc
    return header if whole else None


def _find(walk: Walk, magic: bytes) -> Iterator[int]:
    """Yield every offset behind the fault at which `magic` stands where a frame may begin."""
    at = walk.position + 1
    while at < walk.end:
        buf = walk.file.read(at, min(CHUNK_BYTES, walk.end - at))
        found = buf.find(magic)
        while found >= 0:
            if (at + found) % _block.ALIGN == 0:
                yield at + found
            found = buf.find(magic, found + 1)
        at += max(len(buf) - len(magic) + 1, 1) if buf else walk.end
