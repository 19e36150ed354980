"""A whole log that takes the place of another, in one step."""

from __future__ import annotations

import pytest

from sirius.errors import OutOfOrder, UsageError
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import Seq
from sirius.wal import Block, CompactionPolicy, Log, LogConfig, Op, Record, Update, encode
from sirius.wal.store import Store
from sirius.wal.verify.verify import verify

ROOT = "log"
CONFIG = LogConfig(background=False, reserve_bytes=0, segment_records_max=4, retire_after_s=0.0)


def open_log(fs: MemoryFileSystem) -> Log:
    return Log.open(ROOT, CONFIG, fs=fs, now_us=lambda: 1_700_000_000_000_000)


def made(records: int = 6) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    with open_log(fs) as log:
        for at in range(records):
            log.put(f"old/{at}", b"old")
            log.flush()
    return fs


def theirs(last: int = 11) -> list[Block]:
    """The log of somebody else: holes, and one entry in three."""
    entry = Update(Op.PUT, b"theirs", b"new")
    blocks = [Block.hole(1, 2), encode(3, [entry], 0), Block.hole(4, 5)]
    return [*blocks, *(encode(at, [entry], 0) for at in range(6, last + 1))]


def contents(fs: MemoryFileSystem) -> list[Record]:
    with open_log(fs) as log:
        return list(log.records())


def renew(log: Log, floor: int = 5) -> None:
    staging = log.stage()
    staging.append(theirs())
    staging.finish(floor)


def test_a_staged_log_becomes_the_log_and_goes_on() -> None:
    fs = made()
    with open_log(fs) as log:
        uid = log.manifest.uid
        renew(log)
        assert [record.seq for record in log.records()] == [3, 6, 7, 8, 9, 10, 11]
        assert (log.next_seq, log.durable_seq, log.tombstone_floor) == (12, 11, 5)
        log.put("after", b"")
        log.flush()
        assert log.manifest.uid == uid
    assert [record.key for record in contents(fs)] == [*["theirs"] * 7, "after"]
    assert verify(Store(fs, ROOT)).sound


def test_the_log_in_force_goes_on_until_the_end_and_may_not_be_longer() -> None:
    fs = made()
    with open_log(fs) as log:
        staging = log.stage()
        staging.append(theirs(7))
        log.write([Update(Op.PUT, b"more")] * 3)
        log.flush()
        before = list(log.records())
        with pytest.raises(OutOfOrder, match="a log up to 7 cannot take the place of one up to 9"):
            staging.finish(5)
        assert list(log.records()) == before
        staging.discard()
    assert contents(fs) == before
    assert verify(Store(fs, ROOT)).sound


def test_blocks_come_in_order_and_only_while_it_is_open() -> None:
    with open_log(made()) as log:
        staging = log.stage()
        with pytest.raises(OutOfOrder, match="a block from 3 on cannot stand at 1"):
            staging.append(theirs()[1:])
        with pytest.raises(UsageError, match="an empty log"):
            staging.finish(0)
        staging.discard()
        staging.discard()
        with pytest.raises(UsageError, match="discarded"):
            staging.append(theirs())


def test_a_reader_of_the_old_log_keeps_what_it_reads() -> None:
    with open_log(made()) as log, log.snapshot() as snapshot:
        renew(log)
        assert [record.key for record in snapshot.records()] == [f"old/{at}" for at in range(6)]


def test_the_era_is_another_one_when_deletes_were_dropped_and_only_then() -> None:
    fs = MemoryFileSystem()
    with open_log(fs) as log:
        for _ in range(4):
            log.put("k", b"v")
            log.delete("k")
        log.rotate()
        eras = [log.manifest.era]
        log.compact(CompactionPolicy(dead_fraction_min=0.0))
        eras.append(log.manifest.era)
        log.compact(CompactionPolicy(dead_fraction_min=0.0, drop_deletes_upto=Seq(8)))
        eras.append(log.manifest.era)
        renew(log)
        eras.append(log.manifest.era)
    assert eras[0] == eras[1] == 0 < eras[2] < eras[3]
    with open_log(fs) as log:
        assert log.manifest.era == eras[3]


def test_a_crash_anywhere_leaves_the_one_log_or_the_other() -> None:
    fs = made()
    before = contents(fs)
    whole = fs.clone()
    with open_log(whole) as log:
        renew(log)
        after = list(log.records())
    states = 0
    for call in range(len(fs.operations) + 1, len(whole.operations) + 1):
        crashing = fs.clone()
        crashing.crash_at = call
        with pytest.raises(SimulatedCrash), open_log(crashing) as log:
            renew(log)
        for left in [*crashing.crash_states(4, seed=call), crashing.kill()]:
            assert contents(left) in (before, after)
            assert verify(Store(left, ROOT)).sound
            states += 1
    assert states > 100
