"""Conversions: nothing is lost unasked, and what came from the ancestor goes back as it was."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sirius.wal import Durability, Log, LogConfig, Op, OsFileSystem, Record
from sirius.wal.ancestor import AncestorColumns, AncestorWriter
from sirius.wal.block import ENTRY, Block, assemble
from sirius.wal.fs import OsFile
from waltool.ancestry import TAG
from waltool.source import open_source
from waltool.transfer import KINDS

Waltool = Callable[..., Any]
ANCESTORS = [kind for kind in KINDS if kind.startswith("ancestor")]
FLAGS = ("keys-collected", "internally-compacted")
CONFIG = LogConfig(
    durability=Durability.OS, background=False, reserve_bytes=0, segment_records_max=7
)


def rows(rng: random.Random, count: int) -> list[tuple[int, int, int, bytes, bytes]]:
    """Entries that every format can hold: sequence numbers with gaps, not from 1 on; times in milliseconds."""
    seq, found = rng.choice((0, 0, 41)), []
    for _ in range(count):
        seq += rng.choice((1, 1, 1, 2, 9))
        op = rng.choice((1, 1, 1, 2))
        key = f"{rng.choice(('title', 'ñandú', 'x'))}/{rng.randrange(8)}".encode()
        body = b"" if op == 2 else rng.randbytes(rng.choice((0, 1, 40, 300)))
        found.append((seq, 1_767_323_045_000 + rng.randrange(10**9), op, key, body))
    return found


def columns(found: list[tuple[int, int, int, bytes, bytes]]) -> AncestorColumns:
    seq, ts_ms, op, keys, bodies = zip(*found, strict=True) if found else ((), (), (), (), ())
    return AncestorColumns(
        np.array(seq, np.int64),
        np.array(ts_ms, np.int64),
        np.array(op, np.uint8),
        list(keys),
        list(bodies),
    )


def block(first: int, found: list[tuple[int, int, int, bytes, bytes]]) -> Block:
    seq, ts_ms, op, keys, bodies = zip(*found, strict=True)
    entries = np.zeros(len(found), ENTRY)
    entries["seq"], entries["op"] = seq, op
    entries["ts"] = np.array(ts_ms, np.int64) * 1000
    return assemble(first, found[-1][0], entries, keys, bodies)


def build_sirius(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with Log.open(path, CONFIG) as log:
        found = rows(rng, rng.randrange(60))
        while found:
            count = rng.randrange(1, 9)
            log.append(block(log.next_seq, found[:count]))
            found = found[count:]


def build_segmented(path: Path, seed: int, *, explicit: bool = True) -> None:
    """Segments with numbers, lengths and flags of their own; some are empty, one the last."""
    rng = random.Random(seed)
    found = rows(rng, rng.randrange(60))
    with AncestorWriter(OsFileSystem(), str(path), events_per_segment=10) as writer:
        if not explicit:
            writer.append(columns(found))
            return
        number = 0
        while found or number == 0 or rng.random() < 0.3:
            number += rng.choice((1, 1, 3))
            writer.new_segment([flag for flag in FLAGS if rng.random() < 0.5], number)
            count = rng.choice((0, 1, 5, 12))
            writer.append(columns(found[:count]))
            found = found[count:]


def build_legacy(path: Path, seed: int) -> None:
    with AncestorWriter(OsFileSystem(), str(path), layout="legacy") as writer:
        writer.append(columns(rows(random.Random(seed), seed % 60)))


def contents(path: Path) -> list[Record]:
    with open_source(str(path)) as source:
        return [record for batch in source.batches() for record in batch.records()]


def tree(path: Path) -> dict[str, bytes]:
    """Every file below a folder, with its bytes."""
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "other"), list(itertools.product(KINDS, KINDS)))
def test_records_survive_every_conversion(
    kind: str, other: str, seed: int, here: Path, waltool: Waltool
) -> None:
    build_sirius(here / "log", seed)
    before = contents(here / "log")
    assert waltool(f"convert log a --to {kind}").code == 0
    assert waltool(f"convert a b --to {other}").code == 0
    assert contents(here / "a") == before
    assert contents(here / "b") == before
    assert waltool("verify --deep b").out.endswith(": clean\n")
    assert not list(here.glob("*.writing"))


@pytest.mark.parametrize("seed", range(12))
def test_segments_and_flags_come_back_from_a_sirius_log(
    seed: int, here: Path, waltool: Waltool
) -> None:
    build_segmented(here / "old", seed)
    assert waltool("convert old new --to sirius").code == 0
    assert waltool("convert new copy --to sirius --events-per-segment 3").code == 0
    assert waltool("convert copy back --to ancestor-segmented").code == 0
    assert tree(here / "back") == tree(here / "old")


@pytest.mark.parametrize("way", ["sirius", "single", "ancestor-legacy"])
@pytest.mark.parametrize("seed", range(4))
def test_even_segments_come_back_over_any_way(
    way: str, seed: int, here: Path, waltool: Waltool
) -> None:
    build_segmented(here / "old", seed, explicit=False)
    assert waltool(f"convert old new --to {way}").code == 0
    assert waltool("convert new back --to ancestor-segmented --events-per-segment 10").code == 0
    assert tree(here / "back") == tree(here / "old")


@pytest.mark.parametrize("way", ["sirius", "single", "ancestor-segmented"])
@pytest.mark.parametrize("seed", [0, 1, 25, 59])
def test_a_legacy_log_comes_back_over_any_way(
    way: str, seed: int, here: Path, waltool: Waltool
) -> None:
    build_legacy(here / "old", seed)
    assert waltool(f"convert old new --to {way}").code == 0
    assert waltool("convert new back --to ancestor-legacy").code == 0
    assert tree(here / "back") == tree(here / "old")


@pytest.mark.parametrize("damage", ["missing", "short", "wrong"])
def test_segments_are_found_without_their_index(damage: str, here: Path, waltool: Waltool) -> None:
    build_segmented(here / "old", 3)
    whole = tree(here / "old")
    for index in (here / "old").glob("*/index"):
        raw = index.read_bytes()
        if damage == "missing":
            index.unlink()
        elif damage == "short":
            index.write_bytes(raw[:-24])
        elif raw:
            index.write_bytes(raw[:-8] + bytes(8))
    assert waltool("convert old new --to sirius").code == 0
    assert waltool("convert new back --to ancestor-segmented").code == 0
    assert tree(here / "back") == whole


def test_a_log_that_grew_after_the_conversion_gets_more_segments(
    here: Path, waltool: Waltool
) -> None:
    build_segmented(here / "old", 5)
    assert waltool("convert old new --to sirius").code == 0
    with Log.open(here / "new", CONFIG, now_us=lambda: 1_767_323_045_000_000) as log:
        for number in range(5):
            log.put(f"more/{number}", b"body")
    assert waltool("convert new back --to ancestor-segmented").code == 0
    old, back = tree(here / "old"), tree(here / "back")
    assert {name: back[name] for name in old} == old
    more = sorted(set(back) - set(old))
    assert len(more) == 2
    assert contents(here / "back") == contents(here / "new")


def test_a_segment_that_compaction_emptied_is_left_out(here: Path, waltool: Waltool) -> None:
    with AncestorWriter(OsFileSystem(), str(here / "old")) as writer:
        for number, flags in ((1, ["keys-collected"]), (2, []), (5, ["internally-compacted"])):
            writer.new_segment(flags, number)
            if number != 2:
                writer.append(columns([(number, 1_000, 1, b"key", b"body")]))
    assert waltool("convert old new --to sirius").code == 0
    assert waltool("compact new newer").code == 0
    assert waltool("convert newer back --to ancestor-segmented").code == 0
    # 1 had an entry, which is dead; 2 never had one.
    assert sorted(tree(here / "back")) == [
        "2/data", "2/index", "5/data", "5/index", "5/internally-compacted", "SEGMENTED-1.0",
    ]  # fmt: skip


def test_more_records_than_a_segment_has_room_for(here: Path, waltool: Waltool) -> None:
    build_segmented(here / "old", 5)
    with Log.open(here / "log", CONFIG, now_us=lambda: 1_767_323_045_000_000) as log:
        for number in range(7):
            log.put(f"more/{number}", b"body")
        log.tag(**{TAG: "[[3, 2, 2, []]]"})
    assert waltool("convert log back --to ancestor-segmented").code == 0
    sizes = {name: len(data) // 24 for name, data in tree(here / "back").items() if "index" in name}
    assert sizes == {"3/index": 2, "4/index": 5}


def test_a_tag_that_makes_no_sense_is_reported(here: Path, waltool: Waltool) -> None:
    build_sirius(here / "log", 1)
    with Log.open(here / "log", CONFIG) as log:
        log.tag(**{TAG: "[[1]]"})
    result = waltool("convert log back --to ancestor-segmented")
    assert result.code == 1
    assert "the tag ancestor_segments makes no sense" in result.err
    assert waltool("convert log back --to ancestor-segmented --events-per-segment 9").code == 0


def test_other_tags_and_the_tombstone_floor_stay_with_a_sirius_log(
    here: Path, waltool: Waltool
) -> None:
    build_sirius(here / "log", 1)
    with Log.open(here / "log", CONFIG) as log:
        log.tag(colour="blue")
        log.raise_tombstone_floor(4)
    assert waltool("convert log copy --to sirius").code == 0
    with Log.open(here / "copy", CONFIG) as log:
        assert (log.manifest.tags, log.tombstone_floor) == ({"colour": "blue"}, 4)


# ---------------------------------------------------------------------- what the ancestor cannot hold


def one_record(path: Path, ts_us: int, op: Op = Op.PUT, session: int = 0) -> None:
    entries = np.zeros(1, ENTRY)
    entries["seq"], entries["op"], entries["ts"], entries["session"] = 1, op, ts_us, session
    with Log.open(path, CONFIG) as log:
        log.append(assemble(1, 1, entries, [b"key"], [b""]))


@pytest.mark.parametrize("kind", ANCESTORS)
def test_finer_times_are_refused_unless_they_may_be_cut(
    kind: str, here: Path, waltool: Waltool
) -> None:
    one_record(here / "log", 1_767_323_045_123_456)
    result = waltool(f"convert log out --to {kind}")
    assert (result.code, result.out) == (2, "")
    assert "record 1 is of 2026-01-02T03:04:05.123456Z" in result.err
    assert "--truncate-times" in result.err
    assert not list(here.glob("out*"))
    assert waltool(f"convert log out --to {kind} --truncate-times").code == 0
    assert contents(here / "out")[0].ts_us == 1_767_323_045_123_000


@pytest.mark.parametrize("kind", ["sirius", "single"])
def test_our_own_formats_hold_everything(kind: str, here: Path, waltool: Waltool) -> None:
    one_record(here / "log", 1_767_323_045_123_456, session=9)
    with Log.open(here / "log", CONFIG) as log:
        log.put("key", b"body")
    assert waltool(f"convert log out --to {kind}").code == 0
    assert contents(here / "out") == contents(here / "log")


def test_times_before_1970_are_cut_downwards(here: Path, waltool: Waltool) -> None:
    one_record(here / "log", -1)
    assert waltool("convert log out --to ancestor-legacy --truncate-times").code == 0
    assert contents(here / "out")[0].ts_us == -1000


@pytest.mark.parametrize(
    ("key", "what"), [(b"", "record 7 has an empty key"), (b"\xff", "a key is not UTF-8")]
)
@pytest.mark.parametrize("kind", ["sirius", "single"])
def test_what_our_formats_do_not_take_is_refused(
    kind: str, key: bytes, what: str, here: Path, waltool: Waltool
) -> None:
    with AncestorWriter(OsFileSystem(), str(here / "old")) as writer:
        writer.append(columns([(7, 1_000, 1, key, b"body")]))
    result = waltool(f"convert old out --to {kind}")
    assert result.code == 2
    assert what in result.err
    assert not list(here.glob("out*"))


def test_a_torn_tail_of_the_ancestor_is_left_out_and_said(here: Path, waltool: Waltool) -> None:
    build_legacy(here / "old", 5)
    before = contents(here / "old")
    data = here / "old" / "1.data"
    data.write_bytes(data.read_bytes()[:-3])
    result = waltool("convert old new --to sirius")
    assert result.code == 0
    assert "left out a torn tail" in result.err
    assert contents(here / "new") == before[:-1]


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_log_leaves_nothing_behind(kind: str, corpus: Path, waltool: Waltool) -> None:
    result = waltool(f"convert damaged out --to {kind} --drop-control")
    assert result.code == 1
    assert "damaged at byte" in result.err
    assert not list(corpus.glob("out*"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_leaves_nothing_behind(
    kind: str, here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_sirius(here / "log", 2)
    append, left = OsFile.append, 1_000

    def short(self: OsFile, buffers: Any) -> None:
        nonlocal left
        left -= sum(map(len, buffers))
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, buffers)

    monkeypatch.setattr(OsFile, "append", short)
    result = waltool(f"convert log out --to {kind}")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "No space left" in result.err
    assert [path.name for path in here.iterdir()] == ["log"]


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_leaves_nothing_behind(
    kind: str, here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_sirius(here / "log", 2)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(OsFile, "append", interrupted)
    result = waltool(f"convert log out --to {kind}")
    assert result.code == 130
    assert [path.name for path in here.iterdir()] == ["log"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", ["out", "out.writing"])
def test_what_is_there_already_stays(kind: str, left: str, here: Path, waltool: Waltool) -> None:
    build_sirius(here / "log", 2)
    (here / left).write_text("somebody's")
    result = waltool(f"convert log out --to {kind}")
    assert result.code == 2
    assert f"{left} is there already" in result.err
    assert (here / left).read_text() == "somebody's"
    assert sorted(path.name for path in here.iterdir()) == sorted(["log", left])


def test_the_source_stays_as_it_is(here: Path, waltool: Waltool) -> None:
    build_sirius(here / "log", 2)
    shutil.copytree(here / "log", here / "before")
    for kind in KINDS:
        assert waltool(f"convert log {kind} --to {kind}").code == 0
    assert tree(here / "log") == tree(here / "before")


def test_a_log_being_written_is_converted_as_far_as_it_reached(
    here: Path, waltool: Waltool
) -> None:
    with Log.open(here / "log", CONFIG) as log:
        log.put("key", b"body")
        assert waltool("convert log out --to single").code == 0
        assert len(contents(here / "out")) == 1
