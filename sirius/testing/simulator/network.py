"""The network between simulated nodes: it delays, drops, doubles and reorders, and its links can be cut one way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sirius.testing.simulator.events import Loop

_BREAKS: Final = 0.1
"""Which share of streams breaks off, even when no messages are lost."""


class Network:
    """Carries anything from name to name. A cut link loses what is under way on it, too."""

    def __init__(
        self,
        loop: Loop,
        rng: random.Random,
        delay_s: float,
        deliver: Callable[[str, str, Any], None],
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._delay_s = delay_s
        self._deliver = deliver
        self._cuts: Counter[tuple[str, str]] = Counter()
        self.drop: list[float] = []
        """The rates at which messages are lost, one for each fault that is going on; so with the other two."""
        self.duplicate: list[float] = []
        self.delay: list[float] = []
        self.sent = 0

    def cut(self, source: str, target: str) -> None:
        """Cut a link, one way. A link that was cut twice has to be healed twice."""
        self._cuts[source, target] += 1

    def heal(self, source: str, target: str) -> None:
        self._cuts[source, target] = max(0, self._cuts[source, target] - 1)

    def heal_everything(self) -> None:
        self._cuts.clear()
        for rates in (self.drop, self.duplicate, self.delay):
            rates.clear()

    def send(self, source: str, target: str, item: Any) -> None:
        """Send something."""
        self.sent += 1
        rng = self._rng
        if self._cuts.get((source, target)) or (self.drop and rng.random() < max(self.drop)):
            return
        self._schedule(source, target, item)
        if self.duplicate and rng.random() < max(self.duplicate):
            self._schedule(source, target, item)

    def stream(self, source: str, target: str, data: bytes) -> tuple[bytes, bool]:
        """Return what comes of a stream, and whether that is all: some break off, and a cut either way ends it."""
        if self._cuts.get((source, target)) or self._cuts.get((target, source)):
            return b"", False
        if self._rng.random() >= max(_BREAKS, *self.drop, 0.0):
            return data, True
        return data[: self._rng.randrange(len(data))], False

    def _schedule(self, source: str, target: str, item: Any) -> None:
        mean = self._delay_s + (max(self.delay) if self.delay else 0.0)
        delay = self._delay_s / 2 + self._rng.expovariate(2.0 / mean)
        self._loop.after(delay, partial(self._arrive, source, target, item))

    def _arrive(self, source: str, target: str, item: Any) -> None:
        if not self._cuts.get((source, target)):
            self._deliver(source, target, item)
