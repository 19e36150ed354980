"""The newest values, in memory.

After the Sirius paper, section 5.1: some of what a peer asks for comes from a small cache of updates, especially if
it is recent. Values follow each other without a gap; the oldest go first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import takewhile

from sirius.catchup.config import CatchupConfig
from sirius.paxos.values import Value
from sirius.types import Seq


class Cache:
    """Values up to the end of the log. Adding is O(1), a range takes as long as there is behind its beginning."""

    def __init__(self, config: CatchupConfig, last: Seq) -> None:
        self._config = config
        self._values: deque[Value] = deque()
        self._last = last
        self.bytes = 0

    @property
    def first(self) -> Seq:
        """The first slot from which on everything is here."""
        return self._values[0].first if self._values else Seq(self._last + 1)

    def add(self, value: Value) -> None:
        """Take the next value."""
        self._values.append(value)
        self._last = value.last
        self.bytes += len(value)
        while self._is_full:
            self.bytes -= len(self._values.popleft())

    def clear(self, last: Seq) -> None:
        """The log ends here now, by something that did not come through the cache."""
        self._values.clear()
        self._last = last
        self.bytes = 0

    @property
    def _is_full(self) -> bool:
        config = self._config
        slots = self._last - self.first + 1
        return self.bytes > config.cache_bytes_max or slots > config.cache_slots_max

    def range(self, first: int, last: int, bytes_max: int) -> tuple[Value, ...]:
        """Return values from `first`, which must be here, to `last` at most; at least one, not much above the bytes."""
        values: list[Value] = []
        for value in self._from(first):
            if value.first > last or (values and bytes_max < len(value)):
                break
            bytes_max -= len(value)
            values.append(fitted(value, first, last))
        return tuple(values)

    def _from(self, first: int) -> Sequence[Value]:
        """Return the values that do not end before a slot."""
        newest = list(takewhile(lambda value: value.last >= first, reversed(self._values)))
        return newest[::-1]


def fitted(value: Value, first: int, last: int) -> Value:
    """Return the part of a value that lies in a range."""
    if first <= value.first and value.last <= last:
        return value
    return value.cut(max(first, value.first), min(last, value.last))
