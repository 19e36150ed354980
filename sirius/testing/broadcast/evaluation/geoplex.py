"""A geoplex: regions with their proxies and clients, under a load. The machines are the real ones.

What stands in for the rest of the paper's set-up:

- **Load.** Each region's drivers give its proxy a batch every `batch_s`. A simulated event is a *bundle* of 100 events
  of 10 bytes, so that the machines move the paper's bytes and the simulation need not look at each event. The last
  event of a batch collects what is older than `keep_s`, as in the paper's section 5.1.
- **The chain** of three replicas is two hops of 1 ms before the proxy has what was published.
- **Views** begin as gossip leaves them after a while: everybody knows V others at random. From then on they change by
  the real protocol.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from sirius.broadcast.client import Client
from sirius.broadcast.config import ClientConfig, ProxyConfig, RegionConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import EventBatch, Kind, Stream
from sirius.broadcast.history import MemoryHistory
from sirius.broadcast.messages import Gossip, Message, Peer
from sirius.broadcast.proxy import Layout, Proxy
from sirius.testing.broadcast.evaluation.clock import Clock
from sirius.testing.broadcast.evaluation.links import Links
from sirius.testing.broadcast.evaluation.meter import Meter
from sirius.testing.simulator.settings import stream as randomness

BUNDLE: Final = 100
"""How many events of the paper one event here stands for."""
EVENT_BYTES: Final = 10
MAX_LOAD: Final = 2_592_000
"""Events a second in all: what the paper's prototype carried at most (section 5.2)."""
OPENED_S: Final = 0.3
"""When the load begins. Each stream has one event before, so that proxies are subscribed by then."""
_CHAIN_S: Final = 0.002
_TICK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    latencies_s: Mapping[frozenset[str], float]
    """Between each two regions, which have a letter each."""
    clients: int = 1000
    """In each region."""
    fanout: int = 4
    shuffle_s: float = 0.03
    view_max: int = 20
    proxy_bps: float = 10e9
    load: float = MAX_LOAD
    """Events a second, of all regions together."""
    batch_s: float = 0.05
    keep_s: float = 2.0
    seed: int = 1

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(sorted(frozenset().union(*self.latencies_s)))


def latencies(regions: str, *ms: float) -> dict[frozenset[str], float]:
    """Return one-way latencies of each two regions, given in the order AB, AC, …, BC, …"""
    pairs = [frozenset(pair) for pair in combinations(regions, 2)]
    return dict(zip(pairs, (each / 1000 for each in ms), strict=True))


@dataclass(slots=True)
class Geoplex:
    """Everything that there is in a run."""

    plan: Plan
    clock: Clock = field(default_factory=Clock)
    meter: Meter = field(init=False)
    links: Links = field(init=False)
    proxies: dict[Peer, Proxy] = field(default_factory=dict)
    clients: dict[Peer, Client] = field(default_factory=dict)
    _serial: int = 0

    def __post_init__(self) -> None:
        plan = self.plan
        self.links = Links(self.clock, plan.latencies_s, self._arrive, proxy_bps=plan.proxy_bps)
        self.meter = Meter(len(plan.regions) * plan.clients)
        layout = Layout(tuple(map(Peer, plan.regions)), self._owners())
        for region in plan.regions:
            self._add_proxy(Peer(region), layout)
            names = [Peer(f"{region}{number}") for number in range(1, plan.clients + 1)]
            for name in names:
                self._add_client(name, layout)
            self._introduce([Peer(region), *names])

    def _owners(self) -> dict[Stream, Peer]:
        return {Stream(region): Peer(region) for region in self.plan.regions}

    # ------------------------------------------------------------------ members

    def _add_proxy(self, name: Peer, layout: Layout) -> None:
        config = replace(ProxyConfig(), switch_c=ProxyConfig().switch_c / BUNDLE)
        rng = randomness(self.plan.seed, f"proxy {name}")
        self.proxies[name] = Proxy(
            name,
            layout,
            lambda _: MemoryHistory(),
            replace(config, region=self._region_config()),
            rng,
            now=0.0,
            life=1,
        )
        self._tick_later(name, rng)

    def _add_client(self, name: Peer, layout: Layout) -> None:
        rng = randomness(self.plan.seed, f"client {name}")
        config = replace(ClientConfig(), region=self._region_config())
        client = Client(name, Peer(name[0]), layout.owners, config, rng, now=0.0, publisher=1)
        for stream in layout.owners:
            client.subscribe(stream)
            self.meter.begins(name, stream)
        self.clients[name] = client
        self._tick_later(name, rng)

    def _region_config(self) -> RegionConfig:
        plan = self.plan
        return RegionConfig(view_max=plan.view_max, fanout=plan.fanout, shuffle_s=plan.shuffle_s)

    def _introduce(self, names: list[Peer]) -> None:
        """Give everybody a random view, by gossip from one of them."""
        rng = randomness(self.plan.seed, f"views {names[0]}")
        for name in names:
            known = rng.sample(names, min(len(names), self.plan.view_max + 1))
            others = [peer for peer in known if peer != name][: self.plan.view_max]
            self._machine(name).step(others[0], Gossip(tuple(others), wants_answer=False))

    def _machine(self, name: Peer) -> Proxy | Client:
        return self.proxies.get(name) or self.clients[name]

    # ------------------------------------------------------------------ what happens

    def _tick_later(self, name: Peer, rng: random.Random) -> None:
        self.clock.at(rng.random() * _TICK_S, self._tick, name)

    def _tick(self, name: Peer) -> None:
        self.clock.at(self.clock.now + _TICK_S, self._tick, name)
        if len(name) > 1:
            self._run(name, self.clients[name].tick(self.clock.now))
        else:
            self._run(name, self.proxies[name].tick(self.clock.now, self._time_us))

    @property
    def _time_us(self) -> int:
        return int(self.clock.now * 1e6)

    def _arrive(self, source: Peer, target: Peer, message: Message) -> None:
        client = self.clients.get(target)
        if client is not None:
            client.at(self.clock.now)
            self._run(target, client.step(source, message))
        else:
            proxy = self.proxies[target]
            proxy.at(self.clock.now, self._time_us)
            self._run(target, proxy.step(source, message))

    def _run(self, name: Peer, effects: Effects) -> None:
        for stream, batch in effects.deliver:
            self.meter.delivered(self.clock.now, name, stream, batch)
            for to, message in self.clients[name].consumed(stream, batch.last).send:
                self.links.send(name, to, message)
        for to, message in effects.send:
            self.links.send(name, to, message)

    # ------------------------------------------------------------------ load

    def publish(self, until: float) -> None:
        """Begin the load; the drivers of regions are not in step."""
        count = len(self.plan.regions)
        for number, region in enumerate(self.plan.regions):
            stream = Stream(region)
            self._publish_one(stream, 1)
            begin = OPENED_S + self.plan.batch_s * (1 + number / count)
            self.clock.at(begin, self._publish, stream, until)

    def _publish(self, stream: Stream, until: float) -> None:
        now, plan = self.clock.now, self.plan
        if now >= until:
            return
        self.clock.at(now + plan.batch_s, self._publish, stream, until)
        per_s = plan.load / len(plan.regions) / BUNDLE
        self._publish_one(stream, max(1, round(per_s * plan.batch_s)))

    def _publish_one(self, stream: Stream, count: int) -> None:
        batch = self._batch(stream, count)
        self.meter.published(self.clock.now, stream, len(batch))
        self.clock.at(self.clock.now + _CHAIN_S, self._numbered, stream, batch)

    def _batch(self, stream: Stream, count: int) -> EventBatch:
        """Return bundles for one interval; the last one collects what is old."""
        plan = self.plan
        per_s = plan.load / len(plan.regions) / BUNDLE
        oldest = self.meter.last(stream) - int(per_s * plan.keep_s)
        predicate = f"seq < {max(0, oldest)}".encode()
        payloads = [bytes(BUNDLE * EVENT_BYTES)] * (count - 1)
        kinds = [Kind.DATA] * (count - 1) + [Kind.GC]
        return EventBatch.of([b""] * count, kinds, payloads=[*payloads, predicate])

    def _numbered(self, stream: Stream, batch: EventBatch) -> None:
        proxy = self.proxies[Peer(stream)]
        proxy.at(self.clock.now, self._time_us)
        _, effects = proxy.publish(stream, batch)
        self._run(Peer(stream), effects)
