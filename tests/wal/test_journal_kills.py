"""Real processes, really killed: what they acknowledged is in the journal."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sirius.types import Ballot
from sirius.wal import Durability
from sirius.wal.journal import Journal
from tests.wal.journals import UID, Call, Model, state_of, values

CYCLES = 1000 if os.environ.get("SIRIUS_SOAK") else 30
WRITER = """
import json, os, sys
from sirius.types import Ballot
from sirius.wal import Durability, Update, encode
from sirius.wal.journal import Journal
from sirius.wal.record import Op

def block(first, last, tag):
    bodies = [f"{tag}:{slot}".encode() for slot in range(first, last + 1)]
    return encode(first, [Update(Op.PUT, b"k", body) for body in bodies], ts_us=7)

folder, durability = sys.argv[1:]
journal = Journal.open(folder, uid=int("c0ffee", 16), durability=Durability(durability))
journal.trim_bytes_min = 3000
journal.on_durable(lambda ticket: os.write(1, b"%d\\n" % ticket))
for number, line in enumerate(sys.stdin):
    for name, *args in json.loads(line):
        if name == "accept":
            journal.accept(Ballot(*args[0]), block(*args[1:]))
        elif name == "trim":
            journal.trim(*args)
        else:
            getattr(journal, name)(Ballot(*args[0]))
    journal.flush() if number % 2 else journal.sync()
"""


def step(number: int) -> list[list[object]]:
    """What the writer does in one group, as JSON: values that overlap the last ones, under a higher ballot."""
    ballot = [number, number % 3]
    return [
        ["promise", ballot],
        ["accept", ballot, number, number + 2, f"s{number}"],
        ["use_ballot", ballot],
        ["trim", max(0, number - 8)],
    ]


def as_call(name: str, *args: object) -> Call:
    match args:
        case [[int(round), int(node)], int(first), int(last), str(tag)]:
            return Call(name, (Ballot(round, node), values(first, last, tag)))
        case [[int(round), int(node)]]:
            return Call(name, (Ballot(round, node),))
        case [int(decided)]:
            return Call(name, (decided,))
    raise AssertionError(args)


def killed_writer(folder: Path, durability: Durability, steps: range, after: int) -> int:
    """Let a process write; kill it after so many acknowledgements; return the last one it gave."""
    command = [sys.executable, "-c", WRITER, str(folder), durability]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        lines = "".join(json.dumps(step(number)) + "\n" for number in steps)
        feeder = threading.Thread(target=feed, args=(writer.stdin.fileno(), lines.encode()))
        feeder.start()
        said = [writer.stdout.readline() for _ in range(after)]
        os.kill(writer.pid, signal.SIGKILL)
        feeder.join()
        said += writer.stdout.readlines()
    acknowledged = [int(line) for line in said if line.endswith(b"\n")]
    assert acknowledged == sorted(acknowledged)
    return acknowledged[-1]


def feed(fd: int, lines: bytes) -> None:
    try:
        while lines:
            lines = lines[os.write(fd, lines) :]
    except BrokenPipeError:
        return


def survive_kills(folder: Path, durability: Durability, cycles: int) -> None:
    rng = random.Random(cycles)
    model, start = Model(), 1
    for _ in range(cycles):
        steps = range(start, start + 300)
        acknowledged = killed_writer(folder, durability, steps, rng.randrange(1, 60))
        with Journal.open(folder, uid=UID, durability=durability, background=False) as journal:
            found = state_of(journal)
        calls = (as_call(str(name), *args) for number in steps for name, *args in step(number))
        for done, call in enumerate(calls, start=1):
            call.make(model)
            if done >= acknowledged and model.state() == found:
                break
        else:
            raise AssertionError(
                f"{found} is not the state after call {acknowledged} or a later one"
            )
        start = steps[(done - 1) // 4] + 1


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.OS])
def test_kill_9_loses_nothing_acknowledged(tmp_path: Path, durability: Durability) -> None:
    survive_kills(tmp_path / "journal", durability, cycles=8)


@pytest.mark.deep
@pytest.mark.parametrize("durability", list(Durability))
def test_many_kills_lose_nothing_acknowledged(tmp_path: Path, durability: Durability) -> None:
    survive_kills(tmp_path / "journal", durability, cycles=CYCLES)
