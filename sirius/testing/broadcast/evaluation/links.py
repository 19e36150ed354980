"""The network of the evaluation: every link has a latency and a bandwidth (Sprinkler, section 5.2).

Inside a region everybody has an uplink, over which his messages go one behind the other, and everything takes 1 ms
more: 1 Gbps for a client, 10 Gbps for a proxy. Between two regions there is a link of 10 Gbps each way, with a latency
of its own. Downlinks are not modelled: a client takes each event once, so they carry what uplinks carry on average
and are never the narrow place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final

from sirius.broadcast import wire
from sirius.broadcast.events import EventBatch
from sirius.broadcast.messages import Events, Forward, Message, Peer
from sirius.testing.broadcast.evaluation.clock import Clock

MESSAGE_BYTES: Final = 100
"""What a message takes without its batches: headers, names, a few numbers."""
_PLACE_BYTES: Final = 4


def size_on_wire(message: Message) -> int:
    """Return about how many bytes a message has."""
    if isinstance(message, Events):
        return MESSAGE_BYTES + sum(map(_batch_bytes, message.batches))
    if isinstance(message, Forward):
        return MESSAGE_BYTES + _batch_bytes(message.batch)
    return MESSAGE_BYTES


def _batch_bytes(batch: EventBatch) -> int:
    places = 0 if batch.places is None else _PLACE_BYTES * len(batch)
    return wire.HEADER_BYTES + batch.nbytes + places


class Links:
    """All links. The first letter of a name is its region."""

    def __init__(
        self,
        clock: Clock,
        latencies_s: Mapping[frozenset[str], float],
        arrive: Callable[[Peer, Peer, Message], None],
        *,
        inside_s: float = 0.001,
        client_bps: float = 1e9,
        proxy_bps: float = 10e9,
        between_bps: float = 10e9,
    ) -> None:
        self._clock, self._deliver = clock, arrive
        self._latencies_s = {
            (source, target): latency_s
            for pair, latency_s in latencies_s.items()
            for source in pair
            for target in pair - {source}
        }
        self._inside_s = inside_s
        self._client_s_per_byte, self._proxy_s_per_byte = 8 / client_bps, 8 / proxy_bps
        self._between_s_per_byte = 8 / between_bps
        self._free_at: dict[Hashable, float] = {}
        self._cut: frozenset[str] | None = None
        self.sent = 0
        self.lost = 0

    def cut(self, pair: frozenset[str] | None) -> None:
        """Take out the link between two regions, with what is under way on it; None mends it."""
        self._cut = pair

    def send(self, source: Peer, target: Peer, message: Message) -> None:
        """Send something: it waits for its turn, takes its time on the wire, and then the latency."""
        self.sent += 1
        here, there = source[0], target[0]
        size = size_on_wire(message)
        link: Hashable
        if here == there:
            is_proxy = len(source) == 1
            took = size * (self._proxy_s_per_byte if is_proxy else self._client_s_per_byte)
            link, latency_s = source, self._inside_s
        else:
            link, latency_s = (here, there), self._latencies_s[here, there]
            took = size * self._between_s_per_byte
        done = max(self._clock.now, self._free_at.get(link, 0.0)) + took
        self._free_at[link] = done
        self._clock.at(done + latency_s, self._arrive, source, target, message)

    def _arrive(self, source: Peer, target: Peer, message: Message) -> None:
        if self._cut is not None and {source[0], target[0]} == self._cut:
            self.lost += 1
            return
        self._deliver(source, target, message)
