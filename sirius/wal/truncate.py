"""Truncation: taking a log back to an earlier end, in one atomic step.

The segment that holds the new end is written anew under an id of its own, as far as it stays, and becomes the active
one; segments behind it are no longer named. One manifest makes all of that so: a crash leaves the old log or the new
one. What older manifests name is retired like what compaction replaced.

Numbers behind the new end will be given again. Whoever has seen the old ones (a follower, a peer, a reader that
remembers its position) will not notice: only a log that stands alone may be truncated.

What compaction removed does not come back: a key whose newer value is cut off has the older value only if that one is
still in the log.
"""

from __future__ import annotations

from dataclasses import replace

from sirius.types import SegmentId, Seq
from sirius.wal.frames import Mode
from sirius.wal.manifest import Manifest, SegmentInfo
from sirius.wal.segment import SegmentWriter
from sirius.wal.snapshot import Snapshot


def shortened(manifest: Manifest, seq: int) -> Manifest:
    """Return the manifest of a log that ends with `seq`; its active segment has still to be made. Pure."""
    kept = tuple(info for info in manifest.segments[:-1] if info.last <= seq)
    first = Seq(kept[-1].last + 1 if kept else 1)
    return replace(
        manifest,
        version=manifest.version + 1,
        next_segment=SegmentId(manifest.next_segment + 1),
        tombstone_floor=Seq(min(manifest.tombstone_floor, seq)),
        segments=(*kept, SegmentInfo(manifest.next_segment, first)),
    )


def fill(writer: SegmentWriter, snapshot: Snapshot, seq: int, mode: Mode) -> None:
    """Copy what stays into the new active segment, and put it on disk."""
    if writer.header.first <= seq:
        for block in snapshot.blocks(writer.header.first, seq):
            writer.append([block])
    writer.sync()
    writer.write_index()
    writer.mark(mode)
