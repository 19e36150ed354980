"""A newest manifest that has vanished: to go on with an older one would sweep away what only the lost one named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sirius.errors import CorruptLog
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import Seq
from sirius.wal import Block, CompactionPolicy, Log, LogConfig, LogReader, Manifest, Record, repair
from sirius.wal.store import Store
from sirius.wal.verify.verify import Severity, verify
from tests.wal.repairs import add_segment

ROOT = "log"
CONFIG = LogConfig(background=False, reserve_bytes=0, segment_records_max=4, retire_after_s=1e9)
SEGMENTS = 7


def open_log(fs: MemoryFileSystem, root: str = ROOT, config: LogConfig = CONFIG) -> Log:
    return Log.open(root, config, fs=fs, now_us=lambda: 1_700_000_000_000_000)


def write(log: Log, count: int) -> None:
    for _ in range(count):
        log.put(f"key/{log.next_seq % 5}", b"body %d" % log.next_seq)
        log.flush()


def made(records: int = 4 * SEGMENTS - 2) -> MemoryFileSystem:
    """A log of `SEGMENTS` segments, the last one active and half full; a manifest for each."""
    fs = MemoryFileSystem()
    with open_log(fs) as log:
        write(log, records)
    return fs


def contents(fs: MemoryFileSystem, root: str = ROOT) -> list[Record]:
    with open_log(fs, root) as log:
        return list(log.records())


def lose(fs: MemoryFileSystem, count: int = 1, root: str = ROOT) -> None:
    """Remove the newest manifests."""
    store = Store(fs, root)
    for version in store.versions()[:count]:
        fs.remove(store.manifest_path(version))


def errors(fs: MemoryFileSystem, root: str = ROOT, *, live: bool = False) -> list[str]:
    report = verify(Store(fs, root), live=live)
    return [found.what for found in report.findings if found.severity == Severity.ERROR]


# ---------------------------------------------------------------------- the log's own folder


@pytest.mark.parametrize("lost", range(1, SEGMENTS))
def test_opening_refuses_and_removes_nothing_and_repair_heals(lost: int) -> None:
    fs = made()
    before = contents(fs)
    lose(fs, lost)
    tree = fs.tree()
    for on_corrupt in ("raise", "quarantine"):
        with pytest.raises(CorruptLog, match=r"newest manifest is lost.*waltool repair log"):
            Log.open(ROOT, CONFIG, fs=fs, on_corrupt=on_corrupt)
    assert fs.tree() == tree
    report = repair(ROOT, fs=fs, config=CONFIG)
    assert (report.lost, report.holes) == ([], [])
    assert {path: fs.tree()[path] for path in tree} == tree
    assert contents(fs) == before


def test_a_reader_refuses_too_instead_of_showing_a_part() -> None:
    fs = made()
    with LogReader.open(ROOT, fs=fs) as reader:
        assert reader.last == 4 * SEGMENTS - 2
        lose(fs)
        with pytest.raises(CorruptLog, match="the newest manifest is lost"):
            reader.refresh()
    with pytest.raises(CorruptLog, match="the newest manifest is lost"):
        LogReader.open(ROOT, fs=fs)


def test_a_reader_does_not_take_a_rotation_in_the_meantime_for_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = made()
    with open_log(fs) as log:
        load = Store.load

        def load_and_rotate(store: Store) -> Manifest:
            manifest = load(store)
            if log.next_seq == 4 * SEGMENTS - 1:
                write(log, 4)
            return manifest

        monkeypatch.setattr(Store, "load", load_and_rotate)
        with LogReader.open(ROOT, fs=fs) as reader:
            reader.refresh()
            assert reader.last == 4 * SEGMENTS + 2


def test_a_refusal_lets_go_of_the_lock() -> None:
    fs = made()
    lose(fs)
    for _ in range(2):
        with pytest.raises(CorruptLog, match="newest manifest is lost"):
            open_log(fs)


def test_a_rotation_whose_manifest_never_came_is_swept_in_silence() -> None:
    fs = made()
    before = contents(fs)
    add_segment(fs, 50, before[-1].seq + 1, [])
    assert contents(fs) == before
    assert not fs.exists(f"{ROOT}/segments/00000050")


@pytest.mark.parametrize("size", [0, 10, 64, 100])
def test_so_is_one_that_was_only_begun(size: int) -> None:
    fs = made()
    before = contents(fs)
    add_segment(fs, 50, before[-1].seq + 1, [])
    fs.cut(f"{ROOT}/segments/00000050/data", size)
    assert contents(fs) == before
    assert not fs.exists(f"{ROOT}/segments/00000050")


def test_so_is_the_product_of_a_compaction_whose_manifest_never_came() -> None:
    fs = made()
    before = contents(fs)
    add_segment(fs, 50, 5, [Block.hole(5, 12)])
    assert contents(fs) == before
    assert not fs.exists(f"{ROOT}/segments/00000050")


def test_a_truncation_is_no_loss() -> None:
    fs = made()
    with open_log(fs) as log:
        log.truncate_after(6)
        write(log, 1)
    assert [record.seq for record in contents(fs)] == [*range(1, 8)]


def test_a_manifest_lost_after_a_truncation_is_found_and_made_anew() -> None:
    fs = made()
    with open_log(fs) as log:
        log.truncate_after(6)
        write(log, 4)
        before = list(log.records())
    lose(fs)
    with pytest.raises(CorruptLog, match="newest manifest is lost"):
        open_log(fs)
    # The segments that the truncation cut off are still there, for readers of older versions.
    repair(ROOT, fs=fs, config=CONFIG)
    assert contents(fs) == before


@pytest.mark.parametrize("seq", [0, 6, 8])
@pytest.mark.parametrize("appended", [2, 4, 5, 9])
@pytest.mark.parametrize("how", ["lost", "flipped"])
def test_the_manifest_of_a_truncation_is_found_and_made_anew(
    seq: int, appended: int, how: str
) -> None:
    """Whatever was appended since is not traded for what had been cut off, nor mixed with it."""
    fs = made()
    with open_log(fs) as log:
        log.truncate_after(seq)
        cut = log.manifest.version
        write(log, appended)
        before, lost = list(log.records()), log.manifest.version - cut + 1
    if how == "lost":
        lose(fs, lost)
    for version in Store(fs, ROOT).versions()[: lost if how == "flipped" else 0]:
        fs.flip(Store(fs, ROOT).manifest_path(version), 60)
    tree = fs.tree()
    with pytest.raises(CorruptLog, match=r"newest manifest is lost|checksum"):
        open_log(fs)
    assert fs.tree() == tree
    repair(ROOT, fs=fs, config=CONFIG)
    assert contents(fs) == before


def test_a_truncation_whose_manifest_is_lost_before_anything_was_appended_is_undone() -> None:
    fs = made()
    before = contents(fs)
    with open_log(fs) as log:
        log.truncate_after(6)
    lose(fs)
    assert contents(fs) == before


def test_a_truncation_that_crashes_anywhere_does_not_look_like_a_loss() -> None:
    fs = made()
    before = contents(fs)
    whole = fs.clone()
    with open_log(whole) as log:
        begun = len(whole.operations)
        log.truncate_after(6)
        done = len(whole.operations)
    for call in range(begun + 1, done + 1):
        crashing = fs.clone()
        crashing.crash_at = call
        with pytest.raises(SimulatedCrash), open_log(crashing) as log:
            log.truncate_after(6)
        for left in [*crashing.crash_states(6, seed=call), crashing.kill()]:
            assert contents(left) in (before, before[:6])


def test_a_manifest_lost_after_compactions_is_found_and_made_anew() -> None:
    fs = made()
    with open_log(fs) as log:
        log.compact(CompactionPolicy(dead_fraction_min=0.0, drop_deletes_upto=Seq(20)))
        write(log, 4)
        before, floor = list(log.records()), log.tombstone_floor
    lose(fs)
    with pytest.raises(CorruptLog, match="newest manifest is lost"):
        open_log(fs)
    repair(ROOT, fs=fs, config=CONFIG)
    with open_log(fs) as log:
        assert list(log.records()) == before
        assert log.tombstone_floor >= floor


def test_a_segment_whose_head_is_gone_too_is_not_swept_either() -> None:
    fs = made()
    lose(fs)
    fs.zero(f"{ROOT}/segments/{SEGMENTS:08d}/data", 0, 112)
    tree = fs.tree()
    with pytest.raises(CorruptLog, match="head is lost"):
        open_log(fs)
    assert fs.tree() == tree


def test_retiring_keeps_what_is_in_force_although_its_manifest_vanished() -> None:
    fs = made()
    with open_log(fs) as log:
        before = list(log.records())
        lose(fs, 2)
        log.retire(at_once=True)
        assert list(log.records()) == before
    for segment in range(1, SEGMENTS + 1):
        assert fs.exists(f"{ROOT}/segments/{segment:08d}/data")


def test_what_was_replaced_is_still_removed() -> None:
    fs = made()
    config = replace(CONFIG, retire_after_s=0.0)
    with open_log(fs, config=config) as log:
        log.compact(CompactionPolicy(dead_fraction_min=0.0))
        log.retire(at_once=True)
        named = {info.name for info in log.manifest.segments}
        before = list(log.records())
    assert set(fs.listdir(f"{ROOT}/segments")) == named
    assert contents(fs) == before


# ---------------------------------------------------------------------- copies


def copied() -> tuple[MemoryFileSystem, list[Record]]:
    """A copy made while the log grew: manifests first, segments later. Return what it may hold, too."""
    fs = made()
    before = contents(fs)
    store = Store(fs, ROOT)
    listed = store.versions()[2:]
    fs.copy_tree(ROOT, "copy")
    for version in Store(fs, "copy").versions():
        if version not in listed:
            fs.remove(Store(fs, "copy").manifest_path(version))
    fs.sync_dir("copy/manifests")
    end = store.read(listed[0]).active.first + 3
    return fs, before[:end]


def test_a_copy_may_have_caught_segments_that_came_after_its_manifest() -> None:
    fs, expected = copied()
    assert contents(fs, "copy") == expected
    assert contents(fs, "copy") == expected
    assert errors(fs, "copy") == []


def test_repair_takes_such_a_copy_for_what_it_is() -> None:
    fs, expected = copied()
    # The active segment was copied first, and has grown since.
    active = Store(fs, "copy").load().active
    path = f"copy/segments/{active.name}/data"
    fs.cut(path, fs.read_bytes(path).rindex(b"SBLK"))
    assert errors(fs, "copy") == []
    repair("copy", fs=fs, config=CONFIG)
    assert contents(fs, "copy") == expected[:-1]


def test_a_copy_whose_first_opening_crashes_anywhere_still_opens() -> None:
    fs, expected = copied()
    whole = fs.clone()
    open_log(whole, "copy").close()
    calls = range(len(fs.operations) + 1, len(whole.operations) + 1)
    assert len(calls) > 10
    for call in calls:
        crashing = fs.clone()
        crashing.crash_at = call
        with pytest.raises(SimulatedCrash):
            open_log(crashing, "copy").close()
        for left in [*crashing.crash_states(6, seed=call), crashing.kill()]:
            assert contents(left, "copy") == expected


def test_a_copy_with_a_life_of_its_own_has_manifests_of_its_own_to_lose() -> None:
    for lost in (1, 2, 3):
        fs, _ = copied()
        with open_log(fs, "copy") as log:
            write(log, 8)
            before = list(log.records())
        # With three of them gone only those are left that came with the copy.
        lose(fs, lost, "copy")
        tree = fs.tree()
        with pytest.raises(CorruptLog, match="newest manifest is lost"):
            open_log(fs, "copy")
        assert fs.tree() == tree
        repair("copy", fs=fs, config=CONFIG)
        assert contents(fs, "copy") == before


# ---------------------------------------------------------------------- verify


def test_verify_says_that_a_manifest_is_lost() -> None:
    fs = made()
    assert errors(fs) == []
    lose(fs)
    (what,) = errors(fs)
    assert "the newest manifest is lost" in what
    assert errors(fs, live=True) == [what]
    repair(ROOT, fs=fs, config=CONFIG)
    assert errors(fs) == []


def test_verify_does_not_take_a_rotation_in_the_meantime_for_a_loss() -> None:
    fs = made()

    class Rotating(Store):
        """Between reading the manifests and looking at the segments, a writer rotates."""

        def load(self) -> Manifest:
            manifest = super().load()
            if not grown:
                grown.append(True)
                with open_log(fs) as log:
                    write(log, 8)
            return manifest

    grown: list[bool] = []
    report = verify(Rotating(fs, ROOT), live=True)
    assert [found for found in report.findings if found.severity == Severity.ERROR] == []
    assert grown
