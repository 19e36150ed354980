"""Truncation: the log as it was, or as it should be, whatever happens on the way."""

from __future__ import annotations

import errno
import threading

import pytest

from sirius.errors import DiskFull, LogError, RangeUnavailable
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import SegmentId, Seq
from sirius.wal import (
    CompactionPolicy,
    Durability,
    Log,
    LogConfig,
    LogReader,
    Manifest,
    Op,
    Record,
    SegmentInfo,
    State,
    Update,
)
from sirius.wal.store import Store
from sirius.wal.truncate import shortened
from sirius.wal.verify.verify import Severity, verify

CONFIG = LogConfig(background=False, segment_records_max=3, reserve_bytes=0, retire_after_s=600.0)
RECORDS = 10


def filled(fs: MemoryFileSystem, config: LogConfig = CONFIG, records: int = RECORDS) -> Log:
    """A log of ten records in four segments: 1 to 3, 4 to 6, 7 to 9, and 10."""
    log = Log.open("log", config, fs=fs, now_us=lambda: 1_000)
    for number in range(1, records + 1):
        log.put(f"key-{number % 4}", f"value-{number}".encode())
        log.flush()
    return log


def records(log: Log) -> list[Record]:
    return list(log.records())


def is_sound(fs: MemoryFileSystem) -> bool:
    """Whether nothing is wrong with a log; an index file is a hint, which a power loss may take."""
    findings = verify(Store(fs, "log"), deep=True).findings
    errors = [found for found in findings if found.severity == Severity.ERROR]
    return all(found.path.endswith("/index") for found in errors)


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("seq", range(RECORDS + 1))
def test_the_log_ends_there_and_goes_on_from_there(seq: int, durability: Durability) -> None:
    fs = MemoryFileSystem()
    config = LogConfig(
        durability=durability, background=False, segment_records_max=3, reserve_bytes=0
    )
    log = filled(fs, config)
    before = records(log)
    assert log.truncate_after(seq) == RECORDS - seq
    assert records(log) == before[:seq]
    assert (log.next_seq, log.durable_seq) == (seq + 1, seq)
    assert log.put("new", b"value") == seq + 1
    log.close()
    with Log.open("log", config, fs=fs) as again:
        assert [record.seq for record in again.records()] == [*range(1, seq + 2)]
        assert records(again)[:seq] == before[:seq]
    assert is_sound(fs)


@pytest.mark.parametrize("seq", [RECORDS, RECORDS + 1, 1_000])
def test_there_is_nothing_behind_the_end(seq: int) -> None:
    with filled(MemoryFileSystem()) as log:
        version = log.manifest.version
        assert log.truncate_after(seq) == 0
        assert log.manifest.version == version
        assert log.next_seq == RECORDS + 1


def test_a_block_is_cut() -> None:
    fs = MemoryFileSystem()
    with Log.open("log", CONFIG, fs=fs) as log:
        log.write([Update(Op.PUT, f"key-{n}".encode(), b"value") for n in range(8)])
        log.flush()
        before = records(log)
        log.truncate_after(5)
        assert records(log) == before[:5]


def test_what_is_waiting_is_written_first() -> None:
    with Log.open("log", CONFIG, fs=MemoryFileSystem()) as log:
        for number in range(6):
            log.put(f"key-{number}", b"value")
        assert log.truncate_after(4) == 2
        assert [record.key for record in log.records()] == ["key-0", "key-1", "key-2", "key-3"]


def test_what_comes_in_between_is_written_first_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(MemoryFileSystem()) as log:
        flush = log.flush
        late = iter([b"late"])

        def flush_and_put(timeout_s: float | None = None) -> Seq:
            point = flush(timeout_s)
            for body in late:
                log.put("key", body)
            return point

        monkeypatch.setattr(log, "flush", flush_and_put)
        assert log.truncate_after(4) == RECORDS + 1 - 4
        monkeypatch.undo()
        assert log.put("new", b"value") == 5
        log.flush()
        assert [record.seq for record in log.records()] == [1, 2, 3, 4, 5]


def test_holes_at_the_end_stay() -> None:
    fs = MemoryFileSystem()
    with filled(fs) as log:
        log.compact(CompactionPolicy(dead_fraction_min=0))
        kept = [record for record in records(log) if record.seq <= 5]
        log.truncate_after(5)
        assert records(log) == kept
        assert log.next_seq == 6
    assert is_sound(fs)


def test_readers_go_on_with_what_they_see() -> None:
    fs = MemoryFileSystem()
    with filled(fs) as log, log.snapshot() as snapshot, LogReader.open("log", fs=fs) as reader:
        before = records(log)
        view = reader.snapshot()
        log.truncate_after(4)
        assert list(snapshot.records()) == before
        assert list(view.records()) == before
        assert reader.refresh() == 4
        assert list(reader.snapshot().records()) == before[:4]


def test_a_damaged_segment_behind_goes_with_the_rest() -> None:
    fs = MemoryFileSystem()
    with filled(fs) as log:
        log.quarantine(SegmentId(3), "a test")
        before = list(log.records(1, 6))
        log.truncate_after(5)
        assert records(log) == before[:5]
        assert [info.state for info in log.manifest.segments] == [State.SEALED, State.ACTIVE]


def test_what_cannot_be_read_cannot_be_cut_in_two() -> None:
    fs = MemoryFileSystem()
    with filled(fs) as log:
        log.quarantine(SegmentId(2), "a test")
        version, names = log.manifest.version, fs.listdir("log/segments")
        with pytest.raises(RangeUnavailable):
            log.truncate_after(5)
        assert log.manifest.version == version
        assert fs.listdir("log/segments") == names
        assert log.put("still", b"there") == RECORDS + 1


def test_the_tombstone_floor_never_lies_behind_the_end() -> None:
    with filled(MemoryFileSystem()) as log:
        log.raise_tombstone_floor(8)
        log.raise_tombstone_floor(2)
        assert log.tombstone_floor == 8
        log.truncate_after(9)
        assert log.tombstone_floor == 8
        log.truncate_after(5)
        assert log.tombstone_floor == 5


def test_shortening_a_manifest_is_pure() -> None:
    sealed = SegmentInfo(SegmentId(1), Seq(1), Seq(3), State.SEALED)
    before = Manifest(
        1, 7, next_segment=SegmentId(3), segments=(sealed, SegmentInfo(SegmentId(2), Seq(4)))
    )
    after = shortened(before, 3)
    assert after.version == 8
    assert after.segments == (sealed, SegmentInfo(SegmentId(3), Seq(4)))
    assert after.next_segment == 4
    assert shortened(before, 2).segments == (SegmentInfo(SegmentId(3), Seq(1)),)
    after.check()


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("seq", [0, 2, 3, 5, 9])
def test_a_crash_leaves_the_old_log_or_the_new_one(seq: int) -> None:
    fs = MemoryFileSystem()
    log = filled(fs)
    before = records(log)
    begin = len(fs.operations)
    log.truncate_after(seq)
    end = len(fs.operations)
    outcomes = set()
    for call in range(begin + 1, end + 1):
        fs = MemoryFileSystem()
        log = filled(fs)
        fs.crash_at = call
        with pytest.raises(SimulatedCrash):
            log.truncate_after(seq)
        for left in [*fs.crash_states(12, seed=call), fs.kill()]:
            with Log.open("log", CONFIG, fs=left) as again:
                found = records(again)
                outcomes.add(len(found))
                assert found in (before, before[:seq])
                assert again.put("new", b"value") == len(found) + 1
                again.flush()
            assert is_sound(left)
    assert outcomes == {RECORDS, seq}


@pytest.mark.parametrize("operation", ["mkdir", "append", "open"])
def test_a_failure_before_the_manifest_changes_nothing(operation: str) -> None:
    fs = MemoryFileSystem()
    log = filled(fs)
    before = records(log)
    fs.fail(operation, "segments/0000000", errno.ENOSPC)  # type: ignore[arg-type]
    with pytest.raises((DiskFull, OSError)):
        log.truncate_after(5)
    assert records(log) == before
    log.put("still", b"there")
    log.flush()
    log.close()
    with Log.open("log", CONFIG, fs=fs) as again:
        assert records(again)[:RECORDS] == before
        assert again.next_seq == RECORDS + 2


def test_a_full_disk_changes_nothing() -> None:
    fs = MemoryFileSystem()
    log = filled(fs)
    before = records(log)
    fs.capacity_bytes = fs.used_bytes + 200
    with pytest.raises((DiskFull, OSError)):
        log.truncate_after(5)
    assert records(log) == before
    log.close()


def test_whoever_waits_for_a_number_that_is_gone_is_told() -> None:
    fs = MemoryFileSystem()
    config = LogConfig(segment_records_max=3, reserve_bytes=0)
    with filled(fs, config) as log:
        commits = log._commits
        with commits.changed:
            wanted, failures = commits.queued, len(commits._resumed)
        log.truncate_after(4)
        # What `flush` would look at, had it been interrupted by the truncation.
        assert wanted > commits.durable
        assert len(commits._resumed) > failures
        assert commits._resumed[failures][0] < wanted
        log.put("new", b"value")
        assert log.flush() == 5


def test_appends_wait_meanwhile_and_go_behind_the_new_end() -> None:
    fs = MemoryFileSystem()
    config = LogConfig(segment_records_max=3, reserve_bytes=0)
    with filled(fs, config) as log:
        failures: list[LogError] = []

        def append() -> None:
            try:
                for _ in range(50):
                    log.put("key", b"value")
            except LogError as error:
                failures.append(error)

        threads = [threading.Thread(target=append) for _ in range(3)]
        for thread in threads:
            thread.start()
        log.truncate_after(5)
        for thread in threads:
            thread.join()
        log.flush()
        assert not failures
        seqs = [record.seq for record in log.records()]
        assert seqs == [*range(1, log.next_seq)]


# ---------------------------------------------------------------------- rotation


def test_rotation_seals_what_there_is() -> None:
    fs = MemoryFileSystem()
    with filled(fs) as log:
        before = records(log)
        log.rotate()
        assert [info.last for info in log.manifest.segments[:-1]] == [3, 6, 9, 10]
        version = log.manifest.version
        log.rotate()
        assert log.manifest.version == version, "an empty segment is not worth another"
        assert log.put("new", b"value") == RECORDS + 1
        log.flush()
        assert records(log)[:RECORDS] == before
    assert is_sound(fs)


def test_rotation_that_finds_the_disk_full_stops_appends_until_there_is_room() -> None:
    fs = MemoryFileSystem()
    log = filled(fs)
    fs.fail("mkdir", "segments/", errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.rotate()
    with pytest.raises(DiskFull):
        log.put("new", b"value")
    log.resume()
    log.rotate()
    assert log.put("new", b"value") == RECORDS + 1
    log.close()
