"""What a node measures while it works: how long things take, and how much is done at once.

The driver calls a `Recorder` once a batch, never once an update. A call finds a bucket and adds two numbers under a
lock that nobody holds for longer: about a microsecond. Prometheus is not loaded for it; `sirius.ops.metrics` turns
what is here into its form when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from threading import Lock
from typing import Final, NamedTuple

SECONDS: Final = tuple(step * 10**power for power in range(-5, 1) for step in (1, 2.5, 5))
"""From 10 µs to 5 s."""
_SIZES: Final = tuple(float(2**power) for power in range(15))
"""From 1 to 16,384."""


class Counts(NamedTuple):
    """A histogram at one moment."""

    buckets: list[tuple[float, int]]
    """Upper bounds, and how many values were up to each."""
    sum: float


class Histogram:
    """How many values were how large. For any thread."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._lock = Lock()

    def add(self, value: float) -> None:
        """Take a value."""
        at = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[at] += 1
            self._sum += value

    def read(self) -> Counts:
        """Return what there is so far, consistent in itself."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        seen, buckets = 0, []
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            seen += count
            buckets.append((bound, seen))
        return Counts(buckets, total)


class Recorder:
    """The measurements of one node. The methods are for any thread; none of them waits."""

    def __init__(self) -> None:
        self.batches = Histogram(_SIZES)
        self.decisions = Histogram(SECONDS)
        self.applications = Histogram(SECONDS)
        self.syncs = Histogram(SECONDS)

    def batch(self, size: int) -> None:
        """The loop has proposed so many updates as one request."""
        self.batches.add(size)

    def decided(self, seconds: float) -> None:
        """So long after it was proposed a batch was in the log for good."""
        self.decisions.add(seconds)

    def applied(self, seconds: float) -> None:
        """So long the handler took for a batch."""
        self.applications.add(seconds)

    def synced(self, seconds: float) -> None:
        """So long the disk took to sync the journal or the log."""
        self.syncs.add(seconds)
