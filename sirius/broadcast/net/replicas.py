"""A replica of a proxy with its port: the machine, and the log that says who the replicas are.

Everybody calls the proxy by its name; the replica is reached under its address. It starts with nothing, and joins.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from sirius.broadcast.chain.configuration import Chain, Member
from sirius.broadcast.chain.freshness import Freshness
from sirius.broadcast.chain.replica import LINE, Replica
from sirius.broadcast.chain.routes import PATIENCE_S, Routes, chains_of
from sirius.broadcast.config import ChainConfig, ProxyConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import Stream
from sirius.broadcast.messages import Message, Peer
from sirius.broadcast.net.asking import ask_always
from sirius.broadcast.net.configurations import Configurations
from sirius.broadcast.net.hub import Hub
from sirius.broadcast.net.lives import begin_anew
from sirius.broadcast.proxy import Layout, Proxy
from sirius.transport.limits import TransportLimits
from sirius.transport.security import Plaintext, Security


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """What a replica is told at the start."""

    proxy: str
    """The name of the proxy, which is no address."""
    listen: str
    """Where this replica listens. The address of a replica is one of `chains[proxy]`."""
    chains: Mapping[str, tuple[str, ...]]
    """The addresses at which replicas of each proxy may be. Proxies that are not replicated are not listed."""
    streams: Mapping[str, str]
    """All streams there are, and the proxy that owns each."""
    cluster: tuple[str, ...]
    """The nodes of the Sirius cluster that decides who the replicas are."""
    name: str = ""
    """The address under which others reach it, if that is not the one it listens on."""
    may_found: bool = True
    """Whether it begins the chain if the cluster knows of none."""
    security: Security = field(default_factory=Plaintext)
    config: ProxyConfig = field(default_factory=ProxyConfig)
    chain: ChainConfig = field(default_factory=ChainConfig)
    transport: TransportLimits = field(default_factory=TransportLimits)

    def layout(self) -> Layout:
        """Return who owns what."""
        owners = {Stream(name): Peer(owner) for name, owner in self.streams.items()}
        names = dict.fromkeys((*self.chains, *owners.values()))
        return Layout(tuple(map(Peer, names)), owners)

    def routes(self) -> Routes:
        """Return how to get to replicated proxies."""
        return Routes(chains_of(self.chains), PATIENCE_S)


class ReplicaHome:
    """The replica as a hub drives it, under the name of the proxy."""

    def __init__(self, replica: Replica, server: ReplicaServer) -> None:
        self._replica, self._server = replica, server

    def step(self, now: float, sender: Peer, message: Message) -> Effects:
        self._replica.at(now, _time_us())
        return self.split(self._replica.step(sender, message))

    def tick(self, now: float) -> Effects:
        return self.split(self._replica.tick(now, _time_us()))

    def configured(self, chain: Chain) -> Effects:
        """The log has decided."""
        self._replica.at(time.monotonic(), _time_us())
        return self.split(self._replica.configured(chain))

    def split(self, effects: Effects) -> Effects:
        """Send what goes along the line under the replica's own name; leave the rest to the proxy's."""
        for to, message in effects.send:
            if type(message) in LINE:
                self._server.hub.post(self._replica.me.peer, to, message)
        for chain in effects.propose:
            self._server.propose(chain)
        effects.send = [item for item in effects.send if type(item[1]) not in LINE]
        return effects


class _LineHome:
    """The same replica under its own name: what others of the chain say comes here. Ticks come to the other one."""

    def __init__(self, home: ReplicaHome, server: ReplicaServer) -> None:
        self._home, self._server = home, server

    def step(self, now: float, sender: Peer, message: Message) -> Effects:
        effects = self._home.step(now, sender, message)
        self._server.hub.carry_out(self._server.name, effects)
        return Effects()

    def tick(self, _now: float) -> Effects:
        return Effects()


class ReplicaServer:
    """Runs on one asyncio loop: `await start()`, `await close()`."""

    def __init__(self, settings: ReplicaSettings) -> None:
        self._settings = settings
        self.name = Peer(settings.proxy)
        self.hub = Hub(
            settings.listen,
            settings.security,
            settings.transport,
            settings.config.limits,
            name=settings.name or None,
            status=self.status,
            routes=settings.routes(),
        )
        self._configurations: Configurations | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._began = time.monotonic()

    async def start(self) -> str:
        """Listen, and join; return the address."""
        settings = self._settings
        address = Peer(await self.hub.start())
        me = Member(address, time.time_ns())
        layout, now = settings.layout(), time.monotonic()
        rng = random.Random()
        proxy = Proxy(self.name, layout, begin_anew, settings.config, rng, now=now, life=0)
        chains = chains_of(settings.chains)
        strangers = [
            each
            for name in layout.proxies
            if name != self.name
            for each in chains.get(name, (name,))
        ]
        self.replica = Replica(me, proxy, settings.chain, rng, now=now, strangers=tuple(strangers))
        self._freshness = Freshness(self.replica)
        self._home = ReplicaHome(self.replica, self)
        self.hub.take_in(self.name, self._home, lambda _: None)
        self.hub.take_in(address, _LineHome(self._home, self), lambda _: None)
        self._configurations = Configurations(
            settings.cluster, self.name, me, self._decided, settings.security
        )
        others = dict.fromkeys(each for chain in chains.values() for each in chain)
        others.pop(address, None)
        self._tasks = [asyncio.create_task(self._ask_always(peer)) for peer in others]
        return address

    async def _ask_always(self, peer: Peer) -> None:
        settings, heard = self._settings, partial(self._freshness.heard, peer)
        await ask_always(peer, settings.security, settings.transport, heard)

    async def close(self) -> None:
        """Take part no more. The others notice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._configurations is not None:
            self._configurations.close()
        await self.hub.close()

    def propose(self, chain: Chain) -> None:
        """Have the log decide. The first configuration of all makes a chain where there was none."""
        may_be = chain.number > 1 or self._settings.may_found
        if may_be and self._configurations is not None:
            self._configurations.propose(chain)

    def _decided(self, chain: Chain) -> None:
        self.hub.carry_out(self.name, self._home.configured(chain))

    def status(self) -> dict[str, Any]:
        """Say who one is, in which chain, how far, and how fresh that is."""
        replica, proxy, settings = self.replica, self.replica.proxy, self._settings
        return {
            "name": self.name,
            "replica": replica.me.peer,
            "configuration": replica.chain.number,
            "replicas": list(replica.chain.peers),
            "joining": replica.chain.joining and replica.chain.joining.peer,
            "is_member": replica.is_member,
            "uptime_s": time.monotonic() - self._began,
            "streams": {stream: self._stream(stream, count) for stream, count in proxy.counts},
            "chains": {name: list(each) for name, each in settings.chains.items()},
            "limits": asdict(settings.config.limits),
            "region": asdict(settings.config.region),
            "clients": len(proxy.view),
            "bad_messages": self.hub.bad_messages + proxy.bad_messages + replica.bad_messages,
            "refused_messages": self.hub.refused_messages,
            "failures": self.hub.failures,
        }

    def _stream(self, stream: Stream, count: int) -> dict[str, Any]:
        proxy = self.replica.proxy
        known, age_s = self._freshness.of(stream, count, time.monotonic())
        return {
            "owner": proxy.shelf.owners[stream],
            "count": count,
            "known": known,
            "age_s": age_s,
            "source": None if self.replica.owns(stream) else proxy.source(stream),
            "bytes": proxy.history(stream).nbytes,
        }


def _time_us() -> int:
    return time.time_ns() // 1000
