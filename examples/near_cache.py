"""A database with a cache in front of it that never shows what has changed.

The writer changes the database, then puts the key into the log. Two services read the database through a `NearCache`
each: one in the process of the node, told by the node's own log; one that follows the log through the network, leaves,
and comes back: it drops what has changed meanwhile and keeps the rest. Run it::

    python examples/near_cache.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sirius import RequestHandler, Sirius, SiriusConfig, SiriusResult
from sirius.broadcast.cache import LogStream, NearCache, feed
from sirius.broadcast.cache.tail import TailSource
from sirius.testing.processes import free_ports

KEYS = [f"price/{number}" for number in range(1000)]


class Database:
    """Prices. It counts how often it is asked."""

    def __init__(self) -> None:
        self.rows = dict.fromkeys(KEYS, 100)
        self.reads = 0

    def read(self, key: str) -> int:
        self.reads += 1
        return self.rows[key]


class Changes(RequestHandler):
    """The log says which keys changed, and why; the values are in the database."""

    def __init__(self) -> None:
        self.reasons: dict[str, bytes] = {}

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.reasons[key] = body
        return SiriusResult.none()

    def handle_delete(self, key: str) -> SiriusResult:
        self.reasons.pop(key, None)
        return SiriusResult.none()


class Writer:
    """Changes a row, and tells the log."""

    def __init__(self, database: Database, node: Sirius) -> None:
        self._database = database
        self._node = node

    def write(self, key: str, price: int) -> int:
        self._database.rows[key] = price
        return int(self._node.enqueue_put(key, b"a new price").result(timeout=30).seq or 0)


def in_the_process(writer: Writer, database: Database, stream: LogStream) -> None:
    cache = NearCache(database.read, name="in the process")
    with feed(cache, stream.source()):
        for _ in range(100):
            cache.get_many(KEYS)
        print(f"{100 * len(KEYS):,} reads, {database.reads:,} of them from the database")
        writer.write("price/7", 120)
        print(f"after a write that was answered: price/7 is {cache.get('price/7')}")


def through_the_network(writer: Writer, database: Database, address: str) -> None:
    cache = NearCache(database.read, name="elsewhere", max_staleness_s=10)
    with feed(cache, TailSource([address])):
        until(lambda: cache.staleness() < 10)
        cache.get_many(KEYS)
    for number in range(3):
        last = writer.write(f"price/{number}", 130)
    with feed(cache, TailSource([address])):
        until(lambda: (cache.position or 0) >= last)
        print(f"away for 3 changes: {len(cache)} of {len(KEYS)} entries are left")
        print(f"price/2 is {cache.get('price/2')}")


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def main() -> None:
    database, stream = Database(), LogStream(Changes())
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with tempfile.TemporaryDirectory() as folder:
        config = SiriusConfig(name=address, members=[address], data=Path(folder) / "data")
        with Sirius(stream.handler, config) as node:
            stream.watch(node)
            writer = Writer(database, node)
            in_the_process(writer, database, stream)
            through_the_network(writer, database, address)


if __name__ == "__main__":
    main()
