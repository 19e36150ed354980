"""Batches: columns that cover a range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.broadcast.events import Event, EventBatch, Hole, Kind, hole, holes, joined
from sirius.broadcast.limits import Limits, fault
from sirius.broadcast.wire import decode, encode
from sirius.errors import InvariantViolation, UsageError
from sirius.types import Seq
from tests.broadcast.strategies import batch_of, events, placed

LIMITS = Limits()


@given(placed(5, 0))
def test_a_batch_gives_back_the_events_that_it_was_made_of(found: list[Event]) -> None:
    batch = batch_of(found, 5, found[-1].seq + 2)
    assert batch.events() == found
    assert fault(batch, LIMITS) is None


@given(placed(5, 0), st.integers(0, 40))
def test_what_is_behind_a_position_is_the_rest(found: list[Event], skip: int) -> None:
    batch = batch_of(found, 5, found[-1].seq + 2)
    position = Seq(min(4 + skip, batch.last - 1))
    rest = batch.behind(position)
    assert (rest.first, rest.last) == (max(position + 1, 5), batch.last)
    assert rest.events() == [event for event in found if event.seq > position]
    assert fault(rest, LIMITS) is None


def test_nothing_is_behind_the_end() -> None:
    with pytest.raises(InvariantViolation):
        EventBatch.of([b"a"]).behind(Seq(1))


def test_packed_keys_are_the_same_as_a_list_of_them() -> None:
    packed, listed = EventBatch.packed(b"aabbcc", 2), EventBatch.of([b"aa", b"bb", b"cc"])
    assert packed.events() == listed.events()
    with pytest.raises(UsageError, match="5 bytes"):
        EventBatch.packed(b"aabbc", 2)


to_publish = st.one_of(
    st.lists(events(), min_size=1, max_size=5).map(
        lambda found: batch_of([event._replace(seq=at) for at, event in enumerate(found, 1)])
    ),
    st.builds(EventBatch.packed, st.sampled_from((b"aabb", b"ccdd")), st.sampled_from((1, 2))),
)


@given(st.lists(to_publish, min_size=1, max_size=4))
def test_joined_batches_are_their_events_one_behind_the_other(batches: list[EventBatch]) -> None:
    together = joined(batches)
    expected = [event for batch in batches for event in batch.events()]
    assert together.events() == [event._replace(seq=at) for at, event in enumerate(expected, 1)]
    assert fault(together, LIMITS) is None
    assert decode(encode(together), LIMITS).events() == together.events()


def test_joined_batches_of_equal_columns_have_columns_of_one_value() -> None:
    together = joined([EventBatch.packed(b"aabb", 2), EventBatch.packed(b"cc", 2)])
    assert len(encode(together)) == len(encode(EventBatch.packed(b"aabbcc", 2)))
    assert together.key_lengths.strides == together.kinds.strides == (0,)


def test_numbering_moves_a_batch_and_nothing_else() -> None:
    batch = EventBatch.of([b"a", b"b"], Kind.DATA).numbered(Seq(7), 99, 3, 4)
    assert [(event.seq, event.key, event.time) for event in batch.events()] == [
        (7, b"a", 99),
        (8, b"b", 99),
    ]
    assert (batch.first, batch.last, batch.publisher, batch.serial) == (7, 8, 3, 4)


def test_what_has_holes_is_not_numbered_again() -> None:
    with pytest.raises(InvariantViolation):
        hole(Seq(1), Seq(3)).numbered(Seq(4), 0)


def test_a_batch_without_records_is_one_hole() -> None:
    assert holes([hole(Seq(3), Seq(9))]) == [Hole(3, 9)]
    assert hole(Seq(3), Seq(9))
    assert len(hole(Seq(3), Seq(9))) == 0


def test_neighbouring_holes_are_one() -> None:
    """Sprinkler, section 2.1: consecutive tombstones can be replaced by a single one."""
    event = EventBatch.of([b"a"]).numbered(Seq(6), 0)
    parts = [hole(Seq(1), Seq(2)), hole(Seq(3), Seq(5)), event, hole(Seq(7), Seq(7))]
    assert holes(parts) == [Hole(1, 5), Hole(7, 7)]


def test_what_does_not_follow_is_no_hole() -> None:
    with pytest.raises(InvariantViolation, match="does not follow 2"):
        holes([hole(Seq(1), Seq(2)), hole(Seq(4), Seq(5))])


@given(placed(1, 0))
def test_records_and_holes_cover_the_range(found: list[Event]) -> None:
    batch = batch_of(found, 1, found[-1].seq + 1)
    numbers = set(batch.seqs.tolist())
    for first, last in holes([batch]):
        assert numbers.isdisjoint(range(first, last + 1))
        numbers.update(range(first, last + 1))
    assert numbers == set(range(1, batch.last + 1))
