"""The machines as a hub drives them: with the time of the day where they want it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sirius.broadcast.client.machine import Client
from sirius.broadcast.context import Effects
from sirius.broadcast.messages import Message, Peer
from sirius.broadcast.proxy.machine import Proxy


@dataclass(frozen=True, slots=True)
class ProxyHome:
    """A proxy, which gives events their time."""

    proxy: Proxy

    def step(self, now: float, sender: Peer, message: Message) -> Effects:
        self.proxy.at(now, _time_us())
        return self.proxy.step(sender, message)

    def tick(self, now: float) -> Effects:
        return self.proxy.tick(now, _time_us())


@dataclass(frozen=True, slots=True)
class ClientHome:
    """A client."""

    client: Client

    def step(self, now: float, sender: Peer, message: Message) -> Effects:
        self.client.at(now)
        return self.client.step(sender, message)

    def tick(self, now: float) -> Effects:
        return self.client.tick(now)


def _time_us() -> int:
    return time.time_ns() // 1000
