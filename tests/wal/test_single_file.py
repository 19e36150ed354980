"""A log in one file: the same bytes as a segment, complete or refused."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import pairwise

import pytest

from sirius.errors import CorruptFile, DiskFull, NotALog, UsageError
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.wal import Block, Durability, Log, LogConfig, Op, Record, Update, encode
from sirius.wal.frames import FILE_HEADER_BYTES, MARK_BYTES
from sirius.wal.segment import Segment
from sirius.wal.single import SingleFileReader, write_single

CONFIG = LogConfig(durability=Durability.OS, background=False, reserve_bytes=0)


def blocks(count: int = 6, per_block: int = 2) -> list[Block]:
    """Blocks of PUTs, with a hole of three numbers behind the second."""
    made: list[Block] = []
    first = 1
    for number in range(count):
        updates = [Update(Op.PUT, f"key-{first + n}".encode(), b"x" * n) for n in range(per_block)]
        made.append(encode(first, updates, 1_000 * first))
        if number == 1:
            made.append(Block.hole(made[-1].last + 1, made[-1].last + 3))
        first = made[-1].last + 1
    return made


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def written(fs: MemoryFileSystem) -> MemoryFileSystem:
    write_single(fs, "films", blocks())
    return fs


def records_of(reader: SingleFileReader, first: int = 1, last: int | None = None) -> list[Record]:
    return [record for batch in reader.batches(first, last) for record in batch.records()]


def test_what_is_written_is_read(written: MemoryFileSystem) -> None:
    with SingleFileReader(written, "films") as reader:
        assert reader.last == 15
        assert [block.raw for block in reader.blocks()] == [block.raw for block in blocks()]
        assert [record.seq for record in records_of(reader)] == [*range(1, 5), *range(8, 16)]


def test_nothing_but_the_file_is_left(written: MemoryFileSystem) -> None:
    assert written.listdir("") == ["films"]


def test_it_is_what_the_only_segment_of_a_log_would_be(fs: MemoryFileSystem) -> None:
    with Log.open("log", CONFIG, fs=fs) as log:
        for block in blocks():
            log.append(block)
        info = log.manifest.active
        folder = log.store.segment_dir(info.id)
    last = write_single(fs, "films", blocks())
    fs.mkdir("folder")
    fs.replace("films", "folder/data")
    single, segment = Segment(fs, "folder", info), Segment(fs, folder, info)
    assert last == 15
    assert [chunk.spans for chunk in single.walk_all().chunks()] == [
        chunk.spans for chunk in segment.walk_all().chunks()
    ]
    assert single.size() == segment.size()


@pytest.mark.parametrize("first", [1, 2, 4, 5, 7, 8, 15])
@pytest.mark.parametrize("last", [1, 3, 4, 6, 7, 9, 15])
def test_a_range_is_covered_exactly(written: MemoryFileSystem, first: int, last: int) -> None:
    with SingleFileReader(written, "films") as reader:
        batches = list(reader.batches(first, last))
        wanted = [record for record in records_of(reader) if first <= record.seq <= last]
        assert [record for batch in batches for record in batch.records()] == wanted
        if first <= last:
            assert (batches[0].first, batches[-1].last) == (first, last)
            assert all(a.last + 1 == b.first for a, b in pairwise(batches))


def test_a_range_beyond_the_end_is_refused(written: MemoryFileSystem) -> None:
    with SingleFileReader(written, "films") as reader, pytest.raises(UsageError, match="1 to 15"):
        list(reader.batches(1, 16))


def test_an_empty_log_is_a_log(fs: MemoryFileSystem) -> None:
    assert write_single(fs, "films", []) == 0
    with SingleFileReader(fs, "films") as reader:
        assert (reader.last, list(reader.batches()), list(reader.blocks())) == (0, [], [])


def test_the_index_knows_every_block(written: MemoryFileSystem) -> None:
    with SingleFileReader(written, "films") as reader:
        table = reader.index()
    assert table["first"].tolist() == [block.first for block in blocks()]
    assert table["count"].tolist() == [block.count for block in blocks()]


def test_a_file_that_was_cut_anywhere_says_what_is_whole(written: MemoryFileSystem) -> None:
    whole = written.read_bytes("films")
    ends = [FILE_HEADER_BYTES + MARK_BYTES]
    for block in blocks():
        ends.append(ends[-1] + len(block))
    for size in range(FILE_HEADER_BYTES, len(whole)):
        fs = written.clone()
        fs.cut("films", size)
        covered = [block.last for block, end in zip(blocks(), ends[1:], strict=True) if end <= size]
        says = f"1 to {covered[-1]} are whole" if covered else "nothing is whole"
        if size == ends[0]:
            # An empty log that was closed looks the same, and is one.
            continue
        with pytest.raises(CorruptFile, match=says):
            SingleFileReader(fs, "films")


def test_a_flipped_bit_in_the_blocks_is_found(written: MemoryFileSystem) -> None:
    size = len(written.read_bytes("films"))
    for offset in range(FILE_HEADER_BYTES + MARK_BYTES, size - MARK_BYTES, 7):
        fs = written.clone()
        fs.flip("films", offset)
        with SingleFileReader(fs, "films") as reader, pytest.raises(CorruptFile) as caught:
            list(reader.batches())
        assert "closing mark" not in caught.value.reason


def test_damage_behind_a_range_does_not_matter_to_it(written: MemoryFileSystem) -> None:
    written.flip("films", len(written.read_bytes("films")) - MARK_BYTES - 1)
    with SingleFileReader(written, "films") as reader:
        assert [record.seq for record in records_of(reader, 1, 13)] == [*range(1, 5), *range(8, 14)]
        with pytest.raises(CorruptFile):
            records_of(reader, 1, 14)


def test_a_closing_mark_that_speaks_of_more_than_there_is(fs: MemoryFileSystem) -> None:
    write_single(fs, "short", blocks()[:2])
    write_single(fs, "long", blocks())
    short, long = fs.read_bytes("short"), fs.read_bytes("long")
    with SingleFileReader(fs, "short") as reader:
        reader.last = type(reader.last)(9)
        with pytest.raises(CorruptFile, match="the blocks end with 4, the closing mark says 9"):
            list(reader.batches())
    assert len(short) < len(long)


@pytest.mark.parametrize("segment", [1, 2])
def test_a_file_of_another_log_is_no_log_in_one_file(fs: MemoryFileSystem, segment: int) -> None:
    config = LogConfig(
        durability=Durability.OS, background=False, reserve_bytes=0, segment_records_max=2
    )
    with Log.open("log", config, fs=fs) as log:
        for block in blocks():
            log.append(block)
    path = f"log/segments/{segment:08d}/data"
    if segment == 1:
        assert SingleFileReader(fs, path).last == 2
    else:
        with pytest.raises(NotALog, match="one file of a log"):
            SingleFileReader(fs, path)


def test_something_else_is_no_log(fs: MemoryFileSystem) -> None:
    file = fs.open("films", "x")
    file.append([b"something else"])
    file.close()
    with pytest.raises(NotALog):
        SingleFileReader(fs, "films")


# ---------------------------------------------------------------------- writing


@pytest.mark.parametrize("name", ["films", "films.writing"])
def test_a_name_that_is_taken_is_refused(fs: MemoryFileSystem, name: str) -> None:
    fs.open(name, "x").close()
    with pytest.raises(UsageError, match=f"{name} is there already"):
        write_single(fs, "films", blocks())
    assert fs.listdir("") == [name]
    assert fs.read_bytes(name) == b""


def test_blocks_that_do_not_follow_each_other_are_refused(fs: MemoryFileSystem) -> None:
    with pytest.raises(UsageError, match="a block from 8 on cannot follow 4"):
        write_single(fs, "films", [*blocks()[:2], *blocks()[3:]])
    assert fs.listdir("") == []


def test_a_full_disk_leaves_nothing_behind(fs: MemoryFileSystem) -> None:
    fs.capacity_bytes = 700
    with pytest.raises((DiskFull, OSError)):
        write_single(fs, "films", blocks())
    assert fs.listdir("") == []


@pytest.mark.parametrize("operation", ["append", "sync", "replace", "open", "mkdir"])
def test_a_failure_leaves_nothing_behind(fs: MemoryFileSystem, operation: str) -> None:
    fs.fail(operation, "films", errno.EIO)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="error"):
        write_single(fs, "films", blocks())
    assert fs.listdir("") == []


def test_an_error_among_the_blocks_leaves_nothing_behind(fs: MemoryFileSystem) -> None:
    def failing() -> Iterator[Block]:
        yield from blocks()[:2]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_single(fs, "films", failing())
    assert fs.listdir("") == []


def test_a_crash_leaves_the_whole_file_or_none() -> None:
    fs = MemoryFileSystem()
    write_single(fs, "films", blocks())
    calls = len(fs.operations)
    outcomes = set()
    for call in range(1, calls + 1):
        fs = MemoryFileSystem()
        fs.crash_at = call
        with pytest.raises(SimulatedCrash):
            write_single(fs, "films", blocks())
        for left in [*fs.crash_states(16, seed=call), fs.kill()]:
            outcomes.add(left.exists("films"))
            if left.exists("films"):
                with SingleFileReader(left, "films") as reader:
                    assert len(records_of(reader)) == 12
    assert outcomes == {True, False}
