"""Damage, and segments that are gone: told with file and offset, or left out and reported."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from sirius.errors import CorruptFile, CorruptLog, RangeUnavailable
from sirius.wal import CompactionPolicy
from spark_connector.reading.pinned import pieces_of, pin
from spark_connector.reading.report import ReadReport
from spark_connector.reading.scan import LeftOut, Reading, Scan
from spark_connector.schema import schema_of
from tests.spark.readlogs import (
    Row,
    data_file,
    expected,
    flip,
    make,
    numbered,
    open_log,
    put,
    read,
    reader_for,
    rows,
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """3 sealed segments of 3 blocks of 10 records, and an active one."""
    return make(tmp_path / "log", numbered(10, 10), rotate_after=3)


def block_at(path: Path, segment: int, block: int) -> int:
    """Where a block begins."""
    [stretch] = [each for each in pin(str(path)).stretches if each.segment == segment]
    assert stretch.table is not None
    return int(stretch.table["offset"][block])


def damage(path: Path, segment: int, block: int) -> int:
    """Damage a block's payload; return where the block begins."""
    at = block_at(path, segment, block)
    flip(data_file(path, segment), at + 100)
    return at


def without(rows: list[Row], first: int, last: int) -> list[Row]:
    return [row for row in rows if not first <= row[0] <= last]


def test_damage_fails_the_read_with_file_and_offset(log: Path) -> None:
    at = damage(log, 2, 1)
    with pytest.raises(CorruptFile) as error:
        read(log)
    assert str(error.value) == (
        f"{data_file(log, 2)}: damaged at byte {at}: a block's payload checksum does not match"
    )


@pytest.mark.parametrize("columns", ["seq", "op,segment"])
def test_damage_to_a_body_fails_a_read_of_numbers_alone(log: Path, columns: str) -> None:
    """One checksum covers a block, so a byte that nobody asked for counts; and all in front of it could be sent."""
    at = block_at(log, 2, 1)
    flip(data_file(log, 2), block_at(log, 2, 2) - 12)
    with pytest.raises(CorruptFile, match=f"damaged at byte {at}: a block's payload"):
        read(log, columns=columns)
    skipped = read(log, columns="seq,op", onCorrupt="skip")
    assert skipped == [(row[0], row[2]) for row in without(expected_whole(log), 41, 50)]


def expected_whole(log: Path) -> list[Row]:
    """What the log held before it was damaged."""
    whole = make(log.parent / "whole", numbered(10, 10), rotate_after=3)
    return expected(whole)


def test_damage_that_is_not_in_the_way_does_no_harm(log: Path) -> None:
    whole = expected(log)
    damage(log, 2, 1)
    assert read(log, toSeq="40") == [row for row in whole if row[0] <= 40]
    assert read(log, fromSeq="51") == [row for row in whole if row[0] > 50]


def test_skip_leaves_out_the_damaged_block_and_says_so(
    log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = expected(log)
    at = damage(log, 2, 1)
    with caplog.at_level(logging.WARNING, "sirius.spark"):
        found = rows(reader_for(log, onCorrupt="skip", report=str(tmp_path / "report")))
    assert found == without(whole, 41, 50)
    reason = "a block's payload checksum does not match"
    left_out = LeftOut(str(data_file(log, 2)), at, reason, 41, 50)
    assert ReadReport.load(tmp_path / "report").left_out == (left_out,)
    assert [record.message for record in caplog.records] == [
        f"{data_file(log, 2)}: left out 41 to 50, damaged at byte {at}: {reason}"
    ]


def test_skip_goes_over_damage_at_the_beginning_in_the_middle_and_at_the_end(log: Path) -> None:
    whole = expected(log)
    places = [(1, 0), (2, 1), (2, 2), (3, 2)]
    # A damaged header hides where its block ends.
    for segment, block in places:
        flip(data_file(log, segment), block_at(log, segment, block) + 20)
    left = without(without(without(whole, 1, 10), 41, 60), 81, 90)
    assert read(log, onCorrupt="skip") == left


@pytest.mark.parametrize("view", ["state", "changes"])
def test_views_of_what_is_left(log: Path, tmp_path: Path, view: str) -> None:
    whole = expected(log)
    damage(log, 3, 1)
    with pytest.raises(CorruptFile, match="damaged at byte"):
        read(log, view=view)
    newest = {row[3]: row for row in without(whole, 71, 80)}
    wanted = [row for row in newest.values() if view == "changes" or row[2] == "PUT"]
    folder = str(tmp_path / "report")
    found = rows(reader_for(log, view=view, onCorrupt="skip", report=folder))
    assert sorted(found) == sorted(wanted)
    assert [(each.first, each.last) for each in ReadReport.load(folder).left_out] == [(71, 80)]


def test_unverified_reads_do_not_notice_a_damaged_body(log: Path) -> None:
    whole = expected(log)
    flip(data_file(log, 1), block_at(log, 1, 1) - 20)
    found = read(log, verify="false")
    assert [row[:4] for row in found] == [row[:4] for row in whole]
    assert found != whole


def test_damage_between_bodies_that_are_not_read(tmp_path: Path) -> None:
    """Where only the heads of blocks are read, a damaged one does not say where the next one is."""
    log = make(tmp_path / "log", numbered(6, 50, body=6000), rotate_after=3)
    at = block_at(log, 1, 1)
    flip(data_file(log, 1), at + 20)
    heads: dict[str, Any] = {"columns": "seq", "verify": "false"}
    with pytest.raises(
        CorruptFile, match=rf"00000001/data: damaged at byte {at}: the block header"
    ):
        read(log, **heads)
    folder = str(tmp_path / "report")
    found = rows(reader_for(log, onCorrupt="skip", report=folder, **heads))
    assert [seq for (seq,) in found] == [*range(1, 51), *range(101, 301)]
    assert [(each.first, each.last) for each in ReadReport.load(folder).left_out] == [(51, 100)]


def test_an_index_that_is_damaged_is_made_anew(log: Path) -> None:
    whole = expected(log)
    flip(data_file(log, 2).with_name("index"), 5)
    assert read(log, fromSeq="35", toSeq="52") == [row for row in whole if 35 <= row[0] <= 52]


def test_damage_without_an_index_can_be_skipped_as_well(log: Path) -> None:
    whole = expected(log)
    damage(log, 2, 1)
    data_file(log, 2).with_name("index").unlink()
    with pytest.raises(CorruptFile, match=r"00000002/data: damaged at byte"):
        read(log, fromSeq="35")
    assert read(log, fromSeq="35", onCorrupt="skip") == without(whole, 1, 34)[:6] + without(
        whole, 1, 50
    )


def test_a_quarantined_segment(log: Path, tmp_path: Path) -> None:
    whole = expected(log)
    with open_log(log) as opened:
        opened.quarantine(opened.manifest.segments[1].id, "a test says so")
    with pytest.raises(RangeUnavailable, match=r"31 to 60 are unavailable.*a test says so"):
        read(log)
    assert read(log, fromSeq="61") == without(whole, 1, 60)
    folder = str(tmp_path / "report")
    assert rows(reader_for(log, onCorrupt="skip", report=folder)) == without(whole, 31, 60)
    [left_out] = ReadReport.load(folder).left_out
    assert (left_out.first, left_out.last) == (31, 60)
    assert "quarantined: a test says so" in left_out.reason


def test_a_damaged_active_segment(tmp_path: Path) -> None:
    path = make(tmp_path / "log", numbered(4, 10))
    whole = expected(path)
    data_file(path, 1).with_name("index").write_bytes(b"")
    at = damage(path, 1, 2)
    with pytest.raises(RangeUnavailable, match=rf"21 to 40.*damaged at byte {at}"):
        read(path)
    assert read(path, onCorrupt="skip") == whole[:20]


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    path = make(tmp_path / "log", numbered(4, 10))
    whole = expected(path)
    with open(data_file(path, 1), "ab") as file:
        file.write(b"SBLK" + bytes(30))
    assert read(path) == whole


def test_a_segment_that_is_gone_is_told_with_the_reason(log: Path) -> None:
    pinned, scan = pin(str(log)), Scan(schema_of())
    pieces = pieces_of(pinned, scan)
    with open_log(log) as opened:
        opened.compact(CompactionPolicy(dead_fraction_min=0))
        opened.retire(at_once=True)
    with pytest.raises(
        RangeUnavailable, match=r"1 to 30.*is gone.*retire_after_s.*load the log again"
    ):
        list(scan.read(pieces[0]))


def test_a_log_without_one_of_its_segments_is_refused(log: Path) -> None:
    shutil.rmtree(data_file(log, 2).parent)
    with pytest.raises(CorruptLog, match="segment 2 is missing"):
        read(log, onCorrupt="skip")


def test_another_segment_under_the_same_name_is_refused(log: Path) -> None:
    shutil.copy(data_file(log, 1), data_file(log, 2))
    with pytest.raises(CorruptLog, match=r"segment 2 has|stands where 2 from 31 on belongs"):
        read(log)


# ---------------------------------------------------------------------- while somebody writes


def test_a_query_reads_one_moment_whatever_happens_meanwhile(tmp_path: Path) -> None:
    """Planned, then appended to, rotated and compacted before the tasks run."""
    path = make(tmp_path / "log", numbered(10, 10), rotate_after=3)
    whole = expected(path)
    readers = [reader_for(path), reader_for(path, view="state"), reader_for(path, fromSeq="35")]
    plans = [reader.partitions() for reader in readers]
    with open_log(path) as log:
        log.write([put("late", b"x")])
        log.rotate()
        result = log.compact(CompactionPolicy(dead_fraction_min=0))
        assert result.records_dropped > 50
        log.write([put("later", b"x")])
    found = [
        [row for part in plan for batch in reader.read(part) for row in batch["seq"].to_pylist()]
        for reader, plan in zip(readers, plans, strict=True)
    ]
    seqs = [row[0] for row in whole]
    newest = {row[3]: row for row in whole}
    assert found[0] == seqs
    assert found[1] == sorted(row[0] for row in newest.values() if row[2] == "PUT")
    assert found[2] == [seq for seq in seqs if seq >= 35]
    assert read(path) == expected(path)


def test_what_is_appended_to_the_last_block_is_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open_log(path) as log:
        log.write([put("a")])
        log.flush()
        reader = reader_for(path, columns="key")
        plan = reader.partitions()
        log.write([put("b")])
        log.flush()
        assert [batch.num_rows for part in plan for batch in reader.read(part)] == [1]
        assert read(path, columns="key") == [("a",), ("b",)]


def test_reading_counts_every_byte(log: Path) -> None:
    scan, reading = Scan(schema_of()), Reading()
    for piece in pieces_of(pin(str(log)), scan):
        list(scan.read(piece, reading))
    assert reading.nbytes >= sum(file.stat().st_size for file in log.glob("segments/*/data")) - 200
    assert (reading.rows, reading.segments) == (100, {1, 2, 3, 4})
