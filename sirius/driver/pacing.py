"""How fast files are given to others: as fast as they take them, unless there is other work.

Whoever is far behind must not slow down those who are not. A MB of a file costs the loop about a millisecond of the
time in which it could decide updates, and shares its disk and memory, so while updates are under way files get a
twentieth of it. What a leader writes at its fastest is half as much a second, so followers get there all the same.
"""

from __future__ import annotations

from typing import Final

_BUSY_BYTES_PER_S: Final = 50e6


class Pace:
    """When the next piece of a file may go. Times are those of one clock, in seconds."""

    def __init__(self, bytes_per_s: float = _BUSY_BYTES_PER_S) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def wait_s(self, now: float, size: int, *, is_busy: bool) -> float:
        """Return for how long a piece of that size has to wait."""
        begin = max(now, self._free_at) if is_busy else now
        self._free_at = begin + size / self._bytes_per_s
        return begin - now
