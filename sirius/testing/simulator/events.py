"""Simulated time: one heap of things to happen, and the trace of what did.

Everything that happens in a run happens here, one after the other. Equal times are taken in the order in which they
were asked for, so that a run depends on its seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class Loop:
    """The events to come, in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Action]] = []
        self._number = 0

    def at(self, time: float, action: Action) -> None:
        """Have something happen at a time; one in the past happens next."""
        self.after(max(0.0, time - self.now), action)

    def after(self, delay: float, action: Action) -> None:
        self._number += 1
        heappush(self._heap, (self.now + delay, self._number, action))

    def run(self, until: float) -> None:
        """Let everything happen up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action = heappop(heap)
            action()
        self.now = until

    @property
    def happened(self) -> int:
        """How many events have happened."""
        return self._number - len(self._heap)


class Trace:
    """What happened, a line each, for people to read and for runs to be compared."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.lines: list[str] = []

    def note(self, who: str, what: str) -> None:
        """Say what happened to whom."""
        self.lines.append(f"{self._loop.now:8.3f} {who:<4} {what}")
