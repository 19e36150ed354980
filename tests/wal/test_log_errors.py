"""What a log says when it is misused, and what is left when its disk fails."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sirius.errors import (
    CorruptLog,
    DiskFull,
    InvalidRecord,
    LogClosed,
    LogError,
    LogFailed,
    LogLocked,
    NotALog,
    OutOfOrder,
    UsageError,
)
from sirius.testing import MemoryFileSystem
from sirius.testing.logs import SMALL_LOG, write_log
from sirius.wal import (
    CompactionPolicy,
    Durability,
    Limits,
    Log,
    LogConfig,
    LogReader,
    Op,
    Update,
    encode,
)
from sirius.wal.commit import GroupCommit
from sirius.wal.fs import Buffer, File, OpenMode

DATA = "log/segments/00000001/data"
PUT = Update(Op.PUT, b"key", b"v" * 40)
EAGER = CompactionPolicy(dead_fraction_min=0)


def keys(log: Log) -> list[str]:
    return [record.key for record in log.records()]


def reopened(fs: MemoryFileSystem) -> list[str]:
    with Log.open("log", SMALL_LOG, fs=fs) as log:
        return keys(log)


# --- paths and openers ----------------------------------------------------------------------------


def test_a_second_opener_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SMALL_LOG):
        with pytest.raises(LogLocked, match="open for writing"):
            Log.open(tmp_path / "log", SMALL_LOG)
        assert LogReader.open(str(tmp_path / "log")).last == 0
    Log.open(tmp_path / "log", SMALL_LOG).close()


def test_a_second_opener_in_another_process_is_refused(tmp_path: Path) -> None:
    program = "import sys; from sirius.wal import Log; Log.open(sys.argv[1]).close()"
    command = [sys.executable, "-c", program, str(tmp_path / "log")]
    with Log.open(tmp_path / "log", SMALL_LOG):
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "LogLocked" in refused.stderr
    subprocess.run(command, check=True)


def test_a_log_that_could_not_be_opened_is_not_locked() -> None:
    fs = MemoryFileSystem()
    write_log(fs, "log", [[PUT]] * 3)
    fs.flip(DATA, 200)
    for _ in range(2):
        with pytest.raises(CorruptLog):
            Log.open("log", SMALL_LOG, fs=fs)
    fs.flip(DATA, 200)
    assert len(reopened(fs)) == 3


def test_what_is_not_a_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("cat")
    for name in ("file", "photos", "nowhere/log"):
        with pytest.raises(NotALog, match=name):
            Log.open(tmp_path / name)
        with pytest.raises(NotALog, match=name):
            LogReader.open(str(tmp_path / name))
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["file", "photos", "photos/cat.jpg"]


def test_an_empty_folder_becomes_a_log_and_so_does_half_of_one(tmp_path: Path) -> None:
    for names in ((), ("segments",), ("manifests",), ("manifests", "segments")):
        path = tmp_path / "-".join(("log", *names))
        path.mkdir()
        for name in names:
            (path / name).mkdir()
        Log.open(path, SMALL_LOG).close()
        assert LogReader.open(str(path)).last == 0


def test_segments_that_no_manifest_names_any_more_are_not_swept_away() -> None:
    fs = MemoryFileSystem()
    write_log(fs, "log", [[PUT]])
    data = fs.read_bytes(DATA)
    for path in [path for path in fs.tree() if "manifests" in path]:
        fs.remove(path)
    with pytest.raises(CorruptLog, match="no manifest"):
        Log.open("log", SMALL_LOG, fs=fs)
    assert fs.read_bytes(DATA) == data


def test_nor_if_the_folder_of_manifests_is_gone_and_a_repair_had_kept_something() -> None:
    fs = MemoryFileSystem()
    write_log(fs, "log", [[PUT]])
    for path in [path for path in fs.tree() if "manifests" in path]:
        fs.remove(path)
    fs.rmdir("log/manifests")
    fs.mkdir("log/quarantine")
    with pytest.raises(CorruptLog, match="waltool repair log"):
        Log.open("log", SMALL_LOG, fs=fs)


# --- misuse ---------------------------------------------------------------------------------------


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def log(fs: MemoryFileSystem) -> Log:
    """A log with three durable records."""
    log = Log.open("log", SMALL_LOG, fs=fs)
    for key in "abc":
        log.put(key, b"v")
    log.flush()
    return log


@pytest.mark.parametrize("first", [1, 3, 5, 100])
def test_a_block_must_begin_where_the_log_ends(log: Log, first: int) -> None:
    with pytest.raises(OutOfOrder, match=f"from {first} on cannot stand at 4"):
        log.append(encode(first, [PUT], 1))
    log.append(encode(4, [PUT, PUT], 1))
    assert (log.next_seq, log.durable_seq, log.flush()) == (6, 3, 5)


def test_what_the_log_could_not_read_again_is_not_taken(fs: MemoryFileSystem) -> None:
    limits = Limits(body_bytes_max=100, block_bytes_max=300)
    with Log.open("log", replace(SMALL_LOG, limits=limits), fs=fs) as log:
        with pytest.raises(InvalidRecord, match="the limit is 100"):
            log.put("k", b"v" * 101)
        with pytest.raises(InvalidRecord, match="the limit is 300"):
            log.append(encode(1, [PUT] * 4, 1))
        assert log.next_seq == 1


def test_a_closed_log_takes_nothing(log: Log) -> None:
    log.close()
    log.close()
    calls: Sequence[Callable[[], object]] = (
        lambda: log.put("k", b""),
        lambda: log.delete("k"),
        lambda: log.append(encode(4, [PUT], 1)),
    )
    for call in calls:
        with pytest.raises(LogClosed):
            call()


def test_a_range_must_lie_within_the_log(log: Log) -> None:
    for first, last in ((0, 3), (1, 4), (-5, 2)):
        with pytest.raises(UsageError, match="not within 1 to 3"):
            list(log.records(first, last))
    for seq in (0, 4, -1):
        with pytest.raises(UsageError, match="not within 1 to 3"):
            log.record(seq)


# --- a disk that hangs ----------------------------------------------------------------------------


class HungFile:
    """A file whose syncs (or appends) wait until they may go on."""

    def __init__(self, file: File, disk: HungDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._disk.pass_gate("sync")
        self._file.sync()

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._disk.pass_gate("append")
        self._file.append(buffers)


class HungDisk(MemoryFileSystem):
    """A disk that can be told to hang."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs_at = ""
        self.reached, self.go_on = threading.Event(), threading.Event()

    def open(self, path: str, mode: OpenMode) -> File:
        file: File = HungFile(super().open(path, mode), self)  # type: ignore[assignment]
        return file

    def pass_gate(self, call: str) -> None:
        if call == self.hangs_at:
            self.reached.set()
            assert self.go_on.wait(60)


def test_a_flush_that_takes_too_long_says_so_and_can_be_repeated() -> None:
    disk = HungDisk()
    with Log.open("log", LogConfig(reserve_bytes=0), fs=disk) as log:
        disk.hangs_at = "sync"
        log.put("k", b"")
        for timeout_s in (0.0, 0.01):
            with pytest.raises(TimeoutError, match="1 was not written"):
                log.flush(timeout_s)
        assert log.durable_seq == 0
        disk.go_on.set()
        assert log.flush(60) == 1


def test_appends_wait_while_too_much_is_waiting_for_the_disk() -> None:
    disk, block_bytes = HungDisk(), len(encode(1, [PUT], 1))
    config = LogConfig(reserve_bytes=0, pending_bytes_max=4 * block_bytes)
    done: list[int] = []
    with Log.open("log", config, fs=disk) as log:
        disk.hangs_at = "sync"
        thread = threading.Thread(
            daemon=True, target=lambda: done.extend(log.write([PUT]) for _ in range(20))
        )
        thread.start()
        assert disk.reached.wait(60)
        thread.join(0.2)
        assert thread.is_alive()
        assert log.next_seq <= 4 + 1 + 1, "one block may be over the limit, no more"
        disk.go_on.set()
        thread.join(60)
        assert log.flush() == 20
    assert done == list(range(1, 21))


def test_without_a_thread_the_one_that_appends_too_much_writes_it(fs: MemoryFileSystem) -> None:
    block_bytes = len(encode(1, [PUT], 1))
    with Log.open("log", replace(SMALL_LOG, pending_bytes_max=4 * block_bytes), fs=fs) as log:
        waiting = []
        for _ in range(20):
            log.write([PUT])
            waiting.append(log.next_seq - 1 - log.durable_seq)
    assert max(waiting) == 4


# --- failures and threads -------------------------------------------------------------------------


def test_a_failure_reaches_everybody_who_waits() -> None:
    disk = HungDisk()
    log = Log.open("log", LogConfig(reserve_bytes=0), fs=disk)
    disk.hangs_at = "sync"
    log.put("a", b"")
    assert disk.reached.wait(60)
    log.put("b", b"")
    failures: list[LogError] = []

    def wait() -> None:
        with pytest.raises(LogFailed) as caught:
            log.flush()
        failures.append(caught.value)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    disk.fail("sync", DATA, errno.EIO)
    disk.go_on.set()
    for thread in threads:
        thread.join(60)
    assert len(failures) == 3
    log.close()


def test_in_mode_os_a_block_lost_in_another_threads_group_is_not_reported_as_written() -> None:
    disk = HungDisk()
    log = Log.open("log", replace(SMALL_LOG, durability=Durability.OS), fs=disk)
    disk.hangs_at = "append"
    errors: list[LogError] = []

    def put(key: str) -> None:
        with pytest.raises(LogFailed) as caught:
            log.put(key, b"")
        errors.append(caught.value)

    first = threading.Thread(target=put, args=["a"])
    first.start()
    assert disk.reached.wait(60)
    second = threading.Thread(target=put, args=["b"])
    second.start()
    while log.next_seq < 3:
        second.join(0.001)
    disk.fail("append", DATA, errno.EIO)
    disk.go_on.set()
    first.join(60)
    second.join(60)
    assert (len(errors), log.durable_seq) == (2, 0)
    log.close()


class Meddled(threading.Condition):
    """A condition whose waiter is the last to notice: `meddle` runs between waking up and looking."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        super().__init__()
        self._meddle = meddle
        self._waiter = threading.current_thread()

    def wait(self, timeout: float | None = None) -> bool:
        woken = super().wait(timeout)
        if threading.current_thread() is self._waiter:
            self._meddle()
        return woken


def test_a_flush_does_not_take_another_write_for_its_own() -> None:
    """The write fails, somebody resumes and gives its number anew, all before the waiter looks."""
    written: list[str] = []

    def write(group: list[str]) -> None:
        if group == ["lost"]:
            raise DiskFull("full")
        written.extend(group)

    def meddle() -> None:
        if commits.disk_full:
            commits.resume(0)
            commits.queue("other", 1, 1)
            while commits.durable < 1:
                threading.Condition.wait(commits.changed, 60)

    commits = Commits("log", write, start=0, pending_bytes_max=99, background=False)
    commits.changed = Meddled(meddle)
    with commits.changed:
        commits.queue("lost", 1, 1)
        commits.start()
        with pytest.raises(DiskFull):
            commits.flush()
    assert (written, commits.durable) == (["other"], 1)
    assert commits.close()


class Commits(GroupCommit[str]):
    """Groups whose thread starts when it is told to."""

    @property
    def disk_full(self) -> bool:
        return isinstance(self.failure, DiskFull)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
