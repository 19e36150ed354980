"""Copying a log while a node writes to it.

A manifest names the segments that make up the log. So a copy is a manifest and what it names. Sealed segments never
change; the active one grows, and whatever is there when it is copied counts: a block that was caught half-written
looks like the end of a crash, and is not counted. When compaction replaces a segment before its turn comes, the copy
goes on with the manifest of that moment, and keeps what it has.

**What is not copied.** The lock, the reserve, segments that were set apart; and the acceptor's journal, ever. It is the
memory of one node's promises: two nodes with the same memory would vote twice with one voice, and what a majority
has accepted could be decided otherwise. A node that starts on a copy draws a new id, and has no vote until the
cluster gives it one, through the log.

A copy appears under its name when all of it is on disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from sirius.errors import CorruptLog, UsageError
from sirius.types import Seq
from sirius.wal import LogReader, Manifest, OsFileSystem
from sirius.wal.fs import remove_tree
from sirius.wal.manifest import SegmentInfo, State
from sirius.wal.store import MANIFESTS, SEGMENTS, Store
from sirius.wal.verify.verify import Report, Severity, verify

Progress = Callable[[str, int, int], None]
"""What is being done, how many bytes of it are done, and how many there are."""

_WRITING: Final = ".writing"
_ATTEMPTS: Final = 10
_CHUNK: Final = 4 << 20
_NOWHERE: Final = (-1, -1)
"""The home that a copy's manifest names: no folder has such inodes, so a copy knows that it is one wherever it goes."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy holds."""

    last: Seq
    """Everything up to here is in it."""
    segments: int
    bytes: int
    report: Report


def copy_log(source: str, target: str, progress: Progress, settle: Callable[[str], None]) -> Copied:
    """Copy the log in folder `source` to `target`, check the copy, and let `settle` see it before it gets its name."""
    with LogReader.open(source) as reader:
        wanted = reader.last
    with _new_folder(target) as building:
        manifest = _copy(Store(OsFileSystem(), source), building, progress)
        report = _verify(building, progress)
        with LogReader.open(building) as reader:
            last = reader.last
        if last < wanted:
            raise CorruptLog(f"{source}: the copy ends at {last}, the log went up to {wanted}")
        settle(building)
        _sync_tree(building)
        return Copied(last, len(manifest.segments), report.bytes, report)


@contextmanager
def _new_folder(target: str) -> Iterator[str]:
    """Make a folder that gets its name at the end, or is gone."""
    fs, target = OsFileSystem(), os.path.normpath(target)
    building = target + _WRITING
    for path in (target, building):
        if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
            raise UsageError(f"{path} is there already; a copy goes to a new folder")
    Path(building).mkdir(exist_ok=True)
    try:
        yield building
        os.replace(building, target)
        fs.sync_dir(os.path.dirname(target) or ".")
    except BaseException:
        remove_tree(fs, building)
        raise


def _copy(source: Store, building: str, progress: Progress) -> Manifest:
    """Copy a manifest and what it names; begin again with a newer one if something of it goes meanwhile."""
    for folder in (MANIFESTS, SEGMENTS):
        os.mkdir(f"{building}/{folder}")
    for _ in range(_ATTEMPTS):
        manifest = source.load()
        try:
            _copy_segments(source, manifest, building, progress)
        except FileNotFoundError:
            continue
        _drop_others(manifest, building)
        name = source.manifest_path(manifest.version).removeprefix(f"{source.root}/")
        Path(building, name).write_bytes(replace(manifest, home=_NOWHERE).encode())
        return manifest
    raise CorruptLog(f"{source.root}: its segments go faster than they can be copied")


def _copy_segments(source: Store, manifest: Manifest, building: str, progress: Progress) -> None:
    infos = [info for info in manifest.segments if info.state != State.QUARANTINED]
    total = sum(_folder_bytes(source.segment_dir(info.id)) for info in infos)
    done = 0
    for info in infos:
        copied = f"{building}/{SEGMENTS}/{info.name}"
        if not _is_whole(info, copied):
            shutil.rmtree(copied, ignore_errors=True)
            tell = partial(_tell, progress, total, done)
            _copy_folder(source.segment_dir(info.id), copied, tell)
        done += _folder_bytes(copied)
        _tell(progress, total, done)


def _tell(progress: Progress, total: int, before: int, now: int = 0) -> None:
    # The active segment may have grown since it was measured.
    progress("copying", before + now, max(before + now, total))


def _is_whole(info: SegmentInfo, folder: str) -> bool:
    """Whether an attempt before this one has copied a segment that cannot have changed since."""
    return (
        info.state == State.SEALED and os.path.isdir(folder) and _folder_bytes(folder) >= info.bytes
    )


def _folder_bytes(folder: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder))


def _copy_folder(source: str, target: str, copied: Callable[[int], None]) -> None:
    os.mkdir(target)
    done = 0
    for name in sorted(os.listdir(source)):
        with open(f"{source}/{name}", "rb") as read, open(f"{target}/{name}", "xb") as write:
            while data := read.read(_CHUNK):
                write.write(data)
                done += len(data)
                copied(done)


def _drop_others(manifest: Manifest, building: str) -> None:
    """Remove what an earlier attempt copied and this manifest does not name."""
    named = {info.name for info in manifest.segments}
    for name in os.listdir(f"{building}/{SEGMENTS}"):
        if name not in named:
            shutil.rmtree(f"{building}/{SEGMENTS}/{name}")


def _verify(folder: str, progress: Progress) -> Report:
    """Check every byte. The end may be unfinished, since a writer may have been at work."""
    report = verify(
        Store(OsFileSystem(), folder),
        live=True,
        progress=lambda done, total: progress("checking", done, total),
    )
    if not report.sound:
        first = next(found for found in report.findings if found.severity == Severity.ERROR)
        raise CorruptLog(
            f"{first.path}: {first.what}; `waltool verify` the source, and copy another"
        )
    return report


def _sync_tree(folder: str) -> None:
    for path, _, files in os.walk(folder):
        for name in [*files, "."]:
            fd = os.open(os.path.join(path, name), os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
