"""Parts of segments' files, as they are offered to other nodes: see `sirius.wal.incoming`."""

from __future__ import annotations

from typing import NamedTuple, Self

from crc32c import crc32c

from sirius.types import SegmentId, Seq
from sirius.wal.index import IndexTable


class Part(NamedTuple):
    """Bytes of a segment's data file that hold whole blocks."""

    segment: SegmentId
    first: Seq
    last: Seq
    bytes: int
    checksum: int
    """Of the index entries of the blocks."""
    offset: int
    """Where the first block stands."""

    @classmethod
    def of(cls, segment: SegmentId, rows: IndexTable) -> Self:
        """Describe neighbouring blocks by their index entries, of which there is at least one."""
        begin, end = rows[0], rows[-1]
        offset = int(begin["offset"])
        return cls(
            segment,
            Seq(int(begin["first"])),
            Seq(int(end["last"])),
            int(end["offset"]) + int(end["size"]) - offset,
            crc32c(rows.tobytes()),
            offset,
        )
