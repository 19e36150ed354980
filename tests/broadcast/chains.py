"""A chain of replicas without a network: messages arrive at once, in order, unless somebody is dead. Not a test."""

from __future__ import annotations

import random
from collections import deque

from sirius.broadcast.chain.configuration import Chain, Member
from sirius.broadcast.chain.replica import Replica
from sirius.broadcast.config import ChainConfig, ProxyConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.history import MemoryHistory, Published
from sirius.broadcast.messages import Message, Peer
from sirius.broadcast.proxy import Layout, Proxy
from sirius.types import Seq

S = Stream("s")
P = Peer("P")
TIMES = ChainConfig(beat_s=0.1, suspect_s=0.5, propose_s=0.1, retry_s=0.1)


class Line:
    """Replicas of the proxy `P`, the service that decides, and everything that was sent to others."""

    def __init__(self, *names: str, config: ProxyConfig | None = None) -> None:
        self.now = 0.0
        self.config = config or ProxyConfig()
        self.decided = Chain()
        self.replicas: dict[Peer, Replica] = {}
        self.sent: list[tuple[Peer, Message]] = []
        self.mute: set[tuple[str, str]] = set()
        """Links that are cut, one way."""
        self._life = 0
        self._queue: deque[tuple[Peer, Peer, Message]] = deque()
        for name in names:
            self.start(name)
            self.run(2.0)

    def start(self, name: str) -> Replica:
        """Start a replica, or start it again with nothing."""
        self._life += 1
        layout = Layout((P,), {S: P})
        proxy = Proxy(
            P,
            layout,
            lambda _: MemoryHistory(),
            self.config,
            random.Random(1),
            now=self.now,
            life=0,
        )
        me = Member(Peer(name), self._life)
        replica = Replica(me, proxy, TIMES, random.Random(self._life), now=self.now)
        self.replicas[Peer(name)] = replica
        self.do(replica, replica.configured(self.decided))
        return replica

    def kill(self, name: str) -> None:
        del self.replicas[Peer(name)]

    def __getitem__(self, name: str) -> Replica:
        return self.replicas[Peer(name)]

    @property
    def names(self) -> list[str]:
        """Who is in the chain, from head to tail."""
        return [str(peer) for peer in self.decided.peers]

    @property
    def tail(self) -> Replica:
        return self.replicas[self.decided.peers[-1]]

    @property
    def head(self) -> Replica:
        return self.replicas[self.decided.peers[0]]

    # ------------------------------------------------------------------ time and messages

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            for replica in list(self.replicas.values()):
                self.do(replica, replica.tick(self.now, round(self.now * 1e6)))

    def do(self, replica: Replica, effects: Effects) -> None:
        """Carry out what a replica asks for, and whatever follows."""
        for chain in effects.propose:
            if chain.number == self.decided.number + 1:
                self.decided = chain
                for each in list(self.replicas.values()):
                    self.do(each, each.configured(chain))
        self._queue += [(replica.me.peer, to, message) for to, message in effects.send]
        while self._queue:
            source, to, message = self._queue.popleft()
            target = self.replicas.get(to)
            if target is None or (source, to) in self.mute:
                self.sent.append((to, message))
            else:
                self.do(target, target.step(source, message))

    def tell(self, name: str, sender: str, message: Message) -> list[Message]:
        """Have somebody outside say something to a replica; return what he is told because of it."""
        replica = self[name]
        before = len(self.sent)
        replica.at(self.now, round(self.now * 1e6))
        self.do(replica, replica.step(Peer(sender), message))
        return [message for to, message in self.sent[before:] if to == sender]


class ChainHistory:
    """A chain as a history: what is appended goes in at the head, what is read comes from the tail."""

    def __init__(self) -> None:
        self.line = Line("1", "2", "3")

    @property
    def _tail(self) -> MemoryHistory:
        history = self.line.tail.proxy.shelf.books[S].history
        assert isinstance(history, MemoryHistory)
        return history

    @property
    def last(self) -> Seq:
        return self._tail.last

    @property
    def last_time(self) -> int:
        return self._tail.last_time

    @property
    def nbytes(self) -> int:
        return self._tail.nbytes

    def attribute_names(self, *, exact: bool) -> set[str]:
        return self._tail.attribute_names(exact=exact)

    def prepare(self, batch: EventBatch) -> None:
        """There is nothing to prepare: it does not count before it is at the tail."""

    @property
    def ready(self) -> Seq:
        return self._tail.ready

    def append(self, batch: EventBatch) -> None:
        head = self.line.head
        head.proxy.shelf.books[S].take(batch)
        self.line.do(head, head.tick(self.line.now, 0))

    def read(self, first: Seq, last: Seq, bytes_max: int) -> EventBatch:
        return self._tail.read(first, last, bytes_max)

    def published(self, publisher: int) -> Published | None:
        return self._tail.published(publisher)

    def publishers(self, first: Seq, last: Seq) -> list[tuple[int, Published]]:
        return self._tail.publishers(first, last)

    def note(self, publisher: int, published: Published) -> None:
        for replica in self.line.replicas.values():
            replica.proxy.shelf.books[S].history.note(publisher, published)
