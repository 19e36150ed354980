"""Where messages for a replicated proxy go.

Everybody calls a proxy by its name, whichever replicas it has. Whoever sends asks here for the replica: what is
published, and what other proxies forward, goes to the head; the rest to the tail. Replicas tell who they are
(`ChainIs`). Who gets no answer for a while asks one after the other of all that there may be; they know better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sirius.broadcast.messages import (
    Advertise,
    ChainIs,
    Forward,
    Gossip,
    Message,
    Peer,
    Publish,
    Published,
    Refused,
    Request,
    Subscribe,
)

FOR_HEADS: Final = frozenset({Publish, Advertise, Forward})
"""What the head of a chain takes; everything else is for the tail."""
QUESTIONS: Final = frozenset({Publish, Subscribe, Gossip, Request})
"""What is answered."""
PATIENCE_S: Final = 0.5
"""When another replica is asked, unless somebody says otherwise."""
_FROM_HEADS: Final = frozenset({Published, Refused})

Chains = Mapping[Peer, tuple[Peer, ...]]
"""The replicas that a proxy may have, by its name. A proxy that is not replicated is not among them."""


def chains_of(chains: Mapping[str, Sequence[str]]) -> Chains:
    """Return chains as the machines know them."""
    return {Peer(name): tuple(map(Peer, replicas)) for name, replicas in chains.items()}


@dataclass(slots=True)
class _Way:
    """How to get to one end of a chain."""

    asked_at: float | None = None
    """Since when nobody has answered."""
    turn: int = -1
    """Who of all is tried, if not who should be right."""
    turns: int = 0


class Routes:
    """What one participant knows of all chains."""

    def __init__(self, chains: Chains, patience_s: float) -> None:
        self._chains = dict(chains)
        self._patience_s = patience_s
        self._known = {name: ChainIs(name, 0, peers) for name, peers in chains.items()}
        self._ways = {(name, head): _Way() for name in chains for head in (True, False)}

    def learn(self, message: ChainIs) -> None:
        """Somebody says who the replicas of a proxy are. If that is known, whoever is tried instead is not one."""
        known = self._known.get(message.proxy)
        if known is None or message.number < known.number or not message.replicas:
            return
        self._known[message.proxy] = message
        for head in (True, False):
            way = self._ways[message.proxy, head]
            way.turn = -1
            if message.number > known.number:
                way.asked_at = None

    def heard(self, sender: Peer, message: Message) -> None:
        """A proxy has answered."""
        way = self._ways.get((sender, type(message) in _FROM_HEADS))
        if way is not None:
            way.asked_at = None

    def target(self, to: Peer, message: Message, now: float) -> Peer:
        """Return whom to send a message to."""
        if to not in self._chains:
            return to
        head = type(message) in FOR_HEADS
        way, replicas = self._ways[to, head], self._known[to].replicas
        if type(message) in QUESTIONS:
            self._ask(way, now)
        if way.turn >= 0:
            everybody = self._chains[to]
            return everybody[way.turn % len(everybody)]
        return replicas[0 if head else -1]

    def _ask(self, way: _Way, now: float) -> None:
        if way.asked_at is None:
            way.asked_at = now
        elif now - way.asked_at >= self._patience_s:
            way.asked_at = now
            way.turn = way.turns = way.turns + 1
