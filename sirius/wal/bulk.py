"""A whole log made of parts that were written side by side, each by somebody who did not know of the others.

A **part** is a file of blocks whose entries are numbered from 1 on, with room in front for a file's header and first
mark. Whoever wrote it knew neither its segment's id nor where it stands in the log. `seal_part` makes a segment of it
in place: entries are renumbered without reading keys or bodies (`.checksums`), the frames around the blocks are
written, and everything is put on disk.

The segments become a log in one step: `found_log` for a folder that is not there yet, by renaming a whole one into
place; `replace_log` for one that is, by a manifest. Until then nobody sees anything of it, and a crash leaves rubbish
that has no name a log could have.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from crc32c import crc32c

from sirius.errors import LogError
from sirius.types import SegmentId, Seq
from sirius.wal.block import ENTRY, HEADER, HEADER_BYTES, Header
from sirius.wal.checksums import renumber
from sirius.wal.config import LogConfig
from sirius.wal.frames import FILE_HEADER_BYTES, MARK_BYTES, FileHeader, FileKind, Mark, Mode
from sirius.wal.fs import OsFileSystem, remove_tree
from sirius.wal.index import encode_row, row_of
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.repair.rebuild import next_id
from sirius.wal.segment import DATA, INDEX, SegmentWriter, write_whole
from sirius.wal.settling import load_whole
from sirius.wal.store import LOCK, MANIFESTS, SEGMENTS, Store

FRONT: Final = FILE_HEADER_BYTES + MARK_BYTES
"""How many bytes a part leaves free in front of its first block."""


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks in the file `data` of a folder; their entries are numbered from `first` on, without a hole."""

    folder: str
    first: int
    records: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part is to stand."""

    segment: SegmentId
    uid: int
    first: int


def seal_part(part: Part, place: Place) -> SegmentInfo:
    """Make a segment of a part, in its folder. O(n), with a pass over its bytes for the blocks' checksums."""
    path = f"{part.folder}/{DATA}"
    created_us = time.time_ns() // 1000
    header = FileHeader(FileKind.SEGMENT, place.segment, place.uid, place.first, created_us)
    with open(path, "r+b") as file:
        with mmap.mmap(file.fileno(), 0) as data:
            index = _renumber(data, place.first - part.first)
            first_mark = Mark(
                Mode.OS, False, 0, place.uid, place.segment, FILE_HEADER_BYTES, place.first - 1
            )
            data[:FRONT] = header.encode() + first_mark.encode()
            data.flush()
            size = len(data)
        os.fsync(file.fileno())
        last, crc = place.first + part.records - 1, crc32c(index)
        write_whole(OsFileSystem(), f"{part.folder}/{INDEX}", index)
        file.seek(size)
        file.write(Mark(Mode.OS, True, crc, place.uid, place.segment, size, last).encode())
        file.flush()
        os.fsync(file.fileno())
    OsFileSystem().sync_dir(part.folder)
    blocks = len(index) // len(encode_row((0, 0, 0, 0, 0, 0, 0)))
    size += MARK_BYTES
    return SegmentInfo(
        place.segment, Seq(place.first), Seq(last), State.SEALED, size, blocks, part.records, crc
    )


def _renumber(data: mmap.mmap, by: int) -> bytes:
    """Give all entries of a part their numbers; return its index."""
    rows, at = [], FRONT
    while at < len(data):
        header = Header._make(HEADER.unpack_from(data, at))
        if by:
            header = _renumber_block(data, at, header, by)
        rows.append(encode_row(row_of(header, at)))
        at += header.size
    return b"".join(rows)


def _renumber_block(data: mmap.mmap, at: int, header: Header, by: int) -> Header:
    payload_at = at + HEADER_BYTES
    entries = np.frombuffer(data, ENTRY, header.records, payload_at)
    renumber(entries, by)
    del entries  # or the file could not be unmapped
    with memoryview(data) as whole, whole[payload_at : at + header.size] as payload:
        crc = crc32c(payload)
    header = header._replace(
        first=header.first + by, last=header.last + by, payload_crc=crc, header_crc=0
    )
    raw = HEADER.pack(*header)
    data[at:payload_at] = raw[:4] + crc32c(raw[8:]).to_bytes(4, "little") + raw[8:]
    return header


Seal = Callable[[SegmentId, int], Sequence[tuple[str, SegmentInfo]]]
"""Makes segments of all parts, given the first id and the log's unique id; returns each with its folder, in order."""


def found_log(root: str, path: str, seal: Seal) -> int:
    """Make a log of sealed parts in the folder `root`, and rename that to `path`, where nothing may be; return its end.

    Both are in the same folder. `root` may hold other things; they go.
    """
    store = Store(OsFileSystem(), root)
    for folder in (MANIFESTS, SEGMENTS):
        if not store.fs.isdir(f"{root}/{folder}"):
            store.fs.mkdir(f"{root}/{folder}")
    store.lock().release()
    manifest = _assemble(store, Manifest(uid=_new_uid(), version=0), SegmentId(1), seal)
    for name in set(store.fs.listdir(root)) - {MANIFESTS, SEGMENTS, LOCK}:
        remove_tree(store.fs, f"{root}/{name}")
    store.fs.sync_dir(root)
    try:
        os.rename(root, path)
    except OSError as error:
        raise LogError(
            f"{path} cannot be made: {error.strerror}; is there something else by now?"
        ) from error
    store.fs.sync_dir(os.path.dirname(path) or ".")
    return manifest.active.first - 1


def replace_log(path: str, seal: Seal, config: LogConfig | None = None) -> int:
    """Put sealed parts in the place of everything that a log holds, in one step; return its end.

    Nobody may have it open for writing. It is another log from then on, with a unique id of its own: what a node knew
    of the old one in its journal does not count for the new. Readers of the old one find it for a while.
    """
    config = config or LogConfig()
    store = Store(OsFileSystem(), path)
    lock = store.lock()
    try:
        old = load_whole(store, config.limits)
        first = next_id(store)
        base = replace(old, uid=_new_uid(), tombstone_floor=Seq(0), era=0, tags={})
        manifest = _assemble(store, base, first, seal)
        _retire(store, manifest, config.retire_after_s)
    finally:
        lock.release()
    return manifest.active.first - 1


def _assemble(store: Store, base: Manifest, first: SegmentId, seal: Seal) -> Manifest:
    """Move segments in, and put a manifest in force that names them alone."""
    sealed = seal(first, base.uid)
    active = SegmentId(first + len(sealed))
    version = base.version + 1
    if base.version:
        # Ids that were given out come into force first: after a crash the segments are rubbish, and no lost manifest.
        reserved = store.read(base.version)
        store.commit(replace(reserved, version=version, next_segment=SegmentId(active + 1)))
        version += 1
    for folder, info in sealed:
        os.rename(folder, store.segment_dir(info.id))
    last = sealed[-1][1].last if sealed else 0
    header = FileHeader(FileKind.SEGMENT, active, base.uid, last + 1, time.time_ns() // 1000)
    SegmentWriter.create(store.fs, store.segment_dir(active), header, Mode.FSYNC).abandon()
    manifest = replace(
        base,
        version=version,
        home=store.home(),
        next_segment=SegmentId(active + 1),
        segments=(*(info for _, info in sealed), SegmentInfo(active, Seq(last + 1))),
    )
    store.commit(manifest)
    return manifest


def _retire(store: Store, in_force: Manifest, after_s: float) -> None:
    """Remove manifests that were superseded long ago, and what no manifest names any more."""
    for version in store.versions():
        age_s = time.time() - os.stat(store.manifest_path(version)).st_mtime
        if version < in_force.version - 1 and age_s > after_s:
            store.remove_manifest(version)
    store.sweep(in_force, keep_building=False)


def _new_uid() -> int:
    return int.from_bytes(os.urandom(8))
