"""A cache that follows a real cluster, whose nodes are closed one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from sirius import Sirius, SiriusConfig
from sirius.broadcast.cache import NearCache, feed
from sirius.broadcast.cache.tail import TailSource
from sirius.testing.processes import free_ports
from tests.broadcast.cache.fakes import Truth
from tests.node.nodes import SMALL, Dict


def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not come to that")


def start(names: list[str], folder: Path) -> list[Sirius]:
    return [
        Sirius(
            Dict(),
            SiriusConfig(
                name=name, members=names, data=folder / str(at), log=SMALL, durability="os"
            ),
        )
        for at, name in enumerate(names)
    ]


def test_a_cache_follows_a_cluster_that_loses_the_node_it_listens_to(tmp_path: Path) -> None:
    names = [f"127.0.0.1:{port}" for port in free_ports(3)]
    nodes = start(names, tmp_path)
    truth = Truth()
    cache = NearCache(truth.load, max_staleness_s=60)

    def write(key: str) -> None:
        truth.write(key)
        seq = int(nodes[-1].enqueue_put(key, b"").result(60).seq or 0)
        eventually(lambda: (cache.position or 0) >= seq)
        assert cache.get(key) == truth.versions[key]

    try:
        for node in nodes:
            assert node.wait_until_ready(60)
        with feed(cache, TailSource(names, timeout_s=2.0), beat_s=0.05):
            eventually(lambda: cache.staleness() < 60)
            cache.get("kept")
            for number in range(5):
                write(f"k{number % 2}")
            nodes.pop(0).close()
            for number in range(5):
                write(f"k{number % 2}")
            assert "kept" in cache
            assert cache.statistics().gaps == 1, "it began with one, and went on where it was"
    finally:
        for node in nodes:
            node.close()
