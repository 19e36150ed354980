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
from sirius.testing import MemoryFileSystem
from sirius.wal import Log, OsFileSystem, State, repair
from sirius.wal.repair.repair import What
from sirius.wal.store import Store
from tests.strides import BYTE_BY_BYTE
from tests.wal.repairs import (
    CONFIG,
    GONE,
    HEADER_AT,
    KEEP,
    ROOT,
    agrees,
    compacted,
    data,
    fixed,
    index,
    made,
    manifest,
    open_log,
    readable,
    records,
    write,
)

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


def damaged_everywhere(segment: int, step: int) -> Iterator[tuple[MemoryFileSystem, bytes, int]]:
    """Yield a small log for each `step`th byte of a segment's data, with that byte flipped."""
    pristine = made(6)
    for offset in range(0, len(pristine.read_bytes(data(segment))), step):
        fs = pristine.kill()
        pristine = fs.clone()
        fs.flip(data(segment), offset, 0x41)
        yield fs, fs.read_bytes(data(segment)), offset


@BYTE_BY_BYTE
def test_every_flipped_byte_of_a_sealed_segment(step: int) -> None:
    before, rewritten = records(made(6)), 0
    for fs, damaged, offset in damaged_everywhere(1, step):
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
    assert rewritten > 100 / step


@BYTE_BY_BYTE
def test_every_flipped_byte_of_a_sealed_segment_with_the_loss_accepted(step: int) -> None:
    before, lossy = records(made(6)), 0
    for fs, damaged, offset in damaged_everywhere(1, step):
        report = fixed(fs, accept_loss=True)
        assert report.lost == []
        assert fs.tree()[f"{ROOT}/quarantine/00000001-1/data"] == damaged
        assert manifest(fs).tombstone_floor == max(
            (last or 0 for _, last in report.holes), default=0
        )
        assert fixed(fs, accept_loss=True).actions == (), offset
        agrees(before, records(fs), report)
        lossy += bool(report.holes)
    assert lossy > 100 / step


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


@BYTE_BY_BYTE
def test_every_flipped_byte_of_an_active_segment(step: int) -> None:
    pristine = made(6)
    before, active = records(pristine), manifest(pristine).active
    for fs, damaged, offset in damaged_everywhere(active.id, step):
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
