"""Logs to be repaired, and what must hold of them afterwards. Not a test itself."""

from __future__ import annotations

from dataclasses import replace

from sirius.testing import MemoryFileSystem
from sirius.types import Seq
from sirius.wal import (
    Block,
    CompactionPolicy,
    FileSystem,
    Log,
    LogConfig,
    LogReader,
    Op,
    Record,
    RepairReport,
    State,
    repair,
)
from sirius.wal.frames import FileHeader, FileKind, Mode
from sirius.wal.manifest import Manifest
from sirius.wal.segment import SegmentWriter
from sirius.wal.store import Store

ROOT = "log"
CONFIG = LogConfig(background=False, reserve_bytes=0, segment_records_max=4)
KEEP = replace(CONFIG, retire_after_s=1e9)
GONE = replace(CONFIG, retire_after_s=0.0)
NOW_US = 1_700_000_000_000_000
HEADER_AT = 30


def open_log(fs: FileSystem, config: LogConfig = CONFIG, root: str = ROOT) -> Log:
    return Log.open(root, config, fs=fs, now_us=lambda: NOW_US)


def made(puts: int = 18, config: LogConfig = CONFIG) -> MemoryFileSystem:
    """A log of some sealed segments and an active one. Keys return, and some are deleted."""
    fs = MemoryFileSystem()
    with open_log(fs, config) as log:
        write(log, puts)
    return fs


def write(log: Log, puts: int) -> None:
    for n in range(puts):
        log.put(f"key/{n % 7}", b"body" * (n % 3))
        log.flush()
        if n % 5 == 2:
            log.put(f"gone/{n}", b"not for long")
        elif n % 5 == 3:
            log.delete(f"gone/{n - 1}")
        elif n % 5 == 4:
            log.delete(f"key/{(n + 3) % 7}")
        log.flush()


def fixed(
    fs: MemoryFileSystem, *, accept_loss: bool = False, dry_run: bool = False
) -> RepairReport:
    return repair(ROOT, fs=fs, config=CONFIG, accept_loss=accept_loss, dry_run=dry_run)


def records(fs: FileSystem, root: str = ROOT) -> list[Record]:
    with open_log(fs, root=root) as log:
        return list(log.records())


def state(fs: FileSystem) -> dict[str, bytes]:
    live: dict[str, bytes] = {}
    for record in records(fs):
        if record.op == Op.PUT:
            live[record.key] = record.body
        else:
            live.pop(record.key, None)
    return live


def manifest(fs: FileSystem, root: str = ROOT) -> Manifest:
    return Store(fs, root).load()


def data(segment: int) -> str:
    return f"{ROOT}/segments/{segment:08d}/data"


def index(segment: int) -> str:
    return f"{ROOT}/segments/{segment:08d}/index"


def manifests(fs: MemoryFileSystem) -> list[str]:
    """The manifest files, newest first."""
    return sorted((path for path in fs.tree() if "/manifests/" in path), reverse=True)


def within(seq: int, ranges: list[tuple[int, int | None]]) -> bool:
    return any(first <= seq and (last is None or seq <= last) for first, last in ranges)


def agrees(before: list[Record], after: list[Record], report: RepairReport) -> None:
    """Nothing but what the report calls lost may be missing, and nothing may be new."""
    gone = [*report.lost, *report.holes]
    assert after == [record for record in before if record in after]
    missing = [record for record in before if record not in after]
    assert all(within(record.seq, gone) for record in missing)


def readable(fs: FileSystem) -> list[Record]:
    """All records of the segments that can be read."""
    found: list[Record] = []
    with LogReader.open(ROOT, fs=fs) as reader, reader.snapshot() as snapshot:
        for info in snapshot.segments:
            if info.state != State.QUARANTINED:
                for batch in snapshot.segment_batches(info):
                    found += batch.records()
    return found


def compacted(config: LogConfig = KEEP) -> MemoryFileSystem:
    """A log after several compactions, some of which dropped deletes."""
    fs = made(18, config)
    for n in range(3):
        with open_log(fs, config) as log:
            upto = Seq(log.next_seq - 3)
            log.compact(CompactionPolicy(dead_fraction_min=0.0, drop_deletes_upto=upto))
            write(log, 3 + n)
    return fs


def add_segment(fs: MemoryFileSystem, segment: int, first: int, blocks: list[Block]) -> None:
    """Put a segment there that no manifest names."""
    header = FileHeader(FileKind.SEGMENT, segment, manifest(fs).uid, first, NOW_US)
    writer = SegmentWriter.create(fs, f"{ROOT}/segments/{segment:08d}", header, Mode.FSYNC)
    for block in blocks:
        writer.append([block])
    writer.close(Mode.FSYNC)


def torn(fs: MemoryFileSystem) -> None:
    active = manifest(fs).active
    fs.write_bytes(data(active.id), fs.read_bytes(data(active.id)) + b"SBLK" + bytes(60))


def scenario(name: str) -> MemoryFileSystem:
    fs = made(8, KEEP)
    for info in manifest(fs).segments:
        # All that is long ago.
        fs.sync_dir(f"{ROOT}/segments/{info.name}")
    active = manifest(fs).active
    if name == "sealed":
        fs.flip(data(1), 64 + 48 + HEADER_AT)
    elif name == "active":
        fs.flip(data(active.id), 20)
    elif name == "manifest":
        fs.flip(manifests(fs)[0], 60)
    elif name == "index and tail":
        fs.cut(index(1), 20)
        torn(fs)
    elif name == "lossy":
        fs.flip(data(1), fs.read_bytes(data(1)).index(b"key/"))
    return fs
