"""The ancestor's logs: read and written byte for byte, and nothing wrong ever read.

`entry` and `index_entry` are the brute-force twins of the writer: one record, `struct`, and the
plain hash. The log that the hex below spells out ties the twins to the format.
"""

from __future__ import annotations

import errno
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.errors import (
    CorruptFile,
    InvalidRecord,
    LogClosed,
    LogFailed,
    NotALog,
    OutOfOrder,
    UsageError,
)
from sirius.wal.ancestor import (
    DELETE,
    FLAGS,
    MARKER,
    PUT,
    AncestorColumns,
    AncestorReader,
    AncestorWriter,
    Layout,
    detect,
    scan,
)
from sirius.wal.ancestor import writer as writing
from sirius.wal.ancestor.fnv import fnv1a, fnv1a_rows
from sirius.wal.fs import File, OpenMode, OsFileSystem

FS = OsFileSystem()
LAYOUTS: tuple[Layout, ...] = ("segmented", "legacy")


class Event(NamedTuple):
    seq: int
    ts_ms: int
    op: int
    key: bytes
    body: bytes


EVENTS = [
    Event(1, 1_700_000_000_000, PUT, b"title/casablanca", b'{"year": 1942}'),
    Event(2, 1_700_000_000_001, DELETE, "título/ça".encode(), b""),
    Event(9, 1_600_000_000_000, PUT, b"", b""),
    Event(2**40, -1, PUT, b"k", bytes(range(256)) * 2),
]

# Sequence number 1, at 2 ms, PUT "a" = "b"; sequence number 4, at 3 ms, DELETE "é".
HEX_DATA = """
0000001e bcae1f3a6f8db398 0000000000000001 0000000000000002 00000001 00000001 00000001 61 62
0000001e 92197cbf7b6821f0 0000000000000004 0000000000000003 00000002 00000002 00000000 c3a9
"""
HEX_INDEX = """
ee67ea796ba12cf2 0000000000000001 0000000000000000
3428d060add01e8b 0000000000000004 000000000000002a
"""


def entry(event: Event, **other: int) -> bytes:
    """An entry as the ancestor writes it, or with other lengths than it should have."""
    key_len, body_len = other.get("key_len", len(event.key)), other.get("body_len", len(event.body))
    data = struct.pack(">qqiii", event.seq, event.ts_ms, event.op, key_len, body_len)
    data += event.key + event.body
    return struct.pack(">iQ", other.get("length", len(data)), fnv1a(data)) + data


def index_entry(seq: int, offset: int) -> bytes:
    places = struct.pack(">qq", seq, offset)
    return struct.pack(">Q", fnv1a(bytes(8) + places)) + places


def data_of(events: Iterable[Event]) -> bytes:
    return b"".join(entry(event) for event in events)


def index_of(events: Iterable[Event]) -> bytes:
    index, offset = b"", 0
    for event in events:
        index += index_entry(event.seq, offset)
        offset += len(entry(event))
    return index


def columns_of(events: Iterable[Event]) -> AncestorColumns:
    rows = list(events)
    return AncestorColumns(
        seq=np.array([row.seq for row in rows], np.int64),
        ts_ms=np.array([row.ts_ms for row in rows], np.int64),
        op=np.array([row.op for row in rows], np.uint8),
        keys=[row.key for row in rows],
        bodies=[row.body for row in rows],
    )


def events_in(columns: AncestorColumns) -> list[Event]:
    fields = (columns.seq.tolist(), columns.ts_ms.tolist(), columns.op.tolist())
    return [Event(*row) for row in zip(*fields, columns.keys, columns.bodies, strict=True)]


def reader_of(
    path: Path,
    fs: OsFileSystem = FS,
    *,
    verify: bool = True,
    allow_torn: bool = False,
    key_bytes_max: int = 1000,
    body_bytes_max: int = 100_000,
) -> AncestorReader:
    return AncestorReader(
        fs,
        str(path),
        verify=verify,
        allow_torn=allow_torn,
        key_bytes_max=key_bytes_max,
        body_bytes_max=body_bytes_max,
    )


def read(reader: AncestorReader, records: int = 4096) -> list[Event]:
    return [event for batch in reader.batches(records) for event in events_in(batch)]


def read_until_error(reader: AncestorReader) -> tuple[list[Event], CorruptFile]:
    """What comes before the error, and the error."""
    events: list[Event] = []
    with pytest.raises(CorruptFile) as caught:  # noqa: PT012 - what came before counts too
        for batch in reader.batches():
            events += events_in(batch)
    return events, caught.value


def write(
    path: Path, events: Iterable[Event], layout: Layout = "segmented", per_segment: int = 1_000_000
) -> Path:
    with AncestorWriter(FS, str(path), layout=layout, events_per_segment=per_segment) as writer:
        writer.append(columns_of(events))
    return path


def put_files(path: Path, *segments: bytes | None, legacy: bool = False) -> Path:
    """Lay out a log from the bytes of its data files, without an index."""
    path.mkdir()
    if legacy:
        (path / "1.data").write_bytes(segments[0] or b"")
        return path
    (path / MARKER).touch()
    for number, data in enumerate(segments, 1):
        (path / str(number)).mkdir()
        if data is not None:
            (path / str(number) / "data").write_bytes(data)
    return path


def tree(path: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes; folders with None."""
    return {
        str(item.relative_to(path)): None if item.is_dir() else item.read_bytes()
        for item in sorted(path.rglob("*"))
    }


def copy_log(source: Path, target: Path, layout: Layout = "segmented") -> None:
    """Copy a log as a converter would: with its segments, their numbers and flags."""
    with AncestorWriter(FS, str(target), layout=layout) as writer:
        for segment, batches in reader_of(source).by_segment():
            if layout == "segmented":
                writer.new_segment(segment.flags, segment.segment_id)
            for batch in batches:
                writer.append(batch)


class WatchedFs(OsFileSystem):
    """Notes the length of every read, and lets the test change what a file does."""

    def __init__(self, *, room: int | None = None, lost: int = 0) -> None:
        self.reads: list[int] = []
        self.room = room
        self.lost = lost

    def open(self, path: str, mode: OpenMode) -> File:
        return WatchedFile(super().open(path, mode), self)


class WatchedFile:
    def __init__(self, file: File, fs: WatchedFs) -> None:
        self._file = file
        self._fs = fs
        self.sync, self.forget, self.close = file.sync, file.forget, file.close
        self.truncate, self.allocate = file.truncate, file.allocate

    def read(self, offset: int, length: int) -> bytes:
        self._fs.reads.append(length)
        return self._file.read(offset, length)

    def size(self) -> int:
        return self._file.size() + self._fs.lost

    def append(self, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        data = b"".join(buffers)
        if self._fs.room is not None and len(data) > self._fs.room:
            self._file.append([data[: self._fs.room]])
            raise OSError(errno.ENOSPC, "no room")
        self._file.append([data])


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    gaps = draw(st.lists(st.integers(1, 2**32), max_size=12))
    seqs = np.cumsum(np.array(gaps, np.int64)).tolist()
    return [Event(seq, *draw(rests)) for seq in seqs]


times = st.integers(-(2**63), 2**63 - 1)
keys = st.text(max_size=30).map(str.encode)
rests = st.one_of(
    st.tuples(times, st.just(PUT), keys, st.binary(max_size=200)),
    st.tuples(times, st.just(DELETE), keys, st.just(b"")),
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


# --- damage


@pytest.mark.parametrize("allow_torn", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_flipped_bit_of_the_data_is_found(
    tmp_path: Path, layout: Layout, allow_torn: bool
) -> None:
    events = EVENTS[:3]
    path = write(tmp_path / "log", events, layout)
    file = path / ("1.data" if layout == "legacy" else "1/data")
    good = file.read_bytes()
    starts = np.cumsum([0, *(len(entry(event)) for event in events)])
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bad)
        found, error = read_until_error(reader_of(path, allow_torn=allow_torn))
        hit = int(np.searchsorted(starts, bit // 8, side="right")) - 1
        assert (found, error.path, error.offset) == (events[:hit], str(file), starts[hit])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_log_cut_anywhere_ends_cleanly_or_in_a_torn_tail(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path / "log", EVENTS, layout)
    file = path / ("1.data" if layout == "legacy" else "1/data")
    good = file.read_bytes()
    starts = np.cumsum([0, *(len(entry(event)) for event in EVENTS)]).tolist()
    for cut in range(len(good)):
        file.write_bytes(good[:cut])
        whole = sum(start <= cut for start in starts) - 1
        tail = None if cut in starts else (str(file), starts[whole])
        reader = reader_of(path, allow_torn=True)
        assert read(reader) == EVENTS[:whole]
        assert reader.torn_tail == tail
        strict = reader_of(path)
        if tail is None:
            assert read(strict) == EVENTS[:whole]
        else:
            events, error = read_until_error(strict)
            assert (events, (error.path, error.offset), strict.torn_tail) == (
                EVENTS[:whole],
                tail,
                tail,
            )


def test_a_later_pass_forgets_the_torn_tail_of_the_one_before(tmp_path: Path) -> None:
    path = put_files(tmp_path / "log", data_of(EVENTS)[:-1])
    reader = reader_of(path, allow_torn=True)
    read(reader)
    assert reader.torn_tail is not None
    (path / "1/data").write_bytes(data_of(EVENTS))
    assert read(reader) == EVENTS
    assert reader.torn_tail is None


@pytest.mark.parametrize("zeros", [1, 4, 50, 5000])
def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path, zeros: int, small_windows: None) -> None:
    path = put_files(tmp_path / "log", data_of(EVENTS) + bytes(zeros))
    reader = reader_of(path, allow_torn=True)
    assert read(reader) == EVENTS
    assert reader.torn_tail == (str(path / "1/data"), len(data_of(EVENTS)))


@pytest.mark.parametrize("zeros", [4, 50, 5000])
def test_zeros_with_something_after_them_are_damage(
    tmp_path: Path, zeros: int, small_windows: None
) -> None:
    path = put_files(tmp_path / "log", data_of(EVENTS) + bytes(zeros) + b"\1")
    events, error = read_until_error(reader_of(path, allow_torn=True))
    assert (events, error.offset) == (EVENTS, len(data_of(EVENTS)))


def test_an_entry_that_swallows_the_entries_after_it_is_damage_not_a_torn_tail(
    tmp_path: Path,
) -> None:
    # All lengths of the first entry agree, and reach beyond the end of the file.
    first = entry(EVENTS[0], length=28 + 16 + 5000, body_len=5000)
    path = put_files(tmp_path / "log", first + data_of(EVENTS[1:]))
    events, error = read_until_error(reader_of(path, allow_torn=True))
    assert (events, error.offset) == ([], 0)
    alone = put_files(tmp_path / "alone", first)
    reader = reader_of(alone, allow_torn=True)
    assert (read(reader), reader.torn_tail) == ([], (str(alone / "1/data"), 0))


def test_a_torn_tail_before_the_last_segment_is_damage(tmp_path: Path) -> None:
    path = put_files(tmp_path / "log", data_of(EVENTS[:2])[:-1], data_of(EVENTS[2:]))
    reader = reader_of(path, allow_torn=True)
    events, error = read_until_error(reader)
    assert (events, error.path, error.offset) == (
        EVENTS[:1],
        str(path / "1/data"),
        len(entry(EVENTS[0])),
    )
    assert reader.torn_tail is None


@pytest.mark.parametrize("length", [2**31 - 1, -1, -(2**31), 0, 27, 28 + 1000 + 100_000 + 1])
@pytest.mark.parametrize("padding", [0, 300_000])
def test_a_length_out_of_bounds_is_refused_and_nothing_of_it_is_read(
    tmp_path: Path, length: int, padding: int, small_windows: None
) -> None:
    fs = WatchedFs()
    data = entry(EVENTS[0]) + entry(EVENTS[1], length=length) + b"x" * padding
    path = put_files(tmp_path / "log", data)
    events, error = read_until_error(reader_of(path, fs, allow_torn=True))
    assert (events, error.offset) == (EVENTS[:1], len(entry(EVENTS[0])))
    assert f"length {length}" in error.reason
    assert max(fs.reads) == len(entry(EVENTS[0])), "more than a window, but an entry that is fine"


def test_a_length_beyond_the_end_of_the_file_is_not_read(tmp_path: Path) -> None:
    fs = WatchedFs()
    data = entry(EVENTS[0], length=28 + 16 + 90_000)
    _, error = read_until_error(reader_of(put_files(tmp_path / "log", data), fs))
    assert (error.offset, max(fs.reads)) == (0, len(data))


PUT_AB = Event(5, 0, PUT, b"a", b"b")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (entry(Event(5, 0, DELETE, b"a", b"b")), "a DELETE with a body"),
        (entry(Event(5, 0, 3, b"a", b"b")), "neither PUT nor DELETE"),
        (entry(Event(5, 0, 0, b"a", b"b")), "neither PUT nor DELETE"),
        (entry(Event(5, 0, 257, b"a", b"b")), "neither PUT nor DELETE"),
        (entry(Event(5, 0, PUT, b"a" * 11, b"")), "a key length"),
        (entry(Event(5, 0, PUT, b"", b"b" * 21)), "a body length"),
        (entry(PUT_AB, key_len=-1, body_len=3), "a key length"),
        (entry(PUT_AB, key_len=3, body_len=-1), "a body length"),
        (entry(PUT_AB, key_len=2), "lengths that do not add up"),
        (entry(PUT_AB, body_len=0), "lengths that do not add up"),
        (entry(PUT_AB, key_len=2**31 - 1, body_len=2**31 - 1), "a key length"),
        (entry(Event(4, 0, PUT, b"a", b"b")), "a sequence number"),
        (entry(Event(3, 0, PUT, b"a", b"b")), "a sequence number"),
        (entry(Event(-5, 0, PUT, b"a", b"b")), "a sequence number"),
    ],
)
@pytest.mark.parametrize("split", [False, True], ids=["one segment", "next segment"])
def test_an_entry_that_makes_no_sense_is_refused_in_spite_of_its_checksum(
    tmp_path: Path, bad: bytes, reason: str, split: bool
) -> None:
    before, after = Event(4, 0, PUT, b"k", b"v"), Event(6, 0, PUT, b"k", b"v")
    parts = [entry(before), bad + entry(after)]
    path = put_files(tmp_path / "log", *(parts if split else [b"".join(parts)]))
    for verify in (True, False):
        reader = reader_of(path, key_bytes_max=10, body_bytes_max=20, verify=verify)
        events, error = read_until_error(reader)
        assert events == [before]
        assert error.offset == (0 if split else len(parts[0]))
        assert error.reason.startswith(reason)


def test_sequence_numbers_begin_above_zero(tmp_path: Path) -> None:
    path = put_files(tmp_path / "log", entry(Event(0, 0, PUT, b"k", b"v")))
    events, error = read_until_error(reader_of(path))
    assert (events, error.offset) == ([], 0)


def test_keys_and_bodies_may_be_as_long_as_the_limits(tmp_path: Path) -> None:
    events = [Event(1, 0, PUT, b"k" * 10, b"v" * 20)]
    path = put_files(tmp_path / "log", data_of(events))
    assert read(reader_of(path, key_bytes_max=10, body_bytes_max=20)) == events


def test_checksums_are_not_looked_at_if_the_caller_says_so(tmp_path: Path) -> None:
    data = bytearray(data_of(EVENTS))
    data[4] ^= 1
    path = put_files(tmp_path / "log", bytes(data))
    assert read(reader_of(path, verify=False)) == EVENTS
    assert "checksum" in read_until_error(reader_of(path))[1].reason


def test_a_file_that_shrinks_while_it_is_read_is_damage(tmp_path: Path) -> None:
    path = put_files(tmp_path / "log", data_of(EVENTS))
    _, error = read_until_error(reader_of(path, WatchedFs(lost=10)))
    assert error.offset == len(data_of(EVENTS))
    assert "shorter" in error.reason


def test_a_batch_of_no_records_makes_no_sense(tmp_path: Path) -> None:
    reader = reader_of(write(tmp_path / "log", EVENTS))
    with pytest.raises(UsageError):
        read(reader, records=0)


# --- the index


def damaged_indexes() -> Iterator[tuple[str, bytes | None, int]]:
    """Indexes that do not match the events, and where they first do not."""
    good = index_of(EVENTS)
    for at in range(len(good)):
        yield f"byte {at}", good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :], at // 24 * 24
    for cut in (0, 1, 24, 95):
        yield f"cut at {cut}", good[:cut], cut // 24 * 24
    yield "missing", None, 0
    yield "one too many", good + index_entry(2**40 + 1, len(data_of(EVENTS))), 96
    yield "a part too many", good + b"x", 96
    yield "another sequence number", index_entry(3, 0) + good[24:], 0
    yield "another offset", good[:24] + index_entry(2, 5) + good[48:], 24
    yield "swapped", good[24:48] + good[:24] + good[48:], 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_index_that_does_not_match_is_found_and_the_data_is_read_without_it(
    tmp_path: Path, layout: Layout, small_windows: None
) -> None:
    path = write(tmp_path / "log", EVENTS, layout)
    file = path / ("1.index" if layout == "legacy" else "1/index")
    reader_of(path).check_index()
    for name, index, offset in damaged_indexes():
        file.unlink()
        file.write_bytes(index or b"")
        if index is None:
            file.unlink()
        reader = reader_of(path)
        with pytest.raises(CorruptFile) as caught:
            reader.check_index()
        assert (caught.value.path, caught.value.offset) == (str(file), offset), name
        assert read(reader) == EVENTS
        file.touch()


def test_the_index_of_every_segment_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "log", EVENTS, per_segment=2)
    (path / "2/index").write_bytes(index_of(EVENTS[:2]))
    with pytest.raises(CorruptFile, match="2/index"):
        reader_of(path).check_index()


# --- the writer


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
