"""One node's clocks: a monotonic one that runs a little wrong, and the time of day, which jumps as well."""

from __future__ import annotations

from typing import Final

_DAY_US: Final = 1_800_000_000_000_000


class NodeClock:
    """Monotonic time is linear in simulated time; changing the speed never turns it back."""

    def __init__(self, offset_s: float) -> None:
        self._since = 0.0
        self._base = offset_s
        self._speed = 1.0
        self._day_us = 0

    def monotonic(self, now: float) -> float:
        return self._base + self._speed * (now - self._since)

    def time_of_day_us(self, now: float) -> int:
        return _DAY_US + self._day_us + int(self.monotonic(now) * 1_000_000)

    def run_at(self, speed: float, now: float) -> None:
        """Run faster or slower from now on."""
        self._base, self._since, self._speed = self.monotonic(now), now, speed

    def jump(self, seconds: float) -> None:
        """Let somebody set the time of day."""
        self._day_us += int(seconds * 1_000_000)
