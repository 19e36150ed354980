"""The ancestor's logs: the hash, the bytes, and which log it is. Read and written byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.errors import NotALog
from sirius.wal.ancestor import DELETE, FLAGS, MARKER, PUT, AncestorWriter, Layout, detect, scan
from sirius.wal.ancestor.fnv import fnv1a, fnv1a_rows
from tests.wal.ancestors import (
    EVENTS,
    FS,
    HEX_DATA,
    HEX_INDEX,
    LAYOUTS,
    Event,
    WatchedFs,
    columns_of,
    copy_log,
    data_of,
    entry,
    event_lists,
    events_in,
    index_of,
    put_files,
    read,
    read_until_error,
    reader_of,
    tree,
    write,
)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 64)


# --- the hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"foobar", 0x85944171F73967E8),
    ],
)
def test_the_hash_gives_the_published_values(text: bytes, expected: int) -> None:
    assert fnv1a(text) == expected
    rows = fnv1a_rows(b"x" + text, np.array([1]), np.array([len(text)]))
    assert rows.tolist() == [expected]


def check_rows(lengths: list[int], seed: int) -> None:
    data = np.random.default_rng(seed).bytes(sum(lengths) + 3 * len(lengths))
    ends = np.cumsum(np.array(lengths, np.int64) + 3)
    starts = ends - np.array(lengths, np.int64)
    expected = [fnv1a(data[start:end]) for start, end in zip(starts, ends, strict=True)]
    assert fnv1a_rows(data, starts, np.array(lengths, np.int64)).tolist() == expected


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), max_size=150), st.integers(0, 2**32))
def test_hashing_rows_together_gives_what_hashing_each_alone_gives(
    lengths: list[int], seed: int
) -> None:
    check_rows(lengths, seed)


@pytest.mark.parametrize(
    "lengths",
    [
        [64] * 31,
        [64] * 32,
        [63, 64, 65, 128] * 16,
        [*range(200)] * 25,
        [1023, 1024, 1025],
        [70_000] * 2 + [40] * 40,
        [1 << 16, (1 << 16) + 1, 2 << 16],
        [3000] * 40,
    ],
    ids=lambda lengths: f"{len(lengths)} rows up to {max(lengths)}",
)
def test_rows_of_every_shape_are_hashed_right(lengths: list[int]) -> None:
    check_rows(lengths, seed=len(lengths))


def test_no_rows_have_no_hashes() -> None:
    nothing = np.zeros(0, np.int64)
    assert fnv1a_rows(b"abc", nothing, nothing).tolist() == []


# --- the bytes


def test_a_log_of_two_entries_has_the_bytes_that_the_format_says(tmp_path: Path) -> None:
    events = [Event(1, 2, PUT, b"a", b"b"), Event(4, 3, DELETE, "é".encode(), b"")]
    data, index = bytes.fromhex(HEX_DATA), bytes.fromhex(HEX_INDEX)
    assert (data_of(events), index_of(events)) == (data, index)
    assert tree(write(tmp_path / "s", events)) == {
        "1": None,
        "1/data": data,
        "1/index": index,
        "SEGMENTED-1.0": b"",
    }
    assert tree(write(tmp_path / "l", events, "legacy")) == {"1.data": data, "1.index": index}
    assert read(reader_of(tmp_path / "s")) == read(reader_of(tmp_path / "l")) == events


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_log_is_one_empty_segment(tmp_path: Path, layout: Layout) -> None:
    AncestorWriter(FS, str(tmp_path / "log"), layout=layout).close()
    expected: dict[str, bytes | None] = {"1.data": b"", "1.index": b""}
    if layout == "segmented":
        expected = {"1": None, "1/data": b"", "1/index": b"", MARKER: b""}
    assert tree(tmp_path / "log") == expected
    reader = reader_of(tmp_path / "log")
    reader.check_index()
    assert read(reader) == []


@pytest.mark.parametrize(
    ("count", "sizes"), [(5, [2, 2, 1]), (4, [2, 2, 0]), (1, [1]), (2, [2, 0])]
)
def test_a_full_segment_is_followed_by_the_next_at_once(
    tmp_path: Path, count: int, sizes: list[int]
) -> None:
    events = [Event(seq, 0, PUT, b"k", b"v") for seq in range(1, count + 1)]
    reader = reader_of(write(tmp_path / "log", events, per_segment=2))
    assert [segment.index_entries for segment in reader.segments()] == sizes
    assert [segment.segment_id for segment in reader.segments()] == list(range(1, len(sizes) + 1))
    assert read(reader) == events
    assert (tmp_path / "log/1/data").read_bytes() == data_of(events[:2])
    reader.check_index()


def test_segments_do_not_depend_on_how_appends_were_cut(tmp_path: Path) -> None:
    events = [Event(seq, 0, PUT, b"k%d" % seq, b"v") for seq in range(1, 11)]
    with AncestorWriter(FS, str(tmp_path / "b"), events_per_segment=3) as writer:
        for part in (events[:1], [], events[1:8], events[8:]):
            writer.append(columns_of(part))
    assert tree(tmp_path / "b") == tree(write(tmp_path / "a", events, per_segment=3))


def test_many_entries_are_written_and_read_in_parts(tmp_path: Path) -> None:
    events = [Event(3 * seq, seq, PUT, b"%d" % seq, bytes(seq % 300)) for seq in range(1, 9001)]
    path = write(tmp_path / "log", events)
    assert (path / "1/data").read_bytes() == data_of(events)
    assert (path / "1/index").read_bytes() == index_of(events)
    batches = list(reader_of(path).batches(records=1000))
    assert [len(batch) for batch in batches] == [1000] * 9
    assert [event for batch in batches for event in events_in(batch)] == events
    reader_of(path).check_index()


@settings(deadline=None, max_examples=60)
@given(event_lists(), st.sampled_from(LAYOUTS), st.integers(1, 4), st.integers(1, 5))
def test_what_was_written_is_read_and_written_again_the_same(
    events: list[Event], layout: Layout, per_segment: int, records: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        write(path / "a", events, layout, per_segment)
        reader = reader_of(path / "a")
        reader.check_index()
        assert read(reader, records) == events
        data = b"".join(Path(segment.data_path).read_bytes() for segment in reader.segments())
        assert data == data_of(events)
        with AncestorWriter(
            FS, str(path / "b"), layout=layout, events_per_segment=per_segment
        ) as writer:
            for batch in reader.batches(records):
                writer.append(batch)
        assert tree(path / "b") == tree(path / "a")


@settings(deadline=None, max_examples=30)
@given(event_lists(), st.integers(1, 4))
def test_segmented_to_legacy_and_back_is_identical(events: list[Event], per_segment: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        write(path / "a", events, per_segment=per_segment)
        copy_log(path / "a", path / "b", "legacy")
        assert tree(path / "b") == {"1.data": data_of(events), "1.index": index_of(events)}
        write(path / "c", read(reader_of(path / "b")), per_segment=per_segment)
        assert tree(path / "c") == tree(path / "a")


def test_a_folder_with_flags_gaps_and_empty_segments_is_copied_exactly(tmp_path: Path) -> None:
    with AncestorWriter(FS, str(tmp_path / "a"), events_per_segment=1) as writer:
        writer.new_segment(["keys-collected", "internally-compacted"])
        writer.append(columns_of(EVENTS[:3]))
        writer.new_segment([FLAGS[1]], segment_id=7)
        writer.new_segment()
        writer.append(columns_of(EVENTS[3:]))
    segments = reader_of(tmp_path / "a").segments()
    assert [(segment.segment_id, segment.flags, segment.index_entries) for segment in segments] == [
        (1, FLAGS, 3),
        (7, FLAGS[1:], 0),
        (8, (), 1),
    ]
    assert [segment.path for segment in segments] == [str(tmp_path / "a" / n) for n in "178"]
    assert tree(tmp_path / "a")["1/keys-collected"] == b""
    copy_log(tmp_path / "a", tmp_path / "b")
    assert tree(tmp_path / "b") == tree(tmp_path / "a")


def test_segments_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    events = [Event(seq, 0, PUT, b"k", b"v") for seq in range(1, 13)]
    assert read(reader_of(write(tmp_path / "log", events, per_segment=1))) == events


@pytest.mark.parametrize("layout", LAYOUTS)
def test_entries_may_be_longer_than_what_is_read_at_once(
    tmp_path: Path, layout: Layout, small_windows: None
) -> None:
    events = [
        Event(seq, 0, PUT, b"k" * (seq % 5), bytes([seq]) * (seq * 7)) for seq in range(1, 30)
    ]
    fs = WatchedFs()
    path = write(tmp_path / "log", events, layout)
    assert read(reader_of(path, fs)) == events
    assert max(fs.reads) == len(entry(events[-1]))
    reader_of(path).check_index()


# --- which log it is


def test_the_layout_is_told_by_the_names_in_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "segmented", EVENTS)
    write(tmp_path / "legacy", EVENTS, "legacy")
    (tmp_path / "none" / "1").mkdir(parents=True)
    found = [detect(FS, str(tmp_path / name)) for name in ("segmented", "legacy", "none", "gone")]
    assert found == ["segmented", "legacy", None, None]
    (tmp_path / "legacy" / MARKER).touch()
    assert detect(FS, str(tmp_path / "legacy")) == "segmented"
    with pytest.raises(NotALog, match="none"):
        reader_of(tmp_path / "none")


def test_a_folder_with_the_marker_alone_is_an_empty_log(tmp_path: Path) -> None:
    reader = reader_of(put_files(tmp_path / "log"))
    assert (reader.segments(), read(reader)) == ((), [])


def test_what_a_crash_left_is_listed_and_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "log", EVENTS)
    for name in ("1.compacting", "1.temp", "1-2.merged"):
        (path / name).mkdir()
        (path / name / "data").write_bytes(b"rubbish")
    reader = reader_of(path)
    assert read(reader) == EVENTS
    assert reader.leftovers == tuple(
        str(path / name) for name in ("1-2.merged", "1.compacting", "1.temp")
    )


def test_a_segment_whose_replacement_was_interrupted_is_read_from_its_original(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "log", EVENTS, per_segment=2)
    (path / "1").rename(path / "1.temp")
    (path / "1.compacting").mkdir()
    reader = reader_of(path)
    assert read(reader) == EVENTS
    assert reader.leftovers == (str(path / "1.compacting"),)
    assert reader.segments()[0].path == str(path / "1.temp")


def test_a_missing_data_file_is_damage_only_if_its_index_has_entries(tmp_path: Path) -> None:
    path = put_files(tmp_path / "log", data_of(EVENTS[:2]), None)
    assert read(reader_of(path)) == EVENTS[:2]
    (path / "2/index").write_bytes(index_of(EVENTS[2:]))
    events, error = read_until_error(reader_of(path))
    assert (events, error.path) == (EVENTS[:2], str(path / "2/data"))
