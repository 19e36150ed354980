"""The broadcast layer: what a `NearCache` costs, and what proxies carry, next to Redis and NATS."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from benchmarks import broadcast_live, broadcast_peers, sprinkler
from benchmarks.figures import Figure, Work, in_turns, seconds
from sirius.broadcast.cache import NearCache

KEYS = [f"title/{number:06}" for number in range(10_000)]
ROUNDS = 10
READERS = 4
REPEATS = 9


def figures() -> Iterator[Figure]:
    """Measure everything."""
    yield from near_cache_hits()
    yield near_cache_threads()
    yield near_cache_invalidations()
    ours = 0.0
    for figure in broadcast_live.figures():
        yield figure
        ours = figure.value if figure.name.startswith("broadcast.proxies") else ours
    yield from broadcast_peers.figures(ours)
    yield from sprinkler.figures()


# ---------------------------------------------------------------------- the near cache


class LockedDict:
    """The least that a cache for several threads can be."""

    def __init__(self) -> None:
        self._values = dict.fromkeys(KEYS, b"value")
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes:
        with self._lock:
            return self._values[key]


def filled(**settings: float) -> NearCache[bytes]:
    cache: NearCache[bytes] = NearCache(max_entries=len(KEYS), **settings)  # type: ignore[arg-type]
    for key in KEYS:
        cache.put(key, b"value")
    return cache


def reading(get: Callable[[str], object]) -> Work:
    def work() -> None:
        for _ in range(ROUNDS):
            for key in KEYS:
                get(key)

    return work


def near_cache_hits() -> Iterator[Figure]:
    """What a hit costs, against a dict behind a lock."""
    works = {
        "lock": reading(LockedDict().get),
        "near": reading(filled().get),
        "ttl": reading(filled(ttl_s=3600.0).get),
    }
    took = in_turns(works, REPEATS)
    note = f"{_hit_ns(took['near']):.0f} ns, dict behind a lock {_hit_ns(took['lock']):.0f} ns"
    ratio = took["near"] / took["lock"]
    yield Figure("broadcast.near_cache_hit", ratio, "x dict+lock", 2.0, True, note)
    ratio = took["ttl"] / took["lock"]
    note = "with a time to live"
    yield Figure("broadcast.near_cache_hit_ttl", ratio, "x dict+lock", 2.0, True, note)


def _hit_ns(took_s: float) -> float:
    return took_s / ROUNDS / len(KEYS) * 1e9


def near_cache_threads() -> Figure:
    """The same with threads that read at the same time."""
    works = {"lock": at_once(LockedDict().get), "near": at_once(filled().get)}
    took = in_turns(works, REPEATS)
    note = f"{READERS} threads at the same time"
    ratio = took["near"] / took["lock"]
    return Figure("broadcast.near_cache_threads", ratio, "x dict+lock", note=note)


def at_once(get: Callable[[str], object]) -> Work:
    def work() -> None:
        threads = [threading.Thread(target=reading(get)) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return work


def near_cache_invalidations() -> Figure:
    """How fast a stream is taken of whose keys one in a hundred is cached."""
    cache: NearCache[bytes] = NearCache(max_entries=len(KEYS))
    stream = [[f"{batch}/{at}" for at in range(len(KEYS))] for batch in range(10)]

    def work() -> None:
        for seq, keys in enumerate(stream, 1 + (cache.position or 0)):
            for key in keys[::100]:
                cache.put(key, b"value")
            cache.invalidated(seq, keys)

    rate = len(stream) * len(KEYS) / min(seconds(work) for _ in range(REPEATS))
    return Figure("broadcast.near_cache_stream", rate, "keys/s", note="one in a hundred is cached")
