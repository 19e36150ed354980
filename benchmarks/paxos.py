"""The consensus machine alone: three of them in one process, without disk and network. A few seconds.

What is measured is what every update pays in Python, on one core for all three nodes: numbering it, encoding it once,
three acceptors, the votes, and three decisions. Values travel by reference, and are on disk at once. Sixty-four
requests are under way at a time, so that the leader makes batches of them as it does under load.

The clock is this process's own and the fastest run counts: nothing here waits, and neighbours only ever add.
"""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from benchmarks.data import updates
from benchmarks.figures import Figure, say
from sirius.codec import BlockCodec
from sirius.paxos import Configuration, Envelope, Machine, Member, PaxosConfig, Recovered
from sirius.paxos.effects import Done, Effects
from sirius.types import NodeId, Seq
from sirius.wal.record import Update

COMMITTED = 32 * 1024
BATCHES = (64, 512)
IN_FLIGHT = 64
REPEATS = 25


class Trio:
    """Three machines that hand each other their messages. The first one leads."""

    def __init__(self) -> None:
        members = tuple(Member(NodeId(at), f"node-{at}") for at in (1, 2, 3))
        founded = Configuration(1, 1, members)
        self.now = 0.0
        self.done = 0
        self._wire: deque[tuple[Machine, Envelope]] = deque()
        self._machines = {
            member.node: Machine(
                member,
                PaxosConfig(),
                BlockCodec(lambda: 1),
                random.Random(member.node),
                self.now,
                Recovered(configuration=founded),
            )
            for member in members
        }
        self.leader = self._elect()

    def _elect(self) -> Machine:
        for _ in range(100):
            self.tick(0.05)
            leaders = [each for each in self._machines.values() if each.is_leader]
            if leaders and leaders[0].decided:
                return leaders[0]
        raise AssertionError("nobody leads")

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for machine in self._machines.values():
            self._do(machine, machine.tick(self.now))
        self.deliver()

    def propose(self, token: int, batch: Sequence[Update], size: int) -> None:
        self._do(self.leader, self.leader.propose(token, batch, size))

    def deliver(self) -> None:
        while self._wire:
            machine, envelope = self._wire.popleft()
            self._do(machine, machine.step(envelope))

    def _do(self, machine: Machine, effects: Effects) -> None:
        if effects.ticket:
            machine.persisted(effects.ticket)
        for messages in (effects.send, effects.send_now):
            for to, message in messages:
                self._wire.append((self._machines[to.node], machine.envelope(to, message)))
        if effects.append:
            machine.stored(Seq(effects.append[-1].last))
        self.done += sum(isinstance(answer, Done) for answer in effects.answers)


def commit(batches: Sequence[Sequence[Update]], size: int, in_flight: int = IN_FLIGHT) -> Trio:
    """Have batches decided, a few at a time, with heartbeats in between."""
    trio = Trio()
    for token, batch in enumerate(batches):
        trio.propose(token, batch, size)
        if token % in_flight == in_flight - 1:
            trio.deliver()
            trio.tick(0.01)
    trio.deliver()
    if trio.done != len(batches):
        raise AssertionError(f"{trio.done} of {len(batches)} batches were decided")
    return trio


def cut(rows: list[Update], batch: int) -> list[list[Update]]:
    """Return updates in batches."""
    return [rows[at : at + batch] for at in range(0, len(rows), batch)]


def cpu_seconds(work: Callable[[], object]) -> float:
    """Time one run on this process's own clock, without the garbage of the one before."""
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def figures() -> Iterator[Figure]:
    """Measure how many updates three machines decide in a second."""
    say(f"deciding {COMMITTED:,} updates, again and again, among three machines")
    rows = list(updates(COMMITTED, COMMITTED))
    small, large = (cut(rows, batch) for batch in BATCHES)
    gc.freeze()  # the updates are not the machine's garbage
    works: list[Callable[[], object]] = [
        lambda: commit(small, 64 * 128),
        lambda: commit(large, 512 * 128),
        lambda: commit(small, 64 * 128, in_flight=1),
    ]
    times = [[cpu_seconds(work) for work in works] for _ in range(REPEATS)]
    gc.unfreeze()
    few, many, alone = (min(column) for column in zip(*times, strict=True))
    yield Figure("paxos.commit_64", COMMITTED / few, "updates/s", 500_000)
    yield Figure("paxos.commit_512", COMMITTED / many, "updates/s", 500_000)
    yield Figure("paxos.cost_ratio", many / few, "", 1.0, at_most=True)
    note = "one batch at a time, an Accept each"
    yield Figure("paxos.commit_64_alone", COMMITTED / alone, "updates/s", note=note)
