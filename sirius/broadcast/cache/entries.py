"""What a `NearCache` holds: at most so many entries and bytes, those that are asked for staying longest.

**Second chance instead of moving.** A hit only counts up a number in its entry; nothing is moved and no lock is taken.
Who needs room looks at the oldest entry: if it was asked for since the last look, it goes to the end of the line once
more, otherwise it goes for good. That is CLOCK, which behaves as LRU does but for the order among entries that
were all asked for. What a hit costs, as multiples of a `dict` behind a lock: with LRU that moves on every hit, under
the lock, about 1.6; with this, about 0.3. `docs/decisions/0013-near-cache.md` has the figures.

After `CHANCES_MAX` entries in a row that were asked for, the next one goes whatever its count says: so no single call
pays for a walk along the whole line.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from sirius.errors import InvariantViolation

V = TypeVar("V")

CHANCES_MAX: Final = 64
FOREVER: Final = float("inf")


class Entry(Generic[V]):
    """A value, or the error that stands for "there is none"; and how often it was asked for since the last look."""

    __slots__ = ("error", "expires_at", "hits", "size", "value")

    def __init__(
        self,
        value: V,
        expires_at: float = FOREVER,
        size: int = 0,
        error: Exception | None = None,
    ) -> None:
        self.value = value
        self.expires_at = expires_at
        self.size = size
        self.error = error
        self.hits = 0

    def result(self) -> V:
        """Return the value; raise if it is known that there is none."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self.value


class Entries(Generic[V]):
    """See above. Everything is for whoever holds the cache's lock, but `by_key[key]`: reading it takes none."""

    def __init__(self, max_entries: int, max_bytes: int | None = None) -> None:
        self._max_entries = max_entries
        self._max_bytes = FOREVER if max_bytes is None else max_bytes
        self.by_key: OrderedDict[str, Entry[V]] = OrderedDict()
        self.bytes = 0
        self.evictions = 0
        self._past_hits = 0
        """Hits of entries that are gone, and of those that were given another chance until then."""

    @property
    def hits(self) -> int:
        """All hits so far. O(entries)."""
        return self._past_hits + sum(entry.hits for entry in self.by_key.values())

    def add(self, key: str, entry: Entry[V]) -> bool:
        """Put an entry in, in the place of what the key had; False if it alone is more than all that may be kept."""
        self.pop(key)
        if entry.size > self._max_bytes:
            return False
        while not self._has_room(entry.size):
            self._evict()
        self.by_key[key] = entry
        self.bytes += entry.size
        return True

    def _has_room(self, size: int) -> bool:
        return len(self.by_key) < self._max_entries and self.bytes + size <= self._max_bytes

    def _evict(self) -> None:
        by_key = self.by_key
        for _ in range(CHANCES_MAX):
            oldest = next(iter(by_key))
            entry = by_key[oldest]
            if not entry.hits:
                break
            self._past_hits += entry.hits
            entry.hits = 0
            by_key.move_to_end(oldest)
        self.evictions += self.pop(next(iter(by_key)))

    def pop(self, key: str) -> bool:
        """Drop an entry; say whether it was there."""
        entry = self.by_key.pop(key, None)
        if entry is None:
            return False
        self.bytes -= entry.size
        self._past_hits += entry.hits
        return True

    def clear(self) -> int:
        """Drop everything; return how many entries that were."""
        count = len(self.by_key)
        self._past_hits = self.hits
        self.by_key.clear()
        self.bytes = 0
        return count

    def check(self) -> None:
        """Raise if a bound or the sum does not hold. O(entries)."""
        total = sum(entry.size for entry in self.by_key.values())
        if total != self.bytes or total > self._max_bytes or len(self.by_key) > self._max_entries:
            raise InvariantViolation(
                f"{len(self.by_key)} entries of {self._max_entries}, {total} bytes of "
                f"{self._max_bytes}, counted {self.bytes}"
            )
