"""What nodes say to each other and do, pinned.

A transcript is a script. Lines that begin with `$` are run one after the other, and what follows is what happened.
Lines that begin with `#` are comments. `pytest tests/catchup --rewrite` writes what happens now; read the difference
before you believe it. The commands:

config NAME=VALUE ...           settings, before the first node; numbers, or words
voter N, follower N [REGION]    add a node
write N UPDATE ...              node N decides updates: +k puts, -k deletes
has N FIRST LAST                node N finds a part of the truth on its disk
drop N SLOT ...                 node N's log drops superseded updates, the last of which is a delete
follow N SOURCE ...             whom node N may ask
rot N FIRST LAST, heal N        what node N cannot read, and that it can again
cut N M, join N M               the way from N to M, and back
break N BYTES                   the next stream that brings node N a file breaks off after so many bytes
wait SECONDS                    let time pass, everything arrives
hear N SLOT                     node N hears from elsewhere that so much is decided
crash N                         node N stops and starts again
show                            who is where
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from sirius.types import Seq
from tests.catchup.logs import piece
from tests.catchup.world import SMALL, World

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))
QUIET = ("Here(", "Push(values=()", "Subscribe(")
"""What is said all the time, and is left out."""


class Script:
    """Runs the commands of one transcript."""

    def __init__(self) -> None:
        self.world = World()

    def run(self, line: str) -> list[str]:
        command, *words = line.split()
        self.world.trace.clear()
        shown = getattr(self, f"do_{command}")(*words)
        lines = shown or [each for each in self.world.trace if not any(q in each for q in QUIET)]
        return [f"{each} (×{n})" if n > 1 else each for each, n in _counted(lines)]

    def do_config(self, *words: str) -> None:
        pairs = dict(word.split("=") for word in words)
        settings = {name: _number(value) for name, value in pairs.items()}
        self.world = World(config=replace(SMALL, **settings))  # type: ignore[arg-type]

    def do_voter(self, node: str, region: str = "") -> None:
        self.world.add(int(node), region, voter=True)

    def do_follower(self, node: str, region: str = "") -> None:
        self.world.add(int(node), region)

    def do_write(self, node: str, *updates: str) -> None:
        self.world.write(int(node), *updates)
        self.world.settle()

    def do_has(self, node: str, first: str, last: str) -> None:
        updates = self.world.truth
        self.world.nodes[int(node)].append([piece(int(first), int(last), updates)], "has")

    def do_drop(self, node: str, *slots: str) -> None:
        target = self.world.nodes[int(node)]
        for slot in slots[:-1]:
            del target.log.updates[int(slot)]
        target.log.drop_delete(int(slots[-1]))
        target.log.files.clear()
        target.run(target.machine.compacted(target.log.edition))

    def do_follow(self, node: str, *sources: str) -> None:
        self.world.nodes[int(node)].follow(*(self.world.source(int(each)) for each in sources))

    def do_rot(self, node: str, first: str, last: str) -> None:
        self.world.nodes[int(node)].log.unreadable = (int(first), int(last))

    def do_heal(self, node: str) -> None:
        self.world.nodes[int(node)].log.unreadable = None

    def do_cut(self, one: str, other: str) -> None:
        self.world.cut |= {(int(one), int(other)), (int(other), int(one))}

    def do_join(self, one: str, other: str) -> None:
        self.world.cut -= {(int(one), int(other)), (int(other), int(one))}

    def do_break(self, node: str, size: str) -> None:
        self.world.nodes[int(node)].breaks_at = int(size)

    def do_wait(self, seconds: str) -> None:
        self.world.pass_time(float(seconds))

    def do_crash(self, node: str) -> None:
        self.world.nodes[int(node)].crash()

    def do_hear(self, node: str, known: str) -> None:
        target = self.world.nodes[int(node)]
        target.run(target.machine.heard(Seq(int(known))))

    def do_show(self) -> list[str]:
        lines = []
        for node in self.world.nodes.values():
            machine = node.machine
            source = f", fed by {machine.source.name}" if machine.source else ""
            puller = ", pulls for its region" if node.region and machine.pulls_for_region else ""
            path = ">".join(map(str, machine.path))
            state = " ".join(f"{key}={seq}" for key, seq in sorted(node.log.state().items()))
            lines.append(
                f"{node.me.name} at {machine.position}, path {path}{source}{puller}: {state}"
            )
        return lines


def _number(word: str) -> float | int | str:
    try:
        return float(word) if "." in word else int(word)
    except ValueError:
        return word


def _counted(lines: list[str]) -> list[tuple[str, int]]:
    return [(line, len(list(group))) for line, group in itertools.groupby(lines)]


def play(text: str) -> str:
    script, lines = Script(), list[str]()
    for line in text.splitlines():
        if line.startswith("#"):
            lines += ["", line] if lines and not lines[-1].startswith("#") else [line]
        elif line.startswith("$ "):
            lines += [line, *script.run(line.removeprefix("$ "))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    played = play(path.read_text(encoding="utf-8"))
    if request.config.getoption("--rewrite"):
        path.write_text(played, encoding="utf-8")
    assert played == path.read_text(encoding="utf-8")


def test_the_stories_are_told() -> None:
    stories = {"holes", "resync", "rings", "regions", "segments"}
    assert stories <= {path.stem for path in TRANSCRIPTS}
