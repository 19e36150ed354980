"""The hands of a repair: everything that it writes, and the notes of what it did.

A dry run makes the same notes and writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from sirius.errors import LogFailed
from sirius.types import SegmentId
from sirius.wal.config import Durability, LogConfig
from sirius.wal.frames import FileHeader, FileKind, Mode, Walk
from sirius.wal.index import Index
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.repair.rebuild import readable_manifests
from sirius.wal.repair.report import Action, What
from sirius.wal.segment import DATA, INDEX, SegmentWriter, write_whole
from sirius.wal.store import BUILDING, MANIFESTS, QUARANTINE, SEGMENTS, Store


@dataclass(slots=True)
class Workbench:
    """A log's folder under repair. Fits `sirius.wal.repair.replacement.Site`."""

    store: Store
    config: LogConfig
    dry_run: bool
    manifest: Manifest = field(init=False)
    actions: list[Action] = field(default_factory=list, init=False)

    # ------------------------------------------------------------------ notes

    def note(self, what: What, path: str, first: int, last: int | None, detail: str = "") -> None:
        self.actions.append(Action(what, path, first, last, detail))

    def note_segment(self, what: What, info: SegmentInfo, detail: str) -> None:
        last = None if info.state == State.ACTIVE else int(info.last)
        self.note(what, f"{SEGMENTS}/{info.name}", info.first, last, detail)

    # ------------------------------------------------------------------ manifests

    def commit(self, manifest: Manifest) -> None:
        """Put a manifest in force."""
        if not self.dry_run:
            folder = f"{self.store.root}/{MANIFESTS}"
            if not self.store.fs.isdir(folder):
                self.store.fs.mkdir(folder)
                self.store.fs.sync_dir(self.store.root)
            self.store.commit(manifest)
        self.manifest = manifest

    def reserve_segment(self) -> SegmentId:
        self.manifest, segment = self.manifest.reserve()
        return segment

    def swap(
        self, old: Sequence[SegmentId], new: Sequence[SegmentInfo], tombstone_floor: int = 0
    ) -> None:
        after = self.manifest.swap(old, new, tombstone_floor)
        for info in new:
            self.store.publish_segment(info.id)
        self.commit(after)

    # ------------------------------------------------------------------ segments

    @property
    def mode(self) -> Mode:
        return Mode.FSYNC if self.config.durability == Durability.FSYNC else Mode.OS

    def size(self, info: SegmentInfo) -> int:
        """Return the size of a segment's data file, 0 if there is none."""
        try:
            file = self.store.fs.open(f"{self.store.segment_dir(info.id)}/{DATA}", "r")
        except OSError:
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def create(self, info: SegmentInfo) -> None:
        """Make an empty segment that is to become the active one."""
        if self.dry_run:
            return
        uid, created_us = self.manifest.uid, time.time_ns() // 1000
        header = FileHeader(FileKind.SEGMENT, info.id, uid, info.first, created_us)
        folder = self.store.segment_dir(info.id)
        SegmentWriter.create(self.store.fs, folder, header, self.mode).abandon()

    def write_index(self, info: SegmentInfo, table: bytes) -> None:
        self.note(What.INDEX, f"{SEGMENTS}/{info.name}/{INDEX}", info.first, info.last or None)
        if not self.dry_run:
            folder = self.store.segment_dir(info.id)
            path = f"{folder}/{INDEX}"
            write_whole(self.store.fs, path + BUILDING, table)
            self.store.fs.replace(path + BUILDING, path)
            self.store.fs.sync_dir(folder)

    def cut(self, info: SegmentInfo, walk: Walk, index: Index) -> None:
        """Cut a torn tail off, and close the active segment as the log would."""
        detail = f"{walk.end - walk.position} bytes of an unfinished write: {walk.fault}"
        self.note(What.TAIL, f"{SEGMENTS}/{info.name}/{DATA}", walk.next_first, None, detail)
        if not self.dry_run:
            fs, folder = self.store.fs, self.store.segment_dir(info.id)
            mode = walk.mark.mode if walk.mark else self.mode
            file = fs.open(f"{folder}/{DATA}", "a")
            SegmentWriter.resume(fs, folder, file, walk, index, mode).close(mode)

    def drop_cache(self, info: SegmentInfo) -> None:
        """Have the next reads show what the disk holds; see `sirius.wal.recovery`."""
        path = f"{self.store.segment_dir(info.id)}/{DATA}"
        if self.dry_run or not self.store.fs.exists(path):
            return
        file = self.store.fs.open(path, "a")
        try:
            file.sync()
            file.forget()
        except OSError as error:
            raise LogFailed(f"{path}: sync failed before the repair: {error}") from error
        finally:
            file.close()

    # ------------------------------------------------------------------ what was replaced

    def keep_replaced(self) -> None:
        """Do what an earlier repair was kept from: move the folders of segments that it replaced."""
        seen = {info.id for info in self.manifest.segments}
        for manifest in readable_manifests(self.store):
            for info in manifest.segments:
                if info.state == State.QUARANTINED and info.id not in seen:
                    seen.add(info.id)
                    self.keep(info)

    def keep(self, info: SegmentInfo) -> None:
        """Move the folder of a segment that was replaced to where it can be studied."""
        if self.store.fs.exists(self.store.segment_dir(info.id)):
            place = self.spare_place(info.name)
            self.note_segment(What.KEPT, info, f"now {place}")
            self.move(f"{SEGMENTS}/{info.name}", place)

    def spare_place(self, name: str) -> str:
        """Return a path in quarantine, relative to the log's folder, at which nothing is kept yet."""
        for copy in count(1):
            place = f"{QUARANTINE}/{name}-{copy}"
            if not self.store.fs.exists(f"{self.store.root}/{place}"):
                break
        return place

    def move(self, source: str, place: str) -> None:
        """Move a folder into quarantine. Paths are relative to the log's folder."""
        if self.dry_run:
            return
        fs, root = self.store.fs, self.store.root
        if not fs.isdir(f"{root}/{QUARANTINE}"):
            fs.mkdir(f"{root}/{QUARANTINE}")
            fs.sync_dir(root)
        fs.replace(f"{root}/{source}", f"{root}/{place}")
        fs.sync_dir(f"{root}/{QUARANTINE}")
        fs.sync_dir(f"{root}/{source}".rpartition("/")[0])
