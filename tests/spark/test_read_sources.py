"""Logs of other formats, copies, several logs at once, and paths that are none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sirius.errors import CorruptFile, NotALog, UsageError
from sirius.wal import LogReader, OsFileSystem
from sirius.wal.ancestor import Layout
from sirius.wal.single import write_single
from tests.spark.readlogs import (
    data_file,
    expected,
    flip,
    make,
    numbered,
    put,
    read,
    reader_for,
    rows,
)
from tests.wal.ancestors import LAYOUTS, Event, entry, write

EVENTS = [
    Event(1, 1_700_000_000_000, 1, b"a", b"1"),
    Event(2, 1_700_000_000_001, 2, "é".encode(), b""),
    Event(7, 1_700_000_000_002, 1, b"b", b""),
    Event(8, 1_700_000_000_003, 1, b"a", b"2"),
    Event(9, 1_700_000_000_004, 2, b"b", b""),
]
EVENT_ROWS = [
    (1, 1_700_000_000_000_000, "PUT", "a", b"1"),
    (2, 1_700_000_000_001_000, "DELETE", "é", None),
    (7, 1_700_000_000_002_000, "PUT", "b", b""),
    (8, 1_700_000_000_003_000, "PUT", "a", b"2"),
    (9, 1_700_000_000_004_000, "DELETE", "b", None),
]
COLUMNS = "seq,ts,op,key,body"


def single(path: Path, target: Path) -> Path:
    with LogReader.open(str(path)) as reader, reader.snapshot() as snapshot:
        write_single(OsFileSystem(), str(target), snapshot.blocks())
    return target


def test_a_log_in_one_file(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(10, 10), rotate_after=3)
    file = single(log, tmp_path / "log.sirius")
    wanted = [(*row[:5], 1) for row in expected(log)]
    assert read(file) == wanted
    assert read(file, fromSeq="15", toSeq="40") == wanted[14:40]
    assert [row[:5] for row in read(file, view="state")] == [
        row[:5] for row in read(log, view="state")
    ]


def test_a_log_in_one_file_that_is_damaged(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(10, 10))
    file = single(log, tmp_path / "log.sirius")
    flip(file, file.stat().st_size // 2)
    with pytest.raises(CorruptFile, match=rf"{file}: damaged at byte"):
        read(file)
    assert len(read(file, onCorrupt="skip")) == 90


def test_an_empty_log_in_one_file(tmp_path: Path) -> None:
    file = single(make(tmp_path / "log", []), tmp_path / "log.sirius")
    assert read(file) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_ancestors_formats(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path / "old", EVENTS, layout, 2 if layout == "segmented" else 1_000_000)
    assert read(path, columns=COLUMNS) == EVENT_ROWS
    assert read(path, columns="seq", fromSeq="2", toSeq="8") == [(2,), (7,), (8,)]
    assert read(path, columns="seq,body", view="state") == [(8, b"2")]
    segments = [row[0] for row in read(path, columns="segment")]
    assert segments == ([1, 1, 2, 2, 3] if layout == "segmented" else [1] * 5)


def test_the_past_of_an_ancestors_log_with_holes_is_not_guessed(tmp_path: Path) -> None:
    path = write(tmp_path / "old", EVENTS)
    assert read(path, view="state", asOf="2", columns="key") == [("a",)]
    with pytest.raises(UsageError, match=r"removed updates from 3 on.*up to 2 or from 9 on"):
        read(path, view="state", asOf="8")


def test_a_damaged_log_of_the_ancestor(tmp_path: Path) -> None:
    path = write(tmp_path / "old", EVENTS)
    third = len(entry(EVENTS[0]) + entry(EVENTS[1]))
    flip(path / "1" / "data", third + 40)
    with pytest.raises(CorruptFile, match=rf"1/data: damaged at byte {third}"):
        read(path)
    assert read(path, columns="seq", onCorrupt="skip") == [(1,), (2,)]


def test_several_logs_at_once(tmp_path: Path) -> None:
    north = make(tmp_path / "north", [[put("a", b"n")]])
    south = make(tmp_path / "south", [[put("a", b"s")], [put("b", b"s")]])
    old = write(tmp_path / "old", EVENTS[:1])
    assert read(north, south, old, columns="key,body") == [
        ("a", b"n"),
        ("a", b"s"),
        ("b", b"s"),
        ("a", b"1"),
    ]
    # Each is a log of its own: a range is clipped to it, and its state is its own.
    assert read(north, south, columns="body", fromSeq="2") == [(b"s",)]
    assert len(read(north, south, view="state")) == 3


def test_a_copy_of_a_log(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(6, 10), rotate_after=2)
    shutil.copytree(log, tmp_path / "copy")
    assert read(tmp_path / "copy") == expected(log)
    # A copy may have caught a manifest without its segments; then an older one counts.
    shutil.rmtree(data_file(tmp_path / "copy", 4).parent)
    assert read(tmp_path / "copy") == expected(log)[:60]


def test_a_log_that_cannot_be_written_to(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(2, 2))
    before = sorted((str(path), path.stat().st_mtime_ns) for path in log.rglob("*"))
    assert len(read(log)) == 4
    assert sorted((str(path), path.stat().st_mtime_ns) for path in log.rglob("*")) == before


def test_paths_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no log")
    (tmp_path / "folder").mkdir()
    log = make(tmp_path / "log", [[put("a")]])
    cases: list[tuple[str, type[Exception], str]] = [
        (f"{tmp_path}/nowhere", UsageError, r"nowhere: there is no such file or folder"),
        (f"{tmp_path}/folder", NotALog, r"folder is not a log: it has neither manifests/"),
        (f"{tmp_path}/text", NotALog, r"text is a file and not a log"),
        (str(data_file(log, 1)), NotALog, r"is one file of a log; give the folder"),
        ("s3a://bucket/films", UsageError, r"a folder of a file system.*s3a is none"),
    ]
    for path, kind, message in cases:
        with pytest.raises(kind, match=message):
            rows(reader_for(path))
