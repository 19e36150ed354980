"""Reading a log while another process writes to it."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Waltool = Callable[..., Any]

DEADLINE_S = 60.0

# Does what each line of its input says, and answers with a line when it is durable.
WRITER = """
import os, sys
from sirius.wal import CompactionPolicy, Log, LogConfig, Op, Update, encode

config = LogConfig(segment_records_max=4, reserve_bytes=0, retire_after_s=0)
with Log.open(sys.argv[1], config) as log:
    print("ready", flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "put":
            log.put(rest[0], rest[1].encode())
        elif word == "many":
            for number in range(int(rest[0])):
                log.put(f"key/{number % 7}", str(number).encode())
        elif word == "compact":
            log.compact(CompactionPolicy(dead_fraction_min=0.0))
            log.retire(at_once=True)
        elif word == "half":
            data = f"{log.store.segment_dir(log.manifest.active.id)}/data"
            block = encode(log.next_seq, [Update(Op.PUT, b"half", b"written")], 0)
            with open(data, "ab") as file:
                file.write(block.raw[:100])
        print(log.flush(), flush=True)
"""


class Process:
    """A child whose output is read line by line, each with a deadline."""

    def __init__(self, *command: str) -> None:
        pipe, self._err = subprocess.PIPE, tempfile.TemporaryFile("w+")  # noqa: SIM115 (see `end`)
        self.popen = subprocess.Popen(
            [sys.executable, *command],
            stdin=pipe,
            stdout=pipe,
            stderr=self._err,
            text=True,
            bufsize=1,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("(the end)")

    def line(self) -> str:
        return self._lines.get(timeout=DEADLINE_S)

    def say(self, line: str) -> str:
        """Send a line; return the answer."""
        assert self.popen.stdin is not None
        print(line, file=self.popen.stdin, flush=True)
        return self.line()

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit code and what went to standard error."""
        self.popen.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str]:
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.close()
        code = self.popen.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        self.popen.stdout.close()
        with self._err as file:
            file.seek(0)
            return code, file.read()


@contextmanager
def process(*command: str) -> Iterator[Process]:
    # A shell starts background jobs deaf to interrupts, and children inherit that; ours must hear them.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        child = Process(*command)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield child
    finally:
        if child.popen.poll() is None:
            child.stop(signal.SIGKILL)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Process]:
    with process("-c", WRITER, str(tmp_path / "films")) as child:
        assert child.line() == "ready"
        yield child


def test_a_live_log_is_read_without_its_lock(
    writer: Process, tmp_path: Path, waltool: Waltool
) -> None:
    assert writer.say("many 10") == "10"
    log = tmp_path / "films"
    assert json.loads(waltool("info", "--json", log).out)["live"] is True
    assert "open for writing" in waltool("info", log).out
    assert json.loads(waltool("stats", "--json", log).out)["records"] == 10
    assert json.loads(waltool("tail", "--json", "-n", "1", log).out)["seq"] == 10
    assert waltool("verify", "--deep", log).code == 0
    assert writer.say("put key/last x") == "11", "the writer was not disturbed"
    assert waltool("grep", "-c", "last", log).out == "1\n"


def test_every_look_at_a_log_under_load_is_whole(
    writer: Process, tmp_path: Path, waltool: Waltool
) -> None:
    assert writer.popen.stdin is not None
    print("many 400", file=writer.popen.stdin, flush=True)
    seen = [0]
    while seen[-1] < 400:
        assert writer.popen.poll() is None, "the writer died"
        looked = json.loads(waltool("stats", "--json", tmp_path / "films").out)
        assert looked["records"] == looked["last"] >= seen[-1]
        assert looked["holes"] == 0
        checked = waltool("verify", "--json", tmp_path / "films")
        assert checked.code == 0, checked.out
        seen.append(looked["last"])
    assert writer.line() == "400"


def test_a_write_that_is_going_on_is_no_torn_tail(
    writer: Process, tmp_path: Path, waltool: Waltool
) -> None:
    assert writer.say("put key/1 a") == "1"
    writer.say("half")
    result = waltool("verify", tmp_path / "films")
    assert result.code == 0
    assert result.lines[0].startswith("note: segments/00000001/data: byte")
    assert "100 bytes of a write that is going on" in result.lines[0]
    assert waltool("tail", "--json", tmp_path / "films").out.count("\n") == 1
    assert writer.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    after = waltool("verify", tmp_path / "films")
    assert after.code == 0
    assert after.lines[0].startswith("warning: segments/00000001/data: byte")
    assert "a torn tail of 100 bytes" in after.lines[0]
    assert "not open for writing" in waltool("info", tmp_path / "films").out


def test_tail_follows_across_rotation_and_compaction(writer: Process, tmp_path: Path) -> None:
    log = tmp_path / "films"
    assert writer.say("many 3") == "3"
    follow = ("-m", "waltool", "tail", "-f", "-n", "2", "--poll", "0.01", "--json", str(log))
    with process(*follow) as tail:
        assert [json.loads(tail.line())["seq"] for _ in range(2)] == [2, 3]
        for number in range(4, 30):
            writer.say(f"put key/{number % 5} body-{number}")
            shown = json.loads(tail.line())
            assert (shown["seq"], shown["body"]) == (number, f"body-{number}")
            if number % 8 == 0:
                writer.say("compact")
        left = sorted(int(path.name) for path in (log / "segments").iterdir())
        assert left[0] > 1, "compaction did replace segments"
        code, err = tail.stop(signal.SIGINT)
    assert (code, err) == (130, "waltool: interrupted\n")


def test_tail_shows_only_what_is_wanted_and_ends_where_it_is_told(
    writer: Process, tmp_path: Path
) -> None:
    log = str(tmp_path / "films")
    wanted = ("--key", "^yes", "--last", "5", "--poll", "0.01")
    writer.say("put yes/1 body")
    with process("-m", "waltool", "tail", "-f", *wanted, log) as tail:
        assert tail.line().split()[3] == "yes/1"
        for key in ("no/2", "yes/3", "no/4", "yes/5", "yes/6"):
            writer.say(f"put {key} body")
        assert [tail.line().split()[3] for _ in range(2)] == ["yes/3", "yes/5"]
        assert tail.line() == "(the end)"
        assert tail.end() == (0, "")


def test_tail_of_a_log_that_goes_away_says_so(corpus: Path) -> None:
    with process("-m", "waltool", "tail", "-f", "-n", "1", "--poll", "0.01", "films") as tail:
        assert "title/rope" in tail.line()
        (corpus / "films").rename(corpus / "gone")
        assert tail.line() == "(the end)"
        code, err = tail.end()
    assert code == 2
    assert err.startswith("waltool: films")
    assert err.count("\n") == 1
