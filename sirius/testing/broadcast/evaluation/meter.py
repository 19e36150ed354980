"""What is measured in a run: who got how much and when, and that nobody missed anything."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.messages import Peer
from sirius.errors import InvariantViolation

BIN_S: Final = 0.1
"""How finely deliveries are counted."""


@dataclass(slots=True)
class _Batch:
    """One published batch: when, up to where, and who has not got it."""

    at: float
    last: int
    waiting: int
    done_at: float | None = None


@dataclass(slots=True)
class _Stream:
    batches: list[_Batch] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)


class Meter:
    """Counts events of the simulation: bundles."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._streams: dict[Stream, _Stream] = defaultdict(_Stream)
        self._positions: dict[tuple[Peer, Stream], int] = {}
        self._bins: dict[tuple[Stream, int], int] = defaultdict(int)
        self.holes = 0
        """Events that a client was given a hole for."""

    # ------------------------------------------------------------------ what happens

    def begins(self, client: Peer, stream: Stream) -> None:
        self._positions[client, stream] = 0

    def published(self, now: float, stream: Stream, count: int) -> None:
        state = self._streams[stream]
        state.lasts.append(self.last(stream) + count)
        state.batches.append(_Batch(now, state.lasts[-1], self._clients))

    def delivered(self, now: float, client: Peer, stream: Stream, batch: EventBatch) -> None:
        """A client was given a batch, which must follow what it has."""
        before = self._positions[client, stream]
        if batch.first != before + 1:
            raise InvariantViolation(f"{client} is given {batch.first} of {stream} behind {before}")
        self._positions[client, stream] = batch.last
        count = batch.last - before
        self.holes += count - len(batch)
        self._bins[stream, int(now / BIN_S)] += count
        state = self._streams[stream]
        number = bisect_right(state.lasts, before)
        while number < len(state.lasts) and state.lasts[number] <= batch.last:
            self._reached(state.batches[number], now)
            number += 1

    def _reached(self, batch: _Batch, now: float) -> None:
        batch.waiting -= 1
        if not batch.waiting:
            batch.done_at = now

    # ------------------------------------------------------------------ figures

    def last(self, stream: Stream) -> int:
        """Return the last event that was published in a stream."""
        lasts = self._streams[stream].lasts
        return lasts[-1] if lasts else 0

    def throughput(self, begin: float, end: float, stream: Stream | None = None) -> float:
        """Return how many events a second an average client was given, of one stream or of all."""
        bins = range(round(begin / BIN_S), round(end / BIN_S))
        streams = self._streams if stream is None else [stream]
        total = sum(self._bins.get((each, number), 0) for each in streams for number in bins)
        return total / self._clients / (len(bins) * BIN_S)

    def latencies(
        self, stream: Stream, begin: float, end: float, until: float | None = None
    ) -> list[float]:
        """Return how long batches took that were published in a time, until all clients had them.

        What is not everywhere is left out; or counted as if it were at `until`, which is less than it takes.
        """
        batches = self._streams[stream].batches
        ends = [(each.at, until if each.done_at is None else each.done_at) for each in batches]
        return [done - at for at, done in ends if done is not None and begin <= at < end]

    def missing(self) -> int:
        """Return how many batches have not come to all clients."""
        return sum(each.waiting > 0 for state in self._streams.values() for each in state.batches)
