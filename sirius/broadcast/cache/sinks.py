"""Other caches as sinks: any mapping behind a lock, such as those of `cachetools`, and Redis.

They drop what is invalidated, and no more than that: **a load that an invalidation overtakes may still fill them with
the old value**, since they do not know of loads. Give entries a time to live, or put a `NearCache` there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from sirius.broadcast.cache.freshness import Freshness
from sirius.broadcast.cache.keys import each_of
from sirius.errors import UsageError

BATCH_KEYS: Final = 500


class _Placed:
    """How far a sink is, and how fresh."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._freshness = Freshness()
        self._placing = threading.Lock()

    @property
    def position(self) -> int | None:
        """Everything up to here was dropped."""
        return self._freshness.position

    def alive(self, seq: int, age_s: float = 0.0) -> None:
        """Take a beat."""
        with self._placing:
            self._freshness.alive(seq, self._clock() - age_s)

    def staleness(self) -> float:
        """How long ago the stream last vouched, in seconds."""
        return self._clock() - self._freshness.as_of

    def _advance(self, seq: int) -> None:
        with self._placing:
            self._freshness.advance(seq)

    def _restart(self, seq: int) -> None:
        with self._placing:
            self._freshness.restart(seq)


class MappingSink(_Placed):
    """Drops entries of a mapping, under the lock that its readers take: `cachetools.TTLCache`, `LRUCache`, a dict.

    `key_of` turns a key of the stream into one of the mapping: `cachetools.keys.hashkey` for what
    `@cachetools.cached` decorates.
    """

    def __init__(
        self,
        cache: MutableMapping[Any, Any],
        lock: AbstractContextManager[Any],
        key_of: Callable[[str], Any] = lambda key: key,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        if not isinstance(cache, MutableMapping):
            raise UsageError(f"a cache is a mapping, not {type(cache).__name__}")
        if not isinstance(lock, AbstractContextManager):
            raise UsageError(f"a lock is a context manager, not {type(lock).__name__}")
        self._cache = cache
        self._lock = lock
        self._key_of = key_of

    def invalidated(self, seq: int, keys: Collection[str]) -> None:
        """Drop these keys."""
        with self._lock:
            for key in each_of(keys):
                # Not `pop`: that of some mappings looks the value up first, and may load it.
                self._drop(self._key_of(key))
        self._advance(seq)

    def _drop(self, key: Any) -> None:
        with suppress(KeyError):
            del self._cache[key]

    def gap(self, seq: int) -> None:
        """Drop everything."""
        with self._lock:
            self._cache.clear()
        self._restart(seq)


class RedisSink(_Placed):
    """Deletes keys from a Redis cache, through any client with `delete(*keys)`; pipelined if it has `pipeline`.

    `prefix` stands before every key there. After a gap everything under the prefix is deleted, by `scan_iter`;
    `on_gap` is called instead if it is given, and has to be if there is no prefix. It waits for the network: put it
    behind a `Relay`.
    """

    def __init__(
        self,
        client: Any,
        prefix: str = "",
        on_gap: Callable[[], object] | None = None,
        batch_keys: int = BATCH_KEYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        if not callable(getattr(client, "delete", None)):
            raise UsageError(f"a client has delete(*keys): {type(client).__name__} has not")
        if on_gap is None and not (prefix and hasattr(client, "scan_iter")):
            raise UsageError(
                "say what to do when everything has to go: on_gap=…, or a prefix and a client with scan_iter"
            )
        if batch_keys <= 0:
            raise UsageError(f"batch_keys is above 0, not {batch_keys}")
        self._client = client
        self._prefix = prefix
        self._on_gap = on_gap or self._delete_all
        self._batch_keys = batch_keys

    def invalidated(self, seq: int, keys: Collection[str]) -> None:
        """Delete these keys. Raises what the client raises; then the position has not moved."""
        self._delete([self._prefix + key for key in each_of(keys)])
        self._advance(seq)

    def gap(self, seq: int) -> None:
        """Delete everything."""
        self._on_gap()
        self._restart(seq)

    def _delete(self, names: Sequence[str | bytes]) -> None:
        batches = list(_cut(names, self._batch_keys))
        if len(batches) < 2 or not hasattr(self._client, "pipeline"):
            for batch in batches:
                self._client.delete(*batch)
            return
        pipeline = self._client.pipeline(transaction=False)
        for batch in batches:
            pipeline.delete(*batch)
        pipeline.execute()

    def _delete_all(self) -> None:
        found: list[str | bytes] = []
        for name in self._client.scan_iter(match=_literally(self._prefix) + "*"):
            found.append(name)
            if len(found) >= self._batch_keys:
                self._delete(found)
                found = []
        self._delete(found)


def _cut(names: Sequence[str | bytes], size: int) -> Iterator[Sequence[str | bytes]]:
    for at in range(0, len(names), size):
        yield names[at : at + size]


def _literally(prefix: str) -> str:
    """Return a pattern of Redis that matches just this."""
    return "".join(f"\\{each}" if each in "*?[]^-\\" else each for each in prefix)
