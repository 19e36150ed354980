"""Simulated time for millions of messages a second: what is to happen stands in slots of 20 µs.

The heap of `sirius.testing.simulator.events` takes a fifth of a run here, since it is so large. Slots cost one
dictionary look-up a message. Inside a slot things happen in the order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

_PER_S: Final = 50_000
_Call = tuple[float, Callable[..., None], tuple[Any, ...]]


class Clock:
    """Calls functions at their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._slots: dict[int, list[_Call]] = {}
        self._order: list[int] = []

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        """Have something happen at a time, which is not in the past."""
        slot = int(time * _PER_S)
        calls = self._slots.get(slot)
        if calls is None:
            calls = self._slots[slot] = []
            heappush(self._order, slot)
        calls.append((time, call, arguments))

    def run(self, until: float) -> None:
        """Let everything happen up to a time. What is asked for in the slot that is going on still happens in it."""
        end = int(until * _PER_S)
        while self._order and self._order[0] < end:
            slot = self._order[0]
            for time, call, arguments in self._slots[slot]:
                self.now = time
                call(*arguments)
            heappop(self._order)
            del self._slots[slot]
        self.now = until
