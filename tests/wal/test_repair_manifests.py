"""Making a manifest anew from the segments on disk, or refusing to guess."""

from __future__ import annotations

import pytest

from sirius.errors import CorruptLog
from sirius.types import Seq
from sirius.wal import Block, CompactionPolicy, LogConfig, LogReader, repair
from sirius.wal.repair.repair import What, rebuild_manifest
from sirius.wal.store import Store
from tests.wal.repairs import (
    CONFIG,
    GONE,
    KEEP,
    ROOT,
    add_segment,
    agrees,
    compacted,
    data,
    fixed,
    made,
    manifest,
    manifests,
    open_log,
    records,
    state,
)


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
