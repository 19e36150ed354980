"""The state of a cache behind one lock: entries, loads under way, how far the stream is, and what was counted.

It runs no loader and waits for nobody. `look` and `peek` take no lock; everything else takes it for as long as it takes
to move some entries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from sirius.broadcast.cache.entries import FOREVER, Entries, Entry
from sirius.broadcast.cache.flights import Abandoned, Boarded, Flight
from sirius.broadcast.cache.freshness import Freshness
from sirius.broadcast.cache.settings import OnStale, Settings, Statistics

V = TypeVar("V")


class Shelf(Generic[V]):
    """See above."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: Entries[V] = Entries(settings.max_entries, settings.max_bytes)
        self.by_key = self._entries.by_key
        self._flights: dict[str, Flight[V]] = {}
        """The loads that may fill the cache."""
        self._freshness = Freshness()
        self._stale_at = FOREVER
        self._vouched()
        self._misses = self._bypasses = self._loads = self._load_errors = 0
        self._invalidations = self._dropped = self._gaps = self._refused = 0
        self._load_s = 0.0

    # ------------------------------------------------------------------ reading

    def look(self, key: str) -> Entry[V] | None:
        """Return the entry that a read may use, and count the hit."""
        entry = self.peek(key)
        if entry is not None:
            entry.hits += 1
        return entry

    def peek(self, key: str) -> Entry[V] | None:
        """Return the entry that a read may use, also one that says that there is no value."""
        entry = self.by_key.get(key)
        return entry if entry is not None and self._is_new_enough(entry) else None

    def _is_new_enough(self, entry: Entry[V]) -> bool:
        now = self._clock()
        return now < entry.expires_at and now < self._stale_at

    def counts(self, entry: Entry[V]) -> bool:
        """Say whether a read may use an entry that it has found, and there is a value."""
        now = self._clock()
        return now < entry.expires_at and now < self._stale_at and entry.error is None

    def board(self, key: str, may_begin: bool = True) -> Entry[V] | Boarded[V] | None:
        """Return what is there by now, or the load to wait for; None if there is none and none may begin."""
        with self._lock:
            # Looked up again: a load may have landed since the caller looked.
            if (entry := self.look(key)) is not None:
                return entry
            self._misses += 1
            self._tidy(key)
            flight = self._flights.get(key)
            if flight is not None and not flight.is_lost:
                return Boarded(flight, False)
            if not may_begin:
                return None
            self._loads += 1
            self._flights[key] = flight = Flight(key)
            return Boarded(flight, True)

    def _tidy(self, key: str) -> None:
        """Drop what a read has just found to be too old."""
        now = self._clock()
        if now >= self._stale_at:
            self._bypasses += 1
            if self._settings.on_stale == OnStale.FLUSH:
                self._dropped += self._entries.clear()
        elif (entry := self.by_key.get(key)) is not None and now >= entry.expires_at:
            self._entries.pop(key)

    # ------------------------------------------------------------------ filling

    def entry_of(self, key: str, value: V) -> Entry[V]:
        """Make an entry; it counts from now on. Asks the application for its size, so not under the lock."""
        settings = self._settings
        expires_at = FOREVER if settings.ttl_s is None else self._clock() + settings.ttl_s
        size = 0 if settings.max_bytes is None else len(key) + settings.size_of(value)
        return Entry(value, expires_at, size)

    def put(self, key: str, entry: Entry[V]) -> bool:
        """Put an entry in. A load under way is older than that, and fills nothing any more."""
        with self._lock:
            self._flights.pop(key, None)
            return self._keep(key, entry)

    def land(self, flight: Flight[V], entry: Entry[V], took_s: float) -> None:
        """A load is done. Whoever waits gets its value; the cache keeps it unless an invalidation came meanwhile."""
        with self._lock:
            if not self._settle(flight, took_s):
                return
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
                self._keep(flight.key, entry)
            else:
                self._refused += 1
        flight.future.set_result(entry.value)

    def fail(self, flight: Flight[V], error: Exception, took_s: float) -> None:
        """A load has raised: whoever waits is told."""
        with self._lock:
            if not self._settle(flight, took_s):
                return
            self._load_errors += 1
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
                self._keep_error(flight.key, error)
        flight.future.set_exception(error)

    def abandon(self, flight: Flight[V]) -> None:
        """A load will not land any more, if it has not: whoever waits begins another."""
        with self._lock:
            if not self._settle(flight, 0.0):
                return
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
        flight.future.set_exception(Abandoned())

    def _settle(self, flight: Flight[V], took_s: float) -> bool:
        if flight.settled:
            return False
        flight.settled = True
        self._load_s += took_s
        return True

    def _keep_error(self, key: str, error: Exception) -> None:
        ttl_s = self._settings.negative_ttl_s
        if ttl_s is not None and isinstance(error, LookupError):
            self._keep(key, Entry(None, self._clock() + ttl_s, len(key), error))  # type: ignore[arg-type]

    def _keep(self, key: str, entry: Entry[V]) -> bool:
        if self._settings.on_stale == OnStale.FLUSH and self._clock() >= self._stale_at:
            return False
        return self._entries.add(key, entry)

    # ------------------------------------------------------------------ dropping

    def drop(self, keys: Collection[str]) -> int:
        """Drop keys and cut their loads off; return how many entries that were."""
        with self._lock:
            return self._drop(keys)

    def drop_prefix(self, prefix: str) -> int:
        """Do the same for all keys that begin so. O(entries), under the lock."""
        with self._lock:
            return self._drop(
                {
                    key
                    for table in (self.by_key, self._flights)
                    for key in table
                    if key.startswith(prefix)
                }
            )

    def drop_all(self) -> int:
        """Do the same for everything."""
        with self._lock:
            return self._drop_all()

    def _drop(self, keys: Collection[str]) -> int:
        self._invalidations += len(keys)
        if self._flights:
            for key in keys:
                self._flights.pop(key, None)
        dropped = sum(map(self._entries.pop, keys))
        self._dropped += dropped
        return dropped

    def _drop_all(self) -> int:
        self._flights.clear()
        dropped = self._entries.clear()
        self._dropped += dropped
        return dropped

    # ------------------------------------------------------------------ the stream

    def invalidated(self, seq: int, keys: Collection[str]) -> None:
        """Take a batch of the stream, unless it came before."""
        with self._lock:
            if self._freshness.is_new(seq):
                self._drop(keys)
                self._freshness.advance(seq)
                self._vouched()

    def alive(self, seq: int, age_s: float) -> None:
        """Take a beat."""
        with self._lock:
            self._freshness.alive(seq, self._clock() - age_s)
            self._vouched()

    def gap(self, seq: int) -> None:
        """The stream goes on behind `seq`, and does not know what was before."""
        with self._lock:
            self._gaps += 1
            self._drop_all()
            self._freshness.restart(seq)

    def _vouched(self) -> None:
        if (after_s := self._settings.stale_after_s) is not None:
            self._stale_at = self._freshness.as_of + after_s

    @property
    def position(self) -> int | None:
        return self._freshness.position

    def staleness(self) -> float:
        """How long ago the stream last vouched."""
        return self._clock() - self._freshness.as_of

    # ------------------------------------------------------------------ counting

    def statistics(self, name: str) -> Statistics:
        """Return what was counted. O(entries)."""
        with self._lock:
            return Statistics(
                name=name,
                entries=len(self.by_key),
                bytes=self._entries.bytes,
                hits=self._entries.hits,
                misses=self._misses,
                loads=self._loads,
                load_errors=self._load_errors,
                load_s=self._load_s,
                invalidations=self._invalidations,
                dropped=self._dropped,
                gaps=self._gaps,
                evictions=self._entries.evictions,
                bypasses=self._bypasses,
                stale_fills_refused=self._refused,
            )

    def check(self) -> None:
        """Raise if a bound does not hold."""
        with self._lock:
            self._entries.check()
