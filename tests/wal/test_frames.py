"""Files of frames: their bytes, walking through them, and the four ways in which they end."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import dataclass, field

import pytest
from crc32c import crc32c

from sirius.errors import CorruptFile, NotALog
from sirius.testing import MemoryFileSystem
from sirius.wal import Limits, Op, Update, encode
from sirius.wal.frames import (
    CHUNK_BYTES,
    MARK_BYTES,
    End,
    FileHeader,
    FileKind,
    Mark,
    Mode,
    Walk,
    blocks_behind,
    diagnose,
    marks_behind,
    parse_mark,
    read_file_header,
)
from sirius.wal.fs import File
from sirius.wal.recovery import last_known

HEADER = FileHeader(FileKind.SEGMENT, segment=3, uid=0x1122334455667788, first=1, created_us=5)
GOLDEN_HEADER = bytes.fromhex(
    "534952495553574c"  # magic "SIRIUSWL"
    "97410b7c"  # checksum of the 52 bytes that follow
    "0100 0100"  # version 1, a segment
    "0300000000000000"  # segment 3
    "8877665544332211"  # the log's unique id
    "0100000000000000"  # first sequence number
    "0500000000000000"  # created, in microseconds
    "00000000000000000000000000000000"  # reserved
)
MARK = Mark(Mode.FSYNC, True, 0xAABBCCDD, HEADER.uid, HEADER.segment, 64, 9)
GOLDEN_MARK = bytes.fromhex(
    "534d524b"  # magic "SMRK"
    "73e0336e"  # checksum of the 40 bytes that follow
    "01 01 0000"  # mode fsync, synced, reserved
    "ddccbbaa"  # checksum of the index
    "8877665544332211"  # the log's unique id
    "0300000000000000"  # segment
    "4000000000000000"  # the mark's own offset
    "0900000000000000"  # last sequence number
)
BOTH = pytest.mark.parametrize("mode", list(Mode))


@dataclass
class Paper:
    """A file that is written frame by frame, and then damaged."""

    mode: Mode = Mode.FSYNC
    raw: bytearray = field(default_factory=lambda: bytearray(HEADER.encode()))
    last: int = 0
    at: dict[str, int] = field(default_factory=dict)

    def block(self, name: str = "", body: bytes = b"v" * 20) -> Paper:
        self.at[name] = len(self.raw)
        self.raw += encode(self.last + 1, [Update(Op.PUT, b"key", body)] * 2, 1).raw
        self.last += 2
        return self

    def mark(self, name: str = "", *, synced: bool = True) -> Paper:
        self.at[name] = len(self.raw)
        place = (HEADER.uid, HEADER.segment, len(self.raw))
        self.raw += Mark(self.mode, synced, 0, *place, self.last).encode()
        return self

    def flip(self, name: str, offset: int) -> Paper:
        self.raw[self.at[name] + offset] ^= 0x10
        return self


def opened(raw: bytes | bytearray) -> File:
    fs = MemoryFileSystem()
    fs.write_bytes("data", bytes(raw))
    return fs.open("data", "r")


def walked(
    raw: bytes | bytearray, chunk_bytes: int = CHUNK_BYTES, limits: Limits | None = None
) -> Walk:
    walk = Walk(opened(raw), HEADER, 64, len(raw), HEADER.first, limits or Limits())
    for _ in walk.chunks(chunk_bytes):
        pass
    return walk


def ending(paper: Paper) -> End:
    return diagnose(walked(paper.raw))


# --- bytes ----------------------------------------------------------------------------------------


def test_the_bytes_of_a_file_header_never_change() -> None:
    assert HEADER.encode() == GOLDEN_HEADER
    assert read_file_header(opened(GOLDEN_HEADER), "data") == HEADER


def test_the_bytes_of_a_mark_never_change() -> None:
    assert MARK.encode() == GOLDEN_MARK
    assert parse_mark(GOLDEN_MARK, 64, HEADER) == MARK


def test_every_byte_of_a_file_header_is_guarded() -> None:
    for at in range(64):
        raw = bytearray(GOLDEN_HEADER)
        raw[at] ^= 0x01
        with pytest.raises((NotALog, CorruptFile)):
            read_file_header(opened(raw), "data")
        with pytest.raises((NotALog, CorruptFile)):
            read_file_header(opened(GOLDEN_HEADER[:at]), "data")


@pytest.mark.parametrize(("at", "value"), [(12, 2), (12, 0), (14, 3), (14, 0)])
def test_a_version_or_kind_of_file_that_is_not_known_is_refused(at: int, value: int) -> None:
    raw = bytearray(GOLDEN_HEADER)
    struct.pack_into("<H", raw, at, value)
    struct.pack_into("<I", raw, 8, crc32c(bytes(raw[12:])))
    with pytest.raises(CorruptFile, match="not known"):
        read_file_header(opened(raw), "data")


def test_every_byte_of_a_mark_is_guarded() -> None:
    for at in range(MARK_BYTES):
        raw = bytearray(GOLDEN_MARK)
        raw[at] ^= 0x01
        assert parse_mark(bytes(raw), 64, HEADER) is None
        assert parse_mark(GOLDEN_MARK[:at], 64, HEADER) is None


def test_a_mark_of_another_file_counts_for_nothing() -> None:
    assert parse_mark(GOLDEN_MARK, 64, HEADER._replace(uid=1)) is None
    assert parse_mark(GOLDEN_MARK, 64, HEADER._replace(segment=4)) is None


def test_a_mark_at_another_offset_counts_for_nothing() -> None:
    assert parse_mark(GOLDEN_MARK, 72, HEADER) is None


def test_a_mark_of_an_unknown_mode_counts_for_nothing() -> None:
    raw = bytearray(GOLDEN_MARK)
    raw[8] = 3
    struct.pack_into("<I", raw, 4, crc32c(bytes(raw[8:])))
    assert parse_mark(bytes(raw), 64, HEADER) is None


# --- walking --------------------------------------------------------------------------------------


def three_groups(mode: Mode = Mode.FSYNC) -> Paper:
    paper = Paper(mode).mark("start")
    for name in "abc":
        paper.block(name, body=name.encode() * 33).mark("after " + name)
    return paper


@pytest.mark.parametrize("chunk_bytes", [*range(1, 130), 200, 1000])
def test_small_chunks_show_the_same_as_large_ones(chunk_bytes: int) -> None:
    raw = three_groups().raw
    for size in (len(raw), len(raw) - MARK_BYTES, len(raw) - 100):
        small, large = (walked(raw[:size], chunk) for chunk in (chunk_bytes, CHUNK_BYTES))
        for name in ("position", "end", "next_first", "fault", "mark"):
            assert getattr(small, name) == getattr(large, name), name


def test_the_chunks_hold_every_block_in_order() -> None:
    paper = three_groups()
    walk = Walk(opened(paper.raw), HEADER, 64, len(paper.raw), 1)
    chunks = list(walk.chunks(100))
    found = [chunk.base + at for chunk in chunks for at, _ in chunk.spans]
    assert found == [paper.at["a"], paper.at["b"], paper.at["c"]]
    for chunk in chunks:
        for at, header in chunk.spans:
            assert chunk.buf[at : at + header.size] == paper.raw[chunk.base + at :][: header.size]


def test_lengths_in_a_file_allocate_no_more_than_the_file() -> None:
    raw = bytearray(three_groups().raw)
    at = 64 + MARK_BYTES
    struct.pack_into("<II", raw, at + 32, 2**32 - 1, 2**32 - 1)
    struct.pack_into("<I", raw, at + 4, crc32c(bytes(raw[at + 8 : at + 64])))
    for limits in (Limits(), Limits(block_bytes_max=2**62)):
        tracemalloc.start()
        try:
            walk = walked(raw, limits=limits)
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()
        assert (walk.position, diagnose(walk)) == (at, End.CORRUPT)


def test_a_file_that_shrinks_meanwhile_ends_where_it_ends() -> None:
    paper = three_groups()
    short = opened(paper.raw[: paper.at["b"]])
    walk = Walk(short, HEADER, 64, len(paper.raw), 1)
    assert [len(chunk.spans) for chunk in walk.chunks()] == [1]
    assert (walk.fault, walk.position, walk.end) == (None, paper.at["b"], paper.at["b"])


# --- endings --------------------------------------------------------------------------------------


@BOTH
def test_a_whole_file_ends_clean_with_or_without_a_mark(mode: Mode) -> None:
    assert ending(three_groups(mode)) == End.CLEAN
    assert ending(three_groups(mode).block()) == End.CLEAN
    assert ending(Paper(mode)) == End.CLEAN


@BOTH
def test_a_last_write_that_stops_at_any_byte_is_a_torn_tail(mode: Mode) -> None:
    paper = three_groups(mode)
    whole = len(paper.raw)
    paper.block().block()
    middle = paper.at[""]
    for size in range(whole + 1, len(paper.raw)):
        if size != middle:
            assert diagnose(walked(paper.raw[:size])) == End.TORN


@BOTH
@pytest.mark.parametrize("zeroes", [1, 7, 8, 47, 48, 64, 4096])
def test_a_tail_of_zeroes_is_torn(mode: Mode, zeroes: int) -> None:
    paper = three_groups(mode)
    assert diagnose(walked(paper.raw + bytes(zeroes))) == End.TORN


@BOTH
def test_a_last_write_with_zeroes_in_it_is_torn(mode: Mode) -> None:
    paper = three_groups(mode)
    begin = len(paper.raw)
    paper.block()
    padding = -len(paper.raw[begin:].rstrip(b"\0")) % 8
    for at in range(begin, len(paper.raw) - padding):
        assert diagnose(walked(paper.raw[:at] + bytes(len(paper.raw) - at))) == End.TORN


@BOTH
@pytest.mark.parametrize("name", ["start", "a", "after a", "b", "after b", "c"])
def test_damage_in_front_of_a_synced_mark_is_corruption(mode: Mode, name: str) -> None:
    for offset in range(MARK_BYTES):
        assert ending(three_groups(mode).flip(name, offset)) == End.CORRUPT


@BOTH
def test_damage_to_the_very_last_mark_costs_nothing(mode: Mode) -> None:
    for offset in range(MARK_BYTES):
        paper = three_groups(mode).flip("after c", offset)
        walk = walked(paper.raw)
        assert (diagnose(walk), walk.position, walk.next_first) == (
            End.TORN,
            paper.at["after c"],
            7,
        )


def unsynced(mode: Mode) -> Paper:
    """A group of three blocks that no mark follows."""
    return three_groups(mode).block("x").block("y").block("z")


def test_in_mode_fsync_everything_behind_the_last_mark_may_be_torn() -> None:
    for name in "xyz":
        for offset in (0, 5, 20, 70, 100):
            assert ending(unsynced(Mode.FSYNC).flip(name, offset)) == End.TORN


@pytest.mark.parametrize(("name", "end"), [("x", End.CORRUPT), ("y", End.CORRUPT), ("z", End.TORN)])
def test_in_mode_os_a_whole_block_behind_damage_makes_it_corruption(name: str, end: End) -> None:
    for offset in (0, 5, 20, 70, 100):
        assert ending(unsynced(Mode.OS).flip(name, offset)) == end


@pytest.mark.parametrize(("mode", "end"), [(Mode.FSYNC, End.TORN), (Mode.OS, End.CORRUPT)])
def test_an_unsynced_mark_behind_damage_counts_in_mode_os_alone(mode: Mode, end: End) -> None:
    assert ending(three_groups(mode).block("x").mark(synced=False).flip("x", 70)) == end


def test_without_any_mark_in_front_the_rules_of_mode_os_hold() -> None:
    assert ending(Paper().block("x").block().flip("x", 70)) == End.CORRUPT
    assert ending(Paper().block("x").flip("x", 70)) == End.TORN


def test_the_last_mark_in_front_decides_by_which_mode_a_tail_is_judged() -> None:
    paper = three_groups(Mode.OS)
    paper.mode = Mode.FSYNC
    assert ending(paper.mark().block("x").block().flip("x", 70)) == End.TORN


# --- bytes that look like frames ------------------------------------------------------------------


def with_a_log_inside(mode: Mode, shift: int) -> Paper:
    """A last, unsynced block that holds a copy of the file so far, and of blocks that might come."""
    paper = three_groups(mode)
    copy = bytes(paper.raw) + encode(500, [Update(Op.PUT, b"k")], 1).raw
    # With the right shift the frames inside stand at offsets where frames may begin.
    return paper.block("x", body=bytes(shift) + copy)


@BOTH
@pytest.mark.parametrize("shift", range(8))
def test_frames_inside_a_torn_body_prove_nothing(mode: Mode, shift: int) -> None:
    paper = with_a_log_inside(mode, shift)
    for size in range(paper.at["x"] + 64, len(paper.raw), 40):
        walk = walked(paper.raw[:size])
        assert (diagnose(walk), walk.position) == (End.TORN, paper.at["x"])


@BOTH
def test_frames_inside_a_damaged_body_prove_nothing(mode: Mode) -> None:
    for shift in range(8):
        assert ending(with_a_log_inside(mode, shift).flip("x", 100)) == End.TORN


def test_a_real_mark_behind_such_a_body_still_proves_corruption() -> None:
    for shift in range(8):
        paper = with_a_log_inside(Mode.OS, shift).mark().flip("x", 100)
        assert ending(paper) == End.CORRUPT
        assert last_known(walked(paper.raw)) == paper.last


def test_in_mode_os_a_lost_header_in_front_of_such_a_body_is_not_guessed_about() -> None:
    ends = {ending(with_a_log_inside(Mode.OS, shift).flip("x", 20)) for shift in range(8)}
    assert ends == {End.TORN, End.CORRUPT}
    ends = {ending(with_a_log_inside(Mode.FSYNC, shift).flip("x", 20)) for shift in range(8)}
    assert ends == {End.TORN}


@BOTH
def test_a_stale_mark_at_another_offset_does_not_count(mode: Mode) -> None:
    paper = three_groups(mode)
    stale = paper.raw[paper.at["after b"] :][:MARK_BYTES]
    assert diagnose(walked(paper.raw + stale)) == End.TORN
    assert not list(marks_behind(walked(paper.raw + bytes(8) + stale)))


@pytest.mark.parametrize(("source", "target"), [("a", "b"), ("b", "a"), ("c", "a"), ("a", "c")])
def test_a_block_written_to_the_place_of_another_is_noticed(source: str, target: str) -> None:
    paper = three_groups()
    size = paper.at["after a"] - paper.at["a"]
    at, to = paper.at[source], paper.at[target]
    paper.raw[to : to + size] = paper.raw[at : at + size]
    walk = walked(paper.raw)
    assert (walk.position, diagnose(walk)) == (to, End.CORRUPT)
    assert "stands where" in str(walk.fault)


@pytest.mark.parametrize("shift", range(8))
def test_what_stands_behind_damage_is_found_and_nothing_inside_of_it(shift: int) -> None:
    inside = bytes(shift) + encode(500, [Update(Op.PUT, b"k")], 1).raw
    paper = three_groups(Mode.OS).block("x").block("y", body=inside).block("z").flip("x", 70)
    walk = walked(paper.raw)
    assert [at for at, _ in blocks_behind(walk)] == [paper.at["y"], paper.at["z"]]
    assert last_known(walk) == paper.last


@pytest.mark.parametrize("name", ["start", "a", "b", "after b", "c"])
def test_how_far_a_damaged_file_went_is_known_from_what_stands_behind(name: str) -> None:
    paper = three_groups().block("x").flip(name, 20)
    assert last_known(walked(paper.raw)) == paper.last
