"""Segments of another log that become the next ones of this log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sirius.errors import CorruptLog, DiskFull, OutOfOrder, UsageError
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import Seq
from sirius.wal import (
    Block,
    CompactionPolicy,
    Log,
    LogConfig,
    Op,
    Record,
    SegmentInfo,
    Update,
)
from sirius.wal.block import seal
from sirius.wal.incoming import Incoming
from sirius.wal.parts import Part
from sirius.wal.store import Store
from sirius.wal.verify.verify import verify

ROOT = "log"
CONFIG = LogConfig(background=False, reserve_bytes=0, segment_records_max=4, retire_after_s=0.0)


def open_log(fs: MemoryFileSystem, config: LogConfig = CONFIG) -> Log:
    return Log.open(ROOT, config, fs=fs, now_us=lambda: 1_700_000_000_000_000)


def made(records: int, config: LogConfig = CONFIG) -> MemoryFileSystem:
    """A log whose every record is a group of its own, so that there is a mark behind each."""
    fs = MemoryFileSystem()
    with open_log(fs, config) as log:
        for at in range(1, records + 1):
            log.put(f"key/{at}", b"body %d" % at)
            log.flush()
    return fs


def parts_of(log: Log, first: int = 1) -> list[Part]:
    with log.snapshot() as snapshot:
        return list(snapshot.parts(first))


def move(source: Log, target: Log, parts: Iterable[Part], step: int = 100) -> None:
    """Take parts of one log into another, a few bytes at a time."""
    for part in parts:
        incoming = target.receive(part)
        for offset in range(0, part.bytes, step):
            length = min(step, part.bytes - offset)
            write(incoming, source.read_raw(part.segment, part.offset + offset, length))
        target.install(incoming.finish())


def received(source: Log, target: Log, part: Part) -> SegmentInfo:
    incoming = target.receive(part)
    write(incoming, source.read_raw(part.segment, part.offset, part.bytes))
    return incoming.finish()


def write(incoming: Incoming, data: bytes) -> None:
    """Put bytes where there is room for them, as often as that takes."""
    while data:
        with incoming.room() as room:
            count = min(len(room), len(data))
            assert count, "there is room for all that was offered"
            room[:count] = data[:count]
        incoming.filled(count)
        data = data[count:]


def take(incoming: Incoming, data: bytes) -> None:
    write(incoming, data)
    incoming.finish()


def contents(fs: MemoryFileSystem) -> list[Record]:
    with open_log(fs) as log:
        return list(log.records())


def test_an_empty_log_takes_all_of_another_as_files() -> None:
    source, fs = open_log(made(10)), MemoryFileSystem()
    with source, open_log(fs) as target:
        parts = parts_of(source)
        assert [(part.first, part.last) for part in parts] == [(1, 4), (5, 8), (9, 10)]
        move(source, target, parts)
        assert (target.next_seq, target.durable_seq) == (11, 10)
        assert list(target.records()) == list(source.records())
        target.put("after", b"")
        target.flush()
        wanted = [*source.records(), target.record(11)]
    assert contents(fs) == wanted
    assert verify(Store(fs, ROOT), deep=True).sound


def test_what_the_log_has_is_sealed_and_what_follows_may_begin_inside_a_segment() -> None:
    source, fs = open_log(made(10)), made(6)
    with source, open_log(fs) as target:
        parts = parts_of(source, 7)
        assert [(part.first, part.last) for part in parts] == [(7, 8), (9, 10)]
        move(source, target, parts, step=1 << 20)
        wanted = list(source.records())
        assert [info.first for info in target.manifest.segments] == [1, 5, 7, 9, 11]
    assert contents(fs) == wanted
    assert verify(Store(fs, ROOT), deep=True).sound


@pytest.mark.parametrize("step", [1, 7, 48, 64, 1000])
def test_bytes_may_be_cut_anywhere(step: int) -> None:
    with open_log(made(3)) as source, open_log(MemoryFileSystem()) as target:
        move(source, target, parts_of(source), step)
        assert list(target.records()) == list(source.records())


def test_it_says_how_much_has_come_and_takes_no_more_than_was_offered() -> None:
    with open_log(made(3)) as source, open_log(MemoryFileSystem()) as target:
        [part] = parts_of(source)
        data = source.read_raw(part.segment, part.offset, part.bytes)
        incoming = target.receive(part)
        assert (incoming.taken, incoming.left) == (0, part.bytes)
        for at in range(part.bytes):
            with incoming.room() as room:
                assert len(room) == part.bytes - at
            write(incoming, data[at : at + 1])
            assert (incoming.taken, incoming.left) == (at + 1, part.bytes - at - 1)
        with incoming.room() as room:
            assert not room
        target.install(incoming.finish())
        assert list(target.records()) == list(source.records())


@pytest.mark.parametrize("size", [100_000, 1_040_000, 1_048_576, 3_000_000])
def test_blocks_of_any_length_find_room(size: int) -> None:
    """Small ones in front, so that the large one begins somewhere in the buffer, and is cut there."""
    fs = MemoryFileSystem()
    with open_log(fs) as source, open_log(MemoryFileSystem()) as target:
        for each in (10, size, 20, 2 * size):
            source.put(f"key/{each}", bytes(each))
            source.flush()
        move(source, target, parts_of(source), step=1 << 30)
        assert list(target.records()) == list(source.records())


def test_holes_travel_too() -> None:
    fs = MemoryFileSystem()
    with open_log(fs) as source, open_log(MemoryFileSystem()) as target:
        for _ in range(3):
            for key in ("a", "b", "c", "d"):
                source.put(key, b"x")
        source.rotate()
        source.compact(CompactionPolicy(dead_fraction_min=0.0))
        move(source, target, parts_of(source))
        assert [record.seq for record in target.records()] == [9, 10, 11, 12]
        assert target.durable_seq == 12


def test_a_part_that_begins_inside_a_block_is_not_offered() -> None:
    with open_log(MemoryFileSystem()) as log:
        for _ in range(2):
            log.write([Update(Op.PUT, b"k", b"v")] * 3)
        log.flush()
        assert [(part.first, part.last) for part in parts_of(log, 2)] == [(4, 6)]
        assert parts_of(log, 5) == []


def test_a_segment_that_is_set_apart_is_not_offered_and_ends_the_offer() -> None:
    with open_log(made(14)) as log:
        second, third = (info.id for info in log.manifest.segments[1:3])
        log.quarantine(second, "for the test")
        assert [(part.first, part.last) for part in parts_of(log)] == [(1, 4)]
        assert [part.first for part in parts_of(log, 5)] == [9, 13]
        log.quarantine(third, "for the test")
        assert [part.first for part in parts_of(log, 9)] == [13]


def test_every_flipped_bit_is_found_and_nothing_changes() -> None:
    source, fs = open_log(made(4)), made(2)
    with source, open_log(fs) as target:
        [part] = parts_of(source, 3)
        good = source.read_raw(part.segment, part.offset, part.bytes)
        before = target.manifest
        for at in range(part.bytes):
            bad = bytearray(good)
            bad[at] ^= 1 << at % 8
            incoming = target.receive(part)
            with pytest.raises(CorruptLog, match="from elsewhere"):
                take(incoming, bytes(bad))
            incoming.discard()
        assert target.manifest.segments == before.segments
        assert not [name for name in fs.listdir(f"{ROOT}/segments") if name.endswith(".tmp")]
        move(source, target, [part])
        assert target.durable_seq == 4


def test_bytes_that_are_not_what_was_offered_are_refused() -> None:
    with open_log(made(8)) as source, open_log(MemoryFileSystem()) as target:
        whole, other = parts_of(source)
        data = source.read_raw(whole.segment, whole.offset, whole.bytes)
        for offer, sent in (
            (whole, data[:-64]),  # it ends early
            (whole._replace(last=Seq(whole.last - 1)), data),  # it goes on
            (whole._replace(last=Seq(whole.last + 1)), data),
            (whole._replace(first=Seq(whole.first + 1)), data),
            (whole._replace(checksum=whole.checksum ^ 1), data),
            (other, data),
        ):
            incoming = target.receive(offer)
            with pytest.raises(CorruptLog, match="from elsewhere"):
                take(incoming, sent)
            incoming.discard()
        assert target.durable_seq == 0


def test_it_stands_only_where_the_log_ends() -> None:
    with open_log(made(8)) as source, open_log(made(3)) as target:
        _, part = parts_of(source)
        incoming = target.receive(part)
        write(incoming, source.read_raw(part.segment, part.offset, part.bytes))
        info = incoming.finish()
        with pytest.raises(OutOfOrder, match="a segment from 5 on cannot stand at 4"):
            target.install(info)
        with pytest.raises(UsageError, match="finished"):
            incoming.finish()
        incoming.discard()
        assert target.durable_seq == 3


def test_a_snapshot_sees_what_was_there_and_a_new_one_everything() -> None:
    with open_log(made(8)) as source, open_log(made(4)) as target, target.snapshot() as old:
        move(source, target, parts_of(source, 5))
        assert [record.seq for record in old.records()] == [1, 2, 3, 4]
        with target.snapshot() as new:
            assert [record.seq for record in new.records()] == list(range(1, 9))


def test_a_full_disk_leaves_the_log_as_it_was_and_it_goes_on_later() -> None:
    with open_log(made(8)) as source, open_log(fs := made(3)) as target:
        part, *_ = parts_of(source, 4)
        attempts = 0
        while target.durable_seq == 3:
            fs.capacity_bytes = fs.used_bytes + 40 * attempts
            with suppress(DiskFull, OSError):
                move(source, target, [part])
            attempts += 1
            target.resume()
        assert attempts > 5
        fs.capacity_bytes = None
        target.put("after", b"")
        assert target.flush() == part.last + 1
    assert len(contents(fs)) == part.last + 1
    assert verify(Store(fs, ROOT)).sound


@pytest.mark.parametrize("each", [2, pytest.param(4, marks=pytest.mark.deep)])
def test_a_crash_anywhere_leaves_the_log_before_or_after(each: int) -> None:
    states = 0
    for own in (0, 2, 4):
        with open_log(made(9)) as source:
            states += _crash_everywhere(source, made(own), own, each)
    assert states > 60 * (each + 1)


def _crash_everywhere(source: Log, fs: MemoryFileSystem, own: int, each: int) -> int:
    """Crash at every call, look at so many states of each, and return how many there were."""
    parts = parts_of(source, own + 1)
    before = contents(fs)
    whole = fs.clone()
    with open_log(whole) as log:
        move(source, log, parts)
        after = list(log.records())
    wanted = [before, *(after[: part.last] for part in parts)]
    states = 0
    for call in range(len(fs.operations) + 1, len(whole.operations) + 1):
        crashing = fs.clone()
        crashing.crash_at = call
        with pytest.raises(SimulatedCrash), open_log(crashing) as log:
            move(source, log, parts)
        for left in [*crashing.crash_states(each, seed=call), crashing.kill()]:
            assert contents(left) in wanted
            assert verify(Store(left, ROOT)).sound
            states += 1
    return states


def test_what_was_installed_survives_power_loss() -> None:
    with open_log(made(9)) as source, open_log(fs := made(2)) as target:
        parts = parts_of(source, 3)
        for part in parts:
            move(source, target, [part])
            assert len(contents(fs.synced())) == part.last


def test_a_segment_may_become_part_of_a_staged_log() -> None:
    config = replace(CONFIG, segment_records_max=100)
    with open_log(made(9)) as source, open_log(fs := made(5), config) as target:
        first, second, third = parts_of(source)
        staging = target.stage()
        staging.add(received(source, target, first))
        with pytest.raises(OutOfOrder, match="a segment from 9 on cannot stand at 5"):
            staging.add(received(source, target, third))
        staging.append(source.blocks(second.first, second.last))
        staging.add(received(source, target, third))
        staging.finish(0)
        assert [info.first for info in target.manifest.segments] == [1, 5, 9, 10]
        wanted = list(source.records())
    assert contents(fs) == wanted
    assert verify(Store(fs, ROOT)).sound


def test_a_staged_log_that_is_discarded_takes_its_segments_along() -> None:
    with open_log(made(4)) as source, open_log(fs := made(2)) as target:
        staging = target.stage()
        staging.add(received(source, target, parts_of(source)[0]))
        staging.discard()
        assert not [name for name in fs.listdir(f"{ROOT}/segments") if name.endswith(".tmp")]


def test_a_log_of_a_real_disk_syncs_while_it_writes(tmp_path: Path) -> None:
    """Blocks large enough that syncs happen on the way, in a thread of their own."""
    config = LogConfig(reserve_bytes=0)
    with Log.open(tmp_path / "a", config) as source, Log.open(tmp_path / "b", config) as target:
        for at in range(9):
            source.put(f"key/{at}", bytes(8 << 20))
        source.flush()
        move(source, target, parts_of(source), step=1 << 20)
        assert list(target.records()) == list(source.records())


def test_blocks_with_many_entries_are_checked_too() -> None:
    config = LogConfig(background=False, reserve_bytes=0)
    with open_log(MemoryFileSystem(), config) as source, open_log(MemoryFileSystem()) as target:
        source.write([Update(Op.PUT, b"k%d" % at, b"v") for at in range(200)])
        source.flush()
        [part] = parts_of(source)
        good = source.read_raw(part.segment, part.offset, part.bytes)
        block = Block.trusted(good[: part.bytes])
        entries = block.entries.copy()
        entries["seq"][7] = 9
        bad = seal(1, 200, entries, (good[block.keys_at : block.bodies_at],), (b"v" * 200,))
        incoming = target.receive(part)
        with pytest.raises(CorruptLog, match="sequence numbers do not increase"):
            write(incoming, bad.raw)
        incoming.discard()
        move(source, target, [part])
