"""Reading a log that somebody else is writing, and copying it meanwhile.

The writer is a process of its own. What it writes is drawn from a seed, so that the whole history is known here,
whatever compaction has removed from the log since.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sirius.errors import LogClosed, MissingSegment, RangeUnavailable
from sirius.testing import MemoryFileSystem
from sirius.testing.logs import SMALL_LOG, updates, write_log
from sirius.wal import (
    CompactionPolicy,
    Log,
    LogConfig,
    LogReader,
    Op,
    OsFileSystem,
    Record,
    Snapshot,
    Update,
    encode,
)

KEYS, SEED = 40, 11
WRITER = """
import itertools, random, sys
from sirius.testing.logs import updates
from sirius.wal import CompactionPolicy, Log, LogConfig
path, durability, retire_after_s = sys.argv[1:]
config = LogConfig(durability, segment_records_max=60, reserve_bytes=0,
                   retire_after_s=float(retire_after_s))
rng, history, at = random.Random(2), updates(40_000, keys=KEYS, seed=SEED), 0
with Log.open(path, config) as log:
    print("ready", flush=True)
    for bursts in map(int, sys.stdin):
        for number in range(bursts):
            for _ in range(rng.randrange(1, 30)):
                count = rng.randrange(1, 12)
                log.write(history[at:at + count])
                at += count
                if rng.random() < 0.7:
                    log.flush()
            log.compact(CompactionPolicy(dead_fraction_min=rng.choice((0, 0.5))))
            log.retire()
            print("burst", flush=True)
        print("done", flush=True)
""".replace("KEYS", str(KEYS)).replace("SEED", str(SEED))


class Writer:
    """A process that writes bursts of updates, with rotations and a compaction in each."""

    def __init__(self, path: Path, durability: str, retire_after_s: float) -> None:
        command = [sys.executable, "-c", WRITER, str(path), durability, str(retire_after_s)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.hear() == "ready"

    def tell(self, bursts: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{bursts}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Wait for the next word: "burst", "done" when all were written, "" when the process ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def finish(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@contextmanager
def writing(path: Path, durability: str, retire_after_s: float) -> Iterator[Writer]:
    writer = Writer(path, durability, retire_after_s)
    try:
        yield writer
    finally:
        writer.finish()


def state(history: Iterable[Update]) -> dict[bytes, bytes]:
    """Replay updates."""
    found: dict[bytes, bytes] = {}
    for update in history:
        if update.op == Op.PUT:
            found[update.key] = update.body
        else:
            found.pop(update.key, None)
    return found


def as_updates(records: Iterable[Record]) -> list[Update]:
    return [Update(r.op, r.key.encode(), r.body, r.session, r.serial) for r in records]


def check_against_history(records: list[Record], last: int) -> None:
    """Each record is the one of its number, and all together make the state of the whole history."""
    history = updates(last, keys=KEYS, seed=SEED)
    assert as_updates(records) == [history[record.seq - 1] for record in records]
    assert state(as_updates(records)) == state(history)


# --- following ------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["fsync", "os", "memory"])
def test_a_follower_sees_everything_once_and_in_order(tmp_path: Path, durability: str) -> None:
    # Nothing replaced is kept, so segments disappear under the follower all the time.
    with writing(tmp_path / "log", durability, 0) as writer:
        writer.tell(15)
        position, records = 1, list[Record]()
        with LogReader.open(str(tmp_path / "log")) as reader:
            for batch in reader.follow(1, lambda: writer.hear() != "done"):
                assert batch.first == position
                position = batch.last + 1
                records += batch.records()
            for batch in reader.follow(position, lambda: False):
                records += batch.records()
                position = batch.last + 1
            assert reader.last == position - 1 > 1000
            check_against_history(list(reader.snapshot().records()), position - 1)
    assert [record.seq for record in records] == sorted({record.seq for record in records})
    check_against_history(records, position - 1)


@pytest.fixture
def clock() -> list[float]:
    """A clock that goes when it is told to."""
    return [0.0]


@pytest.fixture
def log(tmp_path: Path, clock: list[float]) -> Iterator[Log]:
    """A log in which every second record supersedes another, ten a segment."""
    config = LogConfig(
        segment_records_max=10, background=False, reserve_bytes=0, retire_after_s=10.0
    )
    with Log.open(tmp_path / "log", config, clock=lambda: clock[0]) as log:
        write_more(log, 55)
        yield log


def write_more(log: Log, count: int) -> None:
    for at in range(count):
        log.put(f"key/{at % 25}", b"%d" % log.next_seq)
        log.flush()


def compact(log: Log) -> None:
    assert log.compact(CompactionPolicy(dead_fraction_min=0)).records_dropped


def test_a_follower_finds_its_place_again_when_segments_disappear(
    log: Log, clock: list[float]
) -> None:
    reader = LogReader.open(log.path)
    batches = reader.follow(1, lambda: False)
    first = next(batches)
    compact(log)
    clock[0] += 11
    assert log.retire()
    write_more(log, 1)
    rest = list(batches)
    assert [batch.first for batch in rest] == [batch.last + 1 for batch in (first, *rest)][:-1]
    assert rest[-1].last == 56
    assert {record.key for batch in rest for record in batch.records()} >= {"key/0", "key/24"}


def test_a_follower_stops_where_it_was_told_to(log: Log) -> None:
    reader = LogReader.open(log.path)
    assert [b.last for b in reader.follow(7, lambda: True, 23)][-1] == 23
    assert not list(reader.follow(24, lambda: True, 23))


# --- snapshots ------------------------------------------------------------------------------------


def test_a_snapshot_survives_the_compaction_of_what_it_shows(log: Log) -> None:
    with log.snapshot() as snapshot:
        before = list(log.records())
        compact(log)
        log.retire(at_once=True)
        write_more(log, 30)
        compact(log)
        log.retire(at_once=True)
        assert list(snapshot.records()) == before
        assert [snapshot.record(seq) for seq in range(1, 56)] == before
    old = log.store.segment_dir(1)
    assert log.store.fs.exists(old)
    log.retire(at_once=True)
    assert not log.store.fs.exists(old)


def test_a_snapshot_of_another_process_survives_as_long_as_it_was_promised(
    log: Log, clock: list[float]
) -> None:
    reader = LogReader.open(log.path)
    snapshot, before = reader.snapshot(), list(log.records())
    compact(log)
    clock[0] += 9.9
    log.retire()
    assert list(snapshot.records()) == before
    fresh = LogReader.open(log.path).snapshot()
    assert len(list(fresh.records())) < len(before)
    clock[0] += 0.2
    log.retire()
    # Files that it has open it can still read; a new one would be told that they are gone.
    assert list(snapshot.records()) == before
    assert list(fresh.records()) == list(log.records())


def test_a_snapshot_that_waited_too_long_is_told_so(log: Log, clock: list[float]) -> None:
    snapshot = LogReader.open(log.path).snapshot()
    compact(log)
    clock[0] += 11
    log.retire()
    with pytest.raises(MissingSegment):
        list(snapshot.records())


def test_refreshing_and_closing_a_reader_leave_its_snapshots_alone(log: Log) -> None:
    reader = LogReader.open(log.path)
    snapshot = reader.snapshot()
    write_more(log, 20)
    assert reader.refresh() == 75
    newer = reader.snapshot()
    reader.close()
    assert [record.seq for record in snapshot.records()] == list(range(1, 56))
    assert [record.seq for record in newer.records()] == list(range(1, 76))
    assert snapshot.record(55) == newer.record(55) == log.record(55)
    with pytest.raises(LogClosed):
        reader.refresh()


# --- the end of the active segment ----------------------------------------------------------------


def test_a_block_that_is_half_written_is_not_there_yet(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    records = write_log(OsFileSystem(), path, [[Update(Op.PUT, b"k")] * 3])
    block = encode(4, [Update(Op.PUT, b"new", b"body")] * 2, 5).raw
    reader = LogReader.open(path)
    with (tmp_path / "log" / "segments" / "00000001" / "data").open("ab") as data:
        for octet in block[:-1]:
            data.write(bytes([octet]))
            data.flush()
            assert reader.refresh() == 3
            assert reader.torn
        assert list(reader.snapshot().records()) == records
        data.write(block[-1:])
    assert (reader.refresh(), reader.torn) == (5, None)
    assert [record.key for record in reader.snapshot().records(4)] == ["new", "new"]


@pytest.mark.parametrize("body", [b"", b"v", b"v" * 100])
@pytest.mark.parametrize("looks_meanwhile", [True, False])
def test_a_write_that_was_taken_back_is_forgotten(body: bytes, looks_meanwhile: bool) -> None:
    fs = MemoryFileSystem()
    log = Log.open("log", SMALL_LOG, fs=fs)
    log.put("kept", b"")
    log.flush()
    data = fs.open("log/segments/00000001/data", "a")
    size = data.size()
    # What another process may see of a group before its writer finds the disk full.
    data.append([encode(2, [Update(Op.PUT, b"gone", b"v")] * 3, 5).raw])
    reader = LogReader.open("log", fs=fs)
    assert reader.last == 4
    data.truncate(size)
    if looks_meanwhile:
        assert reader.refresh() == 1
    log.put("other", body)
    log.put("other", body)
    log.flush()
    reader.refresh()
    assert list(reader.snapshot().records()) == list(log.records())


def test_damage_is_told_from_a_write_that_is_going_on() -> None:
    fs = MemoryFileSystem()
    groups = [[Update(Op.PUT, b"k%d" % at)] * 4 for at in range(6)]
    records = write_log(fs, "log", groups)
    reader = LogReader.open("log", fs=fs)
    with reader:
        offset = int(reader.snapshot().index(reader.manifest.active)["offset"][2])
    fs.flip("log/segments/00000001/data", offset + 70)
    fs.write_bytes("log/segments/00000001/index", b"")
    snapshot = LogReader.open("log", fs=fs).snapshot()
    assert snapshot.last == 24
    assert list(snapshot.records(1, 8)) == records[:8]
    check_refusal(lambda: list(snapshot.records()), 9)
    check_refusal(lambda: snapshot.record(9), 9)
    check_refusal(lambda: list(snapshot.segment_batches(snapshot.segments[0])), 9)


def check_refusal(read: Callable[[], object], first: int) -> None:
    with pytest.raises(RangeUnavailable, match="damaged at byte") as caught:
        read()
    assert caught.value.first == first


# --- copies ---------------------------------------------------------------------------------------


def copied(source: Path, target: Path, first: str) -> None:
    """Copy a folder of a live log, with one of its parts before all others."""
    names = sorted((path.name for path in source.iterdir()), key=lambda name: name != first)
    target.mkdir()
    for name in names:
        part = source / name
        if part.is_dir():
            _copy_tree(part, target / name)
        else:
            shutil.copy(part, target / name)


def _copy_tree(source: Path, target: Path) -> None:
    failed: list[str] = []
    try:
        shutil.copytree(source, target)
    except shutil.Error as error:
        failed = [os.fspath(path) for path, _, _ in error.args[0]]
    # Something was renamed or replaced between being listed and being opened; nothing else may be.
    assert all(".tmp" in path or path.endswith("/index") for path in failed), failed


def check_copy(path: Path) -> int:
    with Log.open(path, SMALL_LOG) as log:
        records, last = list(log.records()), log.durable_seq
        check_against_history(records, last)
        assert log.put("goes on", b"") == last + 1
    with LogReader.open(str(path)) as reader:
        assert list(reader.snapshot().records())[:-1] == records
    return last


def check_copies(tmp_path: Path, durability: str, count: int) -> None:
    lasts = []
    with writing(tmp_path / "log", durability, 10_000) as writer:
        for number in range(count):
            writer.tell(1)
            target = tmp_path / f"copy{number}"
            copied(tmp_path / "log", target, ("manifests", "segments")[number % 2])
            lasts.append(check_copy(target))
            shutil.rmtree(target)
            while writer.hear() != "done":
                pass
    assert lasts[-1] > lasts[0]


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_copy_of_a_live_log_is_a_log(tmp_path: Path, durability: str) -> None:
    check_copies(tmp_path, durability, 15)


@pytest.mark.deep
@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("turn", range(10))
def test_every_copy_of_a_live_log_is_a_log(tmp_path: Path, durability: str, turn: int) -> None:
    check_copies(tmp_path, durability, 15)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 111, 112])
def test_a_copy_may_catch_a_segment_that_has_just_begun(size: int) -> None:
    fs = MemoryFileSystem()
    config = LogConfig(segment_records_max=4, background=False, reserve_bytes=0)
    records = write_log(fs, "log", [[Update(Op.PUT, b"k")]] * 5, config)
    fs.copy_tree("log", "copy")
    fs.cut("copy/segments/00000002/data", size)
    assert read_all(LogReader.open("copy", fs=fs).snapshot()) == records[:4]
    with Log.open("copy", config, fs=fs) as log:
        assert list(log.records()) == records[:4]
        assert log.put("k", b"") == 5


def read_all(snapshot: Snapshot) -> list[Record]:
    return list(snapshot.records())
