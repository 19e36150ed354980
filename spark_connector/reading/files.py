"""Reading blocks from a data file, in a task.

With `verify`, blocks are read whole and their checksums compared. Without it, and when nobody wants bodies, large
blocks are read only as far as their keys: bodies are most of a log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from sirius.errors import CorruptFile, NotALog, RangeUnavailable
from sirius.wal.block import ENTRY_BYTES, HEADER, HEADER_BYTES, Header, header_fault
from sirius.wal.frames import (
    MARK_BYTES,
    MARK_MAGIC,
    FileHeader,
    FileKind,
    Walk,
    blocks_behind,
    read_file_header,
)
from sirius.wal.fs import File
from sirius.wal.record import DEFAULT_LIMITS
from spark_connector.memory import keep_memory
from spark_connector.reading.pieces import Piece, Run
from spark_connector.reading.rows import Span

_SPARSE_BLOCK_BYTES: Final = 1 << 16
_HEADS: Final = 16
_CHUNK_BYTES: Final = 4 << 20
"""What is read at a time. The block at its end is read again, so it should be some times larger than a block."""
_BUFFERS: Final[list[bytearray]] = []
"""Buffers that no file uses at present: as many as files were ever open at once, which is one a thread."""


class _File:
    """A file that counts what is read of it, and reads chunks into one buffer again and again.

    Fresh memory costs as much as what is read into it, so a chunk is good until the next one is read, no longer.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._buffer = _BUFFERS.pop() if _BUFFERS else _new_buffer()
        self.nbytes = 0

    def read(self, offset: int, length: int) -> bytes:
        if length == _CHUNK_BYTES and os.preadv(self._fd, [self._buffer], offset) == length:
            self.nbytes += length
            return self._buffer  # type: ignore[return-value]
        parts = [b""]
        while length and (part := os.pread(self._fd, length, offset)):
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        data = b"".join(parts)
        self.nbytes += len(data)
        return data

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
            _BUFFERS.append(self._buffer)


def _new_buffer() -> bytearray:
    keep_memory()
    return bytearray(_CHUNK_BYTES)


class DataFile:
    """The data file of a piece. One thread."""

    def __init__(self, piece: Piece, *, verify: bool, bodies: bool) -> None:
        self._piece = piece
        self._verify = verify
        self._bodies = bodies
        try:
            self._file = _File(piece.path)
        except FileNotFoundError:
            raise _gone(piece) from None
        try:
            self._header = self._checked_header()
        except BaseException:
            self.close()
            raise

    @property
    def nbytes_read(self) -> int:
        return self._file.nbytes

    def close(self) -> None:
        self._file.close()

    def _checked_header(self) -> FileHeader:
        piece, wanted = self._piece, (FileKind.SEGMENT, self._piece.segment, self._piece.first)
        try:
            header = read_file_header(self._file, piece.path)  # type: ignore[arg-type]
        except NotALog as error:
            raise CorruptFile(piece.path, 0, str(error)) from None
        if (header.kind, header.segment, header.first) != wanted:
            found = f"segment {header.segment} from {header.first} on"
            raise CorruptFile(
                piece.path, 0, f"{found} stands where {wanted[1]} from {wanted[2]} on belongs"
            )
        return header

    def chunks(self, run: Run) -> Iterator[list[Span]]:
        """Yield the blocks of a run, some at a time: they are good until the next are asked for.

        Raises `Damaged` where they stop making sense.
        """
        large = run.nbytes >= _SPARSE_BLOCK_BYTES * run.blocks
        if large and not self._verify and not self._bodies:
            yield from self._heads(run)
        else:
            yield from self._whole(run)

    def _whole(self, run: Run) -> Iterator[list[Span]]:
        walk = self._walk(run)
        for chunk in walk.chunks(_CHUNK_BYTES):
            yield [(chunk.buf, at, header) for at, header in chunk.spans]
        if walk.fault is not None or walk.position < run.end:
            raise Damaged(self, walk, run)

    def _walk(self, run: Run) -> Walk:
        file: File = self._file  # type: ignore[assignment]
        return Walk(file, self._header, run.start, run.end, run.first, DEFAULT_LIMITS, self._verify)

    def _heads(self, run: Run) -> Iterator[list[Span]]:
        """Yield blocks without their bodies, going from header to header while each is where it should be."""
        at, expected, found = run.start, run.first, list[Span]()
        while at < run.end:
            raw = self._file.read(at, HEADER_BYTES)
            if raw.startswith(MARK_MAGIC):
                at += MARK_BYTES
                continue
            header = Header._make(HEADER.unpack(raw)) if len(raw) == HEADER_BYTES else None
            if header is None or not _follows(header, raw, expected):
                yield found
                # Who walks through the whole says what is wrong, and where to go on.
                yield from self._whole(replace(run, start=at, first=expected))
                return
            length = header.records * ENTRY_BYTES + header.keys_len
            found.append((raw + self._file.read(at + HEADER_BYTES, length), 0, header))
            at, expected = at + header.size, header.last + 1
            if len(found) == _HEADS:
                yield found
                found = []
        yield found


def _follows(header: Header, raw: bytes, expected: int) -> bool:
    return header.first == expected and header_fault(header, raw, DEFAULT_LIMITS) is None


class Damaged(CorruptFile):
    """A run that cannot be read to its end, and where it can be gone on with."""

    def __init__(self, file: DataFile, walk: Walk, run: Run) -> None:
        super().__init__(file._piece.path, walk.position, walk.fault or "the file ends too early")
        self.first = walk.next_first
        self._walk = walk
        self._run = run

    def rest(self) -> Run | None:
        """Return the run from the next whole block on; None if there is none."""
        run = self._run
        for at, header in blocks_behind(self._walk):
            return Run(at, run.end, header.first, run.last, run.blocks, run.live)
        return None


def _gone(piece: Piece) -> RangeUnavailable:
    first, last = piece.runs[0].first, piece.runs[-1].last
    return RangeUnavailable(
        first,
        last,
        f"{piece.path} is gone. Compaction replaced segment {piece.segment} after the query was planned, and keeps "
        f"what it replaced for retire_after_s only (600 s unless set); load the log again",
    )
