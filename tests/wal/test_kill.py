"""kill -9 of a real writer on a real disk: what it acknowledged is there, in order, and nothing else is.

The writer is a process of its own that appends, rotates and compacts, and prints the sequence number of everything
that `flush` said was safe. A value is a function of its sequence number, so an invented record would show.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sirius.wal import Durability, Log, LogConfig, Op

KEYS = 40
SOAK = 10 if os.environ.get("SIRIUS_SOAK") else 1

WRITER = """
import sys, threading
from sirius.wal import CompactionPolicy, Durability, Log, LogConfig, Op, Update

path, durability, keys = sys.argv[1], Durability(sys.argv[2]), int(sys.argv[3])
config = LogConfig(durability=durability, segment_bytes_max=6000, retire_after_s=0, reserve_bytes=0)
log = Log.open(path, config)

def update(seq):
    key = b"key/%d" % (seq * seq % keys)
    return Update(Op.DELETE, key) if seq % 7 == 0 else Update(Op.PUT, key, b"value of %d" % seq)

def compacting():
    while True:
        log.compact(CompactionPolicy(dead_fraction_min=0.1))

threading.Thread(target=compacting, daemon=True).start()
while True:
    first = log.next_seq
    for start in range(first, first + 12, 3):
        log.write([update(seq) for seq in range(start, start + 3)])
    print(log.flush(), flush=True)
"""


@contextmanager
def writer(path: Path, durability: Durability) -> Iterator[subprocess.Popen[bytes]]:
    """Run a writer; it is gone at the end, whatever happens."""
    command = [sys.executable, "-c", WRITER, str(path), durability.value, str(KEYS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def acknowledged_by(path: Path, durability: Durability, groups: int) -> int:
    """Let a writer acknowledge so many groups, kill it amid the next, and return the last number it said."""
    with writer(path, durability) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(groups)]
        os.kill(process.pid, signal.SIGKILL)
        said += [
            int(line)
            for line in process.stdout.read().splitlines(keepends=True)
            if line.endswith(b"\n")
        ]
        assert process.wait() == -signal.SIGKILL
    return said[-1]


def expected(last: int) -> dict[str, bytes]:
    """The state after `last`, by the rule that the writer follows."""
    state: dict[str, bytes] = {}
    for seq in range(1, last + 1):
        key = f"key/{seq * seq % KEYS}"
        if seq % 7 == 0:
            state.pop(key, None)
        else:
            state[key] = b"value of %d" % seq
    return state


def check(path: Path, acknowledged: int) -> None:
    """Open what the kill left: all of it must be right."""
    with Log.open(path, LogConfig(retire_after_s=0, reserve_bytes=0)) as log:
        assert log.durable_seq >= acknowledged
        state: dict[str, bytes] = {}
        before = 0
        for record in log.records():
            assert record.seq > before
            before = record.seq
            if record.op == Op.DELETE:
                state.pop(record.key, None)
            else:
                assert record.body == b"value of %d" % record.seq
                state[record.key] = record.body
        assert state == expected(log.durable_seq)


def cycles(path: Path, durability: Durability, count: int) -> None:
    for cycle in range(count):
        check(path, acknowledged_by(path, durability, groups=1 + cycle * 7 % 30))


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.OS])
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(
    tmp_path: Path, durability: Durability
) -> None:
    cycles(tmp_path / "log", durability, 8)


@pytest.mark.deep
@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.OS])
def test_nothing_acknowledged_is_lost_in_two_hundred_kills(
    tmp_path: Path, durability: Durability
) -> None:
    cycles(tmp_path / "log", durability, 200 * SOAK)
