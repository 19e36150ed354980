"""A simulated world of regions: the network between everybody, those who publish, and what goes wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from sirius.broadcast import wire
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.events import Kind as EventKind
from sirius.broadcast.limits import Limits
from sirius.broadcast.messages import ChainPush, Events, Forward, Message, Peer, Publish
from sirius.broadcast.recent import size_of
from sirius.testing.broadcast.chains import Registry, ReplicaNode
from sirius.testing.broadcast.checker import Checker
from sirius.testing.broadcast.faults import Fault, Kind
from sirius.testing.broadcast.nodes import ClientNode, Node, ProxyNode
from sirius.testing.broadcast.settings import Settings
from sirius.testing.simulator.events import Loop, Trace
from sirius.testing.simulator.network import Network
from sirius.testing.simulator.settings import stream as randomness

TOPICS = ("", "/films", "/films/new", "/series")
_LIMITS = Limits()


@dataclass(slots=True)
class _Texts:
    """Draws predicates that collect something now and then."""

    rng: random.Random
    keys: int

    def draw(self, last: int) -> str:
        atoms = [self._atom(last) for _ in range(self.rng.choice((1, 1, 2, 3)))]
        return self.rng.choice((" and ", " or ")).join(atoms)

    def _atom(self, last: int) -> str:
        rng = self.rng
        return rng.choice(
            (
                f"seq < {rng.randrange(last + 20)}",
                f'key = "k{rng.randrange(self.keys)}"',
                f'key prefix "{rng.choice(("k", "k1", "gc"))}"',
                f'topic = "{rng.choice((*TOPICS, "/*", "/films/*"))}"',
                f"price {rng.choice(('<', '>=', '!='))} {rng.randrange(5)}",
            )
        )


@dataclass(slots=True)
class World:
    """One run's world."""

    settings: Settings
    loop: Loop = field(default_factory=Loop)
    checker: Checker = field(default_factory=Checker)
    happened: Counter[Kind] = field(default_factory=Counter)
    batch_bytes_max: int = 0
    """The largest batch that was ever sent."""
    is_calm: bool = False
    """Whether nothing is published any more."""

    rng: random.Random = field(init=False)
    trace: Trace = field(init=False)
    network: Network = field(init=False)
    proxies: dict[str, ProxyNode] = field(init=False)
    replicas: dict[str, ReplicaNode] = field(init=False)
    registries: dict[str, Registry] = field(init=False)
    clients: dict[str, ClientNode] = field(init=False)
    _published: int = 0

    def __post_init__(self) -> None:
        settings = self.settings
        self.rng = randomness(settings.seed, "world")
        self.trace = Trace(self.loop)
        rng = randomness(settings.seed, "network")
        self.network = Network(self.loop, rng, settings.delay_s, self._arrive)
        late = [name for _, name in settings.joins]
        self.proxies = {
            name: ProxyNode(self, name) for name in settings.regions if name not in settings.chains
        }
        self.registries = {
            f"{name}.config": Registry(self, f"{name}.config") for name in settings.chains
        }
        self.replicas = {name: ReplicaNode(self, name) for _, name in settings.replicas}
        self.clients = {name: ClientNode(self, name) for name in (*settings.clients, *late)}

    def node(self, name: str) -> Node:
        """Return one; a replicated proxy is one of its replicas."""
        if name in self.settings.chains:
            name = self.rng.choice(self.settings.chains[Peer(name)])
        return self.proxies.get(name) or self.replicas.get(name) or self.clients[name]

    @property
    def nodes(self) -> list[Node]:
        return [*self.proxies.values(), *self.replicas.values(), *self.clients.values()]

    def start(self, faults: list[Fault]) -> None:
        """Have everything happen that will happen."""
        settings, loop = self.settings, self.loop
        for name in (*self.proxies, *settings.clients):
            self.node(name).start()
        for at, name in (*settings.replicas, *settings.joins):
            loop.at(at, self.node(name).start)
        for fault in faults:
            loop.at(fault.at, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        for number in range(settings.publishers):
            loop.after(
                0.01 * (number + 1), self._publisher(randomness(settings.seed, f"p{number}"))
            )

    # ------------------------------------------------------------------ messages

    def send(self, source: Peer, target: Peer, sender: Peer, message: Message) -> None:
        """Send a message from one machine to another; `sender` is whom it is from for whoever gets it."""
        for batch in batches_in(message):
            self.batch_bytes_max = max(self.batch_bytes_max, size_of(batch))
        self.network.send(
            source, target, (sender, encoded(message) if self.settings.wire else message)
        )

    def _arrive(self, source: str, target: str, item: Any) -> None:
        if target in self.registries:
            self.registries[target].arrive(source, item)
        elif source in self.registries:
            self.replicas[target].decided(item)
        else:
            self.node(target).arrive(*item)

    # ------------------------------------------------------------------ publishing

    def _publisher(self, rng: random.Random) -> Callable[[], None]:
        clients = sorted(self.clients)
        streams = sorted(self.settings.layout.owners)
        texts = _Texts(rng, self.settings.keys)
        pause_s = self.settings.publishers / self.settings.batches_per_s

        def publish() -> None:
            if self.is_calm:
                return
            client, stream = self.clients[rng.choice(clients)], rng.choice(streams)
            batch = self._batch(rng, texts, stream)
            client.do(lambda: client.publish(stream, batch))
            self.loop.after(rng.expovariate(1 / pause_s), publish)

        return publish

    def _batch(self, rng: random.Random, texts: _Texts, stream: Stream) -> EventBatch:
        count = rng.choice((1, 1, 3, 8))
        kinds = rng.choices(list(EventKind), (2, 7, 1), k=count)
        names = [f"{self._published + number}".encode() for number in range(count)]
        self._published += count
        last = self.checker.truth.last(stream)
        is_gc = [kind == EventKind.GC for kind in kinds]
        keys = [
            b"gc" + name if gc else b"k%d" % rng.randrange(self.settings.keys)
            for gc, name in zip(is_gc, names, strict=True)
        ]
        payloads = [
            texts.draw(last).encode() if gc else name for gc, name in zip(is_gc, names, strict=True)
        ]
        topics = rng.choices(TOPICS, k=count)
        prices = {"price": [rng.randrange(5) for _ in keys]} if rng.random() < 0.5 else None
        return EventBatch.of(keys, kinds, topics, payloads, prices)

    # ------------------------------------------------------------------ faults

    def _strike(self, fault: Fault) -> None:
        self.trace.note("!", str(fault))
        self.happened[fault.kind] += 1
        end = self._begin(fault)
        if end is not None:
            self.loop.after(fault.for_s, end)

    def _begin(self, fault: Fault) -> Callable[[], None] | None:
        """Let a fault begin; return what ends it."""
        match fault.kind:
            case Kind.DROP | Kind.DUPLICATE | Kind.DELAY:
                rates: list[float] = getattr(self.network, fault.kind)
                rates.append(fault.amount)
                return lambda: _remove(rates, fault.amount)
            case Kind.CRASH:
                return self._crash(fault, self.node(fault.where))
            case Kind.REPLICA | Kind.LINE | Kind.BLIND:
                return self._begin_in_chain(fault)
            case Kind.PAUSE:
                node = self.node(fault.where)
                node.pause()
                return node.resume
            case Kind.SLOW:
                slow_s = self.clients[fault.where].slow_s
                slow_s.append(fault.amount)
                return lambda: _remove(slow_s, fault.amount)
            case Kind.LEAVE:
                self._leave(self.clients[fault.where])
                return None
        return self._cut(fault)

    def _cut(self, fault: Fault) -> Callable[[], None]:
        names = [*map(str, (node.name for node in self.nodes)), *self.registries]
        where = self.node(fault.where).name
        inside = [name for name in names if name == where]
        outside = [name for name in names if name != where]
        if fault.kind == Kind.LINK:
            outside = [str(self.node(fault.other).name)]
        if fault.kind == Kind.REGION:
            inside = [name for name in names if name[0] == fault.where]
            outside = [name for name in names if name[0] != fault.where]
        links = list(product(inside, outside))
        if fault.kind != Kind.ONE_WAY:
            links += [(target, source) for source, target in links]
        for link in links:
            self.network.cut(*link)
        return lambda: self._mend(links)

    def _mend(self, links: list[tuple[str, str]]) -> None:
        for link in links:
            self.network.heal(*link)

    def _begin_in_chain(self, fault: Fault) -> Callable[[], None]:
        node, neighbour = self._placed(fault)
        if fault.kind == Kind.REPLICA:
            return self._crash(fault, node)
        is_blind = fault.kind == Kind.BLIND
        return self._part(node.name, f"{fault.where}.config" if is_blind else neighbour.name)

    def _placed(self, fault: Fault) -> tuple[Node, Node]:
        """Return the replica at a place of its chain, and a neighbour."""
        chain = self.registries[f"{fault.where}.config"].chain
        names = chain.peers or self.settings.chains[Peer(fault.where)]
        at = round(fault.amount * (len(names) - 1))
        other = at - 1 if at else min(1, len(names) - 1)
        return self.replicas[names[at]], self.replicas[names[other]]

    def _part(self, one: str, other: str) -> Callable[[], None]:
        links = [(one, other), (other, one)]
        for link in links:
            self.network.cut(*link)
        return lambda: self._mend(links)

    def _crash(self, fault: Fault, node: Node) -> Callable[[], None]:
        was_up = node.is_up
        if isinstance(node, ReplicaNode) and node.is_the_last:
            return lambda: None
        node.stop()
        if isinstance(node, ProxyNode) and not fault.amount:
            node.forget()
        return node.start if was_up else lambda: None

    def _leave(self, client: ClientNode) -> None:
        """A client goes for good, unless it is the last of its region or has something to publish."""
        others = [node for node in self.clients.values() if node.is_up and node is not client]
        if client.is_up and any(node.name[0] == client.name[0] for node in others):
            client.stop()
            client.is_gone = True

    def heal(self) -> None:
        """Mend everything."""
        self.trace.note("!", "everything is healed")
        self.network.heal_everything()
        for node in self.nodes:
            while node._paused:
                node.resume()
            node.start()
        for client in self.clients.values():
            client.slow_s.clear()
            client._take_later()


def _remove(rates: list[float], rate: float) -> None:
    if rate in rates:
        rates.remove(rate)


def batches_in(message: Message) -> tuple[EventBatch, ...]:
    """Return the batches that a message carries."""
    match message:
        case Forward(batch=batch) | Publish(batch=batch) | ChainPush(batch=batch):
            return (batch,)
        case Events(batches=batches):
            return batches
    return ()


def encoded(message: Message) -> Message:
    """Send the batches of a message through their bytes."""
    match message:
        case Forward(batch=batch) | Publish(batch=batch) | ChainPush(batch=batch):
            return message._replace(batch=_through(batch))
        case Events(batches=batches):
            return message._replace(batches=tuple(map(_through, batches)))
    return message


def _through(batch: EventBatch) -> EventBatch:
    return wire.decode(wire.encode(batch), _LIMITS)
