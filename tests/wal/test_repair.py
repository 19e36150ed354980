"""Repair of a log's folder: what was good stays, what was lost is named, and it can be interrupted anywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from errno import EIO
from pathlib import Path

import numpy as np
import pytest

from sirius.errors import CorruptFile, CorruptLog, LogLocked, NotALog
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import Seq
from sirius.wal import (
    Block,
    CompactionPolicy,
    FileSystem,
    Log,
    LogConfig,
    LogReader,
    Op,
    OsFileSystem,
    Record,
    RepairReport,
    State,
    repair,
)
from sirius.wal.frames import FileHeader, FileKind, Mode
from sirius.wal.manifest import Manifest
from sirius.wal.repair.repair import What, rebuild_manifest
from sirius.wal.segment import SegmentWriter
from sirius.wal.store import Store

ROOT = "log"
CONFIG = LogConfig(background=False, reserve_bytes=0, segment_records_max=4)
KEEP = replace(CONFIG, retire_after_s=1e9)
GONE = replace(CONFIG, retire_after_s=0.0)
NOW_US = 1_700_000_000_000_000


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


# ---------------------------------------------------------------------- whole logs


def test_a_whole_log_is_left_alone() -> None:
    fs = made()
    before = fs.tree()
    report = fixed(fs)
    assert report.actions == ()
    assert not report.changed
    assert fs.tree() == before


def test_a_log_after_compactions_is_left_alone() -> None:
    for config in (KEEP, GONE):
        fs = compacted(config)
        before = fs.tree()
        assert fixed(fs).actions == ()
        assert fs.tree() == before


def test_progress_is_told() -> None:
    fs, told = made(), list[tuple[int, int]]()
    repair(ROOT, fs=fs, config=CONFIG, progress=lambda done, total: told.append((done, total)))
    total = sum(len(raw) for path, raw in fs.tree().items() if path.endswith("/data"))
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert told == sorted(told)


def test_a_log_that_is_open_is_not_repaired() -> None:
    fs = made()
    with open_log(fs), pytest.raises(LogLocked):
        fixed(fs)
    with open_log(fs), pytest.raises(LogLocked):
        fixed(fs, dry_run=True)


def test_a_folder_that_holds_no_log_is_refused() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("other")
    with pytest.raises(NotALog):
        repair("other", fs=fs)
    assert fs.tree() == {}


# ---------------------------------------------------------------------- sealed segments


def damaged_everywhere(segment: int) -> Iterator[tuple[MemoryFileSystem, bytes, int]]:
    """Yield a small log for each byte of a segment's data, with that byte flipped."""
    pristine = made(6)
    for offset in range(len(pristine.read_bytes(data(segment)))):
        fs = pristine.kill()
        pristine = fs.clone()
        fs.flip(data(segment), offset, 0x41)
        yield fs, fs.read_bytes(data(segment)), offset


def test_every_flipped_byte_of_a_sealed_segment() -> None:
    before, rewritten = records(made(6)), 0
    for fs, damaged, offset in damaged_everywhere(1):
        tree = fs.tree()
        report = fixed(fs)
        if report.lost:
            assert fs.tree() == tree, offset
            assert not report.changed
            continue
        rewritten += 1
        assert fs.tree()[f"{ROOT}/quarantine/00000001-1/data"] == damaged
        assert fixed(fs).actions == (), offset
        assert records(fs) == before, offset
    assert rewritten > 100


def test_every_flipped_byte_of_a_sealed_segment_with_the_loss_accepted() -> None:
    before, lossy = records(made(6)), 0
    for fs, damaged, offset in damaged_everywhere(1):
        report = fixed(fs, accept_loss=True)
        assert report.lost == []
        assert fs.tree()[f"{ROOT}/quarantine/00000001-1/data"] == damaged
        assert manifest(fs).tombstone_floor == max(
            (last or 0 for _, last in report.holes), default=0
        )
        assert fixed(fs, accept_loss=True).actions == (), offset
        agrees(before, records(fs), report)
        lossy += bool(report.holes)
    assert lossy > 100


def test_a_loss_is_named_and_changes_nothing_until_it_is_accepted() -> None:
    fs = made()
    before = records(fs)
    body = fs.read_bytes(data(2)).rindex(b"body")
    fs.flip(data(2), body)
    tree = fs.tree()
    report = fixed(fs)
    (lost,) = report.lost
    assert [(item.what, item.path) for item in report.actions] == [(What.LOST, "segments/00000002")]
    assert fs.tree() == tree
    assert fixed(fs) == report
    accepted = fixed(fs, accept_loss=True)
    assert (accepted.lost, accepted.holes) == ([], [lost])
    assert records(fs) == [record for record in before if record.seq != lost[0]]
    assert [item.what for item in accepted.actions] == [What.REWRITTEN, What.HOLE, What.KEPT]


@pytest.mark.parametrize("keep", [0, 1, 64, 100, 300, -1, -48, -60])
def test_a_sealed_segment_that_is_too_short(keep: int) -> None:
    fs = made()
    before, size = records(fs), len(fs.read_bytes(data(2)))
    fs.cut(data(2), keep if keep >= 0 else size + keep)
    report = fixed(fs)
    if report.lost:
        assert manifest(fs).segments[1].state == State.QUARANTINED
        assert fixed(fs).lost == report.lost
        assert not fixed(fs).changed
        agrees([r for r in before if not 5 <= r.seq <= 8], readable(fs), report)
        report = fixed(fs, accept_loss=True)
    assert report.actions[0].what == What.REWRITTEN
    agrees(before, records(fs), report)
    assert not fixed(fs).actions


def test_a_sealed_segment_that_is_missing() -> None:
    fs = made()
    before = records(fs)
    fs.remove(data(2))
    fs.remove(index(2))
    fs.rmdir(f"{ROOT}/segments/00000002")
    report = fixed(fs)
    assert report.lost == [(5, 8)]
    agrees([record for record in before if not 5 <= record.seq <= 8], readable(fs), report)
    assert not fixed(fs).changed
    report = fixed(fs, accept_loss=True)
    assert report.holes == [(5, 8)]
    assert records(fs) == [record for record in before if not 5 <= record.seq <= 8]
    assert fixed(fs).actions == ()


def test_a_quarantined_segment_that_reads_well_is_taken_back() -> None:
    fs = made()
    before = records(fs)
    with open_log(fs) as log:
        infos = log.manifest.segments
        log.quarantine(infos[1].id, "the disk was tired")
    report = fixed(fs)
    assert [item.what for item in report.actions] == [What.TAKEN_BACK]
    assert manifest(fs).segments[:2] == infos[:2]
    assert records(fs) == before


def test_a_quarantined_segment_is_rewritten_if_nothing_is_lost() -> None:
    fs = made()
    before = records(fs)
    with open_log(fs) as log:
        log.quarantine(log.manifest.segments[1].id, "damaged")
    fs.flip(data(2), 70)
    report = fixed(fs)
    assert [item.what for item in report.actions] == [What.REWRITTEN, What.KEPT]
    assert records(fs) == before


def test_a_quarantined_segment_that_ends_early_and_cleanly_is_not_taken_for_whole() -> None:
    fs = made()
    active, last = manifest(fs).active, records(fs)[-1].seq
    raw = fs.read_bytes(data(active.id))
    second, third = (find_block(raw, nth) for nth in (1, 2))
    fs.flip(data(active.id), third)
    with Log.open(ROOT, CONFIG, fs=fs, on_corrupt="quarantine"):
        pass
    fs.cut(data(active.id), second)
    assert fixed(fs).lost == [(active.first + 1, last)]


def find_block(raw: bytes, nth: int) -> int:
    at = -1
    for _ in range(nth + 1):
        at = raw.index(b"SBLK", at + 1)
    return at


def test_what_was_kept_before_stays() -> None:
    fs = made()
    fs.mkdir(f"{ROOT}/quarantine")
    fs.mkdir(f"{ROOT}/quarantine/00000002-1")
    fs.write_bytes(f"{ROOT}/quarantine/00000002-1/data", b"studied")
    fs.flip(data(2), 30)
    report = fixed(fs)
    assert report.actions[-1].detail == "now quarantine/00000002-2"
    assert fs.read_bytes(f"{ROOT}/quarantine/00000002-1/data") == b"studied"
    assert fs.exists(f"{ROOT}/quarantine/00000002-2/data")


def test_what_is_too_much_for_one_segment_becomes_several() -> None:
    fs = made(config=replace(CONFIG, segment_records_max=12))
    before = records(fs)
    fs.flip(data(1), 3)
    fixed(fs)
    counts = [info.records for info in manifest(fs).segments[:-1]]
    assert counts[:3] == [4, 4, 4]
    assert records(fs) == before


def test_all_segments_damaged_at_once() -> None:
    fs = made()
    before = records(fs)
    for info in manifest(fs).segments:
        fs.flip(data(info.id), 20)
        fs.flip(data(info.id), 64 + 48 + 3)
        fs.cut(index(info.id), 30)
    report = fixed(fs, accept_loss=True)
    agrees(before, records(fs), report)
    assert fixed(fs).actions == ()


def test_pages_that_the_disk_does_not_give_are_not_the_end() -> None:
    fs = made()
    before = records(fs)
    # The walk, and in the search for more the whole and its first page.
    fs.fail("read", data(2), EIO, times=10)
    report = fixed(fs)
    assert report.lost or report.changed
    agrees(before, records(fs), report)


# ---------------------------------------------------------------------- the active segment


def test_every_flipped_byte_of_an_active_segment() -> None:
    pristine = made(6)
    before, active = records(pristine), manifest(pristine).active
    for fs, damaged, offset in damaged_everywhere(active.id):
        report = fixed(fs)
        assert not fixed(fs).changed, offset
        if report.lost:
            assert readable(fs) == [record for record in before if record.seq < active.first]
            assert fs.read_bytes(data(active.id)) == damaged
            report = fixed(fs, accept_loss=True)
        agrees(before, records(fs), report)
        with open_log(fs) as log:
            assert log.next_seq == before[-1].seq + 1, offset


def test_a_torn_tail_is_cut_off() -> None:
    fs = made()
    before, active = records(fs), manifest(fs).active
    whole = fs.read_bytes(data(active.id))
    fs.write_bytes(data(active.id), whole + whole[64 + 48 : 64 + 48 + 100])
    report = fixed(fs)
    assert [(item.what, item.last) for item in report.actions] == [(What.TAIL, None)]
    assert fixed(fs).actions == ()
    assert records(fs) == before


def test_an_active_segment_that_is_missing_is_lost_as_far_as_it_went() -> None:
    fs = made()
    before, active = records(fs), manifest(fs).active
    fs.remove(data(active.id))
    tree = fs.tree()
    report = fixed(fs)
    assert report.lost == [(active.first, None)]
    assert fs.tree() == tree
    report = fixed(fs, accept_loss=True)
    assert report.holes == [(active.first, None)]
    assert records(fs) == [record for record in before if record.seq < active.first]
    assert fixed(fs).actions == ()


def test_an_active_segment_whose_head_is_gone_is_lost_only_if_it_holds_nothing() -> None:
    fs = made()
    before, active = records(fs), manifest(fs).active
    fs.zero(data(active.id), 0, 64 + 48)
    report = fixed(fs)
    assert report.lost == []
    assert records(fs) == before
    fs = made(0)
    fs.zero(data(1), 0, 64 + 48)
    assert fixed(fs).lost == [(1, None)]


def test_an_empty_active_segment_with_a_damaged_header_makes_way() -> None:
    fs = made(0)
    fs.flip(data(1), 40)
    report = fixed(fs)
    assert [item.what for item in report.actions] == [What.EMPTIED, What.KEPT]
    assert fixed(fs).actions == ()
    assert records(fs) == []


def test_the_numbers_of_a_damaged_active_segment_are_not_given_again() -> None:
    fs = made()
    last, active = records(fs)[-1].seq, manifest(fs).active
    # The last block is gone, but the marks behind it speak of it.
    raw = fs.read_bytes(data(active.id))
    at = raw.rindex(b"SBLK")
    fs.zero(data(active.id), at, 120)
    fs.zero(index(active.id), 0, len(fs.read_bytes(index(active.id))))
    report = fixed(fs, accept_loss=True)
    assert report.holes == [(last, last)]
    with open_log(fs) as log:
        assert log.next_seq == last + 1


def test_in_a_copy_segments_still_bear_the_id_of_the_log_that_they_come_from() -> None:
    fs = made()
    active, last = manifest(fs).active, records(fs)[-1].seq
    fs.copy_tree(ROOT, "copy")
    assert records(fs, "copy") == records(fs)
    path = f"copy/segments/{active.name}/data"
    fs.flip(path, 20)
    fs.zero(path, fs.read_bytes(path).rindex(b"SBLK"), 100)
    fs.write_bytes(f"copy/segments/{active.name}/index", b"")
    # Only the marks know of the last record, and they bear the id of the log that was copied.
    assert repair("copy", fs=fs, config=CONFIG).lost == [(last, last)]


# ---------------------------------------------------------------------- index files


@pytest.mark.parametrize("segment", [1, 3, 7])
@pytest.mark.parametrize("how", ["gone", "flipped", "cut", "long", "garbage"])
def test_index_files_are_made_anew(segment: int, how: str) -> None:
    fs = made()
    before, path, good = records(fs), index(segment), fs.read_bytes(index(segment))
    if how == "gone":
        fs.remove(path)
    else:
        changed = {
            "flipped": bytes([good[0] ^ 1]) + good[1:],
            "cut": good[:-7],
            "long": good + bytes(48),
            "garbage": random.Random(1).randbytes(200),
        }
        fs.write_bytes(path, changed[how])
    report = fixed(fs)
    lagging = segment == int(manifest(fs).active.id) and how in ("gone", "cut")
    if not lagging:
        # The index of an active segment may lag behind.
        assert [(item.what, item.path) for item in report.actions] == [
            (What.INDEX, f"segments/{segment:08d}/index")
        ]
        assert fs.read_bytes(path) == good
    assert fixed(fs).actions == ()
    assert records(fs) == before


def test_a_manifest_that_is_wrong_about_a_segment_is_corrected() -> None:
    fs = made()
    store = Store(fs, ROOT)
    right = store.load()
    wrong = replace(right.segments[1], blocks=77, index_crc=5)
    store.commit(right.swap([wrong.id], [wrong]))
    report = fixed(fs)
    assert [item.what for item in report.actions] == [What.ENTRY]
    assert store.load().segments == right.segments


# ---------------------------------------------------------------------- manifests


def compacted(config: LogConfig = KEEP) -> MemoryFileSystem:
    """A log after several compactions, some of which dropped deletes."""
    fs = made(18, config)
    for n in range(3):
        with open_log(fs, config) as log:
            upto = Seq(log.next_seq - 3)
            log.compact(CompactionPolicy(dead_fraction_min=0.0, drop_deletes_upto=upto))
            write(log, 3 + n)
    return fs


@pytest.mark.parametrize("config", [KEEP, GONE], ids=["with history", "without"])
@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "gone", "all gone", "folder gone"])
def test_a_lost_manifest_is_made_anew_after_compactions(config: LogConfig, how: str) -> None:
    fs = compacted(config)
    with open_log(fs, config) as log:
        log.tag(owner="films")
    before, live, was = records(fs), state(fs), manifest(fs)
    assert was.tombstone_floor > 0
    newest = manifests(fs)[0]
    if how == "flipped":
        fs.flip(newest, 60)
    elif how in ("cut", "empty"):
        fs.cut(newest, 100 if how == "cut" else 0)
    for path in manifests(fs)[: 1 if how == "gone" else None] if "gone" in how else []:
        fs.remove(path)
    if how == "folder gone":
        fs.rmdir(f"{ROOT}/manifests")
    report = fixed(fs)
    now = manifest(fs)
    assert now.tombstone_floor >= was.tombstone_floor
    assert now.next_segment >= was.next_segment
    assert fixed(fs).actions == ()
    if how == "gone":
        # The version before names the same segments, and nothing tells that there was a later one.
        assert (report.actions, now.segments) == ((), was.segments)
    else:
        assert report.actions[0].what == What.MANIFEST
        assert (now.segments, now.uid, now.home) == (was.segments, was.uid, was.home)
    assert records(fs) == before
    assert state(fs) == live


def test_without_any_manifest_everybody_below_the_end_takes_the_whole_state() -> None:
    fs = compacted()
    last = records(fs)[-1].seq
    for path in manifests(fs):
        fs.remove(path)
    report = fixed(fs)
    assert manifest(fs).tombstone_floor == last
    assert f"the tombstone floor is {last}" in report.actions[0].detail


def test_a_segment_that_no_readable_manifest_names_raises_the_floor_if_it_has_holes() -> None:
    fs = made(18, KEEP)
    policy = CompactionPolicy(dead_fraction_min=0.0, drop_deletes_upto=Seq(99))
    with open_log(fs, KEEP) as log:
        log.compact(policy)
        old = log.manifest
        log.compact(policy)
        floor = log.tombstone_floor
        assert 0 == old.tombstone_floor < floor
    for path in manifests(fs):
        if int(path[-10:]) > old.version:
            fs.flip(path, 60)
    fixed(fs)
    now = manifest(fs)
    assert now.tombstone_floor >= floor
    assert now.tombstone_floor == now.segments[-2].last


def test_plain_segments_that_no_readable_manifest_names_do_not_raise_the_floor() -> None:
    fs = made(18, KEEP)
    for path in manifests(fs)[:2]:
        fs.flip(path, 60)
    before = [fs.read_bytes(data(info)) for info in (1, 2, 3)]
    fixed(fs)
    assert manifest(fs).tombstone_floor == 0
    assert [fs.read_bytes(data(info)) for info in (1, 2, 3)] == before


def test_a_newest_manifest_that_is_gone_is_noticed_by_the_segments_that_it_named() -> None:
    fs = made(18, KEEP)
    before, was = records(fs), manifest(fs)
    fs.remove(manifests(fs)[0])
    report = fixed(fs)
    assert [item.what for item in report.actions] == [What.MANIFEST]
    assert manifest(fs).segments == was.segments
    assert records(fs) == before


def add_segment(fs: MemoryFileSystem, segment: int, first: int, blocks: list[Block]) -> None:
    """Put a segment there that no manifest names."""
    header = FileHeader(FileKind.SEGMENT, segment, manifest(fs).uid, first, NOW_US)
    writer = SegmentWriter.create(fs, f"{ROOT}/segments/{segment:08d}", header, Mode.FSYNC)
    for block in blocks:
        writer.append([block])
    writer.close(Mode.FSYNC)


def test_what_a_crash_leaves_does_not_look_like_a_lost_manifest() -> None:
    fs = made()
    end = records(fs)[-1].seq
    # Made for a rotation, and for a compaction; their manifests never came.
    add_segment(fs, 98, end + 1, [])
    with LogReader.open(ROOT, fs=fs) as reader:
        add_segment(fs, 99, 1, list(reader.snapshot().blocks(1, 8)))
    assert fixed(fs).actions == ()
    fs.cut(data(98), 10)
    assert fixed(fs).actions == ()
    add_segment(fs, 100, end + 1, [Block.hole(end + 1, end + 2)])
    assert [item.what for item in fixed(fs).actions] == [What.MANIFEST]


def test_no_manifest_is_made_of_segments_with_a_gap() -> None:
    for gap in (1, 2, 4):
        fs = made()
        for path in [*manifests(fs), data(gap)]:
            fs.remove(path)
        tree = fs.tree()
        with pytest.raises(CorruptLog, match=r"gap|begins at sequence number 1"):
            fixed(fs)
        assert fs.tree() == tree


def test_no_manifest_is_made_if_the_active_segment_is_known_to_be_missing() -> None:
    fs = made(18, KEEP)
    active = manifest(fs).active
    fs.write_bytes(f"{ROOT}/manifests/0000000099", b"rot")
    fs.remove(data(active.id))
    with pytest.raises(CorruptLog, match="is missing"):
        fixed(fs)


def test_no_manifest_is_made_of_a_file_that_does_not_say_where_it_belongs() -> None:
    fs = made()
    for path in manifests(fs):
        fs.remove(path)
    fs.zero(data(3), 0, 112)
    with pytest.raises(CorruptLog, match="head is lost"):
        fixed(fs)


@pytest.mark.parametrize(
    ("first", "last", "says"),
    [(1, 2, "gap or overlaps"), (6, 7, "leads nowhere"), (26, 40, "gap or overlaps")],
)
def test_no_manifest_is_made_of_segments_that_overlap(first: int, last: int, says: str) -> None:
    fs = made()
    # A newer one that is no product: it covers a part of what older ones cover.
    add_segment(fs, 50, first, [Block.hole(first, last)])
    for path in manifests(fs):
        fs.remove(path)
    with pytest.raises(CorruptLog, match=says):
        fixed(fs)


def test_unfinished_segments_never_count() -> None:
    fs = made()
    before = records(fs)
    for path in manifests(fs):
        fs.remove(path)
    fs.copy_tree(f"{ROOT}/segments/00000002", f"{ROOT}/segments/00000077.tmp")
    now = rebuild_manifest(Store(fs, ROOT))
    assert 77 not in {info.id for info in now.segments}
    assert now.next_segment == 78
    fixed(fs)
    assert records(fs) == before


def test_a_lost_manifest_and_damaged_segments() -> None:
    fs = compacted()
    before = records(fs)
    infos = manifest(fs).segments
    for path in manifests(fs):
        fs.remove(path)
    fs.flip(data(infos[0].id), 30)
    fs.flip(data(infos[1].id), 64 + 48 + 20)
    fs.flip(data(infos[-1].id), 66)
    report = fixed(fs, accept_loss=True)
    agrees(before, records(fs), report)
    assert fixed(fs).actions == ()


def test_in_a_copy_the_newest_complete_manifest_counts() -> None:
    fs = made(18, KEEP)
    before = records(fs)
    fs.copy_tree(ROOT, "copy")
    active = manifest(fs).active
    # The copy was made while the log grew: the newest manifest came along, its segment did not.
    for name in ("data", "index"):
        fs.remove(f"copy/segments/{active.name}/{name}")
    fs.rmdir(f"copy/segments/{active.name}")
    fs.flip("copy/segments/00000002/data", 30)
    report = repair("copy", fs=fs, config=CONFIG)
    assert [item.what for item in report.actions] == [What.MANIFEST, What.REWRITTEN, What.KEPT]
    assert repair("copy", fs=fs, config=CONFIG).actions == ()
    assert not Store(fs, "copy").is_copy(manifest(fs, "copy"))
    assert records(fs, "copy") == [record for record in before if record.seq < active.first]


# ---------------------------------------------------------------------- dry runs


def wreckage() -> Iterator[MemoryFileSystem]:
    """Logs in all kinds of trouble."""
    rng = random.Random(11)
    for n in range(24):
        fs = compacted(KEEP if n % 2 else GONE)
        infos = manifest(fs).segments
        if n % 3 == 0:
            fs.flip(manifests(fs)[0], 80)
        for info in rng.sample(infos, 2):
            size = len(fs.read_bytes(data(info.id)))
            fs.flip(data(info.id), rng.randrange(size), rng.randrange(1, 256))
        if n % 4 == 0:
            fs.cut(data(infos[1].id), rng.randrange(500))
        if n % 5 == 0:
            fs.remove(index(infos[0].id))
        if n % 6 == 1:
            torn(fs)
        yield fs


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_dry_run_changes_nothing_and_says_what_would_be_done(accept_loss: bool) -> None:
    worked = 0
    for fs in wreckage():
        before, calls = fs.tree(), fs.operations
        report = fixed(fs, dry_run=True, accept_loss=accept_loss)
        assert fs.tree() == before
        assert fs.operations == calls
        done = fixed(fs, accept_loss=accept_loss)
        assert done.actions == report.actions
        assert (report.dry_run, done.dry_run) == (True, False)
        worked += done.changed
        assert not fixed(fs, accept_loss=accept_loss).changed
    assert worked > 10


def test_a_dry_run_does_not_even_make_the_lock_file() -> None:
    fs = made()
    fs.remove(f"{ROOT}/LOCK")
    before = fs.tree()
    fixed(fs, dry_run=True)
    assert fs.tree() == before


# ---------------------------------------------------------------------- crashes


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


HEADER_AT = 30
SCENARIOS = ["sealed", "active", "manifest", "index and tail", "lossy"]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("mode", ["before", "partial"])
def test_a_repair_that_crashes_at_any_call_can_be_done_again(name: str, mode: str) -> None:
    before = records(made(8, KEEP))
    whole = scenario(name)
    done = fixed(whole, accept_loss=True)
    assert done.changed
    begun = len(scenario(name).operations)
    for call, (operation, _) in enumerate(whole.operations[begun:], begun + 1):
        if mode == "partial" and operation != "append":
            continue
        fs = scenario(name)
        fs.crash_mode = "partial" if mode == "partial" else "before"
        fs.crash_at = call
        with pytest.raises(SimulatedCrash):
            fixed(fs, accept_loss=True)
        for left in [*fs.crash_states(6, seed=call), fs.kill()]:
            again = fixed(left, accept_loss=True)
            kept = [path for path in left.tree() if "/quarantine/" in path and "data" in path]
            assert len(kept) == (name in ("sealed", "active", "lossy"))
            assert fixed(left, accept_loss=True).actions == ()
            found = records(left)
            assert found == records(whole)
            if name != "lossy":
                assert found == before
            assert again.lost == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_repair_did_is_on_disk_when_it_returns(name: str) -> None:
    fs = scenario(name)
    fixed(fs, accept_loss=True)

    def lasting(left: MemoryFileSystem) -> dict[str, bytes]:
        # The index of an active segment is a hint, and the log does not sync its name either.
        active = index(manifest(fs).active.id)
        return {path: raw for path, raw in left.tree().items() if path != active}

    for left in fs.crash_states(50):
        assert lasting(left) == lasting(fs)


def test_a_segment_that_was_replaced_when_the_crash_came_is_still_kept() -> None:
    fs = scenario("sealed")
    fixed(fs)
    moved = next(at for at, (_, path) in enumerate(fs.operations) if "-> log/quarantine" in path)
    fs = scenario("sealed")
    damaged = fs.read_bytes(data(1))
    fs.crash_at = moved + 1
    with pytest.raises(SimulatedCrash):
        fixed(fs)
    left = fs.kill()
    report = fixed(left)
    assert [item.what for item in report.actions] == [What.KEPT]
    assert left.read_bytes(f"{ROOT}/quarantine/00000001-1/data") == damaged


def test_a_repair_that_runs_out_of_room_leaves_the_log_as_it_was() -> None:
    fs = scenario("sealed")
    fs.capacity_bytes = fs.used_bytes + 900
    with pytest.raises(Exception, match=r"full|space"):
        fixed(fs)
    assert not [path for path in fs.tree() if ".tmp/" in path]
    fs.capacity_bytes = None
    assert fixed(fs).lost == []
    assert records(fs) == records(made(8, KEEP))


# ---------------------------------------------------------------------- a real disk


def test_on_a_real_disk(tmp_path: Path) -> None:
    root, fs = str(tmp_path / "log"), OsFileSystem()
    with open_log(fs, root=root) as log:
        write(log, 18)
        before = list(log.records())
    path = tmp_path / "log/segments/00000002/data"
    raw = bytearray(path.read_bytes())
    raw[64 + 48 + 10] ^= 1
    path.write_bytes(raw)
    for manifest_file in (tmp_path / "log/manifests").iterdir():
        manifest_file.unlink()
    with pytest.raises(CorruptLog):
        open_log(fs, root=root)
    report = repair(tmp_path / "log", config=CONFIG)
    assert [item.what for item in report.actions] == [What.MANIFEST, What.REWRITTEN, What.KEPT]
    with open_log(fs, root=root) as log:
        assert list(log.records()) == before
    assert (tmp_path / "log/quarantine/00000002-1/data").read_bytes() == raw


def test_reading_a_damaged_segment_raises_until_it_is_repaired() -> None:
    fs = made()
    fs.flip(data(2), 64 + 48 + HEADER_AT)
    with pytest.raises(CorruptFile):
        records(fs)
    fixed(fs)
    assert np.all(np.diff([record.seq for record in records(fs)]) > 0)
