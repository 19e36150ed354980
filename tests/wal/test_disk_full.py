"""A full disk: refused cleanly, readable, compacted from the reserve, and going on afterwards."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from sirius.errors import DiskFull, LogFailed
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Durability, Log, LogConfig, Op
from tests.wal.bookkeeping import EAGER, SMALL, Books, Issued, mode, open_log
from tests.wal.histories import random_history, updates

ROOMY: Final = replace(SMALL, segment_bytes_max=3000, reserve_bytes=6000, retire_after_s=600.0)


@dataclass
class Filling:
    """A log on a disk of limited size, and the books of what it took."""

    capacity_bytes: int | None
    config: LogConfig = ROOMY
    fs: MemoryFileSystem = field(init=False)
    log: Log = field(init=False)
    books: Books = field(default_factory=Books)
    refused: int = 0

    def __post_init__(self) -> None:
        self.fs = MemoryFileSystem(capacity_bytes=self.capacity_bytes)
        self.log = open_log(self.fs, self.config)

    def put(self, key: str, size: int = 100) -> None:
        """Append and flush; what is refused must not have been issued."""
        entry: Issued = (Op.PUT, key, b"%d " % len(self.books.issued) + bytes(size))
        self.log.write(updates([entry]))
        self.log.flush()
        self.books.issued.append(entry)
        self.books.flushed = self.books.appended = len(self.books.issued)

    def fill(self, keys: int = 7) -> None:
        """Write until the disk is full."""
        with suppress(DiskFull):
            for number in range(10_000):
                self.put(f"key{number % keys}")
        assert self.log.disk_full

    def check(self) -> None:
        self.books.check(self.log)

    def reopened(self) -> Log:
        self.log.close()
        self.log = open_log(self.fs, self.config)
        return self.log


def test_a_full_disk_refuses_appends_and_loses_nothing() -> None:
    disk = Filling(30_000)
    disk.fill()
    disk.check()
    assert isinstance(disk.log.failure, DiskFull)
    assert not disk.log.failure.outcome_unknown
    with pytest.raises(DiskFull):
        disk.put("more")
    with pytest.raises(DiskFull):
        disk.log.flush()
    disk.check()


@pytest.mark.parametrize("round_of", range(3))
def test_compaction_from_the_reserve_makes_room_and_the_log_goes_on(round_of: int) -> None:
    disk = Filling(30_000 + 37 * round_of)
    for _ in range(4):
        disk.fill()
        result = disk.log.compact(EAGER)
        assert result.bytes_freed > 0
        disk.check()
        disk.log.resume()
        assert not disk.log.disk_full
        disk.put("after")
        disk.check()
    disk.reopened()
    disk.check()


def test_the_reserve_is_there_again_afterwards() -> None:
    disk = Filling(40_000)
    disk.fill()
    disk.log.compact(EAGER)
    assert len(disk.fs.read_bytes("log/RESERVE")) == ROOMY.reserve_bytes
    assert disk.fs.capacity_bytes is not None
    assert disk.fs.used_bytes < disk.fs.capacity_bytes / 2


def test_without_compaction_resume_finds_the_disk_still_full() -> None:
    disk = Filling(30_000)
    disk.fill()
    disk.log.resume()
    with pytest.raises(DiskFull):
        disk.put("more", 2000)
    disk.check()


def test_a_log_with_nothing_dead_stays_full_and_whole() -> None:
    disk = Filling(30_000)
    disk.fill(keys=10_000)
    assert disk.log.compact(EAGER).bytes_freed <= 0
    disk.log.resume()
    with pytest.raises(DiskFull):
        disk.put("more", 4000)
    disk.check()


def test_a_pass_larger_than_the_reserve_frees_each_segment_before_the_next() -> None:
    """Half of each of many segments is dead: all that lives would never fit into the reserve."""
    config = replace(ROOMY, segment_bytes_max=4000, reserve_bytes=7000)
    disk = Filling(150_000, config)
    with suppress(DiskFull):
        for number in range(10_000):
            disk.put(f"live{number}", 200)
            disk.put("dead", 200)
    assert disk.log.disk_full
    live = sum(len(entry[2]) for entry in disk.books.issued[::2])
    assert live > 2 * config.reserve_bytes
    result = disk.log.compact(CompactionPolicy(dead_fraction_min=0.25))
    assert result.bytes_freed > live / 2
    disk.log.resume()
    disk.check()
    disk.put("after", 2000)


def test_a_pass_that_meets_a_full_disk_before_any_append_does_lends_the_reserve_too() -> None:
    disk = Filling(None)
    for number in range(60):
        disk.put(f"key{number % 5}")
    disk.fs.capacity_bytes = disk.fs.used_bytes
    assert not disk.log.disk_full
    assert disk.log.compact(EAGER).bytes_freed > 0
    disk.check()


def test_a_pass_without_any_reserve_says_that_the_disk_is_full_and_harms_nothing() -> None:
    disk = Filling(None, replace(ROOMY, reserve_bytes=0))
    for number in range(60):
        disk.put(f"key{number}" if number % 2 else "dead", 150)
    disk.log.retire(at_once=True)
    disk.fs.capacity_bytes = disk.fs.used_bytes
    with pytest.raises(DiskFull):
        disk.log.compact(EAGER)
    disk.check()
    disk.fs.capacity_bytes = None
    assert disk.log.compact(EAGER).records_dropped > 0
    disk.check()


# --- at every byte --------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", Durability)
def test_wherever_the_room_ends_the_refused_group_is_not_there(durability: Durability) -> None:
    """With each more byte of room another call is the one that fails: write, mark, rotation,
    manifest. What was flushed is there; what was refused is not, unless its segment was sealed."""
    outcomes = set[str]()
    for room in (*range(0, 1900, 21), 20_000):
        disk = Filling(None, mode(durability))
        for number in range(3):
            disk.put(f"key{number}")
        disk.fs.capacity_bytes = disk.fs.used_bytes + room
        outcomes.add(write_group(disk))
        disk.check()
        disk.fs.capacity_bytes = None
        disk.log.resume()
        disk.put("after")
        disk.check()
        disk.reopened()
        disk.check()
    assert outcomes == {"written", "refused", "partly"}


def write_group(disk: Filling) -> str:
    """Write one group of several blocks; note in the books what the log says became of it."""
    log, before = disk.log, len(disk.books.issued)
    group = [(Op.PUT, f"group{n}", bytes(150)) for n in range(8)]
    with suppress(DiskFull):
        for entry in group:
            log.write(updates([entry]))
        log.flush()
    held = log.durable_seq - before
    disk.books.issued += group[:held]
    disk.books.flushed = log.durable_seq
    return {0: "refused", 8: "written"}.get(held, "partly")


def test_a_part_of_a_group_that_was_sealed_counts_as_written() -> None:
    """Its writer must not be told that it is not in the log: it is, and would be written twice."""
    disk = Filling(None)
    disk.put("a")
    disk.fs.capacity_bytes = disk.fs.used_bytes + 4500
    told = list[int]()
    disk.log.on_durable(told.append)
    blocks = [disk.log.put(f"group{n}", bytes(400)) for n in range(20)]
    with pytest.raises(DiskFull):
        disk.log.flush()
    durable = disk.log.durable_seq
    assert told == [durable]
    assert 1 < durable < blocks[-1]
    assert durable == disk.log.manifest.active.first - 1
    disk.fs.capacity_bytes = None
    disk.log.resume()
    assert disk.log.durable_seq == durable
    assert disk.log.put("next", b"") == durable + 1
    assert [record.seq for record in disk.log.records()][-1] == durable


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.MEMORY])
def test_what_was_refused_does_not_come_back_with_a_power_loss(durability: Durability) -> None:
    states = 0
    for room in range(150, 700, 50):
        disk = Filling(None, mode(durability, ROOMY))
        disk.put("a")
        disk.reopened()
        disk.books.closed = 1
        disk.fs.capacity_bytes = disk.fs.used_bytes + room
        for number in range(5):
            disk.log.put(f"refused{number}", bytes(100))
        with pytest.raises(DiskFull):
            disk.log.flush()
        for state in disk.fs.crash_states(50):
            states += 1
            state.capacity_bytes = None
            with open_log(state, disk.config) as log:
                assert disk.books.check(log) == 1
    assert states > 20


@pytest.mark.parametrize("room", range(0, 400, 40))
def test_a_log_on_a_full_disk_can_be_closed_and_opened(room: int) -> None:
    disk = Filling(None)
    for number in range(20):
        disk.put(f"key{number % 4}")
    disk.fs.capacity_bytes = disk.fs.used_bytes + room
    disk.reopened()
    disk.check()
    with pytest.raises(DiskFull):
        disk.put("more", 4000)
    disk.reopened()
    disk.check()
    disk.log.compact(EAGER)
    disk.check()


def test_a_crash_while_compacting_from_the_reserve_loses_nothing() -> None:
    whole = Filling(14_000)
    whole.fill()
    begun = len(whole.fs.operations)
    whole.log.compact(EAGER)
    calls = range(begun + 1, len(whole.fs.operations) + 1)
    assert len(calls) > 30
    for at in calls[::2]:
        disk = Filling(14_000)
        disk.fill()
        disk.fs.crash_at = at
        with pytest.raises(SimulatedCrash):
            disk.log.compact(EAGER)
        for state in (disk.fs.kill(), *disk.fs.crash_states(3, seed=at)):
            with open_log(state, ROOMY) as log:
                disk.books.check(log)


def test_a_log_that_is_asked_often_while_the_disk_is_full_keeps_nothing_of_it() -> None:
    """An error that is raised again and again would collect a traceback, and with it blocks."""
    disk = Filling(12_000)
    disk.fill()
    for _ in range(100):
        with suppress(DiskFull):
            disk.put("more")
    assert disk.log.failure is not None
    frames, trace = 0, disk.log.failure.__traceback__
    while trace is not None:
        frames, trace = frames + 1, trace.tb_next
    assert frames < 20


def test_a_rotation_that_finds_no_room_leaves_no_file_open() -> None:
    disk = Filling(None)
    disk.put("a", 2500)
    handles = []
    for _ in range(5):
        disk.fs.fail("append", "00000002/data", errno.ENOSPC)
        with suppress(DiskFull):
            disk.put("b", 2500)
        assert disk.log.disk_full
        disk.log.resume()
        handles.append(sum(disk.fs._disk.open_counts.values()))
    assert handles[0] == handles[-1]
    disk.put("c", 2500)
    disk.check()


# --- other failures -------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["append", "sync", "truncate"])
def test_a_disk_that_fails_stops_the_log_for_good(operation: str) -> None:
    """EIO is not a full disk: nothing is taken back for certain, so nothing may follow."""
    disk = Filling(None)
    disk.put("a")
    disk.fs.fail(operation, "/data", errno.EIO)  # type: ignore[arg-type]
    if operation == "truncate":
        disk.fs.capacity_bytes = disk.fs.used_bytes + 20
    with pytest.raises(LogFailed) as failed:
        disk.put("b")
    assert failed.value.outcome_unknown
    assert not disk.log.disk_full
    disk.log.resume()
    with pytest.raises(LogFailed):
        disk.put("c")
    disk.fs.capacity_bytes = None
    after = disk.fs.kill()
    with open_log(after, ROOMY) as log:
        held = log.durable_seq
        assert 1 <= held <= 2
        assert log.put("d", b"") == held + 1


@pytest.mark.parametrize("seed", range(3))
def test_random_work_on_a_disk_that_is_nearly_full(seed: int) -> None:
    rng = random.Random(seed)
    disk = Filling(24_000 + rng.randrange(500))
    for entry in random_history(rng, 400, keys=6):
        try:
            disk.log.write(updates([entry]))
            disk.log.flush()
        except DiskFull:
            disk.refused += 1
            disk.books.dropped_upto = disk.log.durable_seq
            disk.log.compact(replace(EAGER, drop_deletes_upto=Seq(disk.log.durable_seq)))
            disk.log.resume()
        else:
            disk.books.issued.append(entry)
            disk.books.flushed = len(disk.books.issued)
        if rng.random() < 0.02:
            disk.reopened()
    disk.check()
    assert disk.refused > 0
