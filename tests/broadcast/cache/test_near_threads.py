"""The promise of the cache with real threads, in an order that a seed decides.

Readers are real threads. A loader stops before it reads the truth and again before it returns; whoever waits for
somebody else's load is known to wait. Between two moves of the director nobody runs, so a seed is one interleaving.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sirius.broadcast.cache import NearCache
from sirius.broadcast.cache.flights import Flight
from tests.broadcast.cache.fakes import PATIENCE_S, Truth

KEYS = ["a", "b", "c"]


class Director:
    """Knows where every reader is, and lets one go on at a time."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.stopped: dict[int, str] = {}
        self.waiting: dict[int, Flight[Any]] = {}
        self.running: set[int] = set()
        self.let_go: set[int] = set()

    def stop(self, where: str) -> None:
        """Called by a reader: wait for the director."""
        me = threading.get_ident()
        with self.changed:
            self.running.discard(me)
            self.stopped[me] = where
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: me in self.let_go, PATIENCE_S)
            self.let_go.discard(me)
            del self.stopped[me]
            self.running.add(me)
            self.changed.notify_all()

    @contextmanager
    def waits(self, flight: Flight[Any]) -> Iterator[None]:
        me = threading.get_ident()
        with self.changed:
            self.waiting[me] = flight
            self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:
                del self.waiting[me]
                self.changed.notify_all()

    def until_quiet(self) -> None:
        """Wait until every reader stops, is done, or waits for a load that has not landed."""
        with self.changed:
            assert self.changed.wait_for(self._is_quiet, PATIENCE_S)

    def _is_quiet(self) -> bool:
        moving = {
            each
            for each in self.running
            if each not in self.waiting or self.waiting[each].future.done()
        }
        return not moving and not self.let_go

    def let_one_go(self, rng: random.Random) -> bool:
        with self.changed:
            if not self.stopped:
                return False
            order = sorted(self.stopped, key=lambda each: NAMES[each])
            self.let_go.add(rng.choice(order))
            self.changed.notify_all()
        return True


NAMES: dict[int, int] = {}


class Scene:
    """One cache, one truth, one director."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(seed)
        self.director = Director()
        self.truth = Truth()
        self.cache = NearCache(self.load, max_entries=2)
        self.floors: Counter[str] = Counter()
        self.seq = 0
        self.threads: list[threading.Thread] = []
        self.faults: list[str] = []
        self.log: list[str] = []
        wait = Flight.wait

        def told(flight: Flight[Any]) -> Any:
            with self.director.waits(flight):
                return wait(flight)

        monkeypatch.setattr(Flight, "wait", told)

    def load(self, key: str) -> int:
        self.director.stop("before it reads")
        value = self.truth.load(key)
        self.director.stop("before it returns")
        return value

    def read(self) -> None:
        key = self.rng.choice(KEYS)
        floor = self.floors[key]

        def work() -> None:
            me = threading.get_ident()
            NAMES[me] = number
            with self.director.changed:
                self.director.running.add(me)
                begun.set()
            value = self.cache.get(key)
            if value < floor:
                self.faults.append(f"{key}: {value} was read, {floor} was invalidated before")
            with self.director.changed:
                self.director.running.discard(me)
                self.director.changed.notify_all()

        number, begun = len(self.threads), threading.Event()
        thread = threading.Thread(target=work)
        self.threads.append(thread)
        thread.start()
        assert begun.wait(PATIENCE_S)

    def write_and_deliver(self) -> None:
        keys = self.rng.sample(KEYS, self.rng.randint(1, 2))
        self.seq += 1
        for key in keys:
            self.floors[key] = self.truth.write(key)
        self.cache.invalidated(self.seq, keys)

    def play(self) -> None:
        for _ in range(40):
            move = self.rng.choice(["read", "read", "write", "go on", "go on", "go on"])
            if move == "read":
                self.read()
            elif move == "write":
                self.write_and_deliver()
            else:
                self.director.let_one_go(self.rng)
            self.director.until_quiet()
            self.cache.check()
            self.log.append(f"{move}: {sorted(self.director.stopped.values())}")
        while self.director.let_one_go(self.rng):
            self.director.until_quiet()
        for thread in self.threads:
            thread.join(PATIENCE_S)


@pytest.mark.parametrize("seed", range(60))
def test_no_thread_reads_what_was_invalidated_before_it_asked(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(seed, monkeypatch)
    scene.play()
    assert scene.faults == []
    assert not any(thread.is_alive() for thread in scene.threads)
    for key in KEYS:
        value = scene.cache.peek(key)
        assert value is None or value >= scene.floors[key]


def test_a_seed_is_one_interleaving(monkeypatch: pytest.MonkeyPatch) -> None:
    logs, asked = [], []
    for _ in range(2):
        with monkeypatch.context() as patch:
            scene = Scene(7, patch)
            scene.play()
        logs.append(scene.log)
        asked.append(scene.truth.asked)
    assert logs[0] == logs[1]
    assert asked[0] == asked[1]


def test_the_seeds_reach_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = waited = hits = 0
    for seed in range(20):
        with monkeypatch.context() as patch:
            scene = Scene(seed, patch)
            scene.play()
        counted = scene.cache.statistics()
        refused += counted.stale_fills_refused
        waited += counted.misses - counted.loads
        hits += counted.hits
    assert min(refused, waited, hits) > 5
