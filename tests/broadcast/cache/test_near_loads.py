"""Loads: one a key whoever asks, on threads and event loops; and none that an invalidation has overtaken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from sirius.broadcast.cache import NearCache
from sirius.broadcast.cache.entries import Entry
from sirius.broadcast.cache.flights import Boarded
from sirius.broadcast.cache.settings import Settings
from sirius.broadcast.cache.shelf import Shelf
from sirius.errors import UsageError
from tests.broadcast.cache.fakes import PATIENCE_S, Clock, Truth

T = TypeVar("T")


class Slow:
    """A loader that has read its value and is told when to return it."""

    def __init__(self, truth: Truth | None = None) -> None:
        self.truth = truth or Truth()
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.error: BaseException | None = None

    def load(self, key: str) -> int:
        value = self.truth.load(key)
        self.begun.release()
        assert self.go_on.acquire(timeout=PATIENCE_S)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return value

    def wait(self) -> None:
        assert self.begun.acquire(timeout=PATIENCE_S)


class Threads:
    """A thread a call. One that hangs fails its test by a time-out, and keeps nobody from going on."""

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(call(*arguments))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future


@pytest.fixture
def pool() -> Threads:
    return Threads()


def waiting(cache: NearCache[Any], count: int) -> None:
    """Wait until so many reads have missed: then they wait for a load."""
    for _ in range(int(1000 * PATIENCE_S)):
        if cache.statistics().misses >= count:
            return
        threading.Event().wait(0.001)
    raise AssertionError(f"{cache.statistics().misses} of {count} reads wait")


def ends(future: Future[T]) -> T:
    return future.result(PATIENCE_S)


def run(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await test()

    return asyncio.run(bounded())


async def steps(count: int = 5) -> None:
    """Let the others go on."""
    for _ in range(count):
        await asyncio.sleep(0)


# ---------------------------------------------------------------------- one load


def test_threads_wait_for_one_load(pool: Threads) -> None:
    slow = Slow()
    cache = NearCache(slow.load)
    reads = [pool.submit(cache.get, "a") for _ in range(8)]
    waiting(cache, 8)
    slow.go_on.release()
    assert [ends(read) for read in reads] == [0] * 8
    assert slow.truth.asked == ["a"]
    assert cache.statistics().loads == 1


def test_everybody_who_waited_is_told_of_an_error_and_the_next_one_loads(
    pool: Threads,
) -> None:
    slow = Slow()
    slow.error = OSError("down")
    cache = NearCache(slow.load)
    reads = [pool.submit(cache.get, "a") for _ in range(4)]
    waiting(cache, 4)
    slow.go_on.release(2)
    for read in reads:
        with pytest.raises(OSError, match="down"):
            ends(read)
    assert cache.get("a") == 0
    assert slow.truth.asked == ["a", "a"]


def test_an_interrupt_is_for_the_thread_that_loads_alone(pool: Threads) -> None:
    slow = Slow()
    slow.error = KeyboardInterrupt()
    cache = NearCache(slow.load)
    first = pool.submit(cache.get, "a")
    slow.wait()
    second = pool.submit(cache.get, "a")
    waiting(cache, 2)
    slow.go_on.release(2)
    with pytest.raises(KeyboardInterrupt):
        ends(first)
    assert ends(second) == 0


def test_an_interrupt_in_the_middle_of_many_leaves_nobody_waiting(
    pool: Threads,
) -> None:
    slow = Slow()
    slow.error = KeyboardInterrupt()
    cache = NearCache(slow.load)
    many = pool.submit(cache.get_many, ["a", "b"])
    slow.wait()
    other = pool.submit(cache.get, "b")
    waiting(cache, 3)
    slow.go_on.release(2)
    with pytest.raises(KeyboardInterrupt):
        ends(many)
    assert ends(other) == 0


def test_many_wait_for_the_loads_of_others_and_load_the_rest(pool: Threads) -> None:
    slow, batches = Slow(), []

    def load(keys: Collection[str]) -> dict[str, int]:
        batches.append(list(keys))
        return {key: slow.load(key) for key in keys}

    cache = NearCache(batch_loader=load)
    one = pool.submit(cache.get, "a")
    slow.wait()
    many = pool.submit(cache.get_many, ["a", "b"])
    slow.wait()
    slow.go_on.release(2)
    assert ends(one) == 0
    assert ends(many) == {"a": 0, "b": 0}
    assert batches == [["a"], ["b"]]


def test_a_batch_that_fails_fails_all_of_it(pool: Threads) -> None:
    def load(keys: Collection[str]) -> dict[str, int]:
        raise OSError("down")

    cache = NearCache(batch_loader=load)
    with pytest.raises(OSError, match="down"):
        cache.get_many(["a", "b"])
    assert cache.statistics().load_errors == 2


def test_a_loader_may_ask_for_other_keys_but_not_for_its_own(pool: Threads) -> None:
    def load(key: str) -> str:
        return "leaf" if key == "b" else cache.get({"a": "b", "c": "c"}[key])

    cache: NearCache[str] = NearCache(load)
    assert cache.get("a") == "leaf"
    with pytest.raises(UsageError, match="'c' is being loaded by this very thread"):
        ends(pool.submit(cache.get, "c"))


def test_a_size_that_cannot_be_told_is_an_error_of_the_load() -> None:
    cache: NearCache[int] = NearCache(lambda _: 5, max_bytes=10, size_of=len)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(TypeError):
            cache.get("a")


def test_who_boards_after_a_load_has_landed_does_not_load_again() -> None:
    shelf: Shelf[int] = Shelf(Settings(), Clock())
    assert shelf.look("a") is None, "so it goes on to board; meanwhile somebody else is quicker"
    boarded = shelf.board("a")
    assert isinstance(boarded, Boarded)
    shelf.land(boarded.flight, shelf.entry_of("a", 5), 0.0)
    found = shelf.board("a")
    assert isinstance(found, Entry)
    assert found.result() == 5


# ---------------------------------------------------------------------- no stale fill


def overtake_by_key(cache: NearCache[int]) -> None:
    cache.invalidate("a")


def overtake_by_prefix(cache: NearCache[int]) -> None:
    cache.invalidate_prefix("a")


def overtake_by_clear(cache: NearCache[int]) -> None:
    cache.clear()


def overtake_by_stream(cache: NearCache[int]) -> None:
    cache.invalidated(1, ["a"])


def overtake_by_gap(cache: NearCache[int]) -> None:
    cache.gap(1)


WAYS = [
    overtake_by_key,
    overtake_by_prefix,
    overtake_by_clear,
    overtake_by_stream,
    overtake_by_gap,
]


@pytest.mark.parametrize("overtake", WAYS)
def test_a_load_that_was_overtaken_fills_nothing_and_is_for_nobody_who_comes_later(
    overtake: Callable[[NearCache[int]], None], pool: Threads
) -> None:
    slow = Slow()
    cache = NearCache(slow.load)
    before = pool.submit(cache.get, "a")
    slow.wait()
    slow.truth.write("a")
    overtake(cache)
    after = pool.submit(cache.get, "a")
    slow.wait()
    slow.go_on.release(2)
    assert ends(before) == 0, "it asked before the invalidation"
    assert ends(after) == 1
    assert cache.get("a") == 1
    assert slow.truth.asked == ["a", "a"]
    assert cache.statistics().stale_fills_refused == 1


def test_a_load_that_lands_after_a_newer_one_does_not_replace_it() -> None:
    async def test() -> None:
        truth, gates = Truth(), [asyncio.Event(), asyncio.Event()]

        async def load(key: str) -> int:
            value, gate = truth.load(key), gates[len(truth.asked) - 1]
            await gate.wait()
            return value

        cache = NearCache(async_loader=load)
        old = asyncio.create_task(cache.aget("a"))
        await steps()
        truth.write("a")
        cache.invalidate("a")
        new = asyncio.create_task(cache.aget("a"))
        await steps()
        gates[1].set()
        assert await new == 1
        gates[0].set()
        assert await old == 0
        assert cache.peek("a") == 1

    run(test)


def test_other_keys_do_not_disturb_a_load(pool: Threads) -> None:
    slow = Slow()
    cache = NearCache(slow.load)
    read = pool.submit(cache.get, "a")
    slow.wait()
    cache.invalidated(1, ["b"])
    cache.invalidate_prefix("ab")
    slow.go_on.release()
    assert ends(read) == 0
    assert "a" in cache


def test_a_put_is_newer_than_a_load_under_way(pool: Threads) -> None:
    slow = Slow()
    cache = NearCache(slow.load)
    read = pool.submit(cache.get, "a")
    slow.wait()
    cache.put("a", 77)
    slow.go_on.release()
    assert ends(read) == 0
    assert cache.get("a") == 77


def test_a_failure_that_was_overtaken_is_not_remembered(pool: Threads) -> None:
    slow = Slow()
    slow.error = KeyError("a")
    cache = NearCache(slow.load, negative_ttl_s=1000)
    read = pool.submit(cache.get, "a")
    slow.wait()
    cache.invalidate("a")
    slow.go_on.release(2)
    with pytest.raises(KeyError):
        ends(read)
    assert cache.get("a") == 0


# ---------------------------------------------------------------------- asyncio


def test_tasks_and_threads_wait_for_one_load() -> None:
    async def test() -> None:
        slow = Slow()
        cache = NearCache(slow.load)
        tasks = [asyncio.create_task(cache.aget("a")) for _ in range(4)]
        threads = [asyncio.create_task(asyncio.to_thread(cache.get, "a")) for _ in range(4)]
        await asyncio.to_thread(waiting, cache, 8)
        slow.go_on.release()
        assert await asyncio.gather(*tasks, *threads) == [0] * 8
        assert slow.truth.asked == ["a"]
        assert await cache.aget("a") == 0

    run(test)


def test_an_async_loader_serves_tasks_and_the_threads_that_wait_with_them() -> None:
    async def test() -> None:
        gate, asked = asyncio.Event(), []

        async def load(key: str) -> str:
            asked.append(key)
            await gate.wait()
            return key.upper()

        cache = NearCache(async_loader=load)
        tasks = [asyncio.create_task(cache.aget("a")) for _ in range(3)]
        await steps()
        thread = asyncio.create_task(asyncio.to_thread(cache.get, "a"))
        await asyncio.to_thread(waiting, cache, 4)
        gate.set()
        assert await asyncio.gather(*tasks, thread) == ["A"] * 4
        assert asked == ["a"]

    run(test)


def test_cancelling_one_who_waits_cancels_nobody_else() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def load(key: str) -> str:
            await gate.wait()
            return key

        cache = NearCache(async_loader=load)
        first, second = (asyncio.create_task(cache.aget("a")) for _ in range(2))
        await steps()
        first.cancel()
        await steps()
        gate.set()
        assert await second == "a"
        assert first.cancelled()

    run(test)


def test_an_async_loader_may_fail() -> None:
    async def test() -> None:
        async def load(key: str) -> str:
            raise OSError("down")

        cache = NearCache(async_loader=load)
        for _ in range(2):
            with pytest.raises(OSError, match="down"):
                await cache.aget("a")
        assert cache.statistics().loads == 2

    run(test)


def test_a_load_that_ends_with_its_event_loop_is_begun_again(pool: Threads) -> None:
    async def load(key: str) -> str:
        if not asked:
            asked.append(key)
            begun.set()
            await asyncio.Event().wait()
        return key

    async def leave() -> None:
        task = asyncio.create_task(cache.aget("a"))
        while not begun.is_set():
            await asyncio.sleep(0)
        other = pool.submit(asyncio.run, cache.aget("a"))
        others.append(other)
        await asyncio.to_thread(waiting, cache, 2)
        task.cancel()

    asked: list[str] = []
    others: list[Future[str]] = []
    begun = threading.Event()
    cache = NearCache(async_loader=load)
    asyncio.run(leave())
    assert ends(others[0]) == "a"


def test_a_load_on_an_event_loop_that_was_dropped_is_begun_again() -> None:
    hung = asyncio.new_event_loop()

    async def load(key: str) -> str:
        if asyncio.get_running_loop() is hung:
            await asyncio.Event().wait()
        return key

    cache = NearCache(async_loader=load)
    task = hung.create_task(cache.aget("a"))
    for _ in range(5):
        hung.run_until_complete(asyncio.sleep(0))
    tasks = asyncio.all_tasks(hung)
    hung.close()
    assert run(lambda: cache.aget("a")) == "a"
    for left in (task, *tasks):
        left._log_destroy_pending = False  # type: ignore[attr-defined]


def test_an_async_loader_that_asks_for_its_own_key_is_told() -> None:
    async def test() -> None:
        async def load(key: str) -> str:
            return await cache.aget(key)

        cache: NearCache[str] = NearCache(async_loader=load)
        with pytest.raises(UsageError, match="asks for its own key"):
            await cache.aget("a")

    run(test)


def test_waiting_on_the_thread_of_the_event_loop_that_loads_is_refused() -> None:
    async def test() -> None:
        gate = asyncio.Event()

        async def load(key: str) -> str:
            await gate.wait()
            return key

        cache = NearCache(async_loader=load)
        task = asyncio.create_task(cache.aget("a"))
        await steps()
        with pytest.raises(UsageError, match="it is `await cache"):
            cache.get("a")
        gate.set()
        assert await task == "a"
        assert cache.get("a") == "a"

    run(test)


def test_async_reads_hit_and_miss_by_time_as_others_do() -> None:
    async def test() -> None:
        truth = Truth()
        cache = NearCache(truth.load, ttl_s=1000)
        assert [await cache.aget("a"), await cache.aget("a")] == [0, 0]
        assert truth.asked == ["a"]
        with pytest.raises(UsageError, match="a key is a str"):
            await cache.aget(b"a")  # type: ignore[arg-type]

    run(test)


def test_an_async_loader_alone_is_not_for_threads() -> None:
    async def load(key: str) -> str:
        return key

    cache = NearCache(async_loader=load)
    with pytest.raises(UsageError, match="only an async_loader is given: use aget"):
        cache.get("a")
    with pytest.raises(UsageError, match="loader is a coroutine function"):
        NearCache(load)


def test_a_loader_that_returns_a_coroutine_is_told() -> None:
    async def load(key: str, also: int) -> str:
        return key * also

    cache: NearCache[Any] = NearCache(lambda key: load(key, 5))
    with pytest.raises(UsageError, match="hand it in as async_loader"):
        cache.get("a")
