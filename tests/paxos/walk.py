"""A random walk: a cluster to which everything happens that a network, a disk and an operator can do.

Not a test itself. Messages arrive in any order, twice or never; nodes crash with what they had not synced and come
back; links are cut one way or both; members are wished for and taken out; one disk at a time may be lost. The harness's
judge looks at every decision. Afterwards all is healed, and the cluster has to agree, and to work.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from sirius.paxos import Numbers, PaxosConfig
from sirius.paxos.effects import Done, ReadAt
from sirius.paxos.values import PUBLISHERS
from tests.paxos.harness import Cluster, Packet
from tests.paxos.words import Words


class Walk:
    """One walk. The seed decides everything."""

    def __init__(
        self,
        seed: int,
        names: str = "abc",
        *,
        spare: str = "",
        config: PaxosConfig | None = None,
        publishers: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(names, config, seed=seed)
        self.cluster.trace = _Short()
        for node in self.cluster.nodes.values():
            node.rng.patience = self.rng.random()
        self.names, self.spare = names, spare
        for name in spare:
            self.cluster.add(name)
            self.cluster.start(name)
        self.tokens = 0
        self.acknowledged = 0
        self.reads: dict[int, int] = {}
        self._lost = ""
        self._past: list[Packet] = []
        self._kinds: list[tuple[Callable[[], None], float]] = [
            (self.deliver, 200 * self._mood()),
            (self.deliver_first, 400),
            (self.deliver_to_one, 100 * self._mood()),
            (self.pass_time, 80),
            (self.sync, 150),
            (self.propose, 60),
            (self.read, 10),
            (self.drop, 40 * self._mood()),
            (self.drop_many, 4 * self._mood()),
            (self.double, 20 * self._mood()),
            (self.haunt, 40 * self._mood()),
            (self.catch_up, 20 * self._mood()),
            (self.crash, 6 * self._mood()),
            (self.start, 12),
            (self.cut, 20 * self._mood()),
            (self.heal, 10),
            (self.hand_over, 4 * self._mood()),
            (self.jolt, 0 if self.cluster.config.lease else 30 * self._mood()),
            *([(self.wish, 3), (self.lose_disk, 1)] if spare else []),
            *([(self.publish, 100.0)] if publishers else []),
        ]

    def _mood(self) -> float:
        """How much of a thing there is in this walk: each walk is one-sided in its own way."""
        return self.rng.choice([0.0, 0.3, 1.0, 3.0])

    def run(self, steps: int) -> None:
        """Let things happen."""
        kinds, weights = zip(*self._kinds, strict=True)
        for step in self.rng.choices(kinds, weights, k=steps):
            step()
            self._look()

    def _look(self) -> None:
        """Check that reads saw every acknowledged write, and remember those."""
        for name in self.cluster.nodes:
            for answer in self.cluster.answers(name):
                if isinstance(answer, Done):
                    self.acknowledged = max(self.acknowledged, answer.last)
                elif isinstance(answer, ReadAt) and answer.token in self.reads:
                    wanted = self.reads[answer.token]
                    assert answer.slot >= wanted, f"a read at {answer.slot} misses {wanted}"

    def _any(self) -> str:
        return self.rng.choice(self.cluster.up)

    # ------------------------------------------------------------------ what can happen

    def deliver(self) -> None:
        """Deliver anything."""
        if self.cluster.wire:
            self._take(self.rng.randrange(len(self.cluster.wire)))

    def deliver_first(self) -> None:
        """Deliver what was sent first."""
        if self.cluster.wire:
            self._take(0)

    def _take(self, at: int) -> None:
        packet = self.cluster.wire[at]
        del self.cluster.wire[at]
        self.cluster.arrive(packet)

    def deliver_to_one(self) -> None:
        """Deliver all that is on its way to one node, and have it synced or not."""
        if self.cluster.up:
            name = self._any()
            self.cluster.deliver(f">{name}")
            if self.rng.random() < 0.7:
                self.cluster.sync(name)

    def drop_many(self) -> None:
        """Lose most of what is on the wire."""
        kept = [packet for packet in self.cluster.wire if self.rng.random() < 0.2]
        self.cluster.wire = deque(kept)

    def jolt(self) -> None:
        """Have a node run for leader at once, as if it had been asked to take over."""
        if self.cluster.up:
            self.cluster.campaign(self._any())

    def drop(self) -> None:
        if self.cluster.wire:
            del self.cluster.wire[self.rng.randrange(len(self.cluster.wire))]

    def double(self) -> None:
        if self.cluster.wire:
            self.cluster.wire.append(self.rng.choice(self.cluster.wire))

    def haunt(self) -> None:
        """Deliver something from long ago, lost or not; and keep something for later."""
        if self.cluster.wire:
            self._past.append(self.rng.choice(self.cluster.wire))
            at = self.rng.randrange(len(self._past))
            self.cluster.arrive(self._past[at])
            if len(self._past) > 30:
                del self._past[at]

    def pass_time(self) -> None:
        self.cluster.wait(self.rng.choice([0.01, 0.05, 0.1, 0.3]))
        for name in self.cluster.up:
            if self.rng.random() < 0.8:
                self.cluster.tick(name)

    def sync(self) -> None:
        if self.cluster.up:
            self.cluster.sync(self._any())

    def propose(self) -> None:
        if self.cluster.up:
            self.tokens += 1
            count = self.rng.choice([1, 1, 2, 3])
            texts = [f"{self.tokens}.{at}" for at in range(count)]
            self.cluster.propose(self._any(), self.tokens, *texts)

    def publish(self) -> None:
        """A publisher sends what comes next, or what it sent before, in other portions, to any node."""
        if self.cluster.up:
            self.tokens += 1
            publisher = self.rng.randrange(3)
            done = self.cluster.judge.serials(PUBLISHERS + publisher)
            serial = self.rng.randint(max(1, done - 4), done + 2)
            count = self.rng.choice([1, 1, 2, 3])
            texts = [f"p{publisher}.{serial + at}" for at in range(count)]
            numbers = Numbers(PUBLISHERS + publisher, serial, serial - 1)
            self.cluster.publish(self._any(), self.tokens, numbers, *texts)

    def read(self) -> None:
        if self.cluster.up:
            self.tokens += 1
            self.reads[self.tokens] = self.acknowledged
            self.cluster.read(self._any(), self.tokens)

    def catch_up(self) -> None:
        """Catch up with part of what another one has."""
        if self.cluster.up:
            name, source = self._any(), self._any()
            decided = self.cluster.machine(name).decided
            values: list[Words] = self.cluster.nodes[source].disk.values(decided + 1)
            if values:
                values = values[: self.rng.randint(1, 3)]
                last = self.rng.randint(values[-1].first, values[-1].last)
                values[-1] = values[-1].cut(values[-1].first, last)
                self.cluster.learn(name, values)

    def crash(self) -> None:
        if self.cluster.up:
            self.cluster.crash(self._any())

    def start(self) -> None:
        down = [name for name in self.cluster.nodes if name not in self.cluster.up]
        if down:
            self.cluster.start(self.rng.choice(down))

    def cut(self) -> None:
        one, two = self.rng.choices(list(self.cluster.nodes), k=2)
        self.cluster.blocked.add((one, two))
        if self.rng.random() < 0.3:
            self.cluster.cut_off(one)

    def heal(self) -> None:
        self.cluster.heal()

    def hand_over(self) -> None:
        if self.cluster.leaders:
            self.cluster.hand_over(self.rng.choice(self.cluster.leaders))

    def wish(self) -> None:
        # New nodes that are told of nobody else would rightly found a cluster of their own: two old ones are always
        # there, one of which has its disk.
        old = self.rng.sample(self.names, 2)
        others = [name for name in self.names + self.spare if name not in old]
        wished = [*old, *self.rng.sample(others, self.rng.randint(1, len(others)))]
        for name in self.cluster.up:
            self.cluster.wish(name, wished)

    def lose_disk(self) -> None:
        """One node loses its disk; no other does before it has been replaced."""
        if not self._lost and self.cluster.up:
            self._lost = self._any()
            self.cluster.lose_disk(self._lost)

    # ------------------------------------------------------------------ the end

    def finish(self, seconds: float = 10.0) -> None:
        """Heal everything; then the nodes must agree and take a write."""
        cluster = self.cluster
        cluster.heal()
        cluster.wire.clear()
        for name in cluster.nodes:
            if name not in cluster.up:
                cluster.start(name)
        if self.spare:
            cluster.wish_all(self.names + self.spare)
        cluster.run(seconds)
        self._look()
        if not self._can_vote():
            return
        name = self._any()
        cluster.propose(name, -1, "the end")
        cluster.run(1.0)
        answers = cluster.answers(name)
        assert any(isinstance(each, Done) and each.token == -1 for each in answers), [
            *cluster.status(),
            answers,
        ]
        assert len({cluster.machine(each).decided for each in cluster.up}) == 1, [*cluster.status()]

    def _can_vote(self) -> bool:
        """Whether a majority of the last voters still has its disks."""
        entries = self.cluster.judge.decided.values()
        found = [entry.configuration for entry in entries if entry.configuration]
        living = {node.member.node for node in self.cluster.nodes.values()}
        return bool(found) and max(found, key=lambda each: each.number).is_quorum(living)


class _Short(list[str]):
    """The last lines of a long story."""

    def append(self, line: str) -> None:
        super().append(line)
        if len(self) > 4000:
            del self[:2000]
