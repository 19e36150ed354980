"""A segment on its way here from another log: staged, checked as it comes, installed in one step.

A node that is far behind takes the files of another as they are. What travels is a **part** of a segment's data file,
most often all of it: whole blocks that follow each other, and the marks between them. The bytes of a part never
change: sealed files are never written again, and the active one only grows.

**In one buffer.** Whoever has the bytes puts them where `room` says, and says how many. Whole blocks are checked there
and written; what is left over of the last one goes to the front.

**Checked.** Every block is checked on the way, once: header, payload, that it continues the one before, that its
columns fit together. In the end the blocks must cover exactly what was said, and the index that the source has of them
must be theirs, so that no other version of a block takes the place of the one that was offered.

**Written.** The blocks go untouched into a segment of this log, under a temporary name and with this log's own header
and mark. The other log's marks are left out: they say when *its* disk had something.

**Installed.** When the segment is on disk, one manifest makes it the next of the log (`Log.install`). Until then a
crash leaves rubbish that the next opening sweeps away.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self, cast

from crc32c import crc32c

from sirius.errors import CorruptLog, UsageError
from sirius.types import ByteOffset
from sirius.wal.block import Block
from sirius.wal.frames import MARK_BYTES, Chunk, FileHeader, FileKind, Mode, Walk
from sirius.wal.fs import File, remove_tree
from sirius.wal.index import encode_row, row_of
from sirius.wal.manifest import SegmentInfo
from sirius.wal.parts import Part
from sirius.wal.record import Limits
from sirius.wal.repair.replacement import Site
from sirius.wal.segment import SegmentWriter
from sirius.wal.verify.segments import block_faults

_SYNC_BYTES: Final = 16 * 1024 * 1024
"""How much is written between two syncs, in a thread of their own: the disk works while the rest is on its way, and
not all of it at the end."""
_BUFFER_BYTES: Final = 1024 * 1024
"""More is slower: what a cache holds is copied for next to nothing."""
_SMALL_BLOCK: Final = 64
"""Below so many entries a block, looking at many blocks together is cheaper."""


@dataclass(slots=True)
class _Arrival(Walk):
    """Goes through frames as they come, instead of through a file."""

    needed: int = 0
    """How many bytes the next frame has, if that is known."""

    @classmethod
    def of(cls, part: Part, limits: Limits) -> Self:
        header = FileHeader(FileKind.SEGMENT, part.segment, 0, part.first, 0)
        no_file = cast(File, None)
        return cls(no_file, header, part.offset, part.offset + part.bytes, part.first, limits)

    def take(self, data: memoryview) -> Chunk:
        """Move over the whole frames of what came, together with what was left over before."""
        chunk = Chunk(cast(bytes, data), ByteOffset(self.position))
        self.needed = self._take(chunk)
        return chunk

    def _mark(self, buf: memoryview, at: int) -> int:
        """Believe a mark's length if it is whole; what it says was about another disk."""
        raw = buf[at : at + MARK_BYTES]
        if len(raw) == MARK_BYTES and crc32c(raw[8:]) != int.from_bytes(raw[4:8], "little"):
            self.fault = "a mark fails its checksum"
        return MARK_BYTES


class Incoming:
    """Takes the bytes of a part in order; then `finish` or `discard`. One thread at a time."""

    def __init__(self, site: Site, part: Part) -> None:
        self.part = part
        self._site = site
        self._walk = _Arrival.of(part, site.config.limits)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._held = 0
        """How much of the buffer is what was left over."""
        self._checksum = 0
        self._unsynced = 0
        self._syncer = ThreadPoolExecutor(1, "sirius-sync")
        self._syncing: Future[None] | None = None
        segment = site.reserve_segment()
        self._folder = site.store.building_dir(segment)
        created_us = time.time_ns() // 1000
        header = FileHeader(FileKind.SEGMENT, segment, site.manifest.uid, part.first, created_us)
        # What a crash left under this name was given out for nothing.
        remove_tree(site.store.fs, self._folder)
        self._writer: SegmentWriter | None = SegmentWriter.create(
            site.store.fs, self._folder, header, Mode.OS, durable=False
        )

    @property
    def taken(self) -> int:
        """How many bytes of the part have come."""
        return self._walk.position - self.part.offset + self._held

    @property
    def left(self) -> int:
        """How many are still to come."""
        return self.part.bytes - self.taken

    def room(self) -> memoryview:
        """Return where the next bytes go, as many as there is room for. Release it before you say how many came."""
        return memoryview(self._buffer)[self._held : self._held + self.left]

    def filled(self, count: int) -> list[Block]:
        """Check and write the bytes that were put there; return the blocks that they completed. Raises `CorruptLog` if
        one is bad."""
        writer = self._open()
        with memoryview(self._buffer)[: self._held + count] as data:
            chunk = self._walk.take(data)
            blocks = [Block(bytes(data[at : at + head.size]), head) for at, head in chunk.spans]
            self._write(writer, chunk, blocks)
            self._keep(data[self._walk.position - chunk.base :])
        if self._walk.needed > len(self._buffer):
            self._buffer.extend(bytes(self._walk.needed - len(self._buffer)))
        return blocks

    def _keep(self, rest: memoryview) -> None:
        """Move what is left over to the front."""
        self._held = len(rest)
        memoryview(self._buffer)[: self._held] = rest

    def _write(self, writer: SegmentWriter, chunk: Chunk, blocks: list[Block]) -> None:
        if fault := self._fault(chunk, blocks):
            where = f"segment {self.part.segment} from elsewhere, at byte {self._walk.position}"
            raise CorruptLog(f"{where}: {fault}")
        if blocks:
            rows = b"".join(encode_row(row_of(head, chunk.base + at)) for at, head in chunk.spans)
            self._checksum = crc32c(rows, self._checksum)
            writer.append(blocks)
            self._sync_now_and_then(writer, len(chunk.buf))

    def _fault(self, chunk: Chunk, blocks: list[Block]) -> str | None:
        """Say what is wrong with the blocks, if anything: all at once where they are small."""
        if self._walk.fault is not None:
            return self._walk.fault
        if self._walk.next_first > self.part.last + 1:
            return f"it goes on to {self._walk.next_first - 1}"
        if sum(block.count for block in blocks) < _SMALL_BLOCK * len(blocks):
            whole = Chunk(bytes(chunk.buf), chunk.base, chunk.spans)
            return next((fault for _, fault in block_faults(whole, deep=False)), None)
        return next((fault for block in blocks if (fault := block.structure_fault())), None)

    def _sync_now_and_then(self, writer: SegmentWriter, size: int) -> None:
        self._unsynced += size
        if self._unsynced >= _SYNC_BYTES and self._site.config.background:
            self._unsynced = 0
            self._wait_for_sync()
            self._syncing = self._syncer.submit(writer.sync)

    def _wait_for_sync(self) -> None:
        """Wait for the sync under way, and raise what it raised."""
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()

    def finish(self) -> SegmentInfo:
        """Put everything on disk; return the segment, which is ready to be installed. Raises `CorruptLog` if it is not
        what was offered."""
        writer, part, walk = self._open(), self.part, self._walk
        if self._held or (walk.position, walk.next_first) != (walk.end, part.last + 1):
            raise CorruptLog(
                f"segment {part.segment} from elsewhere ends at sequence {walk.next_first - 1} and byte "
                f"{walk.position}, not at {part.last} and {walk.end}"
            )
        if self._checksum != part.checksum:
            raise CorruptLog(f"segment {part.segment} from elsewhere has other blocks than offered")
        self._wait_for_sync()
        info = writer.seal(Mode.OS)
        self._close()
        return info

    def discard(self) -> None:
        """Remove what was written."""
        self._close()
        remove_tree(self._site.store.fs, self._folder)

    def _open(self) -> SegmentWriter:
        if self._writer is None:
            raise UsageError("this segment is finished, or was discarded")
        return self._writer

    def _close(self) -> None:
        self._syncer.shutdown()
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
