"""The journal's file: what an acceptor must not forget, as bytes.

A journal is a file of frames (see `sirius.wal.frames`: header, marks, torn tails) of the kind JOURNAL. Every frame is
a multiple of 8 bytes long and begins with 48 fixed bytes, little-endian::

    file     header (64) | frame | frame | mark | …

    frame      0  magic "SJRN"           16  round             u64
               4  checksum      u32      24  node              u64
               8  kind          u32      32  own offset        u64
              12  payload bytes u32      40  payload checksum  u32
                                         44  reserved (0)      u32
              48  payload, zeroes up to a multiple of 8

    kind       1  PROMISE   round and node are the ballot
               2  BALLOT    likewise, a ballot that this node is about to use
               3  ACCEPT    likewise; the payload is a block (`sirius.wal.block`), exactly as it came
               4  TRIM      payload: a sequence number u64, up to which everything is durable in the log
               5  NOTE      payload: bytes of the key u32, key, value

The frame's checksum covers bytes 8 to 48, the payload's covers all that follows. The former is started with the
checksum of the file's header, and covers the frame's own offset: so a frame of another journal, of an earlier file of
this journal, or one that stands in a wrong place is no frame, although its bytes are whole.

Replaced, not edited
====================

What is dead (superseded promises, values that are decided and in the log) is left behind by writing a new file, which
begins with what survives, under the name `journal.tmp`: write, sync, mark, sync, sync the folder, rename to `journal`,
sync the folder. A crash at any point leaves the old file or the new one, each whole, and nothing is acknowledged in
between. The header's segment number counts these files.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple

from crc32c import crc32c

from sirius.errors import CorruptFile, DiskFull, LogFailed, UsageError
from sirius.types import NO_BALLOT, Ballot
from sirius.wal.block import ALIGN, HEADER, HEADER_BYTES, Header, header_fault
from sirius.wal.frames import (
    FILE_HEADER_BYTES,
    Chunk,
    End,
    FileHeader,
    FrameWriter,
    Mode,
    Walk,
    diagnose,
)
from sirius.wal.fs import File, is_full
from sirius.wal.journal.pvalues import Span
from sirius.wal.record import Limits

NOTE_BYTES_MAX: Final = 64 * 1024
"""Bound on key and value of a note together."""
_MAGIC: Final = b"SJRN"
_HEAD: Final = struct.Struct("<4sIIIQQQII")
_HEAD_BYTES: Final = _HEAD.size
_TRIM: Final = struct.Struct("<Q")
_NOTE: Final = struct.Struct("<I")
_log = logging.getLogger("sirius.wal")


class Kind(IntEnum):
    """What a frame of a journal says."""

    PROMISE = 1
    BALLOT = 2
    ACCEPT = 3
    TRIM = 4
    NOTE = 5


_KINDS: Final = frozenset(map(int, Kind))


class Frame(NamedTuple):
    """One thing to remember."""

    kind: Kind
    ballot: Ballot = NO_BALLOT
    payload: bytes | memoryview = b""

    @classmethod
    def trim(cls, decided: int) -> Frame:
        return cls(Kind.TRIM, payload=_TRIM.pack(decided))

    @classmethod
    def note(cls, key: bytes, value: bytes) -> Frame:
        if len(key) + len(value) > NOTE_BYTES_MAX:
            raise UsageError(
                f"a note of {len(key) + len(value)} bytes: {NOTE_BYTES_MAX} are allowed"
            )
        return cls(Kind.NOTE, payload=_NOTE.pack(len(key)) + key + value)

    @property
    def decided(self) -> int:
        """What a TRIM says."""
        (decided,) = _TRIM.unpack(self.payload)
        return int(decided)

    @property
    def entry(self) -> tuple[bytes, bytes]:
        """Key and value of a NOTE."""
        (length,) = _NOTE.unpack_from(self.payload)
        rest = bytes(self.payload[_NOTE.size :])
        return rest[:length], rest[length:]

    @property
    def block(self) -> Header:
        """The header of the block that an ACCEPT holds."""
        return Header._make(HEADER.unpack_from(self.payload))

    def span(self, at: int) -> Span:
        """The slots of an ACCEPT that stands at `at`."""
        header = self.block
        return Span(header.first, header.last, at, self.size)

    @property
    def size(self) -> int:
        """The frame's length in the file."""
        return _HEAD_BYTES + len(self.payload) + -len(self.payload) % ALIGN

    def encode(self, offset: int, salt: int) -> tuple[bytes, bytes, bytes]:
        """Return the frame's bytes as it stands at `offset`, its payload untouched."""
        padding = bytes(-len(self.payload) % ALIGN)
        payload_crc = crc32c(padding, crc32c(self.payload))
        fields = (self.kind, len(self.payload), *self.ballot, offset, payload_crc, 0)
        tail = _HEAD.pack(_MAGIC, 0, *fields)[8:]
        crc = crc32c(tail, salt).to_bytes(4, "little")
        return _MAGIC + crc + tail, bytes(self.payload), padding


class _Head(NamedTuple):
    """The fixed part of a frame, as `_HEAD` unpacks it."""

    magic: bytes
    crc: int
    kind: int
    length: int
    round: int
    node: int
    offset: int
    payload_crc: int
    reserved: int

    @property
    def size(self) -> int:
        return _HEAD_BYTES + self.length + -self.length % ALIGN

    def frame(self, payload: bytes | memoryview) -> Frame:
        return Frame(Kind(self.kind), Ballot(self.round, self.node), payload[: self.length])


@dataclass(frozen=True, slots=True)
class Rules:
    """What the frames of one file are checked against."""

    salt: int
    limits: Limits

    @classmethod
    def of(cls, header: FileHeader, limits: Limits) -> Rules:
        return cls(crc32c(header.encode()), limits)

    def head_fault(self, head: _Head, raw: bytes | memoryview, offset: int) -> str | None:
        """Say what is wrong with a frame's fixed part, before its length is believed."""
        if head.magic != _MAGIC:
            return "no frame begins here"
        if crc32c(raw[8:], self.salt) != head.crc or head.offset != offset:
            return "a frame fails its checksum or stands in the wrong place"
        if head.kind not in _KINDS:
            return f"frames of kind {head.kind} are not known to this version"
        low, high = self._lengths(Kind(head.kind))
        if not low <= head.length <= high:
            return f"a frame says {head.length} bytes, the limit is {high}"
        return None

    def _lengths(self, kind: Kind) -> tuple[int, int]:
        if kind == Kind.ACCEPT:
            return HEADER_BYTES, self.limits.block_bytes_max
        if kind == Kind.NOTE:
            return _NOTE.size, _NOTE.size + NOTE_BYTES_MAX
        return (_TRIM.size, _TRIM.size) if kind == Kind.TRIM else (0, 0)

    def payload_fault(self, head: _Head, payload: bytes | memoryview) -> str | None:
        """Say what is wrong with what follows the fixed part."""
        if crc32c(payload) != head.payload_crc:
            return "a frame's payload checksum does not match"
        return _content_fault(head.frame(payload), self.limits)


def _content_fault(frame: Frame, limits: Limits) -> str | None:
    """Say whether a payload is not what its kind asks for."""
    if frame.kind == Kind.NOTE:
        (length,) = _NOTE.unpack_from(frame.payload)
        return "a note's key is too long" if length + _NOTE.size > len(frame.payload) else None
    return block_fault(frame.block, frame.payload, limits) if frame.kind == Kind.ACCEPT else None


def block_fault(header: Header, raw: bytes | memoryview, limits: Limits) -> str | None:
    """Say whether `raw` is not exactly one block that can be read again."""
    fault = header_fault(header, raw, limits)
    if fault is None and header.size != len(raw):
        fault = f"a block of {header.size} bytes is said to have {len(raw)}"
    return fault


@dataclass(slots=True)
class Memory:
    """What an acceptor knows apart from values."""

    promised: Ballot = NO_BALLOT
    highest: Ballot = NO_BALLOT
    trimmed: int = 0
    notes: dict[bytes, bytes] = field(default_factory=dict)

    def copy(self) -> Memory:
        return replace(self, notes=dict(self.notes))

    def refusal(self, frame: Frame) -> str | None:
        """Say why an acceptor without bugs cannot ask for this."""
        if frame.kind == Kind.BALLOT and frame.ballot <= self.highest:
            return f"ballot {frame.ballot} is not above {self.highest}, which was used"
        if frame.kind in (Kind.PROMISE, Kind.ACCEPT) and frame.ballot < self.promised:
            return f"{frame.kind.name} of {frame.ballot} is below the promise of {self.promised}"
        return None

    def take(self, frame: Frame) -> None:
        """Remember. To accept under a ballot is to promise it as well."""
        match frame.kind:
            case Kind.PROMISE | Kind.ACCEPT:
                self.promised = frame.ballot
            case Kind.BALLOT:
                self.highest = frame.ballot
            case Kind.TRIM:
                self.trimmed = max(self.trimmed, frame.decided)
            case Kind.NOTE:
                key, value = frame.entry
                self.notes[key] = value

    def frames(self) -> list[Frame]:
        """Return what makes an empty memory equal to this one. It goes behind the values, see `refusal`."""
        ballots = [(Kind.PROMISE, self.promised), (Kind.BALLOT, self.highest)]
        frames = [Frame(kind, ballot) for kind, ballot in ballots if ballot != NO_BALLOT]
        frames += [Frame.note(key, value) for key, value in self.notes.items()]
        return [*frames, Frame.trim(self.trimmed)] if self.trimmed else frames


def _load(file: File, at: int, end: int, rules: Rules) -> Frame | None:
    """Return the frame at `at` if it is whole."""
    raw = file.read(at, _HEAD_BYTES)
    if len(raw) < _HEAD_BYTES:
        return None
    head = _Head._make(_HEAD.unpack(raw))
    if rules.head_fault(head, raw, at) is not None or at + head.size > end:
        return None
    payload = file.read(at + _HEAD_BYTES, head.size - _HEAD_BYTES)
    return None if rules.payload_fault(head, payload) else head.frame(payload)


@dataclass(slots=True, kw_only=True)
class JournalWalk(Walk):
    """Goes through a journal and hands every frame, with its offset, to `visit`."""

    magic: ClassVar[bytes] = _MAGIC
    rules: Rules
    visit: Callable[[Frame, int], None]

    def _frame(self, chunk: Chunk, buf: memoryview, at: int) -> int:
        payload_at = at + _HEAD_BYTES
        if payload_at > len(buf):
            return _HEAD_BYTES
        head = _Head._make(_HEAD.unpack_from(buf, at))
        fault = self.rules.head_fault(head, buf[at:payload_at], chunk.base + at)
        if fault is None and at + head.size <= len(buf):
            payload = buf[payload_at : at + head.size]
            fault = self.rules.payload_fault(head, payload)
            if fault is None:
                self.visit(head.frame(payload), chunk.base + at)
        self.fault = fault
        return head.size

    def whole_at(self, at: int) -> bool:
        return _load(self.file, at, self.end, self.rules) is not None


@contextmanager
def failing_as_log(path: str, *, final: bool = False) -> Iterator[None]:
    """Turn failures of the file system into ours; a full disk is no exception if the step is `final`."""
    try:
        yield
    except OSError as error:
        if is_full(error) and not final:
            raise DiskFull(f"{path}: the disk is full: {error.strerror}") from error
        raise LogFailed(f"{path}: {error}") from error


class JournalFile(FrameWriter):
    """One file of a journal. Not thread-safe."""

    def __init__(self, file: File, path: str, header: FileHeader, limits: Limits) -> None:
        super().__init__(file, path, header)
        self._rules = Rules.of(header, limits)

    def append(self, frames: Sequence[Frame], mark: Mode | None = None) -> list[int]:
        """Write frames, and an unsynced mark if asked for, as one piece; return where the frames stand."""
        buffers: list[bytes] = []
        offsets: list[int] = []
        at = self.size
        for frame in frames:
            offsets.append(at)
            buffers += frame.encode(at, self._rules.salt)
            at += frame.size
        if mark is not None:
            buffers.append(self._mark(mark, False, at))
        self.write(buffers)
        return offsets

    def read(self, offset: int) -> Frame:
        """Return the frame at `offset`, checked again."""
        frame = _load(self._file, offset, self.size, self._rules)
        if frame is None:
            raise CorruptFile(self._path, offset, "a frame that was whole is not any more")
        return frame

    def recover(self, visit: Callable[[Frame, int], None], mode: Mode) -> None:
        """Visit every frame; cut off a torn tail; refuse to guess about anything else."""
        walk = JournalWalk(
            file=self._file,
            header=self.header,
            position=FILE_HEADER_BYTES,
            end=self.size,
            next_first=1,
            rules=self._rules,
            visit=visit,
        )
        for _ in walk.chunks():
            pass
        end = diagnose(walk)
        if end == End.CORRUPT:
            raise CorruptFile(self._path, walk.position, str(walk.fault))
        if end == End.TORN:
            torn = self.size - walk.position
            _log.warning("%s: cutting off %d bytes of an unfinished write", self._path, torn)
        with failing_as_log(self._path):
            self.go_on_after(walk, mode)

    def finish(self, mode: Mode) -> None:
        """Put everything on disk, with a mark at the end that says so."""
        self.sync()
        self.mark(mode)
        self.sync()
