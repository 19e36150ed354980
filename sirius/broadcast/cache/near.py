"""`NearCache`: a bounded cache in the memory of a process, whose entries disappear when their key is invalidated.

**The promise.** A read that begins after an invalidation of its key was delivered never returns what was loaded before
it. Three things could break that, and this is how they do not:

1. *An entry that is there.* It is dropped before the delivery returns.
2. *A load under way.* It may have read the old value, so the invalidation cuts it off: it fills nothing, and who asks
   from now on does not wait for it but begins another (`flights`).
3. *A stream that is cut.* Nothing is delivered, so nothing is broken; but old values live on. `staleness()` tells how
   long ago the stream last vouched for the cache, and beyond `max_staleness_s` the loader is asked instead.

**Threads.** Everything may be called from any thread. A hit takes no lock: it reads one dict and counts up one number.
Everything else holds the cache's lock for as long as it takes to move some entries, and never while a loader runs.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, Generic, TypeVar

from sirius.broadcast.cache.entries import Entry
from sirius.broadcast.cache.errors import NotCached
from sirius.broadcast.cache.flights import Abandoned, Boarded
from sirius.broadcast.cache.keys import checked, each_of
from sirius.broadcast.cache.loading import Loading
from sirius.broadcast.cache.settings import OnStale, Settings, Statistics, size_of
from sirius.broadcast.cache.shelf import Shelf
from sirius.errors import UsageError

V = TypeVar("V")
D = TypeVar("D")

MAX_ENTRIES: Final = 10_000


class NearCache(Generic[V]):
    """See above. Keys are texts, as in the log.

    ==================  =================================================================================
    `loader`            gets a key's value; a `LookupError` says that there is none
    `batch_loader`      gets the values of many keys at once, for `get_many`; leaves out what there is not
    `async_loader`      like `loader`, for `aget`; without it `aget` runs `loader` on a thread
    `max_entries`       how many entries are kept; beyond that go those that were not asked for lately
    `max_bytes`         how many bytes of keys and values are kept, as `size_of` measures them
    `ttl_s`             how long an entry counts, invalidated or not
    `negative_ttl_s`    for how long a loader's `LookupError` is remembered; it is not if this is None
    `max_staleness_s`   how long the stream may be silent before `on_stale` applies
    ==================  =================================================================================
    """

    def __init__(  # noqa: PLR0913 (settings, by keyword)
        self,
        loader: Callable[[str], V] | None = None,
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int | None = None,
        ttl_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        name: str = "near",
        async_loader: Callable[[str], Awaitable[V]] | None = None,
        batch_loader: Callable[[Collection[str]], Mapping[str, V]] | None = None,
        negative_ttl_s: float | None = None,
        max_staleness_s: float | None = None,
        on_stale: OnStale | str = OnStale.BYPASS,
        size_of: Callable[[V], int] = size_of,
    ) -> None:
        times = (ttl_s, negative_ttl_s, max_staleness_s)
        settings = Settings(max_entries, max_bytes, *times, _way(on_stale), size_of)
        self.name = name
        self._shelf: Shelf[V] = Shelf(settings, clock)
        self._loading: Loading[V] = Loading(self._shelf, clock, loader, async_loader, batch_loader)
        self._by_key = self._shelf.by_key
        self._is_timed = settings.is_timed

    # ------------------------------------------------------------------ reading

    def get(self, key: str) -> V:
        """Return a key's value: the one that is there, or the loader's, for which it waits.

        Raises what the loader raises, to everybody who waited for it; `NotCached` if there is no loader. Not for the
        thread of an event loop, unless the loader is quick: see `aget`.
        """
        try:
            entry = self._by_key[key]
        except (KeyError, TypeError):
            return self._get(key)
        if self._is_timed and not self._shelf.counts(entry):
            return self._get(key)
        entry.hits += 1
        return entry.value

    def _get(self, key: str) -> V:
        checked(key)
        while True:
            found = self._shelf.look(key) or self._loading.board(key)
            if isinstance(found, Entry):
                return found.result()
            if found.is_mine:
                self._loading.run(found.flight)
            try:
                return found.flight.wait()
            except Abandoned:
                continue

    async def aget(self, key: str) -> V:
        """Return a key's value, as `get` does, without blocking the event loop.

        Cancelling it does not cancel the load: others may wait for it.
        """
        try:
            entry = self._by_key[key]
        except (KeyError, TypeError):
            return await self._aget(key)
        if self._is_timed and not self._shelf.counts(entry):
            return await self._aget(key)
        entry.hits += 1
        return entry.value

    async def _aget(self, key: str) -> V:
        checked(key)
        while True:
            found = self._shelf.look(key) or self._loading.board_async(key)
            if isinstance(found, Entry):
                return found.result()
            if found.is_mine:
                self._loading.start(found.flight)
            try:
                return await found.flight.wait_async()
            except Abandoned:
                continue

    def get_many(self, keys: Iterable[str]) -> dict[str, V]:
        """Return the values of many keys; those that are not there are loaded, by `batch_loader` in one call.

        Keys for which there is none (`LookupError`, or no loader) are left out. Any other error is raised.
        """
        found = {key: self._find(key) for key in dict.fromkeys(each_of(keys))}
        boarded = [at for at in found.values() if isinstance(at, Boarded)]
        self._loading.run_many([at.flight for at in boarded if at.is_mine])
        values: dict[str, V] = {}
        for key, at in found.items():
            with suppress(LookupError):
                values[key] = self._outcome(key, at)
        return values

    def _find(self, key: str) -> Entry[V] | Boarded[V] | None:
        try:
            return self._shelf.look(key) or self._loading.board(key)
        except NotCached:
            return None

    def _outcome(self, key: str, at: Entry[V] | Boarded[V] | None) -> V:
        if at is None:
            raise NotCached(key, "is not cached")
        if isinstance(at, Entry):
            return at.result()
        try:
            return at.flight.wait()
        except Abandoned:
            return self.get(key)

    def peek(self, key: str, default: D | None = None) -> V | D | None:
        """Return what is cached, or `default`: no load, and it does not count as a read."""
        entry = self._shelf.peek(checked(key))
        return default if entry is None or entry.error is not None else entry.value

    def __contains__(self, key: object) -> bool:
        """Whether a read would find a value without loading it."""
        entry = self._shelf.peek(key) if isinstance(key, str) else None
        return entry is not None and entry.error is None

    def __len__(self) -> int:
        """How many entries are kept; some may be too old to count."""
        return len(self._shelf.by_key)

    def __repr__(self) -> str:
        return f"<NearCache {self.name!r}: {len(self):,} entries>"

    # ------------------------------------------------------------------ writing

    def put(self, key: str, value: V) -> bool:
        """Put in a value that is known to be the newest; say whether it is kept, which needs room for its bytes.

        For the writer himself. What was *read* elsewhere may be overtaken by an invalidation before it is put: that
        is for a loader, which this cannot happen to.
        """
        return self._shelf.put(checked(key), self._shelf.entry_of(key, value))

    def invalidate(self, keys: str | Iterable[str]) -> int:
        """Drop one key or many; return how many were there. Loads of them that are under way fill nothing."""
        return self._shelf.drop((keys,) if isinstance(keys, str) else each_of(keys))

    def invalidate_prefix(self, prefix: str) -> int:
        """Drop all keys that begin so. Looks at every entry: 10,000 take about a millisecond."""
        return self._shelf.drop_prefix(checked(prefix, "a prefix"))

    def clear(self) -> int:
        """Drop everything; return how many entries that were."""
        return self._shelf.drop_all()

    # ------------------------------------------------------------------ the stream: see `InvalidationSink`

    @property
    def position(self) -> int | None:
        """The sequence number up to which invalidations were delivered; None before a stream has begun."""
        return self._shelf.position

    def invalidated(self, seq: int, keys: Collection[str]) -> None:
        """Take a batch of the stream: drop its keys, and remember its number. One that came before is ignored."""
        self._shelf.invalidated(seq, each_of(keys))

    def alive(self, seq: int, age_s: float = 0.0) -> None:
        """Take a beat: `age_s` ago there was nothing beyond `seq`."""
        self._shelf.alive(seq, age_s)

    def gap(self, seq: int) -> None:
        """The stream goes on behind `seq` and cannot tell what was before: drop everything."""
        self._shelf.gap(seq)

    def staleness(self) -> float:
        """How long ago the stream vouched for this cache, in seconds; infinite if it never did.

        No entry is older than that: so long ago everything that had changed was delivered.
        """
        return self._shelf.staleness()

    # ------------------------------------------------------------------ counting

    def statistics(self) -> Statistics:
        """Return what was counted so far. Looks at every entry."""
        return self._shelf.statistics(self.name)

    def check(self) -> None:
        """Raise `InvariantViolation` if a bound does not hold. For tests."""
        self._shelf.check()


def _way(on_stale: str) -> OnStale:
    try:
        return OnStale(on_stale)
    except ValueError:
        raise UsageError(f"on_stale is one of {', '.join(OnStale)}, not {on_stale!r}") from None
