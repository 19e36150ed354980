"""A really full disk, and system calls that really fail: on a small tmpfs, and by `strace`.

Skipped where the machine does not let a test mount or trace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from sirius.errors import DiskFull
from sirius.wal import CompactionPolicy, Log, LogConfig, Op, Record

TIMEOUT_S: Final = 120
EAGER: Final = CompactionPolicy(dead_fraction_min=0.0)


def body_of(seq: int) -> bytes:
    return b"value of %d " % seq * 20


def check_records(records: Iterator[Record], keys: int) -> dict[str, int]:
    """Return which number each key has; keys and bodies must be what the writer makes of numbers."""
    newest: dict[str, int] = {}
    for record in records:
        assert (record.op, record.key) == (Op.PUT, f"key{record.seq % keys}")
        assert record.body == body_of(record.seq)
        newest[record.key] = record.seq
    return newest


def expected(last: int, keys: int) -> dict[str, int]:
    return {f"key{seq % keys}": seq for seq in range(1, last + 1)}


# --- a full tmpfs ---------------------------------------------------------------------------------

CONFIG: Final = LogConfig(segment_bytes_max=64 << 10, reserve_bytes=256 << 10, retire_after_s=600.0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted: {done.stderr.strip()}")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(log: Log, keys: int) -> int:
    """Write until the disk is full; return the last number that was acknowledged."""
    acknowledged = int(log.durable_seq)
    with suppress(DiskFull):
        while True:
            seq = log.next_seq
            log.put(f"key{seq % keys}", body_of(seq))
            acknowledged = log.flush()
    assert log.disk_full
    return acknowledged


@pytest.mark.parametrize("background", [True, False])
def test_a_full_disk_is_compacted_from_the_reserve_and_goes_on(
    small_disk: Path, background: bool
) -> None:
    config = LogConfig(
        segment_bytes_max=CONFIG.segment_bytes_max,
        reserve_bytes=CONFIG.reserve_bytes,
        retire_after_s=CONFIG.retire_after_s,
        background=background,
    )
    with Log.open(small_disk / "log", config) as log:
        acknowledged = 0
        for _ in range(3):
            before, acknowledged = acknowledged, fill(log, keys=50)
            assert acknowledged > before + 100
            assert check_records(log.records(), 50) == expected(acknowledged, 50)
            assert log.compact(EAGER).bytes_freed > 0
            log.resume()
            assert log.durable_seq == acknowledged
    with Log.open(small_disk / "log", config) as log:
        assert log.durable_seq == acknowledged
        assert check_records(log.records(), 50) == expected(acknowledged, 50)
        assert (small_disk / "log" / "RESERVE").stat().st_size == CONFIG.reserve_bytes


def test_a_log_on_a_full_disk_is_opened_read_and_compacted(small_disk: Path) -> None:
    with Log.open(small_disk / "log", CONFIG) as log:
        acknowledged = fill(log, keys=50)
    (small_disk / "stuffing").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
    with Log.open(small_disk / "log", CONFIG) as log:
        assert check_records(log.records(), 50) == expected(acknowledged, 50)
        assert log.compact(EAGER).bytes_freed > 0
        log.put(f"key{log.next_seq % 50}", body_of(log.next_seq))
        assert log.flush() == acknowledged + 1


# --- failing system calls -------------------------------------------------------------------------

WRITER: Final = """
import sys
from sirius.errors import DiskFull, LogError
from sirius.wal import Log, LogConfig

keys = int(sys.argv[2])
try:
    with Log.open(sys.argv[1], LogConfig(segment_bytes_max=20_000, reserve_bytes=0)) as log:
        refused = 0
        while log.durable_seq < 400:
            seq = log.next_seq
            try:
                for number in range(seq, seq + 4):
                    log.put(f"key{number % keys}", b"value of %d " % number * 20)
                print(log.flush(), flush=True)
            except DiskFull as full:
                assert not full.outcome_unknown
                refused += 1
                log.resume()
                print(log.durable_seq, flush=True)
    print("refused", refused, flush=True)
except LogError as error:
    print("stopped", type(error).__name__, flush=True)
"""


@dataclass(frozen=True)
class Run:
    acknowledged: int
    ending: str


@pytest.fixture(scope="module")
def strace() -> str:
    tool = shutil.which("strace")
    if tool is None:
        pytest.skip("strace is not installed")
    probe = [tool, "-f", "-qq", "-o", os.devnull, "-e", "inject=sync:error=EIO", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"strace may not trace or inject here: {done.stderr.strip()}")
    return tool


def run_writer(strace: str, path: Path, fault: str) -> Run:
    """Let a writer run into a fault, e.g. `fdatasync:error=EIO:when=9`. Calls are counted in each
    thread: numbers above those of opening meet the thread that writes and rotates."""
    command = [
        strace,
        "-f",
        "-qq",
        "-o",
        os.devnull,
        "-e",
        f"trace={fault.split(':', maxsplit=1)[0]}",
    ]
    command += ["-e", f"inject={fault}", sys.executable, "-c", WRITER, str(path), "9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    *said, ending = done.stdout.splitlines()
    return Run(int(said[-1]) if said else 0, ending)


def check_after(path: Path, run: Run, may_follow: int) -> None:
    with Log.open(path, LogConfig(reserve_bytes=0)) as log:
        held = log.durable_seq
        assert run.acknowledged <= held <= run.acknowledged + may_follow
        assert check_records(log.records(), 9) == expected(held, 9)
        assert log.put("key", b"") == held + 1
        assert log.flush() == held + 1


@pytest.mark.parametrize("fault", ["fdatasync:error=EIO:when=9", "fdatasync:error=EIO:when=30"])
def test_a_sync_that_fails_stops_the_writer_and_loses_nothing(
    strace: str, tmp_path: Path, fault: str
) -> None:
    run = run_writer(strace, tmp_path / "log", fault)
    assert run.ending == "stopped LogFailed"
    assert run.acknowledged > 0, "it failed before anything could be lost"
    check_after(tmp_path / "log", run, may_follow=4)


@pytest.mark.parametrize(
    "fault",
    [
        "fsync:error=EIO:when=8",
        "fsync:error=EIO:when=9",
        "rename:error=EIO:when=2",
        "writev:error=EIO:when=9",
        "mkdir:error=EIO:when=5",
    ],
)
def test_any_call_that_fails_stops_the_writer_and_loses_nothing(
    strace: str, tmp_path: Path, fault: str
) -> None:
    run = run_writer(strace, tmp_path / "log", fault)
    assert run.ending.startswith("stopped Log"), run
    assert run.acknowledged > 0, "it failed before anything could be lost"
    check_after(tmp_path / "log", run, may_follow=4)


@pytest.mark.parametrize(
    "fault",
    [
        "writev:error=ENOSPC:when=5",
        "writev:error=ENOSPC:when=21+40",
        "mkdir:error=ENOSPC:when=5",
    ],
)
def test_a_write_that_finds_no_room_is_refused_and_the_writer_goes_on(
    strace: str, tmp_path: Path, fault: str
) -> None:
    run = run_writer(strace, tmp_path / "log", fault)
    word, refusals = run.ending.split()
    assert (word, int(refusals) > 0) == ("refused", True), run
    assert run.acknowledged >= 400
    check_after(tmp_path / "log", run, may_follow=0)


def test_a_mark_that_finds_no_room_is_done_without(strace: str, tmp_path: Path) -> None:
    """Groups and marks take turns; the group in front of the mark is on disk already."""
    run = run_writer(strace, tmp_path / "log", "writev:error=ENOSPC:when=6")
    assert run.ending == "refused 0"
    assert run.acknowledged >= 400
    check_after(tmp_path / "log", run, may_follow=0)
