"""A disk that fails or fills up: what the log says, and what is left when it is opened again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from sirius.errors import DiskFull, LogFailed
from sirius.testing import MemoryFileSystem, Operation
from sirius.testing.logs import SMALL_LOG
from sirius.wal import CompactionPolicy, Durability, Log, LogConfig, LogReader
from sirius.wal.frames import MARK_BYTES, MARK_MAGIC

DATA = "log/segments/00000001/data"
EAGER = CompactionPolicy(dead_fraction_min=0)
MODES = pytest.mark.parametrize("durability", list(Durability))


def keys(log: Log) -> str:
    """The keys in order, which are letters here."""
    return "".join(record.key for record in log.records())


def reopened(fs: MemoryFileSystem) -> str:
    with Log.open("log", SMALL_LOG, fs=fs) as log:
        return keys(log)


def opened(fs: MemoryFileSystem, config: LogConfig = SMALL_LOG) -> Log:
    """A log with three durable records."""
    log = Log.open("log", config, fs=fs)
    put(log, "abc")
    return log


def put(log: Log, letters: str) -> None:
    for letter in letters:
        log.put(letter, b"v" * 20)
        log.flush()


def check_survivors(fs: MemoryFileSystem, durable: str, issued: str) -> None:
    """Whether the process or the machine stops: all that was durable is there, and nothing made up."""
    for left in (fs.clone().kill(), *fs.crash_states(30)):
        found = reopened(left)
        assert issued.startswith(found)
        assert found.startswith(durable)


# --- failures that are final ----------------------------------------------------------------------


@pytest.mark.parametrize("call", ["append", "sync"])
def test_a_write_or_sync_that_fails_is_the_end(call: Operation) -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fs.fail(call, DATA, errno.EIO)
    log.put("d", b"v")
    with pytest.raises(LogFailed) as caught:
        log.flush()
    assert caught.value.outcome_unknown
    before = fs.operations
    attempts: list[Callable[[], object]] = [lambda: log.put("e", b"v"), log.flush]
    for attempt in (*attempts, log.resume, *attempts):
        if attempt == log.resume:
            attempt()
            continue
        with pytest.raises(LogFailed):
            attempt()
    assert (keys(log), log.durable_seq) == ("abc", 3)
    log.close()
    assert fs.operations == before, "nothing is tried again"
    check_survivors(fs, "abc", "abcd")


def test_a_manifest_that_may_or_may_not_be_on_disk_is_the_end() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fs.fail("sync_dir", "manifests", errno.EIO)
    with pytest.raises(LogFailed):
        log.tag(who="knows")
    with pytest.raises(LogFailed):
        log.put("d", b"")
    log.close()
    check_survivors(fs, "abc", "abc")


@pytest.mark.parametrize("call", ["open", "append"])
def test_an_index_that_cannot_be_written_is_no_failure(call: Operation) -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fs.fail(call, "/index", errno.EIO, times=2)
    put(log, "d" * 600)
    assert keys(log) == "abc" + "d" * 600
    with LogReader.open("log", fs=fs) as reader:
        assert reader.last == 603
    log.close()
    assert reopened(fs) == "abc" + "d" * 600


# --- a full disk ----------------------------------------------------------------------------------


def fill_up(fs: MemoryFileSystem, room: int = 0) -> None:
    fs.capacity_bytes = fs.used_bytes + room


@MODES
@pytest.mark.parametrize("room", [0, 1, 47, 48, 100, 131])
def test_a_write_that_finds_no_room_is_taken_back(durability: Durability, room: int) -> None:
    fs = MemoryFileSystem()
    log = opened(fs, replace(SMALL_LOG, durability=durability))
    data = fs.read_bytes(DATA)
    fill_up(fs, room)
    with pytest.raises(DiskFull) as caught:
        put(log, "d")
    assert not caught.value.outcome_unknown
    left = fs.read_bytes(DATA).removeprefix(data)
    assert len(left) in (0, MARK_BYTES), "nothing but a mark"
    assert left.startswith(MARK_MAGIC[: len(left)])
    assert (log.disk_full, keys(log), log.durable_seq) == (True, "abc", 3)
    with pytest.raises(DiskFull):
        log.put("d", b"")
    fs.capacity_bytes = None
    log.resume()
    put(log, "de")
    assert (log.disk_full, keys(log), log.durable_seq) == (False, "abcde", 5)
    log.close()
    assert reopened(fs) == "abcde"


def test_a_log_that_is_full_and_abandoned_is_whole() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    fill_up(fs, 100)
    with pytest.raises(DiskFull):
        put(log, "d")
    log.close()
    fs.capacity_bytes = None
    check_survivors(fs, "abc", "abc")


def test_no_room_for_a_mark_is_no_failure() -> None:
    fs = MemoryFileSystem()
    log = opened(fs)
    data = fs.read_bytes(DATA)
    put(log, "d")
    block_bytes = len(fs.read_bytes(DATA)) - len(data) - 48
    fill_up(fs, block_bytes + 47)
    put(log, "e")
    assert (log.durable_seq, len(fs.read_bytes(DATA))) == (5, len(data) + 2 * block_bytes + 48)
    fs.capacity_bytes = None
    put(log, "f")
    log.close()
    check_survivors(fs, "abcdef", "abcdef")


def test_compaction_makes_room_from_the_reserve() -> None:
    fs = MemoryFileSystem()
    config = replace(SMALL_LOG, segment_records_max=4, reserve_bytes=20_000, retire_after_s=1e9)
    log = opened(fs, config)
    put(log, "abc" * 30)
    log.retire(at_once=True)
    fill_up(fs)
    with pytest.raises(DiskFull):
        put(log, "d" * 10)
    used = fs.used_bytes
    assert log.compact(EAGER).records_dropped > 50
    assert fs.used_bytes < used
    log.resume()
    put(log, "de")
    assert keys(log).endswith("de")
    log.close()


# --- rotation -------------------------------------------------------------------------------------

ROTATING = replace(SMALL_LOG, segment_records_max=3)


def rotation_calls() -> list[tuple[Operation, str]]:
    """Every call that a rotation makes and that changes something."""
    fs = MemoryFileSystem()
    log = opened(fs, ROTATING)
    before = len(fs.operations)
    put(log, "d")
    calls = [(op, path) for op, path in fs.operations[before:] if op in get_args(Operation)]
    at = calls.index(("append", "log/segments/00000002/data"), len(calls) - 4)
    return list(dict.fromkeys(calls[:at]))  # type: ignore[arg-type]


CALLS = rotation_calls()
NAMES = [f"{op} {path}" for op, path in CALLS]


def test_a_rotation_makes_the_calls_that_the_tests_below_let_fail() -> None:
    assert {op for op, _ in CALLS} == {
        "append",
        "mkdir",
        "open",
        "remove",
        "replace",
        "sync",
        "sync_dir",
    }


@pytest.mark.parametrize(("call", "path"), CALLS, ids=NAMES)
def test_a_rotation_that_fails_loses_nothing(call: Operation, path: str) -> None:
    fs = MemoryFileSystem()
    log = opened(fs, ROTATING)
    fs.fail(call, path, errno.EIO)
    with pytest.raises(LogFailed):
        put(log, "d")
    with pytest.raises(LogFailed):
        put(log, "e")
    assert keys(log) == "abc"
    log.close()
    check_survivors(fs, "abc", "abc")


@pytest.mark.parametrize(("call", "path"), CALLS, ids=NAMES)
def test_a_rotation_that_finds_no_room_is_tried_again(call: Operation, path: str) -> None:
    fs = MemoryFileSystem()
    log = opened(fs, ROTATING)
    fs.fail(call, path, errno.ENOSPC)
    with pytest.raises(LogFailed):
        put(log, "d")
    assert keys(log) == "abc"
    # Of a sync that fails nobody knows what it has done, whatever reason it gives.
    assert log.disk_full or call in ("sync", "sync_dir")
    if log.disk_full:
        log.resume()
        put(log, "defgh")
        assert (keys(log), len(log.manifest.segments)) == ("abcdefgh", 3)
    durable = keys(log)
    log.close()
    check_survivors(fs, durable, "abcdefgh")


def test_a_group_that_fails_after_a_rotation_leaves_what_was_sealed() -> None:
    fs = MemoryFileSystem()
    log = opened(fs, ROTATING)
    for letter in "defghi":
        log.put(letter, b"v" * 20)
    fs.fail("append", "segments/00000003/data", errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.flush()
    assert (keys(log), log.durable_seq) == ("abcdef", 6)
    log.resume()
    assert log.next_seq == 7
    put(log, "xyz")
    log.close()
    check_survivors(fs, "abcdefxyz", "abcdefxyz")
