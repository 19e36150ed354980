"""Ranges that a log cannot give: every way of reading says so, and none passes them over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sirius.errors import CorruptFile, CorruptLog, RangeUnavailable
from sirius.testing import MemoryFileSystem
from sirius.testing.logs import SMALL_LOG
from sirius.wal import (
    CompactionPolicy,
    Limits,
    Log,
    LogReader,
    Snapshot,
    diff,
    state_digest,
)
from sirius.wal.block import Block, encode
from sirius.wal.record import Op, Update

CONFIG = replace(SMALL_LOG, segment_records_max=10, retire_after_s=0)
EAGER = CompactionPolicy(dead_fraction_min=0)

READS: dict[str, Callable[[Snapshot], object]] = {
    "records": lambda snapshot: list(snapshot.records()),
    "batches": lambda snapshot: list(snapshot.batches()),
    "blocks": lambda snapshot: list(snapshot.blocks()),
    "segments": lambda snapshot: [list(snapshot.segment_batches(i)) for i in snapshot.segments],
    "digest": state_digest,
    "diff": lambda snapshot: list(diff(snapshot, snapshot)),
    "record": lambda snapshot: snapshot.record(15),
}
EVERY_READ = pytest.mark.parametrize("read", READS.values(), ids=READS.keys())


def data(number: int) -> str:
    return f"log/segments/{number:08d}/data"


def filled(fs: MemoryFileSystem) -> Log:
    """A log of three full segments and one that has begun. Every key is written twice."""
    log = Log.open("log", CONFIG, fs=fs)
    for seq in range(1, 36):
        log.put(f"key/{seq % 18}", b"%d" % seq)
        log.flush()
    return log


def block_offsets(log: Log, number: int) -> list[int]:
    with log.snapshot() as snapshot:
        table = snapshot.index(snapshot.segments[number - 1])
    return [int(offset) for offset in table["offset"]]


# --- set apart ------------------------------------------------------------------------------------


@EVERY_READ
def test_a_segment_that_was_set_apart_is_not_passed_over(
    read: Callable[[Snapshot], object],
) -> None:
    log = filled(MemoryFileSystem())
    log.quarantine(log.manifest.segments[1].id, "rot")
    with log.snapshot() as snapshot, pytest.raises(RangeUnavailable, match="rot") as caught:
        read(snapshot)
    assert caught.value.first in (11, 15)


@EVERY_READ
def test_nor_is_the_active_one_that_was_set_apart_when_the_log_was_opened(
    read: Callable[[Snapshot], object],
) -> None:
    fs = MemoryFileSystem()
    filled(fs).close()
    fs.flip(data(4), 200)
    with Log.open("log", CONFIG, fs=fs, on_corrupt="quarantine") as log:
        assert log.next_seq == 36
        with log.snapshot() as snapshot:
            assert list(snapshot.records(1, 30))
            if read is not READS["record"]:
                with pytest.raises(RangeUnavailable) as caught:
                    read(snapshot)
                assert (caught.value.first, caught.value.last) == (31, 35)


def test_what_lies_around_it_can_be_read() -> None:
    log = filled(MemoryFileSystem())
    before = list(log.records())
    log.quarantine(log.manifest.segments[1].id, "rot")
    assert list(log.records(1, 10)) == before[:10]
    assert list(log.records(21)) == before[20:]
    assert log.record(10) == before[9]
    with pytest.raises(RangeUnavailable) as caught:
        list(log.records(5, 12))
    assert (caught.value.first, caught.value.last) == (11, 12)


# --- damage while the log is open -----------------------------------------------------------------


@EVERY_READ
@pytest.mark.parametrize("cut", [0, 5, 9])
def test_a_segment_cut_at_a_block_under_an_open_log_is_not_taken_for_short(
    read: Callable[[Snapshot], object], cut: int
) -> None:
    fs = MemoryFileSystem()
    log = filled(fs)
    fs.cut(data(2), block_offsets(log, 2)[min(cut, 4) if read is READS["record"] else cut])
    with log.snapshot() as snapshot, pytest.raises(CorruptLog):
        read(snapshot)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("cut", [0, 5, 9])
def test_compaction_does_not_make_a_loss_permanent(number: int, cut: int) -> None:
    fs = MemoryFileSystem()
    log = filled(fs)
    offset = block_offsets(log, number)[cut]
    fs.cut(data(number), offset)
    assert log.compact(EAGER).damaged == (number,)
    with pytest.raises(RangeUnavailable) as caught:
        list(log.records())
    first = 10 * number - 9
    assert (caught.value.first, caught.value.last) == (first, first + 9)
    assert len(fs.read_bytes(data(number))) == offset


def test_a_reader_believes_an_index_that_a_mark_vouches_for() -> None:
    fs = MemoryFileSystem()
    log = Log.open("log", SMALL_LOG, fs=fs)
    for seq in range(600):
        log.put(f"key/{seq}", b"")
        log.flush()
    fs.flip(data(1), block_offsets(log, 1)[3] + 70)
    reader = LogReader.open("log", fs=fs)
    assert (reader.last, reader.torn) == (600, None)
    assert [record.key for record in reader.snapshot().records(5)][-1] == "key/599"
    with pytest.raises(CorruptFile):
        list(reader.snapshot().records())
    fs.flip("log/segments/00000001/index", 40)
    assert LogReader.open("log", fs=fs).torn is not None


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [150, 1000, 4096])
def test_compaction_makes_no_block_that_nobody_would_read(limit: int) -> None:
    fs = MemoryFileSystem()
    limits = Limits(key_bytes_max=20, body_bytes_max=200, block_bytes_max=limit)
    config = replace(SMALL_LOG, segment_records_max=40, limits=limits)
    with Log.open("log", config, fs=fs) as log:
        for seq in range(200):
            log.put(f"key/{seq % 120}", b"v" * (seq % 20))
            log.flush()
        before = list(log.records(81))
        assert log.compact(EAGER).records_dropped
        assert list(log.records(81)) == before
        assert max(map(len, log.blocks())) <= limit


def test_a_large_block_behind_a_small_one_stays_within_the_limit() -> None:
    fs = MemoryFileSystem()
    limits = Limits(body_bytes_max=2**20, block_bytes_max=2 * 2**20 + 400)
    large = [Update(Op.PUT, b"k1", b"v" * 2**20), Update(Op.PUT, b"k2", b"w" * 2**20)]
    with Log.open("log", replace(CONFIG, segment_records_max=4, limits=limits), fs=fs) as log:
        log.put("again", b"")
        log.put("small", b"v" * 700_000)
        log.append(encode(3, large, 1, limits))
        log.put("again", b"")
        log.flush()
        assert log.compact(EAGER).records_dropped == 1
        parsed = [Block.parse(block.raw, limits) for block in log.blocks()]
        assert sum(block.count for block in parsed) == 4
