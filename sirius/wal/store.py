"""The folder of a log: names, manifests, and who may remove what.

::

    LOCK                     held by the one process that writes
    RESERVE                  room for compaction on a full disk
    manifests/0000000007     one file a version; the highest number is the log
    segments/00000003/data   blocks, see `sirius.wal.frames` and `sirius.wal.block`
    segments/00000003/index  where they stand, see `sirius.wal.index`
    segments/00000004.tmp/   being built; rubbish after a crash
    journal/                 the acceptor's memory, see `sirius.wal.journal`
    quarantine/00000002-1/   a segment that repair replaced, kept for study

A segment folder is rubbish if no manifest file names it, unless it proves that a manifest is lost, which is looked for
before anything is swept (`sirius.wal.repair.rebuild.overlooked`). So to retire what compaction replaced is to remove an
old manifest file, once nobody can be reading by it, and to sweep.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sirius.errors import CorruptLog, LogFailed, LogLocked, MissingSegment, NotALog
from sirius.types import SegmentId
from sirius.wal.frames import FILE_HEADER_BYTES, MARK_BYTES
from sirius.wal.fs import FileSystem, Lock, remove_tree
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.segment import DATA, read_whole, write_whole

MANIFESTS = "manifests"
SEGMENTS = "segments"
LOCK = "LOCK"
RESERVE = "RESERVE"
JOURNAL = "journal"
BUILDING = ".tmp"
QUARANTINE = "quarantine"
PARTS = frozenset((MANIFESTS, SEGMENTS, LOCK, RESERVE, JOURNAL, QUARANTINE))
"""All that a log's folder holds."""


@dataclass(frozen=True, slots=True)
class Store:
    """Where a log's files are, and how its manifests are read and written."""

    fs: FileSystem
    root: str

    def segment_dir(self, segment: SegmentId | int) -> str:
        return f"{self.root}/{SEGMENTS}/{segment:08d}"

    def building_dir(self, segment: SegmentId | int) -> str:
        return self.segment_dir(segment) + BUILDING

    def manifest_path(self, version: int) -> str:
        return f"{self.root}/{MANIFESTS}/{version:010d}"

    def is_log(self) -> bool:
        """Say whether the folder has the shape of a log of ours."""
        return self.fs.isdir(f"{self.root}/{MANIFESTS}")

    def lock(self) -> Lock:
        """Take the writer's lock."""
        try:
            return self.fs.lock(f"{self.root}/{LOCK}")
        except BlockingIOError:
            raise LogLocked(f"{self.root} is open for writing in another place") from None

    def lay_out(self) -> None:
        """Make the folders of a new log where nothing else is; what a crash left of them stays."""
        self._refuse_strangers()
        for path in (self.root, f"{self.root}/{MANIFESTS}", f"{self.root}/{SEGMENTS}"):
            if not self.fs.isdir(path):
                self.fs.mkdir(path)
        self.fs.sync_dir(self.root)
        self.fs.sync_dir(_parent(self.root))

    def _refuse_strangers(self) -> None:
        if not self.fs.isdir(_parent(self.root)):
            raise NotALog(f"{self.root}: there is no folder {_parent(self.root)} to put a log into")
        if self.fs.exists(self.root) and not self.fs.isdir(self.root):
            raise NotALog(f"{self.root} is a file and not a Sirius log")
        names = self.fs.listdir(self.root) if self.fs.isdir(self.root) else []
        if strangers := sorted(set(names) - PARTS):
            raise NotALog(
                f"{self.root} is not a Sirius log, and not empty: it holds {strangers[0]}"
            )

    def refuse_orphans(self) -> None:
        """Raise if there are segments although no manifest is there: they are no rubbish, and no new log either."""
        for name in self.fs.listdir(f"{self.root}/{SEGMENTS}"):
            path = f"{self.root}/{SEGMENTS}/{name}/{DATA}"
            # A crash before the first manifest leaves at most a segment with nothing in it.
            if self.fs.exists(path) and self._size(path) > FILE_HEADER_BYTES + MARK_BYTES:
                raise CorruptLog(
                    f"{self.root}: there are segments, but no manifest that names them; "
                    f"`waltool repair {self.root}` makes one"
                )

    def settle_names(self) -> None:
        """Put on disk the names that a process may have changed just before it was killed.

        They are visible, and may still be lost with the power: a process renames a manifest and is killed; the next
        one appends to the segment which that manifest names; and then both vanish.
        """
        try:
            for folder in (SEGMENTS, MANIFESTS):
                self.fs.sync_dir(f"{self.root}/{folder}")
        except OSError as error:
            raise LogFailed(f"{self.root}: sync failed while opening: {error}") from error

    def versions(self) -> list[int]:
        """Return the numbers of the manifests that are there, newest first."""
        names = self.fs.listdir(f"{self.root}/{MANIFESTS}")
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def read(self, version: int) -> Manifest:
        path = self.manifest_path(version)
        return Manifest.decode(read_whole(self.fs, path), path)

    def home(self) -> tuple[int, int]:
        """Return the numbers by which this folder is told from its copies."""
        lock = f"{self.root}/{LOCK}"
        return (
            self.fs.identity(self.root),
            self.fs.identity(lock) if self.fs.exists(lock) else 0,
        )

    def is_copy(self, manifest: Manifest) -> bool:
        """Say whether this folder was copied from the one in which the manifest was written."""
        return not any(a == b for a, b in zip(self.home(), manifest.home, strict=True))

    def load(self) -> Manifest:
        """Return the manifest in force. In a copy, that is the newest of which everything is there."""
        if not self.is_log():
            raise NotALog(f"{self.root} is not a Sirius log")
        versions = self.versions()
        if not versions:
            raise NotALog(
                f"{self.root} is a Sirius log that was never finished: it has no manifest"
            )
        newest = self.read(versions[0])
        copy = self.is_copy(newest)
        missing = self.missing(newest, copy=copy)
        if missing and copy:
            for version in versions[1:]:
                manifest = self.read(version)
                if not self.missing(manifest, copy=True):
                    return manifest
        if missing:
            raise MissingSegment(f"{self.root}: {missing}; manifest {newest.version} names it")
        return newest

    def missing(self, manifest: Manifest, *, copy: bool = False) -> str | None:
        """Say which segment of a manifest is not there or too short. A copy may have caught one before its header."""
        for info in manifest.segments:
            needed = FILE_HEADER_BYTES if copy and info.state == State.ACTIVE else info.bytes
            if info.state != State.QUARANTINED and (problem := self._absent(info, needed)):
                return problem
        return None

    def _absent(self, info: SegmentInfo, needed: int) -> str | None:
        path = f"{self.segment_dir(info.id)}/{DATA}"
        if not self.fs.exists(path):
            return f"segment {info.id} is missing"
        size = self._size(path)
        return f"segment {info.id} has {size} of {needed} bytes" if size < needed else None

    def _size(self, path: str) -> int:
        file = self.fs.open(path, "r")
        try:
            return file.size()
        finally:
            file.close()

    def commit(self, manifest: Manifest) -> None:
        """Make a manifest the one in force. When this returns it is so, for good."""
        manifest.check()
        path = self.manifest_path(manifest.version)
        write_whole(self.fs, path + BUILDING, manifest.encode())
        self.fs.sync_dir(f"{self.root}/{SEGMENTS}")
        self.fs.replace(path + BUILDING, path)
        try:
            self.fs.sync_dir(f"{self.root}/{MANIFESTS}")
        except OSError as error:
            raise LogFailed(f"{path}: whether this is the manifest is unknown: {error}") from error

    def publish_segment(self, segment: SegmentId | int) -> None:
        """Give a finished segment its final name. It counts once a manifest names it."""
        self.fs.replace(self.building_dir(segment), self.segment_dir(segment))

    def sweep(self, in_force: Manifest, *, keep_building: bool) -> None:
        """Remove every segment folder that no manifest names. `keep_building` is for a log that is in use.

        What the manifest in force names stays even if its file has vanished.
        """
        named = {info.name for info in in_force.segments}
        for version in self.versions():
            try:
                named.update(info.name for info in self.read(version).segments)
            except FileNotFoundError:
                continue
            except CorruptLog:
                if keep_building:
                    # Nothing is rubbish on the word of a manifest that has rotted: it may be the one in force.
                    return
        for name in self.fs.listdir(f"{self.root}/{SEGMENTS}"):
            building = name.endswith(BUILDING)
            if name not in named and not (building and keep_building):
                remove_tree(self.fs, f"{self.root}/{SEGMENTS}/{name}")

    def remove_manifest(self, version: int) -> None:
        remove_tree(self.fs, self.manifest_path(version))


class Retirement:
    """Removes old manifests, and what only they name, when nobody can need them any more.

    A version is kept while a snapshot in this process pins it, and for `after_s` seconds since it was superseded, for
    readers in other processes and for plain copies of the folder.
    """

    def __init__(self, store: Store, after_s: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._after_s = after_s
        self._clock = clock
        self._deadlines: dict[int, float] = {}
        self._pins: Counter[int] = Counter()
        self._lock = threading.Lock()

    def pin(self, version: int) -> None:
        with self._lock:
            self._pins[version] += 1

    def unpin(self, version: int) -> None:
        with self._lock:
            self._pins[version] -= 1

    def supersede(self, version: int) -> None:
        """From now on `version` is history."""
        with self._lock:
            self._deadlines.setdefault(version, self._clock() + self._after_s)

    def run(self, in_force: Manifest, *, at_once: bool = False) -> int:
        """Remove what is due (or, for a full disk, all that is not pinned); return how many versions went."""
        with self._lock:
            now = self._clock()
            due = [
                version
                for version, deadline in self._deadlines.items()
                if (at_once or deadline <= now) and not self._pins[version]
            ]
            for version in due:
                del self._deadlines[version]
                self._store.remove_manifest(version)
            if due:
                self._store.sweep(in_force, keep_building=True)
        return len(due)


def _parent(path: str) -> str:
    head, _, _ = path.rstrip("/").rpartition("/")
    return head or ("/" if path.startswith("/") else ".")
