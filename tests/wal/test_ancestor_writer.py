"""Writing the ancestor's logs: all of one or nothing, and nothing that its readers would refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirius.errors import InvalidRecord, LogClosed, LogFailed, OutOfOrder, UsageError
from sirius.wal.ancestor import DELETE, FLAGS, MARKER, PUT, AncestorColumns, AncestorWriter
from sirius.wal.ancestor import writer as writing
from sirius.wal.fs import File, OpenMode
from tests.wal.ancestors import EVENTS, FS, Event, WatchedFs, columns_of, read, reader_of, tree


def test_a_log_appears_when_it_is_closed_and_not_before(tmp_path: Path) -> None:
    writer = AncestorWriter(FS, f"{tmp_path}/log/")
    writer.append(columns_of(EVENTS))
    assert [item.name for item in tmp_path.iterdir()] == ["log.writing"]
    writer.close()
    writer.close()
    writer.abort()
    assert [item.name for item in tmp_path.iterdir()] == ["log"]
    with pytest.raises(LogClosed):
        writer.append(columns_of(EVENTS))
    with pytest.raises(LogClosed):
        writer.new_segment()


@pytest.mark.parametrize("name", ["log", "log.writing"])
def test_a_name_that_is_taken_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match="is there already"):
        AncestorWriter(FS, str(tmp_path / "log"))
    assert tree(tmp_path) == {name: None}


def test_a_target_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    writer = AncestorWriter(FS, str(tmp_path / "log"))
    (tmp_path / "log").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        writer.close()
    assert tree(tmp_path) == {"log": None}


def test_abort_removes_what_was_written(tmp_path: Path) -> None:
    writer = AncestorWriter(FS, str(tmp_path / "log"), events_per_segment=1)
    writer.append(columns_of(EVENTS))
    writer.abort()
    writer.close()
    assert tree(tmp_path) == {}


def test_an_exception_inside_the_with_block_aborts(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        AncestorWriter(FS, str(tmp_path / "log")) as writer,
    ):
        writer.append(columns_of(EVENTS[: 1 // 0]))
    assert tree(tmp_path) == {}


def test_a_log_of_which_a_write_failed_is_never_published(tmp_path: Path) -> None:
    fs = WatchedFs(room=100)
    writer = AncestorWriter(fs, str(tmp_path / "log"))
    with pytest.raises(OSError, match="no room"):
        writer.append(columns_of(EVENTS))
    fs.room = None
    with pytest.raises(LogFailed):
        writer.append(columns_of(EVENTS))
    with pytest.raises(LogFailed):
        writer.close()
    assert tree(tmp_path) == {}


class JournalFs(WatchedFs):
    """Notes what was synced and renamed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[str] = []

    def open(self, path: str, mode: OpenMode) -> File:
        file = super().open(path, mode)
        sync = file.sync

        def noted() -> None:
            self.journal.append(f"sync {Path(path).name}")
            sync()

        file.sync = noted  # type: ignore[method-assign]
        return file

    def sync_dir(self, path: str) -> None:
        self.journal.append(f"sync {Path(path).name}/")
        super().sync_dir(path)

    def replace(self, source: str, target: str) -> None:
        self.journal.append(f"{Path(source).name} -> {Path(target).name}")
        super().replace(source, target)


def test_everything_is_on_disk_before_the_log_gets_its_name(tmp_path: Path) -> None:
    fs = JournalFs()
    with AncestorWriter(fs, str(tmp_path / "log")) as writer:
        writer.new_segment(FLAGS[:1])
        writer.append(columns_of(EVENTS))
        writer.new_segment()
    names = [MARKER, FLAGS[0], "data", "index", "1/", "data", "index", "2/", "log.writing/"]
    assert fs.journal == [
        *(f"sync {name}" for name in names),
        "log.writing -> log",
        f"sync {tmp_path.name}/",
    ]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Event(9, 0, PUT, b"k", b"v"), OutOfOrder),
        (Event(10, 0, DELETE, b"k", b"v"), InvalidRecord),
        (Event(10, 0, 3, b"k", b"v"), InvalidRecord),
    ],
)
def test_faulty_columns_are_refused_as_a_whole(
    tmp_path: Path, event: Event, error: type[Exception]
) -> None:
    good = Event(9, 0, PUT, b"k", b"v")
    with AncestorWriter(FS, str(tmp_path / "log")) as writer:
        with pytest.raises(error):
            writer.append(columns_of([good, event]))
        writer.append(columns_of([good]))
        with pytest.raises(OutOfOrder):
            writer.append(columns_of([good]))
    assert read(reader_of(tmp_path / "log")) == [good]


def test_columns_have_one_length(tmp_path: Path) -> None:
    good = columns_of(EVENTS)
    uneven = AncestorColumns(good.seq, good.ts_ms, good.op, good.keys, good.bodies[:-1])
    with AncestorWriter(FS, str(tmp_path / "log")) as writer, pytest.raises(InvalidRecord):
        writer.append(uneven)


def test_an_entry_too_long_for_its_length_field_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LEN_MAX", 28 + 10)
    with AncestorWriter(FS, str(tmp_path / "log")) as writer:
        writer.append(columns_of([Event(1, 0, PUT, b"k" * 4, b"v" * 6)]))
        with pytest.raises(InvalidRecord):
            writer.append(columns_of([Event(2, 0, PUT, b"k" * 5, b"v" * 6)]))


def test_segments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with AncestorWriter(FS, str(tmp_path / "log")) as writer:
        writer.new_segment(segment_id=3)
        with pytest.raises(UsageError, match="cannot come after"):
            writer.new_segment(segment_id=3)
        with pytest.raises(UsageError, match="no such flags: done"):
            writer.new_segment(["done"])
    assert [segment.segment_id for segment in reader_of(tmp_path / "log").segments()] == [3]
    with (
        AncestorWriter(FS, str(tmp_path / "legacy"), layout="legacy") as writer,
        pytest.raises(UsageError, match="one segment"),
    ):
        writer.new_segment()
    with pytest.raises(UsageError, match="at least 1 event"):
        AncestorWriter(FS, str(tmp_path / "none"), events_per_segment=0)
