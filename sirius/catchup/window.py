"""How much to ask for: slow start.

Small at first, twice as much after each full and prompt answer, half as much after each loss, always within bounds. A
far or busy source is not drowned, and a near one soon fills the pipe: the way of TCP, one request at a time.
"""

from __future__ import annotations

from sirius.catchup.config import CatchupConfig


class Window:
    """Slots and bytes of the next request."""

    def __init__(self, config: CatchupConfig) -> None:
        self._config = config
        self.slots = config.window_slots_min
        self.bytes = config.window_bytes_min

    def grow(self) -> None:
        self.slots = min(self.slots * 2, self._config.window_slots_max)
        self.bytes = min(self.bytes * 2, self._config.window_bytes_max)

    def shrink(self) -> None:
        self.slots = max(self.slots // 2, self._config.window_slots_min)
        self.bytes = max(self.bytes // 2, self._config.window_bytes_min)
