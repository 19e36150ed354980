"""No read ever returns a value older than an invalidation that was delivered when it began.

A random walk over writes, deliveries, reads whose loads take as long as the walk likes, time, gaps and cuts. Loads run
on an event loop that the walk drives step by step, so a failing walk can be played again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sirius.broadcast.cache import NearCache
from tests.broadcast.cache.fakes import Clock, Truth

KEYS = ["a/1", "a/2", "b/1"]
MAX_ENTRIES = 2
SOME = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)
TTL_S = 10.0
STALE_S = 25.0
WAYS = ["serve", "bypass", "flush"]


class Value(NamedTuple):
    """What is cached: a version of the truth, and when it got there."""

    version: int
    filled_at: float


class Read:
    """A read under way: what it asked for, and the version below which it must not answer."""

    def __init__(self, key: str, floor: int, task: asyncio.Task[Value]) -> None:
        self.key = key
        self.floor = floor
        self.task = task


class Walk(RuleBasedStateMachine):
    """The truth and its stream are lists; the cache is the real one."""

    @initialize(
        ttl_s=st.sampled_from([None, TTL_S]),
        on_stale=st.sampled_from(WAYS),
        is_bounded=st.booleans(),
    )
    def begin(self, ttl_s: float | None, on_stale: str, is_bounded: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock, self.truth = Clock(), Truth()
        self.on_stale = on_stale if is_bounded else "serve"
        self.cache = NearCache(
            async_loader=self.load,
            max_entries=MAX_ENTRIES,
            ttl_s=ttl_s,
            clock=self.clock,
            max_staleness_s=STALE_S if is_bounded else None,
            on_stale=on_stale,
        )
        self.ttl_s = ttl_s
        self.loads: list[asyncio.Future[Callable[[], None]]] = []
        self.reads: list[Read] = []
        self.told = 0
        self.stream: deque[tuple[int, str, int]] = deque()
        self.floors: Counter[str] = Counter()
        self.beats: list[tuple[int, float]] = []
        self.vouched_at = float("-inf")
        self.cache.gap(0)

    async def load(self, key: str) -> Value:
        # It reads at once and answers late: the worst case.
        version = self.truth.load(key)
        gate: asyncio.Future[Callable[[], None]] = self.loop.create_future()
        self.loads.append(gate)
        (await gate)()
        return Value(version, self.clock.now)

    def steps(self) -> None:
        for _ in range(6):
            self.loop.run_until_complete(asyncio.sleep(0))
        for read in [read for read in self.reads if read.task.done()]:
            self.reads.remove(read)
            if read.task.exception() is None:
                self.check_value(read.task.result(), read.floor)

    def check_value(self, value: Value, floor: int) -> None:
        assert value.version >= floor, "an old value was read"
        if self.ttl_s is not None:
            assert self.clock.now < value.filled_at + self.ttl_s, "a value was read that is too old"

    # ------------------------------------------------------------------ the world

    @rule(keys=SOME, delivered=st.integers(0, 4))
    def write(self, keys: list[str], delivered: int) -> None:
        for key in keys:
            self.told += 1
            self.stream.append((self.told, key, self.truth.write(key)))
        if delivered:
            self.deliver(delivered)

    @precondition(lambda self: self.stream)
    @rule(count=st.integers(1, 9))
    def deliver_late(self, count: int) -> None:
        self.deliver(count)

    def deliver(self, count: int) -> None:
        batch = [self.stream.popleft() for _ in range(min(count, len(self.stream)))]
        self.cache.invalidated(batch[-1][0], [key for _, key, _ in batch])
        for _, key, version in batch:
            self.floors[key] = version
        self.vouch()

    @rule(repeated=st.integers(1, 3))
    def deliver_again(self, repeated: int) -> None:
        position = self.cache.position or 0
        self.cache.invalidated(max(0, position - repeated), KEYS)
        assert self.cache.position == position

    @rule()
    def lose_the_stream(self) -> None:
        self.stream.clear()
        self.beats.clear()
        self.cache.gap(self.told)
        self.floors.update(self.truth.versions - self.floors)

    @rule(age_s=st.sampled_from([0.0, 3.0]))
    def beat(self, age_s: float) -> None:
        self.cache.alive(self.told, age_s)
        self.beats.append((self.told, self.clock.now - age_s))
        self.vouch()

    def vouch(self) -> None:
        reached = [as_of for seq, as_of in self.beats if seq <= (self.cache.position or 0)]
        self.vouched_at = max([self.vouched_at, *reached])

    @rule(seconds=st.sampled_from([1.0, 5.0, 20.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += seconds

    # ------------------------------------------------------------------ the application

    @rule(keys=SOME, landing=st.booleans())
    def read(self, keys: list[str], landing: bool) -> None:
        for key in keys:
            task = self.loop.create_task(self.cache.aget(key))
            self.reads.append(Read(key, self.floors[key], task))
            self.steps()
        while landing and self.loads:
            self.land(len(self.loads) - 1, _succeed)

    @precondition(lambda self: self.loads)
    @rule(which=st.integers(0, 9), fails=st.booleans())
    def land_late(self, which: int, fails: bool) -> None:
        self.land(which % len(self.loads), _fail if fails else _succeed)

    def land(self, which: int, outcome: Callable[[], None]) -> None:
        self.loads.pop(which).set_result(outcome)
        self.steps()

    @rule(key=st.sampled_from(KEYS))
    def put(self, key: str) -> None:
        self.cache.put(key, Value(self.truth.versions[key], self.clock.now))

    @rule(key=st.sampled_from(KEYS))
    def invalidate(self, key: str) -> None:
        self.cache.invalidate(key)
        self.floors[key] = self.truth.versions[key]

    @rule(prefix=st.sampled_from(["a/", ""]))
    def invalidate_prefix(self, prefix: str) -> None:
        self.cache.invalidate_prefix(prefix)
        for key in KEYS:
            if key.startswith(prefix):
                self.floors[key] = self.truth.versions[key]

    @precondition(lambda self: self.reads)
    @rule()
    def give_up_a_read(self) -> None:
        self.reads.pop(0).task.cancel()
        self.steps()

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def bounds_hold(self) -> None:
        if hasattr(self, "cache"):
            assert len(self.cache) <= MAX_ENTRIES
            self.cache.check()

    @invariant()
    def what_is_there_is_new_enough(self) -> None:
        for key in KEYS if hasattr(self, "cache") else ():
            value = self.cache.peek(key)
            assert (value is not None) == (key in self.cache)
            if value is not None:
                self.check_value(value, self.floors[key])

    @invariant()
    def nothing_is_served_that_nobody_vouches_for(self) -> None:
        if hasattr(self, "cache") and self.on_stale != "serve":
            is_cut = self.clock.now - self.vouched_at >= STALE_S
            assert not (is_cut and any(key in self.cache for key in KEYS))

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            while self.loads:
                self.loads.pop().set_result(_succeed)
                self.steps()
            self.loop.run_until_complete(asyncio.sleep(0))
            assert [read.key for read in self.reads] == [], "reads are left waiting"
            self.loop.close()


def _succeed() -> None:
    pass


def _fail() -> None:
    raise OSError("down")


Walk.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestWalk = Walk.TestCase


# Hypothesis finds short walks, and makes a failing one shorter. These are long ones, with a full cache and busy loads.


def stroll(walk: Walk, rng: random.Random) -> None:
    """Take one random step."""
    some = [rng.choice(KEYS) for _ in range(rng.randint(1, 4))]
    match rng.randrange(16):
        case 0 | 1 | 2:
            walk.write(some, rng.choice([0, 0, 1, 4]))
        case 3 | 4 | 5 | 6 | 7:
            walk.read(some, rng.random() < 0.4)
        case 8 | 9 if walk.loads:
            walk.land_late(rng.randrange(10), rng.random() < 0.2)
        case 10 if walk.stream:
            walk.deliver_late(rng.randint(1, 9))
        case 11:
            walk.beat(rng.choice([0.0, 3.0]))
        case 12:
            walk.let_time_pass(rng.choice([0.5, 1.0, 5.0, 5.0, 20.0]))
        case 13:
            rng.choice([walk.put, walk.invalidate])(some[0])
        case 14:
            walk.deliver_again(rng.randint(1, 3))
        case 15:
            rng.choice([walk.lose_the_stream, lambda: walk.invalidate_prefix("a/")])()
    if walk.reads and rng.random() < 0.02:
        walk.give_up_a_read()


@pytest.mark.parametrize("seed", range(40))
def test_long_walks(seed: int) -> None:
    rng = random.Random(seed)
    walk = Walk()
    walk.begin(rng.choice([None, TTL_S]), rng.choice(WAYS), rng.random() < 0.5)
    for _ in range(250):
        stroll(walk, rng)
        walk.bounds_hold()
        walk.what_is_there_is_new_enough()
        walk.nothing_is_served_that_nobody_vouches_for()
    counted = walk.cache.statistics()
    assert min(counted.hits, counted.misses, counted.evictions, counted.stale_fills_refused) > 0
    walk.teardown()
