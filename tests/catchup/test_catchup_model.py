"""Random logs, random faults, and what must hold whatever happens.

Primaries decide and everybody else follows, over a network that loses, repeats and reorders, from logs that are
compacted differently, drop deletes, and cannot always be read. After each step: nobody's log has anything that was
not decided, or goes further than its values cover (`FakeLog.append` raises); no position has fallen; and whose log is
whole has exactly the state of the truth, so no deleted key is back. At the end everything is healed, and everybody
gets to the tip.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sirius.catchup import Edition
from tests.catchup.logs import FakeLog, Update, piece, replay
from tests.catchup.world import SMALL, Node, World

SOAK = bool(os.environ.get("SIRIUS_SOAK"))
PRIMARIES = (1, 2)
EVERYBODY = (1, 2, 3, 4, 5)
CONFIG = replace(SMALL, attempts_max=2, follower_timeout_s=2.0, hops_max=4)
NODES = st.sampled_from(EVERYBODY)


class Faults(RuleBasedStateMachine):
    """Five nodes: two primaries, and followers in two regions."""

    @initialize(seed=st.integers(0, 2**32), segments=st.booleans(), near=st.booleans())
    def begin(self, seed: int, segments: bool, near: bool) -> None:
        config = replace(
            CONFIG, segment_slots=6 if segments else 0, prefer="nearest" if near else "random"
        )
        self.world = world = World(seed, config)
        for node in EVERYBODY:
            world.add(node, "east" if node < 4 else "west", voter=node in PRIMARIES)
        for node in EVERYBODY:
            others = [each for each in EVERYBODY if each != node]
            world.nodes[node].follow(*(world.source(each, abs(each - node)) for each in others))
        self.positions = dict.fromkeys(EVERYBODY, 0)

    @rule(
        texts=st.lists(
            st.sampled_from(["+a", "+b", "+c", "-a", "-b", "-c"]), min_size=1, max_size=6
        )
    )
    def decide(self, texts: list[str]) -> None:
        """Consensus brings it to one primary; the other one misses it."""
        self.world.write(1, *texts)

    @rule()
    def bring(self) -> None:
        """Consensus brings the next slot to the other primary, although it may be pulling it just now."""
        log = self.world.nodes[2].log
        update: list[Update] = self.world.truth[log.tip : log.tip + 1]
        if update and not self.world.nodes[2].machine.is_resyncing:
            seq = update[0].seq
            self.world.nodes[2].append([piece(seq, seq, update)], "decides")

    @rule()
    def tell(self) -> None:
        node = self.world.nodes[2]
        node.run(node.machine.heard(self.world.nodes[1].machine.position))

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]), faults=st.sampled_from([0.0, 0.1, 0.4]))
    def run(self, seconds: float, faults: float) -> None:
        """Let time pass with a network that harms so many of the messages and streams, and disks that take their
        time."""
        for _ in range(round(seconds / 0.1)):
            self.world.tick(0.1)
            self.carry(faults)

    def carry(self, faults: float) -> None:
        world, rng = self.world, self.world.rng
        for _ in range(20):
            if world.wire and rng.random() < faults:
                self.harm(rng.randrange(len(world.wire)))
            elif world.wire:
                world.deliver()
            for node in world.nodes.values():
                if node.reads and rng.random() < 0.7:
                    node.disk(rng.choice(node.reads))
                if node.fetching and rng.random() < 0.3:
                    self.stream(node, faults)

    def stream(self, node: Node, faults: float) -> None:
        """Bring a file, or a part of it."""
        rng = self.world.rng
        node.breaks_at = rng.randrange(30) if rng.random() < faults else None
        node.take()

    def harm(self, at: int) -> None:
        """Lose, repeat or delay one message."""
        wire, rng = self.world.wire, self.world.rng
        message, what = wire.pop(at), rng.choice(["lose", "repeat", "delay"])
        for _ in range(["lose", "delay", "repeat"].index(what)):
            wire.insert(rng.randrange(len(wire) + 1), message)

    @rule(node=NODES, seconds=st.sampled_from([3.0, 30.0]))
    def isolate(self, node: int, seconds: float) -> None:
        """Cut one node off for a while."""
        self.world.cut = {pair for other in EVERYBODY for pair in ((node, other), (other, node))}
        self.run(seconds, 0.0)
        self.world.cut = set()

    @rule(node=NODES, passes=st.integers(1, 3))
    def compact(self, node: int, passes: int) -> None:
        for _ in range(passes):
            self.world.nodes[node].compact()

    @rule(node=NODES, first=st.integers(1, 20), length=st.integers(0, 5))
    def rot(self, node: int, first: int, length: int) -> None:
        self.world.nodes[node].log.unreadable = (first, first + length)

    @rule(node=NODES)
    def repair(self, node: int) -> None:
        self.world.nodes[node].log.unreadable = None

    @rule(node=NODES, files=st.booleans())
    def refuse(self, node: int, files: bool) -> None:
        """A disk that takes no files, or no new log, or both again."""
        target = self.world.nodes[node]
        target.refuse_files, target.fail_resync = files, not files and not target.fail_resync

    @rule(node=NODES)
    def crash(self, node: int) -> None:
        self.world.nodes[node].crash()

    @rule(node=st.sampled_from(EVERYBODY[2:]))
    def lose(self, node: int) -> None:
        """A follower loses its disk, and begins with nothing."""
        target = self.world.nodes[node]
        target.log = FakeLog(edition=Edition(target.log.edition.era + 10_000))
        target.boot()
        self.positions[node] = 0

    @invariant()
    def holds(self) -> None:
        for number, node in self.world.nodes.items():
            check(self.world, node)
            assert node.machine.position >= self.positions[number]
            self.positions[number] = node.machine.position

    def teardown(self) -> None:
        if hasattr(self, "world"):
            heal(self.world)


def simulate(seed: int) -> World:
    """A longer story than Hypothesis tells, with more writing and compacting than anything else."""
    rng = random.Random(seed)
    faults = Faults()
    faults.begin(seed, rng.random() < 0.5, rng.random() < 0.5)
    updates = ["+a", "+b", "+c", "+d", "-a", "-b", "-c", "-d"]
    actions: list[tuple[int, Callable[[], None]]] = [
        (8, lambda: faults.decide(rng.choices(updates, k=rng.randint(3, 12)))),
        (8, lambda: faults.run(rng.choice([0.3, 0.5, 1.0, 3.0]), rng.choice([0.0, 0.1, 0.3]))),
        (6, lambda: faults.compact(rng.choice(EVERYBODY), rng.randint(1, 3))),
        (2, lambda: faults.isolate(rng.choice(EVERYBODY), rng.choice([3.0, 30.0]))),
        (2, lambda: faults.crash(rng.choice(EVERYBODY))),
        (2, lambda: faults.lose(rng.choice(EVERYBODY[2:]))),
        (1, lambda: faults.rot(rng.choice(EVERYBODY), rng.randint(1, 40), rng.randint(0, 5))),
        (1, lambda: faults.repair(rng.choice(EVERYBODY))),
        (1, lambda: faults.refuse(rng.choice(EVERYBODY), rng.random() < 0.5)),
        (1, faults.bring),
        (1, faults.tell),
    ]
    for action in rng.choices([act for _, act in actions], [weight for weight, _ in actions], k=50):
        action()
        faults.holds()
    heal(faults.world)
    return faults.world


def check(world: World, node: Node) -> None:
    """Nothing but the truth, and all of it from where the log is whole."""
    log = node.log
    assert all(world.truth[seq - 1] == update for seq, update in log.updates.items())
    if log.tip >= node.machine.whole:
        assert log.state() == replay(world.truth[: log.tip]), node.me


def heal(world: World) -> None:
    """Everything works again: everybody gets to the tip."""
    world.wire.clear()
    for node in world.nodes.values():
        node.log.unreadable, node.refuse_files, node.fail_resync = None, False, False
        node.breaks_at = None
    for _ in range(60):
        world.pass_time(2.0, 0.25)
        if all(node.log.tip == len(world.truth) for node in world.nodes.values()):
            break
    for node in world.nodes.values():
        assert node.log.tip == len(world.truth), node.me
        assert node.log.state() == replay(world.truth), node.me


def test_everybody_gets_the_truth() -> None:
    run_state_machine_as_test(Faults, settings=settings(max_examples=50, stateful_step_count=40))


def test_everybody_gets_the_truth_by_seed() -> None:
    told = "\n".join(line for seed in range(25) for line in simulate(seed).trace)
    events = ("learned", "floor", "installs", "breaks off", "withholds", "refuses", "drops segment")
    for event in (*events, "stages", "is resynced", "Unavailable("):
        assert event in told, "a simulation in which nothing happens proves nothing"


@pytest.mark.deep
def test_everybody_gets_the_truth_by_many_seeds() -> None:
    for seed in range(1000, 5000 if SOAK else 1100):
        simulate(seed)


@pytest.mark.deep
def test_everybody_gets_the_truth_in_many_runs() -> None:
    run_state_machine_as_test(
        Faults, settings=settings(max_examples=3000 if SOAK else 80, stateful_step_count=60)
    )
