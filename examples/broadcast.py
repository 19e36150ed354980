"""Three regions whose caches are told what changed, wherever it changed.

Each region has a proxy, here all in one process, and a service with a `NearCache`. Prices are written in Europe, and
the caches of all regions drop what changed. The cache in Asia is cut off for a while, and goes on where it was: it
drops what has changed meanwhile and keeps the rest. Run it::

    python examples/broadcast.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from sirius.broadcast import Broadcast, LocalProxy, connect
from sirius.broadcast.cache import Feed, NearCache, feed
from sirius.testing.processes import free_ports

REGIONS = ("europe", "america", "asia")
KEYS = [f"price/{number}" for number in range(100)]


class Database:
    """Prices, and a word to everybody when one changes."""

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        self.rows = dict.fromkeys(KEYS, 100)

    def write(self, key: str, price: int) -> int:
        """Write first, tell after: whoever drops the old price finds the new one."""
        self.rows[key] = price
        return self._broadcast.publish("prices", key).result(timeout=30)


def main() -> None:
    names = {
        region: f"127.0.0.1:{port}" for region, port in zip(REGIONS, free_ports(3), strict=True)
    }
    # All proxies know all streams and who owns each.
    streams = {"prices": names["europe"], "texts": names["america"]}
    with ExitStack() as stack:
        for name in names.values():
            stack.enter_context(LocalProxy(streams, name=name, proxies=tuple(names.values())))
        sessions = {region: stack.enter_context(connect(name)) for region, name in names.items()}
        database = Database(sessions["europe"])
        caches = {region: NearCache(database.rows.__getitem__) for region in REGIONS}
        feeds = {region: fed(caches[region], sessions[region]) for region in REGIONS}
        for each in feeds.values():
            stack.callback(each.close)
        everywhere(caches, database)
        feeds["asia"].close()
        coming_back(sessions["asia"], caches["asia"], database)


def fed(cache: NearCache[int], session: Broadcast) -> Feed:
    """Have a cache told what changes, from where it is on."""
    return feed(cache, session.invalidations("prices"), beat_s=0.1)


def everywhere(caches: dict[str, NearCache[int]], database: Database) -> None:
    for cache in caches.values():
        cache.get_many(KEYS)
    seq = database.write("price/7", 120)
    eventually(lambda: all((cache.position or 0) >= seq for cache in caches.values()))
    shown = ", ".join(f"{region} {cache.get('price/7')}" for region, cache in caches.items())
    print(f"price/7 everywhere: {shown}")
    kept = min(len(cache) for cache in caches.values())
    print(f"at least {kept} of {len(KEYS)} prices stayed in every cache")
    eventually(lambda: all(cache.staleness() < 5 for cache in caches.values()))
    print("every cache knows how old it can be at most: below 5 s")


def coming_back(asia: Broadcast, cache: NearCache[int], database: Database) -> None:
    cache.get_many(KEYS)
    last = max(database.write(f"price/{number}", 130) for number in range(3))
    print(f"cut off, asia still reads {cache.get('price/2')}")
    with fed(cache, asia):
        eventually(lambda: (cache.position or 0) >= last)
        print(f"back after 3 changes: {len(cache)} of {len(KEYS)} prices are left")
        print(f"price/2 is {cache.get('price/2')}")


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 50
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("it did not come to that")
        time.sleep(0.005)


if __name__ == "__main__":
    main()
