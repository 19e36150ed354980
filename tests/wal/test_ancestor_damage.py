"""Damage to the ancestor's logs: nothing wrong is ever read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sirius.errors import CorruptFile, UsageError
from sirius.wal.ancestor import DELETE, PUT, Layout, scan
from tests.wal.ancestors import (
    EVENTS,
    LAYOUTS,
    Event,
    WatchedFs,
    data_of,
    entry,
    index_entry,
    index_of,
    put_files,
    read,
    read_until_error,
    reader_of,
    write,
)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", 64)


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
