"""Recovery of the active segment: what to keep after a crash, and what to set apart after damage.

The rules are those of `sirius.wal.frames`: a clean end and a torn tail are ordinary, corruption is not. Recovery reads
what the disk holds, not what the kernel remembers: pages whose sync failed may look written while they are not, so it
syncs and drops the cache before it believes anything.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal

from sirius.errors import CorruptFile, LogFailed
from sirius.types import Seq
from sirius.wal.frames import (
    MARK_BYTES,
    End,
    FileHeader,
    FileKind,
    Mode,
    Walk,
    blocks_behind,
    diagnose,
    marks_behind,
)
from sirius.wal.fs import File
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.record import Limits
from sirius.wal.repair.rebuild import readable_manifests, surveyed
from sirius.wal.repair.wreck import identify
from sirius.wal.segment import DATA, Segment, SegmentWriter
from sirius.wal.store import Store

OnCorrupt = Literal["raise", "quarantine"]
"""What to do with an active segment that is damaged."""
_log = logging.getLogger("sirius.wal")


@dataclass(frozen=True, slots=True)
class Recovered:
    """Either a writer that goes on with the segment, or what the manifest should say of it now."""

    info: SegmentInfo
    writer: SegmentWriter | None = None


def recover_active(
    store: Store, manifest: Manifest, mode: Mode, limits: Limits, on_corrupt: OnCorrupt
) -> Recovered:
    """Bring the active segment into a state that can be appended to."""
    info = manifest.active
    folder = store.segment_dir(info.id)
    file = store.fs.open(f"{folder}/{DATA}", "a")
    try:
        file.sync()
    except OSError as error:
        file.close()
        raise LogFailed(f"{folder}: sync failed while opening: {error}") from error
    file.forget()
    try:
        segment = Segment(store.fs, folder, info, limits)
    except CorruptFile as error:
        # The file's header is gone; what follows may still say how far the segment went.
        headers = _possible_headers(store, manifest, file)
        walks = [Walk(file, header, 0, file.size(), info.first, limits) for header in headers]
        last = max(last_known(walk) for walk in walks)
        file.close()
        return _quarantined(info, error, last, on_corrupt)
    walk, index = surveyed(segment)
    end = diagnose(walk)
    if end == End.CORRUPT:
        file.close()
        damage = CorruptFile(segment.path, walk.position, str(walk.fault))
        return _quarantined(info, damage, last_known(walk), on_corrupt)
    if end == End.TORN:
        _log.warning(
            "%s: cutting off %d bytes of an unfinished write", folder, walk.end - walk.position
        )
    return Recovered(info, SegmentWriter.resume(store.fs, folder, file, walk, index, mode))


def _possible_headers(store: Store, manifest: Manifest, file: File) -> list[FileHeader]:
    """Return what a damaged header of the active segment may have been.

    Marks bear the id of the log that made the segment. In a copy that is not the manifest's, but that of an older one.
    """
    info = manifest.active
    found = identify(file, info.id)
    if found is not None and found.first == info.first:
        return [found]
    uids = {manifest.uid: None, **{older.uid: None for older in readable_manifests(store)}}
    return [FileHeader(FileKind.SEGMENT, info.id, uid, info.first, 0) for uid in uids]


def last_known(walk: Walk) -> int:
    """Return the highest sequence number that anything behind the damage speaks of.

    A block can be forged by what somebody writes into a body, a mark cannot. So blocks are looked for only where no
    mark leads on.
    """
    while (mark := next(marks_behind(walk), None)) is not None:
        at = mark.offset + MARK_BYTES
        walk = Walk(walk.file, walk.header, at, walk.end, mark.last + 1, walk.limits)
        for _ in walk.chunks():
            pass
    return max([walk.next_first - 1, *(header.last for _, header in blocks_behind(walk))])


def _quarantined(
    info: SegmentInfo, error: CorruptFile, last: int, on_corrupt: OnCorrupt
) -> Recovered:
    if on_corrupt != "quarantine":
        raise error
    _log.error("%s; the segment is set apart until it is repaired", error)
    return Recovered(
        replace(info, last=Seq(max(last, info.first)), state=State.QUARANTINED, reason=str(error))
    )
