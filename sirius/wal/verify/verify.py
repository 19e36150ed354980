"""Checking every byte of a log.

What is checked, from the outside in: the manifests; that the segments are there, chain without a gap and are what the
manifest says; every file header, block header, mark and payload checksum; that the columns of a block fit together;
every index file against the data; and what lies around that no manifest names. With `deep` also the checksum that
each entry carries for life, which finds damage that happened before a block was sealed.

Damage is reported and never raised, and checking goes on behind it. `.findings` says what is an error and
what merely a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sirius.errors import CorruptFile, CorruptLog, InvariantViolation, NotALog
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.record import DEFAULT_LIMITS, Limits
from sirius.wal.repair.rebuild import overlooked
from sirius.wal.segment import DATA, INDEX, Segment, read_whole
from sirius.wal.store import MANIFESTS, PARTS, SEGMENTS, Store
from sirius.wal.verify.findings import Finding, Notes, Report, Severity, span
from sirius.wal.verify.segments import SegmentCheck, block_faults

__all__ = ["Finding", "Report", "Severity", "block_faults", "verify"]

# What reading a manifest may raise that passes its checksum and that this version does not understand.
_STRANGE: Final = (ValueError, LookupError, TypeError, InvariantViolation)


def verify(
    store: Store,
    *,
    deep: bool = False,
    live: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    limits: Limits = DEFAULT_LIMITS,
) -> Report:
    """Check a log. Takes no lock and writes nothing; blocks on the disk.

    `live` says that a writer has it open, so that an unfinished end is ordinary. `progress` gets the bytes done and the
    bytes in all, often. Raises `NotALog` if the folder holds none, and nothing else about the log's contents.
    """
    if not store.is_log() or not store.versions():
        raise NotALog(f"{store.root} is not a Sirius log")
    notes = Notes(store.root, deep, live, limits, progress)
    _Check(store, notes).run()
    return notes.report


class _Check:
    """One pass over a log."""

    def __init__(self, store: Store, notes: Notes) -> None:
        self._store = store
        self._notes = notes
        self._versions: list[int] = []
        self._unreadable = False

    def run(self) -> None:
        manifest = self._manifest()
        if manifest is None:
            return
        self._notes.bytes_total = sum(self._size(info) for info in manifest.segments)
        for info in manifest.segments:
            self._segment(manifest, info)
        self._lost_manifest(manifest)
        named = self._history()
        for path, what in self._strangers(manifest, named):
            self._notes.find(Severity.NOTE, path, None, what)
        for path in self._leftovers(named):
            self._leftover(path)

    # ------------------------------------------------------------------ manifests

    def _manifest(self) -> Manifest | None:
        """Check all manifests; return the one in force, or the newest that can be read."""
        self._versions = self._store.versions()
        readable = [found for version in self._versions if (found := self._read(version))]
        chosen: Manifest | None
        try:
            chosen = self._store.load()
        except (CorruptLog, OSError, *_STRANGE):
            # Why it cannot be loaded is found in its own place: a bad manifest, a missing segment.
            chosen = readable[0] if readable else None
        if chosen is None:
            return None
        try:
            chosen.check()
        except InvariantViolation as violation:
            self._notes.error(self._store.manifest_path(chosen.version), None, str(violation))
        return chosen

    def _read(self, version: int) -> Manifest | None:
        path = self._store.manifest_path(version)
        try:
            manifest = self._store.read(version)
        except FileNotFoundError:
            return None
        except CorruptFile as error:
            self._notes.error(path, error.offset, error.reason)
        except OSError as error:
            self._notes.error(path, None, f"it cannot be read: {error.strerror}")
        except _STRANGE as error:
            self._notes.error(path, None, f"not known to this version: {error!r}")
        else:
            if manifest.version == version:
                return manifest
            self._notes.error(path, None, f"the file says that it is version {manifest.version}")
        self._unreadable = True
        return None

    def _lost_manifest(self, manifest: Manifest) -> None:
        """Report a segment that only a manifest which is gone can have named."""
        try:
            segment = overlooked(self._store, manifest, self._notes.limits)
        except (CorruptLog, OSError) as error:
            self._notes.error(SEGMENTS, None, str(error))
            return
        if segment is None or self._unreadable or self._store.versions() != self._versions:
            # Another one that cannot be read may name it, or a writer has made one in the meantime.
            return
        what = "no manifest names it, and it holds records: the newest manifest is lost"
        self._notes.error(f"{SEGMENTS}/{segment:08d}", None, f"{what}; repair makes it anew")
        self._unreadable = True

    # ------------------------------------------------------------------ what lies around

    def _strangers(self, manifest: Manifest, named: dict[str, int]) -> Iterator[tuple[str, str]]:
        """Yield what is not a part of the log, and segments that only older manifests name."""
        for name in self._store.fs.listdir(self._store.root):
            if name not in PARTS:
                yield name, "not a part of the log"
        current = {info.name for info in manifest.segments}
        for name, version in named.items():
            if name not in current:
                yield f"{SEGMENTS}/{name}", f"replaced; kept for readers of manifest {version}"

    def _leftovers(self, named: dict[str, int]) -> Iterator[str]:
        """Yield what no manifest names."""
        fs, root = self._store.fs, self._store.root
        for name in fs.listdir(f"{root}/{MANIFESTS}"):
            if not name.isdigit():
                yield f"{MANIFESTS}/{name}"
        for name in fs.listdir(f"{root}/{SEGMENTS}"):
            if name not in named:
                yield f"{SEGMENTS}/{name}"

    def _leftover(self, path: str) -> None:
        if self._unreadable:
            what = "no manifest that can be read names it; one that cannot be may"
            self._notes.find(Severity.WARNING, path, None, what)
        elif self._notes.live:
            what = "no manifest names it: the writer may be making it"
            self._notes.find(Severity.NOTE, path, None, what)
        else:
            what = "left by a crash; opening the log for writing removes it"
            self._notes.find(Severity.WARNING, path, None, what)

    def _history(self) -> dict[str, int]:
        """Return the names of all segments that are there and that some manifest names, with its version."""
        found: dict[str, int] = {}
        there = set(self._store.fs.listdir(f"{self._store.root}/{SEGMENTS}"))
        for version in self._store.versions():
            try:
                segments = self._store.read(version).segments
            except (CorruptLog, OSError, *_STRANGE):
                continue
            for info in segments:
                if info.name in there:
                    found.setdefault(info.name, version)
        return found

    # ------------------------------------------------------------------ segments

    def _size(self, info: SegmentInfo) -> int:
        if info.state != State.ACTIVE:
            return info.bytes
        path = f"{self._store.segment_dir(info.id)}/{DATA}"
        try:
            file = self._store.fs.open(path, "r")
        except OSError:
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def _segment(self, manifest: Manifest, info: SegmentInfo) -> None:
        path = f"{self._store.segment_dir(info.id)}/{DATA}"
        self._notes.report.segments += 1
        if info.state == State.QUARANTINED:
            what = f"quarantined: {span(info.first, info.last)} cannot be read: {info.reason}"
            self._notes.error(path, None, what)
            return
        try:
            self._open_and_check(info)
        except FileNotFoundError:
            self._gone(manifest, info, path)
        except CorruptFile as error:
            self._notes.error(path, error.offset, error.reason)
        except NotALog:
            self._notes.error(path, 0, "the file does not begin as a segment does")
        except OSError as error:
            self._notes.error(path, None, f"it cannot be read: {error.strerror}")

    def _gone(self, manifest: Manifest, info: SegmentInfo, path: str) -> None:
        newest = self._store.versions()[0]
        if newest > manifest.version and info.name not in self._history():
            what = f"replaced by manifest {newest} in the meantime; run the check again"
            self._notes.find(Severity.NOTE, path, None, what)
        elif info.state == State.ACTIVE:
            self._notes.error(path, None, f"missing; what begins at {info.first} cannot be read")
        else:
            self._notes.error(path, None, f"missing; {span(info.first, info.last)} cannot be read")

    def _open_and_check(self, info: SegmentInfo) -> None:
        folder = self._store.segment_dir(info.id)
        # Before the data: a writer may bring it up to date while the data is being read.
        index = self._index_file(f"{folder}/{INDEX}")
        segment = Segment(self._store.fs, folder, info, self._notes.limits)
        try:
            SegmentCheck(segment, self._notes).run(index)
        finally:
            segment.close()

    def _index_file(self, path: str) -> bytes | None:
        try:
            return read_whole(self._store.fs, path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._notes.error(path, None, f"it cannot be read: {error.strerror}")
            return None
