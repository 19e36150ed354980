"""What the parts of a machine share: who and when, randomness, and what comes out."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sirius.broadcast.chain.configuration import Chain
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.messages import Message, Peer, Published, Refused


class Delivery(NamedTuple):
    """The next events of a stream, for the application: in order, without a gap, once."""

    stream: Stream
    batch: EventBatch


@dataclass(slots=True)
class Effects:
    """What a call asks for, in the order in which it must happen."""

    deliver: list[Delivery] = field(default_factory=list)
    answers: list[Published | Refused] = field(default_factory=list)
    """What became of this client's own publications."""
    send: list[tuple[Peer, Message]] = field(default_factory=list)
    propose: list[Chain] = field(default_factory=list)
    """Configurations for a chain of replicas: one counts if it is the first with its number."""


@dataclass(slots=True)
class Context:
    """One a machine. Parts read `now` and add to `out`."""

    me: Peer
    rng: random.Random
    now: float
    out: Effects = field(default_factory=Effects)

    def at(self, now: float) -> None:
        self.now = max(self.now, now)

    def send(self, to: Peer, message: Message) -> None:
        self.out.send.append((to, message))

    def send_all(self, targets: Iterable[Peer], message: Message) -> None:
        for target in targets:
            self.send(target, message)

    def taken(self) -> Effects:
        out, self.out = self.out, Effects()
        return out
