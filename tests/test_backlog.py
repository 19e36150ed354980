"""The queue in front of the handler: bounded, complete, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.backlog import Backlog
from sirius.errors import InvariantViolation
from sirius.types import Seq
from sirius.wal import Block, Op, Update, encode


class Shelf:
    """A log in memory."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.reads = 0

    @property
    def end(self) -> int:
        return self.blocks[-1].last if self.blocks else 0

    def grow(self, count: int) -> Block:
        block = encode(self.end + 1, [Update(Op.PUT, b"k", bytes(50))] * count, 0)
        self.blocks.append(block)
        return block

    def read(self, first: int, last: int) -> list[Block]:
        self.reads += 1
        return [
            block.cut(max(block.first, first), min(block.last, last))
            for block in self.blocks
            if block.first <= last and block.last >= first
        ]


def drained(backlog: Backlog) -> list[tuple[int, int]]:
    spans = []
    while blocks := backlog.take():
        spans += [(block.first, block.last) for block in blocks]
    return [(int(first), int(last)) for first, last in spans]


def test_what_fits_is_handed_over_without_reading_the_log() -> None:
    shelf = Shelf()
    backlog = Backlog(Seq(0), shelf.read)
    for count in (3, 1, 5):
        backlog.push(shelf.grow(count))
    assert drained(backlog) == [(1, 3), (4, 4), (5, 9)]
    assert shelf.reads == 0
    assert backlog.bytes == 0


def test_what_does_not_fit_is_read_from_the_log_in_its_turn() -> None:
    shelf = Shelf()
    size = len(Shelf().grow(1))
    backlog = Backlog(Seq(0), shelf.read, bytes_max=2 * size)
    for _ in range(5):
        backlog.push(shelf.grow(1))
        assert backlog.bytes <= 2 * size
    assert drained(backlog) == [(at, at) for at in range(1, 6)]
    assert shelf.reads == 1


def test_after_a_gap_memory_is_used_again_once_the_handler_has_caught_up() -> None:
    shelf = Shelf()
    backlog = Backlog(Seq(0), shelf.read, bytes_max=len(Shelf().grow(1)))
    backlog.push(shelf.grow(1))
    backlog.push(shelf.grow(1))
    drained(backlog)
    reads = shelf.reads
    backlog.push(shelf.grow(1))
    assert drained(backlog) == [(3, 3)]
    assert shelf.reads == reads


def test_a_late_handler_makes_callers_wait() -> None:
    shelf = Shelf()
    backlog = Backlog(Seq(0), shelf.read, behind_max=3)
    backlog.push(shelf.grow(3))
    assert not backlog.is_behind
    backlog.push(shelf.grow(1))
    assert backlog.is_behind
    backlog.take()
    assert not backlog.is_behind


def test_a_log_that_cannot_be_read_loses_nothing() -> None:
    shelf = Shelf()

    def fail(first: int, last: int) -> list[Block]:
        raise OSError(5, "broken")

    backlog = Backlog(Seq(0), fail, bytes_max=0)
    backlog.push(shelf.grow(2))
    with pytest.raises(OSError, match="broken"):
        backlog.take()
    assert (backlog.taken, backlog.waiting) == (0, 2)


def test_a_block_that_does_not_follow_is_refused() -> None:
    with pytest.raises(InvariantViolation, match="block 3 does not follow 0"):
        Backlog(Seq(0), lambda _first, _last: []).push(encode(3, [Update(Op.PUT, b"k")], 0))


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(0, 2000))
def test_every_slot_comes_once_and_in_order_within_the_bound(steps: list[int], bound: int) -> None:
    """A step of 0 takes, any other pushes a block of so many."""
    shelf = Shelf()
    backlog = Backlog(Seq(0), shelf.read, bytes_max=bound)
    taken: list[int] = []
    for step in steps:
        if step:
            backlog.push(shelf.grow(step))
        else:
            taken += [seq for block in backlog.take() for seq in range(block.first, block.last + 1)]
        assert backlog.bytes <= bound
        assert backlog.waiting == shelf.end - len(taken)
    for first, last in drained(backlog):
        taken += range(first, last + 1)
    assert taken == list(range(1, shelf.end + 1))
