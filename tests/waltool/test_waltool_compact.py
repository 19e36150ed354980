"""Compaction from the command line: in place, into a new log, and foretold."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sirius.errors import CorruptLog
from sirius.wal import Batch, CompactionPolicy, Durability, Log, LogConfig, Op, Record, Update
from sirius.wal.block import ENTRY, encode, seal
from sirius.wal.fs import OsFile
from sirius.wal.wide import joined_spans
from waltool.newest import NewestTable, among, newest_of
from waltool.source import SiriusSource, open_source

Waltool = Callable[..., Any]
CONFIG = LogConfig(
    durability=Durability.OS, background=False, reserve_bytes=0, segment_records_max=20
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def updates(seed: int, count: int = 200) -> list[Update]:
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        key = f"key-{rng.randrange(30)}".encode() * rng.choice((1, 1, 12))
        kind = rng.random()
        if kind < 0.25:
            made.append(Update(Op.DELETE, key))
        elif kind < 0.3:
            made.append(Update(Op.NOOP if kind < 0.27 else Op.MEMBERSHIP, b"", rng.randbytes(3)))
        else:
            made.append(Update(Op.PUT, key, rng.randbytes(rng.choice((0, 5, 200)))))
    return made


def build(path: Path, made: list[Update], config: LogConfig = CONFIG) -> None:
    clock = iter(range(1_767_323_045_000_000, 1 << 62, 1_000_000))
    with Log.open(path, config, now_us=lambda: next(clock)) as log:
        for at in range(0, len(made), 7):
            log.write(made[at : at + 7])


def contents(path: Path) -> list[Record]:
    with open_source(str(path)) as source:
        return [record for batch in source.batches() for record in batch.records()]


def newest_records(records: list[Record]) -> list[Record]:
    """What full compaction leaves, by a dict."""
    kept: dict[tuple[bool, str], Record] = {}
    for record in records:
        control = record.op > Op.DELETE
        kept[control, record.op.name if control else record.key] = record
    return sorted(record for record in kept.values() if record.op != Op.NOOP)


def last_of(path: Path) -> int:
    with open_source(str(path)) as source:
        return source.last


# ---------------------------------------------------------------------- into a new log


@pytest.mark.parametrize("kind", ["sirius", "single", "ancestor-segmented", "ancestor-legacy"])
@pytest.mark.parametrize("seed", range(4))
def test_a_new_log_has_the_newest_records_and_no_other(
    kind: str, seed: int, here: Path, waltool: Waltool
) -> None:
    build(here / "log", updates(seed))
    size = "--events-per-segment 30" if kind in ("sirius", "ancestor-segmented") else ""
    assert waltool(f"convert log in --to {kind} --drop-control {size}").code == 0
    before = contents(here / "in")
    result = waltool("compact in out --json")
    assert result.code == 0
    wanted = newest_records(before)
    assert contents(here / "out") == wanted
    assert contents(here / "in") == before
    assert waltool("diff in out").code == 0
    summary = json.loads(result.out)
    assert (summary["before"]["records"], summary["after"]["records"]) == (
        len(before),
        len(wanted),
    )
    # The ancestor's logs end with their last record, ours with the last number that was given.
    last = wanted[-1].seq if kind.startswith("ancestor") else last_of(here / "in")
    assert last_of(here / "out") == last


def test_deletes_go_when_told_and_raise_the_floor(here: Path, waltool: Waltool) -> None:
    build(here / "log", updates(1))
    wanted = newest_records(contents(here / "log"))
    deletes = [record.seq for record in wanted if record.op == Op.DELETE]
    assert waltool("compact log out --drop-deletes").code == 0
    assert contents(here / "out") == [record for record in wanted if record.op != Op.DELETE]
    with Log.open(here / "out", CONFIG) as log:
        assert log.tombstone_floor == max(deletes)
        assert log.next_seq == 201, "numbers behind the last record are covered, too"
    middle = wanted[len(wanted) // 2]
    when = np.datetime64(middle.ts_us, "us").item().isoformat()
    assert waltool(f"compact log younger --drop-deletes-older-than {when}").code == 0
    assert contents(here / "younger") == [
        record for record in wanted if record.op != Op.DELETE or record.ts_us >= middle.ts_us
    ]


def test_a_floor_and_tags_go_along(here: Path, waltool: Waltool) -> None:
    build(here / "log", [Update(Op.PUT, b"key", b"x"), Update(Op.PUT, b"other", b"y")])
    with Log.open(here / "log", CONFIG) as log:
        log.raise_tombstone_floor(2)
        log.tag(colour="blue")
    assert waltool("compact log out").code == 0
    with Log.open(here / "out", CONFIG) as log:
        assert (log.tombstone_floor, log.manifest.tags) == (2, {"colour": "blue"})


def test_a_failure_leaves_nothing_behind(
    here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(here / "log", updates(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(OsFile, "append", full)
    result = waltool("compact log out")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert [path.name for path in here.iterdir()] == ["log"]


# ---------------------------------------------------------------------- in place


@pytest.mark.parametrize("seed", range(4))
def test_in_place_nothing_dead_is_left_and_the_state_stays(
    seed: int, here: Path, waltool: Waltool
) -> None:
    build(here / "log", updates(seed))
    digest = waltool("digest log").out
    wanted = newest_records(contents(here / "log"))
    assert waltool("compact --dead-fraction 0 log").code == 0
    assert contents(here / "log") == wanted
    assert waltool("digest log").out == digest
    assert waltool("verify --deep log").out.endswith(": clean\n")
    deletes = [record for record in wanted if record.op == Op.DELETE]
    assert waltool("compact --dead-fraction 0 --drop-deletes log").code == 0
    assert contents(here / "log") == [record for record in wanted if record not in deletes]
    assert waltool("digest log").out == digest


def test_replaced_files_go_at_once_or_stay_as_told(here: Path, waltool: Waltool) -> None:
    for name in ("log", "other"):
        build(here / name, updates(1))
    assert waltool("compact log").code == 0
    assert waltool("compact --keep-old other").code == 0
    assert waltool("verify log").out.endswith(": clean\n")
    assert "replaced; kept for readers" in waltool("verify other").out
    assert contents(here / "log") == contents(here / "other")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "options", ["", "--dead-fraction 0", "--dead-fraction 0.9", "--dead-fraction 0 --drop-deletes"]
)
def test_a_dry_run_foretells_what_happens(
    options: str, seed: int, here: Path, waltool: Waltool
) -> None:
    build(here / "log", updates(seed))
    before = contents(here / "log")
    foretold = json.loads(waltool(f"compact --dry-run --json {options} log").out)
    assert contents(here / "log") == before
    done = json.loads(waltool(f"compact --json {options} log").out)
    assert foretold["dry_run"]
    assert not done["dry_run"]
    for name in ("segments", "records"):
        assert foretold["before"][name] == done["before"][name]
        assert foretold["after"][name] == done["after"][name]
    assert foretold["deletes_dropped"] == done["deletes_dropped"]
    assert foretold["tombstone_floor"] == done["tombstone_floor"]
    assert foretold["bytes_written"] == pytest.approx(done["bytes_written"], rel=0.05, abs=64)
    assert foretold["after"]["bytes"] == pytest.approx(done["after"]["bytes"], rel=0.05, abs=128)


def test_a_dry_run_foretells_around_a_quarantined_segment(here: Path, waltool: Waltool) -> None:
    build(here / "log", updates(3))
    with Log.open(here / "log", CONFIG) as log:
        log.quarantine(log.manifest.segments[3].id, "a test")
    options = "--dead-fraction 0 --drop-deletes --json log"
    foretold = json.loads(waltool(f"compact --dry-run {options}").out)
    done = json.loads(waltool(f"compact {options}").out)
    assert foretold["deletes_dropped"] == done["deletes_dropped"]
    assert foretold["after"]["records"] == done["after"]["records"]


def test_a_log_in_use_is_one_clear_line(here: Path, waltool: Waltool) -> None:
    build(here / "log", updates(1))
    before = contents(here / "log")
    with Log.open(here / "log", CONFIG):
        result = waltool("compact log")
        assert (result.code, result.out) == (2, "")
        assert result.err == "waltool: log is open for writing in another place\n"
        assert waltool("compact --dry-run log").code == 0
        assert waltool("compact log out").code == 0
    assert contents(here / "log") == before


def test_ctrl_c_stops_between_segments_and_what_is_done_stays(
    here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(
        here / "log", updates(1, count=2_000), LogConfig(background=False, segment_records_max=99)
    )
    digest = waltool("digest log").out
    before = signal.getsignal(signal.SIGINT)
    swap, swaps = Log.swap, 0

    def swapping(self: Log, *args: Any) -> None:
        nonlocal swaps
        swap(self, *args)
        swaps += 1
        if swaps == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Log, "swap", swapping)
    monkeypatch.setattr("sirius.wal.compaction.plan._INPUTS_MAX", 3)
    result = waltool("compact --json log")
    summary = json.loads(result.out)
    assert (result.code, swaps, summary["stopped"]) == (130, 1, True)
    assert summary["before"]["records"] > summary["after"]["records"]
    assert waltool("digest log").out == digest
    assert waltool("verify log").out.endswith(": clean\n")
    assert signal.getsignal(signal.SIGINT) is before
    result = waltool("compact log")
    assert result.out.startswith("log: compacted\n")


def test_the_second_ctrl_c_does_not_wait(
    here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(here / "log", updates(1))
    before = contents(here / "log")

    def twice(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Log, "swap", twice)
    result = waltool("compact log")
    assert (result.code, result.err) == (130, "waltool: interrupted\n")
    assert contents(here / "log") == before


def test_the_rate_is_kept_by_waiting(
    here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(here / "log", updates(1))
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    assert waltool("compact --rate 1KB log").code == 0
    in_place = len(slept)
    assert in_place > 0
    assert waltool("compact --rate 1KB log out").code == 0
    assert len(slept) > in_place


def test_a_full_disk_gets_its_reserve_back(
    here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(here / "log", updates(1), LogConfig(background=False, reserve_bytes=1 << 20))
    reserve = here / "log" / "RESERVE"
    assert waltool("compact log").err == ""
    assert reserve.stat().st_size == 1 << 20
    disk = os.statvfs(here)
    full = os.statvfs_result((*disk[:3], 1, 1, *disk[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    result = waltool("compact log")
    assert result.err == "waltool: the disk is full: log/RESERVE was given back\n"
    assert not reserve.exists()


# ---------------------------------------------------------------------- parts


@pytest.mark.parametrize("rows_min", [1, 10, 1 << 18])
def test_the_newest_of_each_key_is_what_a_dict_says(
    rows_min: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltool.newest._ROWS_MIN", rows_min)
    for seed in range(5):
        build(here / f"log-{seed}", updates(seed))
        records = contents(here / f"log-{seed}")
        with open_source(str(here / f"log-{seed}")) as source:
            rows = newest_of(source.batches()).rows()
        counts: dict[tuple[bool, str], int] = {}
        newest: dict[tuple[bool, str], Record] = {}
        for record in records:
            name = (record.op > Op.DELETE, record.op.name if record.op > Op.DELETE else record.key)
            counts[name] = counts.get(name, 0) + 1
            newest[name] = record
        wanted = sorted((record.seq, counts[name] > 1) for name, record in newest.items())
        found = list(zip(rows["seq"].tolist(), rows["older"].tolist(), strict=True))
        assert found == wanted


@pytest.mark.parametrize("portion", [1, 50, 1 << 14])
def test_keys_are_hashed_in_portions_that_do_not_show(
    portion: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(here / "log", updates(1))
    with open_source(str(here / "log")) as source:
        whole = newest_of(source.batches())
        monkeypatch.setattr("waltool.newest._PORTION", portion)
        cut = newest_of(source.batches())
    assert cut.records == whole.records == 200
    assert cut.rows().tolist() == whole.rows().tolist()


@pytest.mark.parametrize("seed", range(20))
def test_records_are_found_by_their_numbers_among_holes_and_without(seed: int) -> None:
    rng = random.Random(seed)
    covered = rng.choice((8, 40, 1 << 60))
    own = sorted({rng.randrange(10, 10 + min(covered, 40)) for _ in range(rng.choice((0, 5, 99)))})
    entries = np.zeros(len(own), ENTRY)
    entries["seq"], entries["op"] = own, Op.NOOP
    batch = Batch.of(seal(10, 10 + covered, entries, (), ()))
    wanted = sorted(rng.sample(range(60), rng.randrange(60)))
    found = among(np.array(wanted, np.int64), batch)
    assert found.tolist() == [seq in wanted for seq in own]


def test_wide_batches_hold_what_batches_do(here: Path) -> None:
    with Log.open(here / "log", replace(CONFIG, segment_records_max=1000)) as log:
        log.write(updates(1, 300))
        log.rotate()
        log.compact(CompactionPolicy(dead_fraction_min=0))
        for seed in range(2, 7):
            log.write(updates(seed, 100))
    with open_source(str(here / "log")) as source:
        assert isinstance(source, SiriusSource)
        narrow, wide = list(source.batches()), list(source.wide_batches())
    assert [r for b in wide for r in b.records()] == [r for b in narrow for r in b.records()]
    assert [(batch.first, batch.last) for batch in wide] == [(1, 300), (301, 800)]
    assert len(narrow) == 6


def test_wide_batches_find_their_place_again_when_segments_are_replaced(here: Path) -> None:
    build(here / "log", updates(1))
    before = contents(here / "log")
    with open_source(str(here / "log")) as source:
        assert isinstance(source, SiriusSource)
        batches = source.wide_batches()
        found = [next(batches)]
        with Log.open(here / "log", CONFIG) as log:
            log.compact(CompactionPolicy(dead_fraction_min=0))
            log.retire(at_once=True)
        found += batches
    records = [record for batch in found for record in batch.records()]
    assert newest_records(records) == newest_records(before)
    assert len(records) < len(before)


def test_lengths_must_add_up_in_every_block_and_not_only_in_all_of_them() -> None:
    blocks = [
        encode(1, [Update(Op.PUT, b"a", b"bcd")], 0),
        encode(2, [Update(Op.PUT, b"e", b"fgh")], 0),
        encode(3, [Update(Op.PUT, b"i", b"jkl")], 0),
    ]
    buf, at = b"".join(block.raw for block in blocks), len(blocks[0])
    one, two, three = (block.header for block in blocks)
    assert len(joined_spans(buf, [(0, one), (at, two), (2 * at, three)])) == 3
    longer = one._replace(keys_len=one.keys_len + 1, bodies_len=one.bodies_len - 1)
    shorter = two._replace(keys_len=two.keys_len - 1, bodies_len=two.bodies_len + 1)
    with pytest.raises(CorruptLog, match="add up"):
        joined_spans(buf, [(0, longer), (at, shorter), (2 * at, three)])


def test_nothing_is_the_newest_of_nothing() -> None:
    table = NewestTable()
    table.add(Batch.hole(1, 5))
    assert len(table.rows()) == 0
    assert not among(np.zeros(0, np.int64), Batch.hole(1, 5)).any()
