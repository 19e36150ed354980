"""Conversations of machines, pinned word for word.

A transcript is a script: lines that begin with `$ ` are done one after the other, and what follows is all that the
nodes then say and do. `a > b` is a message from a to b; `keeps` goes to the journal; `decides` goes to the log.
Messages about what a node keeps leave when it is synced. A ballot is written 2.b: round 2, node b. A configuration is
[#3 abc+d by 2.b]: number, voters, learners, and the ballot whose reign it belongs to. A's second disk is a'.

    cluster abc     three nodes that belong to a cluster        fresh abc     three nodes with empty disks
    elect a         let a lead, without a word                  settle        deliver and sync until all is quiet
    wait 0.5        let time pass and tell everybody            run 2         both, again and again, for two seconds
    deliver a>b X   deliver what is on the wire, or only        drop, late    lose it, or deliver it once more
                    what is from a, to b, of the kind X         sync a        the disk of a, or all of them
    propose a 1 x   have x decided; the answer has the token 1  read a 2      ask for a read index
    crash, start, lose (the disk), cut ab c, heal, wish all abc, hand-over a b, disable a, status

Heartbeats and greetings of `run` are counted, not shown. Lines that begin with `#` are comments. `pytest tests/paxos
--rewrite` writes what the nodes say now; read the difference before you believe it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paxos.harness import Cluster, Packet

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
PLAIN = "elect crash start settle sync cut heal hand-over catch-up".split()
"""Commands that the cluster understands as they are."""
CHATTER = re.compile(r"\w > \w  (Beat|BeatAck|Hello|Welcome)\b")


class Player:
    """Does what a script says."""

    def __init__(self) -> None:
        self.cluster = Cluster("")
        self.lost: list[Packet] = []

    def play(self, script: str) -> str:
        """Return the script with what the nodes say now."""
        lines: list[str] = []
        for line in script.splitlines():
            if line.startswith("#"):
                lines += ["", line] if lines and not lines[-1].startswith("#") else [line]
            elif line.startswith("$ "):
                lines += ["", line] if lines and not lines[-1].startswith("#") else [line]
                lines += self.do(*line.removeprefix("$ ").split())
        return "\n".join(lines) + "\n"

    def do(self, command: str, *words: str) -> list[str]:
        """Do one thing; return what happened."""
        said = len(self.cluster.trace)
        if command in ("cluster", "fresh"):
            self.cluster = Cluster(words[0], founded=command == "cluster")
            self.cluster.catching_up = False
            return []
        if command == "status":
            return list(self.cluster.status())
        self._act(command, *words)
        fresh = self.cluster.trace[said:]
        if command == "elect":
            return list(self.cluster.status())
        if command == "run":
            return self._without_chatter(fresh)
        return fresh

    def _act(self, command: str, *words: str) -> None:
        name = command.replace("-", "_")
        own = getattr(self, f"_{name}", None)
        if own is None and command not in PLAIN:
            raise AssertionError(f"no such command: {command}")
        (own or getattr(self.cluster, name))(*words)

    def _propose(self, name: str, token: str, *texts: str) -> None:
        self.cluster.propose(name, int(token), *texts)

    def _read(self, name: str, token: str) -> None:
        self.cluster.read(name, int(token))

    def _wish(self, who: str, names: str) -> None:
        for name in self.cluster.up if who == "all" else who:
            self.cluster.wish(name, names.strip("-"))

    def _wait(self, seconds: str, *names: str) -> None:
        self.cluster.wait(float(seconds))
        self.cluster.tick(*names)

    def _run(self, seconds: str) -> None:
        self.cluster.catching_up = True
        self.cluster.run(float(seconds))
        self.cluster.catching_up = False

    def _disable(self, name: str) -> None:
        self.cluster.disable(name, "no room on disk")

    def _deliver(self, *words: str) -> None:
        self.cluster.deliver(" ".join(words))

    def _drop(self, *words: str) -> None:
        self.lost = self.cluster.drop(" ".join(words))

    def _late(self) -> None:
        for packet in self.lost:
            self.cluster.arrive(packet)

    def _add(self, name: str) -> None:
        self.cluster.add(name)
        self.cluster.start(name)

    def _lose(self, name: str) -> None:
        self.cluster.lose_disk(name)

    def _without_chatter(self, lines: list[str]) -> list[str]:
        shown = [line for line in lines if not CHATTER.match(line)]
        return [*shown, f"({len(lines) - len(shown)} heartbeats and greetings)"]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    played = Player().play(path.read_text(encoding="utf-8"))
    if request.config.getoption("--rewrite"):
        path.write_text(played, encoding="utf-8")
    assert played == path.read_text(encoding="utf-8")


def test_a_command_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no such command: dance"):
        Player().play("$ dance a")
