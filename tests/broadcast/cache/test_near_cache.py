"""`NearCache` by itself: bounds, time, the stream, what it counts and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sirius.broadcast.cache import NearCache, NotCached
from sirius.broadcast.cache.entries import CHANCES_MAX
from sirius.errors import SiriusError, UsageError
from tests.broadcast.cache.fakes import Clock, Truth


def filled(count: int, **settings: Any) -> NearCache[int]:
    cache: NearCache[int] = NearCache(max_entries=count, **settings)
    for number in range(count):
        cache.put(f"k{number}", number)
    return cache


# ---------------------------------------------------------------------- reading and writing


def test_a_value_is_loaded_once() -> None:
    truth = Truth()
    cache = NearCache(truth.load)
    assert [cache.get("a"), cache.get("a"), cache.get("b")] == [0, 0, 0]
    assert truth.asked == ["a", "b"]
    assert "a" in cache
    assert "c" not in cache
    assert 7 not in cache
    assert len(cache) == 2


def test_none_is_a_value() -> None:
    asked: list[str] = []
    cache: NearCache[None] = NearCache(asked.append)
    assert [cache.get("a"), cache.get("a")] == [None, None]
    assert asked == ["a"]


def test_a_peek_neither_loads_nor_counts() -> None:
    truth = Truth()
    cache = NearCache(truth.load)
    cache.put("a", 5)
    assert cache.peek("a") == 5
    assert cache.peek("b") is None
    assert cache.peek("b", "nothing") == "nothing"
    assert truth.asked == []
    assert (cache.statistics().hits, cache.statistics().misses) == (0, 0)


def test_many_are_loaded_in_one_call() -> None:
    calls = []

    def load(keys: Any) -> dict[str, str]:
        calls.append(list(keys))
        return {key: key.upper() for key in keys if key != "unknown"}

    cache: NearCache[str] = NearCache(batch_loader=load)
    cache.put("a", "kept")
    found = cache.get_many(["a", "b", "c", "b", "unknown"])
    assert found == {"a": "kept", "b": "B", "c": "C"}
    assert calls == [["b", "c", "unknown"]]
    assert cache.get("d") == "D"
    with pytest.raises(NotCached, match="'unknown' is not known to the loader"):
        cache.get("unknown")
    assert cache.get_many([]) == {}


def test_many_are_loaded_one_by_one_if_that_is_all_there_is() -> None:
    truth = Truth()
    cache = NearCache(truth.load)
    assert cache.get_many(iter(["a", "b", "a"])) == {"a": 0, "b": 0}
    assert truth.asked == ["a", "b"]


def test_many_without_a_loader_are_those_that_are_there() -> None:
    cache: NearCache[int] = NearCache()
    cache.put("a", 1)
    assert cache.get_many(["a", "b"]) == {"a": 1}


def test_invalidated_keys_are_gone() -> None:
    truth = Truth()
    cache = NearCache(truth.load)
    cache.get_many(["a", "b", "c/1", "c/2", "d"])
    assert cache.invalidate("a") == 1
    assert cache.invalidate(["b", "x"]) == 1
    assert cache.invalidate(iter(())) == 0
    assert cache.invalidate_prefix("c/") == 2
    assert [key for key in ("a", "b", "c/1", "c/2", "d") if key in cache] == ["d"]
    assert cache.clear() == 1
    assert len(cache) == 0


# ---------------------------------------------------------------------- bounds


def test_what_was_not_asked_for_goes_first() -> None:
    cache = filled(3)
    cache.get("k0")
    cache.put("k3", 3)
    assert ["k0" in cache, "k1" in cache, "k2" in cache, "k3" in cache] == [True, False, True, True]


def test_a_second_chance_is_one_chance() -> None:
    cache = filled(2)
    cache.get("k0")
    cache.put("a", 1)
    cache.put("b", 1)
    assert "k0" not in cache


def test_a_new_entry_stays_when_all_others_were_asked_for() -> None:
    cache = filled(4)
    cache.get_many(["k0", "k1", "k2", "k3"])
    cache.put("new", 1)
    assert "new" in cache
    assert len(cache) == 4


def test_nobody_walks_along_the_whole_line() -> None:
    count = CHANCES_MAX * 3
    cache = filled(count)
    cache.get_many([f"k{number}" for number in range(count)])
    cache.put("new", 1)
    assert f"k{CHANCES_MAX}" not in cache
    assert "k0" in cache


def test_bytes_are_bounded() -> None:
    cache: NearCache[bytes] = NearCache(max_bytes=100)
    for number in range(10):
        assert cache.put(f"{number}", bytes(29))
        cache.check()
    assert len(cache) == 3
    assert cache.statistics().bytes == 90
    assert not cache.put("8", bytes(100))
    assert "8" not in cache, "the value before it is not the newest any more"
    assert len(cache) == 2
    assert cache.put("x", bytes(99))
    assert len(cache) == 1
    cache.check()
    cache.clear()
    assert cache.statistics().bytes == 0


def test_sizes_are_those_of_the_application() -> None:
    cache: NearCache[int] = NearCache(max_bytes=10, size_of=lambda value: value)
    assert cache.put("a", 9)
    assert not cache.put("a", 10)


# ---------------------------------------------------------------------- time


def test_an_entry_counts_for_its_time_to_live() -> None:
    clock, truth = Clock(), Truth()
    cache = NearCache(truth.load, ttl_s=10, clock=clock)
    cache.get("a")
    clock.now += 9.99
    cache.get("a")
    assert "a" in cache
    clock.now += 0.01
    assert "a" not in cache
    assert cache.peek("a") is None
    cache.get("a")
    assert truth.asked == ["a", "a"]


def test_an_entry_that_is_too_old_makes_room_when_it_is_found() -> None:
    clock = Clock()
    cache = filled(3, ttl_s=1, clock=clock)
    clock.now += 1
    with pytest.raises(NotCached):
        cache.get("k1")
    assert len(cache) == 2


def test_what_is_not_there_is_remembered_if_that_is_wanted() -> None:
    clock, asked = Clock(), []

    def load(key: str) -> int:
        asked.append(key)
        raise KeyError(key)

    cache: NearCache[int] = NearCache(load, negative_ttl_s=5, clock=clock)
    for _ in range(3):
        with pytest.raises(KeyError, match="a"):
            cache.get("a")
    assert asked == ["a"]
    assert "a" not in cache
    assert cache.peek("a", 3) == 3
    assert cache.get_many(["a"]) == {}
    clock.now += 5
    with pytest.raises(KeyError):
        cache.get("a")
    assert asked == ["a", "a"]
    cache.invalidate("a")
    with pytest.raises(KeyError):
        cache.get("a")
    assert asked == ["a", "a", "a"]


@pytest.mark.parametrize(("negative_ttl_s", "error"), [(None, KeyError("a")), (5, OSError("down"))])
def test_other_errors_are_not_remembered(negative_ttl_s: Any, error: Exception) -> None:
    asked = []

    def load(key: str) -> int:
        asked.append(key)
        raise error

    cache: NearCache[int] = NearCache(load, negative_ttl_s=negative_ttl_s)
    for _ in range(2):
        with pytest.raises(type(error)):
            cache.get("a")
    assert len(asked) == 2
    assert len(cache) == 0


# ---------------------------------------------------------------------- the stream


def test_a_stream_is_taken_in_order_and_once() -> None:
    cache = filled(4)
    cache.gap(7)
    assert (len(cache), cache.position) == (0, 7)
    cache.put("a", 1)
    cache.invalidated(7, ["a"])
    assert "a" in cache, "it came before"
    cache.invalidated(9, ("a", "b"))
    assert ("a" in cache, cache.position) == (False, 9)
    cache.gap(3)
    assert cache.position == 3, "a gap may lead to another log"


def test_a_beat_counts_when_everything_before_it_was_delivered() -> None:
    clock = Clock()
    cache: NearCache[int] = NearCache(clock=clock)
    assert cache.staleness() == math.inf
    cache.alive(5)
    assert cache.staleness() == math.inf, "nothing was delivered yet"
    cache.gap(3)
    cache.alive(3, age_s=2)
    assert cache.staleness() == 2
    clock.now += 1
    cache.alive(6)
    assert cache.staleness() == 3
    clock.now += 1
    cache.invalidated(5, ())
    assert cache.staleness() == 4
    cache.invalidated(6, ())
    assert cache.staleness() == 1, "as of when the beat was heard"


def test_a_stream_that_never_rests_vouches_all_the_same() -> None:
    clock = Clock()
    cache: NearCache[int] = NearCache(clock=clock)
    cache.gap(0)
    for seq in range(1, 50):
        clock.now += 1
        cache.alive(seq + 3)
        cache.invalidated(seq, ())
    assert cache.staleness() <= 6


def test_an_older_beat_does_not_make_it_older() -> None:
    clock = Clock()
    cache: NearCache[int] = NearCache(clock=clock)
    cache.gap(1)
    cache.alive(1)
    cache.alive(1, age_s=50)
    assert cache.staleness() == 0


def test_a_beat_that_is_reached_ends_the_bypass() -> None:
    clock, truth = Clock(), Truth()
    cache = NearCache(truth.load, clock=clock, max_staleness_s=10)
    cache.gap(1)
    cache.alive(2)
    cache.get("a")
    cache.get("a")
    cache.invalidated(2, ())
    cache.get("a")
    assert truth.asked == ["a", "a"]


def cut_off(on_stale: str) -> tuple[NearCache[int], Clock, Truth]:
    """A cache with one entry whose stream said its last word ten seconds ago, which is its limit."""
    clock, truth = Clock(), Truth()
    cache = NearCache(truth.load, clock=clock, max_staleness_s=10, on_stale=on_stale)
    cache.gap(1)
    cache.alive(1)
    cache.get("a")
    clock.now += 9.99
    cache.get("a")
    assert truth.asked == ["a"]
    clock.now += 0.01
    return cache, clock, truth


def test_a_cut_stream_is_bypassed() -> None:
    cache, _, truth = cut_off("bypass")
    truth.write("a")
    assert "a" not in cache
    assert [cache.get("a"), cache.get("a")] == [1, 1]
    assert truth.asked == ["a"] * 3
    assert cache.statistics().bypasses == 2
    cache.alive(1)
    assert cache.get("a") == 1
    assert truth.asked == ["a"] * 3, "what was loaded meanwhile counts when the stream is back"
    cache.invalidated(2, ["a"])
    assert "a" not in cache


def test_a_cut_stream_empties_the_cache_if_that_is_wanted() -> None:
    cache, _, truth = cut_off("flush")
    assert [cache.get("a"), cache.get("b")] == [0, 0]
    assert len(cache) == 0
    assert not cache.put("c", 1)
    cache.alive(1)
    cache.get("a")
    cache.get("a")
    assert truth.asked == ["a", "a", "b", "a"]


def test_a_cut_stream_changes_nothing_if_that_is_wanted() -> None:
    cache, clock, truth = cut_off("serve")
    clock.now += 1000
    cache.get("a")
    assert truth.asked == ["a"]
    assert cache.staleness() == 1010


def test_a_stream_that_never_began_is_a_cut_one() -> None:
    truth = Truth()
    cache = NearCache(truth.load, max_staleness_s=1000)
    cache.get("a")
    cache.get("a")
    assert truth.asked == ["a", "a"]


# ---------------------------------------------------------------------- counting


def test_it_counts() -> None:
    clock = Clock()

    def load(key: str) -> str:
        clock.now += 0.5
        if key == "bad":
            raise OSError("down")
        return key

    cache = NearCache(load, max_entries=2, clock=clock, name="films")
    for key in ("a", "a", "a", "b", "c"):
        cache.get(key)
    with pytest.raises(OSError, match="down"):
        cache.get("bad")
    cache.invalidate(["b", "c", "x"])
    cache.get("a")
    cache.gap(4)
    counted = cache.statistics()
    assert (counted.name, counted.entries) == ("films", 0)
    assert (counted.hits, counted.misses, counted.loads, counted.load_errors) == (3, 4, 4, 1)
    assert counted.load_s == 2.0
    assert (counted.invalidations, counted.dropped, counted.gaps) == (3, 2, 1)
    assert (counted.evictions, counted.stale_fills_refused) == (1, 0)
    assert counted.hit_rate == pytest.approx(3 / 7)
    assert NearCache().statistics().hit_rate == 0.0
    assert repr(cache) == "<NearCache 'films': 0 entries>"


def test_hits_are_counted_over_second_chances_and_removals() -> None:
    cache = filled(2)
    for _ in range(3):
        cache.get("k0")
    cache.put("a", 1)
    cache.get("k0")
    cache.invalidate("k0")
    assert cache.statistics().hits == 4


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_entries": 0}, "max_entries is a whole number above 0, not 0"),
        ({"max_entries": -1}, "max_entries"),
        ({"max_entries": 1.5}, "max_entries"),
        ({"max_entries": True}, "max_entries"),
        ({"max_entries": None}, "max_entries"),
        ({"max_bytes": 0}, "max_bytes is a whole number above 0, not 0"),
        ({"ttl_s": 0}, "ttl_s is a number of seconds above 0, not 0"),
        ({"ttl_s": math.nan}, "ttl_s"),
        ({"ttl_s": "5"}, "ttl_s"),
        ({"negative_ttl_s": -1}, "negative_ttl_s"),
        ({"max_staleness_s": 0}, "max_staleness_s"),
        ({"on_stale": "panic"}, "on_stale is one of serve, bypass, flush, not 'panic'"),
        ({"loader": 5}, "loader is a function, not int"),
        ({"batch_loader": "x"}, "batch_loader is a function, not str"),
        ({"async_loader": "x"}, "async_loader is a function, not str"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        NearCache(**settings)


@pytest.mark.parametrize("key", [b"a", 5, None, ["a"], ("a",)])
def test_a_key_is_a_text(key: Any) -> None:
    cache = NearCache(Truth().load)
    asking = (
        cache.get,
        cache.peek,
        cache.invalidate_prefix,
        lambda key: cache.put(key, 1),
        lambda key: cache.get_many([key]),
        lambda key: cache.invalidate([key]),
        lambda key: cache.invalidated(1, [key]),
    )
    for ask in asking:
        with pytest.raises(UsageError, match=f"is a str, not {type(key).__name__}"):
            ask(key)
    assert len(cache) == 0
    assert cache.position is None


def test_a_text_is_not_many_keys() -> None:
    cache: NearCache[int] = NearCache()
    with pytest.raises(UsageError, match="many keys are wanted, not one str"):
        cache.get_many("abc")
    with pytest.raises(UsageError, match="many keys are wanted, not one bytes"):
        cache.invalidate(b"abc")  # type: ignore[arg-type]


def test_a_subclass_of_str_is_a_text() -> None:
    class Name(str):
        pass

    cache: NearCache[int] = NearCache()
    cache.put(Name("a"), 1)
    assert cache.invalidate([Name("a")]) == 1


def test_a_miss_without_a_loader_is_a_key_error_that_can_be_read() -> None:
    cache: NearCache[int] = NearCache()
    with pytest.raises(KeyError) as caught:
        cache.get("title/casablanca")
    assert str(caught.value) == "'title/casablanca' is not cached, and there is no loader"
    assert isinstance(caught.value, SiriusError)
    assert cache.statistics().misses == 1
