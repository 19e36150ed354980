"""The demonstration, its parts, and that nothing of it stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sirius.app.web import Refused, Request, Response
from sirius.cli.demo.cluster import Cluster, ServedNode
from sirius.cli.demo.films import films, key_of
from sirius.cli.demo.screen import Screen, Seen
from sirius.cli.demo.traffic import Writer, broken_promises
from sirius.cli.output import Output
from sirius.errors import NodeError
from tests.app.background import Listening
from tests.cli.conftest import streams
from tests.cli.processes import Process, until


def test_films_are_the_same_every_time() -> None:
    once, again = list(films(500)), list(films(500))
    assert once == again
    assert list(films(500, seed=7)) != once
    assert once[0][0] == key_of(0) == "film/00000"
    film = json.loads(once[0][1])
    assert set(film) == {"title", "year", "genre", "director", "cast", "rating"}
    assert len({body for _, body in once}) == 500


# ---------------------------------------------------------------------- the whole of it


def sirius_processes() -> list[str]:
    """The command lines of all nodes that the demonstration has started on this machine, and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and b"--until-eof" in words:
                found.append(b" ".join(words).decode())
    return found


def left_of(folder: Path) -> list[str]:
    """Processes and files that are left of demonstrations in a folder."""
    return [line for line in sirius_processes() if str(folder) in line] + os.listdir(folder)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demonstration has its temporary folder."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_three_nodes_and_a_follower_survive_the_death_of_their_leader(temporary: Path) -> None:
    with Process("demo", "--once", "--json", "--seconds", "1", "--films", "300") as demo:
        code, out, err = demo.end()
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    told = {name: event[name] for event in events for name in event}
    assert told["updates"] == 300
    assert told["well"] is True
    assert told["written"] > 0
    assert 0 < told["failover_s"] < 30
    assert len([event for event in events if "digest" in event]) == 4
    assert len({event["digest"] for event in events if "digest" in event}) == 1
    assert left_of(temporary) == []


def test_one_node_has_a_demonstration_too_and_stays_until_ctrl_c(temporary: Path) -> None:
    words = ["--nodes", "1", "--followers", "0", "--seconds", "0.2", "--films", "50"]
    with Process("demo", *words) as demo:
        lines = []
        while "transfer-leadership" not in (line := demo.line()):
            assert line, demo.end()
            lines.append(line)
        assert len(left_of(temporary)) == 2
        code, out, err = demo.interrupt()
    assert (code, err) == (0, "")
    assert "1 voter started; ready after" in lines[0]
    assert any(re.search(r"each of [\d,]+ acknowledged writes is in it", line) for line in lines)
    assert "ending all processes" in out
    assert left_of(temporary) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_ends_everything(temporary: Path, number: int) -> None:
    with Process("demo", "--once", "--seconds", "600", "--films", "50") as demo:
        while "everybody has them in memory" not in (line := demo.line()):
            assert line, demo.end()
        code, _, err = demo.end(number)
    assert (code, err) == (130, "sirius: interrupted\n")
    assert left_of(temporary) == []


SWALLOWED = """
import signal
from sirius.cli.demo.interrupt import Interrupt

class Dying:
    def __init__(self, error): self.error = error
    def __del__(self):
        if self.error: raise self.error
        signal.raise_signal(signal.{name})
        for _ in range(1000): pass

interrupt = Interrupt()
interrupt.watch()
interrupt.check()
Dying(ValueError("a mistake"))
Dying(None)
print("swallowed")
interrupt.check()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_a_destructor_swallows_is_raised_at_the_next_look(name: str) -> None:
    code = SWALLOWED.replace("{name}", name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "swallowed\n"
    assert done.stderr.endswith("\nKeyboardInterrupt\n")
    # Only of what nobody will hear of otherwise.
    assert re.findall("ignored in|a mistake", done.stderr) == ["ignored in", "a mistake"]


def test_nodes_end_with_a_demonstration_that_is_killed(temporary: Path) -> None:
    with Process("demo", "--nodes", "1", "--followers", "1", "--films", "50") as demo:
        assert demo.line()
        demo.end(signal.SIGKILL)
    until(lambda: not [line for line in sirius_processes() if str(temporary) in line], "ended")


def test_a_node_that_does_not_start_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "node-2").mkdir()
    (tmp_path / "node-2" / "precious").write_text("not a log")
    cluster = Cluster(tmp_path, 2, 0)
    with pytest.raises(NodeError, match=r"node-2 did not start: sirius: .*precious"), cluster:
        pass
    assert not any(node.is_running for node in cluster.nodes)


class Forgetful:
    """A node that has an older number than the one that was acknowledged, and nothing under another key."""

    async def __call__(self, request: Request) -> Response:
        if request.path == "/storage/showing/0/1":
            return Response(200, b'{"number": 4}')
        raise Refused(404, "gone")


def test_a_broken_promise_is_found() -> None:
    with Listening(Forgetful()) as web:
        node = ServedNode("node-1", "127.0.0.1:1", Path(), [])
        node.http = f"http://127.0.0.1:{web.server.port}"
        writer = Writer(0, [node], threading.Event())
        writer.promised = {"showing/0/1": 4}
        assert broken_promises([node], [writer]) == []
        writer.promised = {"showing/0/1": 5, "showing/0/2": 1}
        assert broken_promises([node], [writer]) == [
            "node-1 has 4 under showing/0/1, and 5 was acknowledged",
            "node-1 has 0 under showing/0/2, and 1 was acknowledged",
        ]


# ---------------------------------------------------------------------- the screen


def seen(label: str, reads: int, **status: Any) -> Seen:
    basis = {"role": "voter", "state": "ready", "applied": 1234, "lag": 0}
    return Seen(label, {**basis, **status} if status != {"down": True} else None, reads)


def test_on_a_terminal_the_table_is_redrawn_below_the_events() -> None:
    with streams(terminal=True) as (stream, _):
        screen = Screen(Output(color=False))
        screen.draw([seen("node-1", 0), seen("node-2", 0, down=True)])
        screen.draw([seen("node-1", 10), seen("node-2", 0, down=True)])
        screen.event("kill -9")
    table, again, event = stream.text().split("\x1b[3A\x1b[J")
    assert table.splitlines()[0].split() == ["node", "role", "state", "applied", "lag", "reads/s"]
    assert table.splitlines()[2].split() == ["node-2", "–", "down", "–", "–", "–"]
    assert again.splitlines()[1].split()[:5] == ["node-1", "voter", "ready", "1,234", "0"]
    assert event.endswith("kill -9\n")


def test_elsewhere_there_are_lines_alone() -> None:
    with streams(terminal=False) as (stream, _):
        screen = Screen(Output())
        assert not screen.is_due()
        screen.draw([seen("node-1", 0)])
        screen.event("kill -9", "red")
        screen.table([seen("node-1", 0)])
    assert "\x1b" not in stream.text()
    assert [line.split()[-1] for line in stream.text().splitlines()] == ["-9", "reads/s", "0"]
