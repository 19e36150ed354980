"""How fresh a replica is: up to where it has a stream, and when there was nothing beyond.

The tail has everything that was acknowledged, as long as it is the tail. It may have been removed and not know. But
nothing is acknowledged in a later configuration before a member of this one has adopted a later one:

1. A configuration with members of which none is a member here has taken somebody in, and only a tail that has adopted
   the configuration before proposes that. Up to then all members are members here.
2. The one exception is a configuration in which somebody is joining already: this tail itself may have proposed him,
   and he may be alone by now.

So the tail asks all other members, again and again. If nobody joins, and each says that it is a member in the same
configuration, then nothing was acknowledged behind the tail's back when the first of them was asked. That stays true,
so it is remembered; it gets old. Others ask the tail, or anybody who has asked. Clocks are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sirius.broadcast.chain.replica import Replica
from sirius.broadcast.events import Stream
from sirius.broadcast.messages import Peer


class Freshness:
    """What one replica knows. Pure: what others say goes in, with the time at which they were asked."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._agreed: dict[Peer, tuple[int, float]] = {}
        """In which configuration a replica last was a member, by its own word, and when it was asked."""
        self._sure_at: float | None = None
        """When there was nothing in own streams that is not here now."""
        self._told: dict[Stream, tuple[int, float]] = {}
        """What others know: a number, and when there was nothing beyond it."""

    def heard(self, peer: Peer, status: Mapping[str, Any], asked_at: float) -> None:
        """A replica, of this chain or of another, has said how it is."""
        if status.get("is_member") and status.get("name") == self._replica.proxy.name:
            self._agreed[peer] = status["configuration"], asked_at
        for name, said in status.get("streams", {}).items():
            stream, age_s = Stream(name), said.get("age_s")
            if age_s is not None and stream in self._replica.proxy.shelf:
                known = said["known"], asked_at - age_s
                self._told[stream] = max(known, self._told.get(stream, known), key=_when)

    def of(self, stream: Stream, count: int, now: float) -> tuple[int, float | None]:
        """Return up to where a stream is known to go, and how many seconds ago at most it had nothing beyond."""
        if (sure_at := self._sure(now)) is not None:
            self._sure_at = max(sure_at, sure_at if self._sure_at is None else self._sure_at)
        known = [self._told[stream]] if stream in self._told else []
        if self._sure_at is not None and self._replica.owns(stream):
            known.append((count, self._sure_at))
        if not known:
            return count, None
        number, at = max(known, key=_when)
        return number, now - at

    def _sure(self, now: float) -> float | None:
        """Return when, at the latest, nobody had adopted a later configuration than this tail."""
        replica, chain = self._replica, self._replica.chain
        if not replica.is_tail or chain.joining is not None:
            return None
        others = [
            self._agreed.get(peer, (0, 0.0)) for peer in chain.peers if peer != replica.me.peer
        ]
        if any(number != chain.number for number, _ in others):
            return None
        return min((asked_at for _, asked_at in others), default=now)


def _when(known: tuple[int, float]) -> float:
    return known[1]
