"""Histories in memory: the conformance suite, a model, and the paper's figures."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.broadcast.columns import Lengths, constant
from sirius.broadcast.events import Event, EventBatch, Kind
from sirius.broadcast.history import MemoryHistory
from sirius.broadcast.history import memory as memory_module
from sirius.broadcast.history.keys import NOBODY, U64, Hashes, KeyHasher, KeyIndex, newest
from sirius.testing.broadcast.workload import bounded_keys, space_saved, unbounded_keys
from sirius.types import Seq
from tests.broadcast.histories import HistoryConformance, events_of, keyed, read_all
from tests.broadcast.strategies import KEYS, placed


class TestMemory(HistoryConformance):
    def make(self) -> MemoryHistory:
        return MemoryHistory(random.Random(1))


@st.composite
def runs(draw: st.DrawFn) -> list[list[Event]]:
    """Batches that follow each other, with holes."""
    found: list[list[Event]] = []
    first, time = 1, 0
    for _ in range(draw(st.integers(1, 6))):
        found.append(draw(placed(first, time)))
        first, time = found[-1][-1].seq + 1, found[-1][-1].time
    return found


@given(runs(), st.booleans())
def test_a_history_is_what_the_model_says(batches: list[list[Event]], packs: bool) -> None:
    rows_min, many = memory_module._PACK_ROWS_MIN, memory_module._MANY
    memory_module._PACK_ROWS_MIN = 1 if packs else rows_min  # type: ignore[misc]
    memory_module._MANY = 1 if packs else many  # type: ignore[misc]
    try:
        history = MemoryHistory(random.Random(3))
        TestMemory().compare(history, batches)
        history.check()
    finally:
        memory_module._PACK_ROWS_MIN = rows_min  # type: ignore[misc]
        memory_module._MANY = many  # type: ignore[misc]


def test_the_newest_of_a_batch_are_those_that_no_equal_one_follows() -> None:
    find = np.array([7, 1 << 60, 7, 7, 1 << 60, 9], np.uint64)
    check = np.array([1, 2, 1, 5, 2, 1], np.uint32)
    # The first three share a slot with the last: only who has the winner's hashes goes.
    assert newest(Hashes(find, check)).tolist() == [True, False, True, True, True, True]
    assert newest(Hashes(find[:3], check[:3])).tolist() == [False, True, True]
    assert newest(Hashes(find[2:4], check[2:4])).tolist() == [True, True]


def test_long_random_histories_are_what_a_dict_says() -> None:
    """Large batches, packing and a growing hash table: the last of each key, and nothing else."""
    rng = random.Random(5)
    history, first = MemoryHistory(random.Random(6)), 1
    last: dict[str, int] = {}
    for size in (1, 5000, 3, 20_000, 700, 20_000, 20_000):
        keys = [f"{rng.randrange(8000)}" for _ in range(size)]
        history.append(keyed(first, *keys))
        last.update(zip(keys, range(first, first + size), strict=True))
        first += size
        history.check()
    assert len(history) == len(last)
    found = {event.key.decode(): event.seq for event in events_of(read_all(history, 50_000))}
    assert found == last


def test_topics_that_nobody_has_any_more_are_forgotten() -> None:
    history = MemoryHistory()
    for number in range(3000):
        history.append(keyed(2 * number + 1, "a", topic=f"/t/{number}"))
        batch = EventBatch.of([b""], Kind.GC, payloads=[b"seq < 1_000_000"])
        history.append(batch.numbered(Seq(2 * number + 2), 0))
    assert len(history._topics) < 2000
    assert len(history) == 1


def test_publishers_are_bounded() -> None:
    history = MemoryHistory(publishers_max=2)
    for number in (1, 2, 3):
        history.append(EventBatch.of([b"a"]).numbered(Seq(number), 0, number, 1))
    assert [history.published(number) is None for number in (1, 2, 3)] == [True, False, False]


def test_gc_events_that_were_kept_are_counted() -> None:
    history = MemoryHistory()
    for number, text in enumerate((b"price > 5", b"price > 6"), start=1):
        batch = EventBatch.of([b""], Kind.GC, payloads=[text], attributes={"price": [9]})
        history.append(batch.numbered(Seq(number), 0))
    assert (len(history), history.unproven) == (2, 1)


# ---------------------------------------------------------------------- hashes


def hash_of(*keys: bytes, topic: int = 0) -> list[tuple[int, int]]:
    lengths = np.array([len(key) for key in keys], np.uint32)
    hashes = KeyHasher(random.Random(2)).hash(
        b"".join(keys), lengths, constant(topic, len(keys), np.uint64)
    )
    return list(zip(hashes.find.tolist(), hashes.check.tolist(), strict=True))


@given(st.lists(st.one_of(st.sampled_from(KEYS), st.binary(max_size=70)), min_size=1, unique=True))
def test_a_hash_does_not_depend_on_the_neighbours(keys: list[bytes]) -> None:
    """Keys of one width take another way than keys of many."""
    assert hash_of(*keys) == [hash_of(key)[0] for key in keys]
    assert len(set(hash_of(*keys))) == len(keys)


def test_a_hash_depends_on_the_topic() -> None:
    for key in (b"", b"a", b"k" * 65):
        assert hash_of(key, topic=1) != hash_of(key, topic=2)


def test_keys_that_share_a_slot_are_told_apart() -> None:
    index = KeyIndex()
    crowd = np.array(
        [5, 6, 5, 7, 6, 8], np.uint64
    )  # the upper bits, which choose the slot, are all 0
    before, now = index.replace(crowd, np.arange(6))
    assert before.tolist() == [NOBODY] * 6
    assert now.tolist() == [2, 4, 2, 3, 4, 5]
    assert index.replace(crowd[3:], np.arange(6, 9)).before.tolist() == [3, 4, 5]


def test_equal_hashes_of_different_keys_collect_nothing() -> None:
    """The second hash decides: whoever shares the first alone stays."""
    history = MemoryHistory()
    history.append(keyed(1, "a"))
    history._rows.checks[0] += 1
    history.append(keyed(2, "a"))
    assert [event.seq for event in events_of(read_all(history))] == [1, 2]


class _Colliding(KeyHasher):
    """Gives all keys of a batch the same first hash."""

    def hash(self, keys: bytes, lengths: Lengths, topic_hashes: U64) -> Hashes:
        count = len(lengths)
        return Hashes(np.full(count, 5, np.uint64), np.arange(count, dtype=np.uint32))


def test_equal_hashes_inside_a_batch_collect_nothing_either() -> None:
    history = MemoryHistory()
    history._hasher = _Colliding(random.Random(1))
    history.append(keyed(1, "a", "b"))
    assert [event.seq for event in events_of(read_all(history))] == [1, 2]


# ---------------------------------------------------------------------- the paper's figures


@pytest.mark.parametrize(("skew", "least"), [(1.1, 0.85), (1.5, 0.95)])
def test_key_gc_saves_85_percent_with_a_hundred_thousand_keys(skew: float, least: float) -> None:
    """Sprinkler, section 5.4 and Figure 10b: roughly 85 % with a skew of 1.1, and more with a higher one."""
    batches = bounded_keys(skew, 500_000, np.random.default_rng(7))
    assert least <= space_saved(batches) < 1


def test_key_gc_saves_about_three_quarters_in_the_unbounded_model() -> None:
    """Sprinkler, section 5.4 and Figure 10a: new keys come in for ever, so it takes more events to save as much."""
    batches = unbounded_keys(1.1, 2_000_000, np.random.default_rng(7))
    assert 0.65 <= space_saved(batches) <= 0.8
