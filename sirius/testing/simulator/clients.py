"""The load: clients that write and read through the nodes, and remember what they were told."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from sirius.paxos.effects import Answer, Done, ReadAt, ReadFailed, Rejected, Unknown
from sirius.testing.simulator.settings import stream
from sirius.wal import Op, Update

if TYPE_CHECKING:
    from sirius.testing.simulator.cluster import Cluster
    from sirius.testing.simulator.node import SimNode

BATCH_MAX: Final = 20
BODY_BYTES_MAX: Final = 60
REQUEST_BYTES_MAX: Final = BATCH_MAX * (BODY_BYTES_MAX + 80)
_STEP_S: Final = 0.06
_WINDOW: Final = 5
_DEBT_S: Final = 6.0
_READ_SHARE: Final = 0.2
_MOVE_SHARE: Final = 0.1
_PATIENCE_S: Final = 1.2


@dataclass(slots=True)
class Write:
    """One request under way."""

    client: Client
    node: str
    updates: list[Update]
    asked_at: float


@dataclass(slots=True)
class Read:
    """One read under way; everything up to `behind` was acknowledged when it began."""

    node: str
    behind: int


@dataclass(slots=True)
class Client:
    """Writes through one node, now and then through another. What it could not write it makes up for later."""

    name: str
    node: str
    debt: float = 0.0
    under_way: Counter[str] = field(default_factory=Counter)
    """How many requests each node has not answered yet."""


@dataclass(slots=True)
class Counts:
    """What became of the requests."""

    asked: int = 0
    done: int = 0
    unknown: int = 0
    rejected: int = 0
    reads: int = 0
    reads_failed: int = 0


class Clients:
    """All clients of a run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rng: random.Random = stream(cluster.settings.seed, "clients")
        self._writes: dict[int, Write] = {}
        self._reads: dict[int, Read] = {}
        self._token = 0
        self._bodies = 0
        self.bursts: list[float] = []
        self.counts = Counts()
        self.is_quiet = False
        self.last_done_at = 0.0
        """When the newest request was asked for that was acknowledged."""
        self._names = [f"c{number}" for number in range(1, cluster.settings.clients + 1)]

    def start(self) -> None:
        for name in self._names:
            client = Client(name, self._rng.choice(self._cluster.settings.voters))
            self._cluster.loop.after(self._rng.uniform(0.3, 0.5), partial(self._step, client))

    # ------------------------------------------------------------------ asking

    def _step(self, client: Client) -> None:
        if self.is_quiet:
            return
        self._lose_patience()
        rate = self._cluster.settings.writes_per_s / len(self._names)
        times = max(self.bursts, default=1.0)
        client.debt = min(client.debt + rate * times * _STEP_S, rate * _DEBT_S)
        if self._rng.random() < _MOVE_SHARE:
            self._move(client)
        while client.debt >= 1 and client.under_way[client.node] < _WINDOW * times:
            self._write(client)
        self._read()
        self._cluster.loop.after(_STEP_S * self._rng.uniform(0.8, 1.2), partial(self._step, client))

    def _lose_patience(self) -> None:
        """Give up what a node has not answered for a long time, be it paused or cut off."""
        before = self._cluster.loop.now - _PATIENCE_S
        for token, write in list(self._writes.items()):
            if write.asked_at > before:
                break
            self._failed(token, "no answer", rejected=False)

    def _write(self, client: Client) -> None:
        node = self._cluster.nodes[client.node]
        if not node.is_up:
            self._move(client)
            client.debt -= 0.5
            return
        count = self._rng.randrange(1, BATCH_MAX + 1)
        if client.debt < 2 * BATCH_MAX:
            count = min(count, int(client.debt) + 5)
        updates = [self._update(client) for _ in range(count)]
        client.debt -= count
        client.under_way[node.name] += 1
        self._token += 1
        self.counts.asked += 1
        token, size = self._token, sum(len(each.key) + len(each.body) + 48 for each in updates)
        self._writes[token] = Write(client, node.name, updates, self._cluster.loop.now)
        node.enter(lambda engine, now: engine.propose(now, token, updates, size))

    def _update(self, client: Client) -> Update:
        rng = self._rng
        key = f"key/{rng.randrange(self._cluster.settings.keys)}".encode()
        if rng.random() < 0.2:
            return Update(Op.DELETE, key)
        self._bodies += 1
        body = f"{client.name} {self._bodies} ".encode()
        return Update(Op.PUT, key, body.ljust(rng.randrange(12, BODY_BYTES_MAX), b"."))

    def _read(self) -> None:
        """Read now and then; and always where somebody leads without knowing that another does."""
        nodes = [node for node in self._cluster.nodes.values() if node.is_up]
        leaders = [node for node in nodes if node.is_leader]
        if len(leaders) > 1:
            self._read_from(self._rng.choice(leaders))
        elif nodes and self._rng.random() < _READ_SHARE:
            self._read_from(self._rng.choice(nodes))

    def _read_from(self, node: SimNode) -> None:
        self._token += 1
        token = self._token
        self._reads[token] = Read(node.name, self._cluster.checkers.acknowledged_to)
        node.enter(lambda engine, now: engine.read(now, token))

    def _move(self, client: Client) -> None:
        """Go to another node: mostly one that votes, as far as is known."""
        names = self._cluster.settings.voters
        configurations = self._cluster.checkers.truth.configurations
        if configurations and self._rng.random() < 0.9:
            names = tuple(member.name for member in configurations[-1][1].voters)
        client.node = self._rng.choice(names)

    # ------------------------------------------------------------------ being told

    def answered(self, node: SimNode, answer: Answer) -> None:
        """A node says what became of something."""
        match answer:
            case Done(token, last):
                self._done(token, last)
            case Unknown(token, reason) | Rejected(token, reason):
                self._failed(token, reason, rejected=isinstance(answer, Rejected))
            case ReadAt(token, slot):
                self._read_at(node, token, slot)
            case ReadFailed(token):
                if self._reads.pop(token, None) is not None:
                    self.counts.reads_failed += 1

    def _done(self, token: int, last: int) -> None:
        write = self._writes.pop(token, None)
        if write is None:
            return
        write.client.under_way[write.node] -= 1
        self.counts.done += 1
        self.last_done_at = max(self.last_done_at, write.asked_at)
        self._cluster.checkers.done(write.node, write.updates, last)
        first = last - len(write.updates) + 1
        self._cluster.note(write.client.name, f"has {first} to {last} from {write.node}")

    def _failed(self, token: int, reason: str, *, rejected: bool) -> None:
        write = self._writes.pop(token, None)
        if write is None:
            return
        write.client.under_way[write.node] -= 1
        self._cluster.note(
            write.client.name,
            f"{'is refused' if rejected else 'does not know'} {token} by {write.node}: {reason}",
        )
        if rejected:
            self.counts.rejected += 1
            self._cluster.checkers.rejected(write.node, write.updates)
        else:
            self.counts.unknown += 1
        self._move(write.client)

    def _read_at(self, node: SimNode, token: int, slot: int) -> None:
        read = self._reads.pop(token, None)
        if read is not None:
            self.counts.reads += 1
            self._cluster.checkers.read(node.name, read.behind, slot)

    def lost(self, name: str) -> None:
        """A node is gone: nobody will say what became of what was asked of it."""
        for token in [token for token, write in self._writes.items() if write.node == name]:
            self._failed(token, "the node is gone", rejected=False)
        for token in [token for token, read in self._reads.items() if read.node == name]:
            del self._reads[token]
            self.counts.reads_failed += 1
