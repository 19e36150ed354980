"""Simulated chains: replicas that lose everything when they die, and the service that decides who they are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sirius.broadcast.chain.configuration import Chain, Member
from sirius.broadcast.chain.replica import LINE, Replica
from sirius.broadcast.context import Effects
from sirius.broadcast.events import Stream
from sirius.broadcast.messages import Message, Peer
from sirius.broadcast.proxy import Proxy
from sirius.testing.broadcast.checker import WatchedHistory
from sirius.testing.broadcast.nodes import Node, check_proxy

if TYPE_CHECKING:
    from sirius.testing.broadcast.world import World

_ASK_S = 0.05
"""How often a replica asks for the newest configuration."""


class Registry:
    """The configuration of one chain: what a Sirius log would say. It never forgets; who is cut off learns nothing."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.chain = Chain()

    def arrive(self, source: str, proposal: Chain) -> None:
        """Take a proposal if it is the next one; answer with what is decided. Number 0 only asks."""
        if proposal.number == self.chain.number + 1 and self._is_fair(proposal):
            self.chain = proposal
            self.world.trace.note(self.name, f"decides {describe(proposal)}")
        self.world.network.send(self.name, source, self.chain)

    def _is_fair(self, proposal: Chain) -> bool:
        """A chain of the dead is more than the faults may do: then the proposal got lost on its way."""
        return any(map(self.lives, proposal.members))

    def lives(self, member: Member) -> bool:
        node = self.world.replicas[member.peer]
        return node.is_up and node.life == member.life


def describe(chain: Chain) -> str:
    """Return a configuration for people to read."""
    members = (*chain.members, *filter(None, [chain.joining]))
    names = [f"{peer}/{life}" for peer, life in members]
    return f"{chain.number}: {' '.join(names)}{' (joins)' if chain.joining else ''}"


class ReplicaNode(Node):
    """A replica. All it has is in memory."""

    machine: Replica

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.proxy_name = Peer(name[0])
        self.registry = world.registries[f"{name[0]}.config"]
        self._ask_at = 0.0

    @property
    def is_the_last(self) -> bool:
        """Whether nobody else lives who has everything."""
        others = [each for each in self.registry.chain.members if each.peer != self.name]
        return not any(map(self.registry.lives, others))

    def boot(self) -> None:
        settings, now = self.world.settings, self.world.loop.now
        self._skew_us = self.rng.randrange(-3_600_000_000, 3_600_000_000)
        rng = random.Random(self.rng.getrandbits(64))
        proxy = Proxy(
            self.proxy_name, settings.layout, self._open, settings.proxy, rng, now=now, life=0
        )
        strangers = tuple(
            each
            for name in settings.layout.proxies
            if name != self.proxy_name
            for each in settings.chains.get(name, (name,))
        )
        me = Member(self.name, self.life)
        self.machine = Replica(me, proxy, settings.chain, rng, now=now, strangers=strangers)

    def _open(self, stream: Stream) -> WatchedHistory:
        owned = self.world.settings.layout.owners[stream] == self.proxy_name
        return WatchedHistory(self.world.checker.truth, self.name, stream, owned=owned)

    def sender(self, message: Message) -> Peer:
        return self.name if type(message) in LINE else self.proxy_name

    def tick(self) -> None:
        now = self.world.loop.now
        if now >= self._ask_at:
            self._ask_at = now + _ASK_S
            self.world.network.send(self.name, self.registry.name, Chain())
        self.run(self.machine.tick(now, self.time_us))
        check_proxy(self.world, self.name, self.machine.proxy)

    def step(self, sender: Peer, message: Message) -> None:
        self.machine.at(self.world.loop.now, self.time_us)
        self.run(self.machine.step(sender, message))

    def decided(self, chain: Chain) -> None:
        """The service has answered."""
        self.do(lambda: self._configured(chain))

    def _configured(self, chain: Chain) -> None:
        self.machine.at(self.world.loop.now, self.time_us)
        self.run(self.machine.configured(chain))

    def run(self, effects: Effects) -> None:
        super().run(effects)
        for chain in effects.propose:
            self.world.network.send(self.name, self.registry.name, chain)
