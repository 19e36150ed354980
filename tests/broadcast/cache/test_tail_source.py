"""Following remote nodes that are fakes: holes, floors, nodes that hang, that are lost, that are of another cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from sirius.broadcast.cache import tail
from sirius.broadcast.cache.tail import TailSource
from sirius.errors import RangeUnavailable, Unreachable, UsageError
from sirius.wal.batch import Batch
from sirius.wal.block import Block, encode
from sirius.wal.record import Op, Update
from tests.broadcast.cache.fakes import PATIENCE_S, Recorder


def block(first: int, *keys: str, without: int | None = None) -> Block:
    """Puts of these keys from `first` on; the one numbered `without` is a hole."""
    whole = encode(first, [Update(Op.PUT, key.encode(), b"v") for key in keys], 0)
    if without is None:
        return whole
    batch = Batch.of(whole)
    return batch.where(batch.seq != np.uint64(without)).block()


class Node:
    """A node as its clients see it."""

    def __init__(self, *blocks: Block, applied: int = 0, **status: Any) -> None:
        self.blocks = list(blocks)
        self.answers = {
            "applied": applied,
            "cluster": "c1",
            "staleness_s": 0.5,
            "tombstone_floor": 0,
            **status,
        }
        self.asked: list[int] = []
        self.errors: list[Exception] = []
        self.is_hanging = False
        self.connections: list[Connection] = []
        self.before_status: Callable[[], None] = lambda: None

    def connect(self) -> Connection:
        self.connections.append(Connection(self))
        return self.connections[-1]


class Connection:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.closed = threading.Event()

    def tail(self, first: int = 1, follow: bool = False) -> Iterator[Block]:
        self._node.asked.append(first)
        if self._node.errors:
            raise self._node.errors.pop()
        yield from [each for each in self._node.blocks if each.first >= first]
        assert self.closed.wait(PATIENCE_S)
        raise Unreachable("the client was closed")

    def status(self) -> dict[str, Any]:
        self._node.before_status()
        if self._node.is_hanging:
            raise Unreachable("no answer")
        return dict(self._node.answers)

    def close(self) -> None:
        self.closed.set()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_RETRY_S", 0.001)


@pytest.fixture
def follow() -> Iterator[Callable[..., tuple[Recorder, TailSource]]]:
    sources: list[TailSource] = []

    def start(*nodes: Node, after: int | None = 0) -> tuple[Recorder, TailSource]:
        by_name = {f"n{number}": node for number, node in enumerate(nodes)}
        sink = Recorder()
        source = TailSource(list(by_name), connect=lambda name: by_name[name].connect())
        sources.append(source)
        source.start(sink, after)
        return sink, source

    yield start
    for source in sources:
        source.close()


Follow = Callable[..., tuple[Recorder, TailSource]]


def test_blocks_are_told_with_their_last_number(follow: Follow) -> None:
    sink, _ = follow(Node(block(1, "a", "b"), block(3, "c")))
    sink.until(lambda: sink.position == 3)
    assert sink.told == [("invalidated", 2), ("invalidated", 3)]
    assert sink.keys == ["a", "b", "c"]


def test_control_entries_move_the_position_and_are_no_keys(follow: Follow) -> None:
    sink, _ = follow(Node(encode(1, [Update(Op.NOOP, b"")], 0)))
    sink.until(lambda: sink.position == 1)
    assert sink.keys == []


def test_a_hole_above_the_floor_was_replaced_by_what_comes(follow: Follow) -> None:
    sink, _ = follow(Node(block(1, "a", "b", "a", without=1), tombstone_floor=0))
    sink.until(lambda: sink.position == 3)
    assert sink.told == [("invalidated", 3)]


@pytest.mark.parametrize(("floor", "told"), [(1, "invalidated"), (2, "gap"), (9, "gap")])
def test_a_hole_at_or_below_the_floor_may_have_been_a_delete(
    floor: int, told: str, follow: Follow
) -> None:
    node = Node(block(1, "a", "b", "c", without=2), block(4, "d"), tombstone_floor=floor)
    sink, _ = follow(node)
    sink.until(lambda: sink.position == 4)
    assert sink.told == [(told, 3), ("invalidated", 4)]


def test_a_block_that_does_not_follow_is_a_gap(follow: Follow) -> None:
    sink, _ = follow(Node(block(1, "a"), block(5, "b")))
    sink.until(lambda: sink.position == 5)
    assert sink.told == [("invalidated", 1), ("gap", 5)]


def test_a_range_that_the_node_does_not_have_is_a_gap(follow: Follow) -> None:
    node = Node(block(8, "x"), applied=7)
    node.errors = [RangeUnavailable(4, 4, "it is damaged")]
    sink, _ = follow(node, after=3)
    sink.until(lambda: sink.position == 8)
    assert sink.told == [("gap", 7), ("invalidated", 8)]
    assert node.asked == [4, 8]


def test_another_node_goes_on_where_one_was_lost(follow: Follow) -> None:
    first, second = Node(block(1, "a")), Node(block(1, "a"), block(2, "b"))
    sink, source = follow(first, second)
    sink.until(lambda: sink.position == 1)
    first.is_hanging = True
    with pytest.raises(Unreachable):
        source.beat()
    sink.until(lambda: sink.position == 2)
    assert sink.keys == ["a", "b"]
    assert second.asked == [2]


def test_a_node_that_was_cut_off_is_left(follow: Follow) -> None:
    first, second = Node(block(1, "a"), staleness_s=60.0), Node(block(2, "b"))
    sink, source = follow(first, second)
    sink.until(lambda: sink.position == 1)
    source.beat()
    sink.until(lambda: sink.position == 2)
    assert sink.ages[0] >= 60


def test_a_lone_node_that_was_cut_off_is_kept(follow: Follow) -> None:
    node = Node(block(1, "a"), staleness_s=60.0)
    sink, source = follow(node)
    sink.until(lambda: sink.position == 1)
    source.beat()
    assert [each.closed.is_set() for each in node.connections] == [False]


def test_a_beat_has_the_position_and_age_of_the_node(follow: Follow) -> None:
    sink, source = follow(Node(block(1, "a"), applied=17))
    sink.until(lambda: sink.position == 1)
    source.beat()
    assert sink.told[-1] == ("alive", 17)
    assert 0.5 <= sink.ages[-1] < 0.5 + PATIENCE_S


def test_a_beat_that_comes_back_after_the_end_is_not_told(follow: Follow) -> None:
    node = Node(block(1, "a"))
    sink, source = follow(node)
    sink.until(lambda: sink.position == 1)
    node.before_status = source.close
    source.beat()
    assert sink.seqs("alive") == []


def test_a_node_that_does_not_know_how_fresh_it_is_does_not_vouch(follow: Follow) -> None:
    sink, source = follow(Node(block(1, "a"), staleness_s=None))
    sink.until(lambda: sink.position == 1)
    source.beat()
    assert sink.seqs("alive") == []


def test_the_log_of_another_cluster_is_a_gap(follow: Follow) -> None:
    first = Node(block(1, "a"), block(2, "b"))
    second = Node(block(2, "z"), applied=1, cluster="c2")
    sink, source = follow(first, second)
    sink.until(lambda: sink.position == 2)
    first.is_hanging = True
    with pytest.raises(Unreachable):
        source.beat()
    sink.until(lambda: sink.told[-2:] == [("gap", 1), ("invalidated", 2)])


def test_a_node_that_knows_no_cluster_yet_is_not_another_one(follow: Follow) -> None:
    first, second = Node(block(1, "a")), Node(block(2, "b"), cluster="0000000000000000")
    sink, source = follow(first, second)
    sink.until(lambda: sink.position == 1)
    first.is_hanging = True
    with pytest.raises(Unreachable):
        source.beat()
    sink.until(lambda: sink.position == 2)
    assert sink.seqs("gap") == []


@pytest.mark.parametrize("addresses", [[], "host:1"])
def test_addresses_are_a_list(addresses: Any) -> None:
    with pytest.raises(UsageError, match="a list of addresses"):
        TailSource(addresses)


def test_a_source_that_reaches_nobody_can_be_closed() -> None:
    with TailSource(["127.0.0.1:1"], timeout_s=0.2) as source:
        source.start(Recorder(), None)
        with suppress(Unreachable):
            source.beat()
