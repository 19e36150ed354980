"""Making a manifest from the segments on disk, when the one that should name them is lost.

Segments describe themselves: the file header (or the first mark) says id and first sequence number, the blocks say how
far it goes. Ids are given once and grow, and compaction and repair give their products higher ids than what these
replace. So the log is found by going from sequence number 1 on, always with the highest id that begins where the last
one ended. What the chosen ones cover is superseded. So is what a truncation cut off: an older segment that reaches into
one that was the log's end. What lies beyond a gap, or overlaps, means that something is missing, and then nothing is
made: a guess here could bring deleted keys back.

**The tombstone floor** is not written into segments. An older manifest that can still be read tells what it was then; a
segment that it does not name and that has holes may have lost deletes since, so the floor rises to the segment's end.
Without any manifest the floor is the highest sequence number: followers below it take the whole state, which costs
time and is always right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from crc32c import crc32c

from sirius.errors import CorruptLog
from sirius.types import SegmentId, Seq
from sirius.wal.frames import (
    FILE_HEADER_BYTES,
    MARK_BYTES,
    FileHeader,
    FileKind,
    Walk,
    blocks_behind,
)
from sirius.wal.index import Index, row_of
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.record import DEFAULT_LIMITS, Limits
from sirius.wal.repair.salvage import salvage
from sirius.wal.repair.wreck import Wreck, identify
from sirius.wal.segment import DATA, Segment
from sirius.wal.store import BUILDING, MANIFESTS, QUARANTINE, SEGMENTS, Store

_UNREADABLE = (CorruptLog, OSError, ValueError, LookupError, TypeError)


@dataclass(frozen=True, slots=True)
class Found:
    """A segment on disk, as it describes itself. One that is damaged is in state `QUARANTINED`."""

    info: SegmentInfo
    uid: int
    was_active: bool = False
    """Whether blocks stand behind a mark that is not its first: they were appended when it was the log's end."""

    @property
    def has_holes(self) -> bool:
        return self.info.records < self.info.last - self.info.first + 1

    def is_behind(self, active: SegmentInfo) -> bool:
        """Say whether it holds blocks, all of them behind where an active segment begins."""
        return active.first < self.info.first <= self.info.last


def surveyed(segment: Segment, end: int | None = None) -> tuple[Walk, Index]:
    """Walk through a segment up to byte `end`, or to its first fault, and index it."""
    walk, index = segment.walk(FILE_HEADER_BYTES, segment.info.first, end), Index()
    for chunk in walk.chunks():
        for at, header in chunk.spans:
            index.append(row_of(header, chunk.base + at))
    return walk, index


def described(info: SegmentInfo, walk: Walk, index: Index) -> SegmentInfo:
    """Return what the manifest should say of a sealed segment that was walked through without a fault."""
    table = index.table
    return SegmentInfo(
        info.id,
        info.first,
        Seq(walk.next_first - 1),
        State.SEALED,
        walk.position,
        len(table),
        int(table["count"].sum(dtype=np.int64)),
        crc32c(table.tobytes()),
    )


def readable_manifests(store: Store) -> Iterator[Manifest]:
    """Yield the manifests that can be read, newest first."""
    if store.is_log():
        for version in store.versions():
            try:
                yield store.read(version)
            except _UNREADABLE:
                continue


def segment_ids(store: Store) -> list[SegmentId]:
    """Return the ids of all segments under their final names."""
    path = f"{store.root}/{SEGMENTS}"
    names = store.fs.listdir(path) if store.fs.isdir(path) else []
    return [SegmentId(int(name)) for name in names if name.isdigit()]


def next_id(store: Store) -> SegmentId:
    """Return an id above all that any name in the folder speaks of, finished or not."""
    ids = [manifest.next_segment - 1 for manifest in readable_manifests(store)]
    for folder in (SEGMENTS, QUARANTINE):
        path = f"{store.root}/{folder}"
        names = store.fs.listdir(path) if store.fs.isdir(path) else []
        heads = [name.removesuffix(BUILDING).partition("-")[0] for name in names]
        ids += [int(head) for head in heads if head.isdigit()]
    return SegmentId(max(ids, default=0) + 1)


def describe(store: Store, segment: SegmentId, limits: Limits = DEFAULT_LIMITS) -> Found | None:
    """Return what a segment on disk says of itself, or None if nothing was ever written to it."""
    folder = store.segment_dir(segment)
    path = f"{folder}/{DATA}"
    if not store.fs.exists(path):
        return None
    file = store.fs.open(path, "r")
    try:
        header = identify(file, segment)
        if header is None:
            blank = FileHeader(FileKind.SEGMENT, segment, 0, 1, 0)
            if any(True for _ in blocks_behind(Walk(file, blank, 0, file.size(), 1, limits))):
                raise CorruptLog(f"{path}: the file's head is lost, nothing says where it belongs")
            return None
    finally:
        file.close()
    return _look_into(store, header, limits)


def _look_into(store: Store, header: FileHeader, limits: Limits) -> Found:
    info = SegmentInfo(SegmentId(header.segment), Seq(header.first))
    segment = Wreck(store.fs, store.segment_dir(info.id), info, header.uid, limits)
    try:
        walk, index = surveyed(segment)
        if walk.fault is None and not segment.header_damaged:
            return Found(described(info, walk, index), header.uid, _has_groups(index))
        known = salvage(segment, None, segment.index_file()).last
        reason = f"damaged at byte {walk.position}: {walk.fault}"
        damaged = replace(info, last=known, state=State.QUARANTINED, reason=reason)
        return Found(damaged, header.uid)
    finally:
        segment.close()


def _has_groups(index: Index) -> bool:
    """Say whether marks stand between blocks. What is built ahead of its manifest has one in front and one behind."""
    begins, sizes = (index.table[name].astype(np.int64) for name in ("offset", "size"))
    expected = np.cumsum(sizes) - sizes + FILE_HEADER_BYTES + MARK_BYTES
    return bool(np.any(begins != expected))


def overlooked(
    store: Store, manifest: Manifest, limits: Limits = DEFAULT_LIMITS
) -> SegmentId | None:
    """Return a segment which proves that a manifest newer than this one was lost, if there is one.

    A segment behind the active one is made empty, and filled only once its manifest is in force. So one that holds
    blocks, and whose id this manifest has not given out yet, proves that there was such a manifest. And so does any
    that was appended to, be it behind the active one or, after a truncation, in its place.

    Not so in a copy: while it was made the log went on, and a later segment may have come along without its manifest.
    Only one that bears another id was written after the copy had become a log of its own.

    To ask this of a log that is being written, read the versions again afterwards: a writer commits, then fills.
    """
    copied = manifest.uid if store.is_copy(manifest) else None
    for segment in sorted(at for at in segment_ids(store) if at >= manifest.next_segment):
        found = describe(store, segment, limits)
        if found is None or found.uid == copied:
            continue
        if found.was_active or found.is_behind(manifest.active):
            return segment
    return None


def rebuild_manifest(store: Store, limits: Limits = DEFAULT_LIMITS) -> Manifest:
    """Return a manifest of the segments on disk, newer than all that are there. Writes nothing.

    Unique id, tags, home and tombstone floor come from the newest manifest that can be read, as far as that goes.
    Raises `CorruptLog` if the segments do not cover the log from 1 on without a gap. Reads every segment.
    """
    manifests = list(readable_manifests(store))
    base = manifests[0] if manifests else None
    candidates = sorted({*segment_ids(store)} - _history(manifests))
    found = [item for at in candidates if (item := describe(store, at, limits))]
    chain = _chain(store, [_as_listed(item, base) for item in _not_cut_off(found)])
    _check_active(store, chain, base)
    sealed = tuple(item.info for item in chain[:-1])
    active = SegmentInfo(chain[-1].info.id, chain[-1].info.first)
    versions = store.versions() if store.fs.isdir(f"{store.root}/{MANIFESTS}") else []
    manifest = Manifest(
        uid=base.uid if base else chain[-1].uid,
        version=max(versions, default=0) + 1,
        home=base.home if base else store.home(),
        next_segment=next_id(store),
        tombstone_floor=_floor(chain, base),
        segments=(*sealed, active),
        tags=base.tags if base else {},
    )
    manifest.check()
    return manifest


def _history(manifests: Sequence[Manifest]) -> set[SegmentId]:
    """Return the segments that had been replaced, or cut off, when the newest of the manifests was written."""
    named = [{info.id for info in manifest.segments} for manifest in manifests]
    return set[SegmentId]().union(*named[1:]) - named[0] if named else set()


def _not_cut_off(found: Sequence[Found]) -> list[Found]:
    """Leave out what a truncation cut off: when a segment became the log's end, nothing older reached into it."""
    ends = [item.info for item in found if item.was_active]
    return [
        item
        for item in found
        if not any(item.info.id < end.id and item.info.last >= end.first for end in ends)
    ]


def _as_listed(found: Found, base: Manifest | None) -> Found:
    """Prefer what an older manifest says of a segment that is damaged by now."""
    if base is None or found.info.state == State.SEALED:
        return found
    for info in base.segments:
        if info.id == found.info.id and info.state != State.ACTIVE:
            return replace(found, info=info)
    return found


def _chain(store: Store, found: Sequence[Found]) -> list[Found]:
    """Return the segments that make up the log, in order."""
    chain: list[Found] = []
    expected = 1
    while here := [item for item in found if item.info.first == expected and item not in chain]:
        best = max(here, key=lambda item: item.info.id)
        chain.append(best)
        if best.info.last < expected:
            break
        expected = best.info.last + 1
    if not chain:
        raise CorruptLog(f"{store.root}: no segment begins at sequence number 1")
    for item in found:
        _check_superseded(store, item, chain)
    return chain


def _check_superseded(store: Store, item: Found, chain: Sequence[Found]) -> None:
    """Raise unless a segment is one of the chosen, empty, or covered by newer ones."""
    info, end = item.info, chain[-1].info.last
    if item in chain or info.last < info.first:
        return
    if info.last > end:
        raise CorruptLog(
            f"{store.root}: the segments cover 1 to {end} without a gap; segment {info.id}, "
            f"which covers {info.first} to {info.last}, lies behind a gap or overlaps"
        )
    for other in (chosen.info for chosen in chain):
        if other.id < info.id and other.first <= info.last and info.first <= other.last:
            raise CorruptLog(
                f"{store.root}: segments {other.id} ({other.first} to {other.last}) and {info.id} "
                f"({info.first} to {info.last}) overlap, and the newer one leads nowhere"
            )


def _check_active(store: Store, chain: Sequence[Found], base: Manifest | None) -> None:
    """Raise if the segment that was appended to is not there: nobody knows how far it went."""
    if base is None:
        return
    end = chain[-1].info
    later = [item.info for item in chain if item.was_active and item.info.id > base.active.id]
    if any(info.first <= base.active.first for info in later):
        # It was cut off, see `_not_cut_off`.
        return
    if end.first < base.active.first and end.last < base.active.first:
        raise CorruptLog(
            f"{store.root}: the segments end at {end.last}, and segment {base.active.id}, "
            f"which manifest {base.version} appends to from {base.active.first} on, is missing"
        )


def _floor(chain: Sequence[Found], base: Manifest | None) -> Seq:
    end = chain[-1].info.last
    if base is None:
        return end
    named = {info.id for info in base.segments}
    since = [item.info.last for item in chain if item.info.id not in named and item.has_holes]
    return Seq(max([base.tombstone_floor, *since]))
