"""Where values stand: the row of spans against a dictionary of slots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.errors import InvariantViolation
from sirius.wal.journal.pvalues import PValues, Span

ranges = st.tuples(st.integers(1, 25), st.integers(0, 12)).map(lambda r: (r[0], r[0] + r[1]))
puts = st.tuples(st.just("put"), ranges)
forgets = st.tuples(st.just("forget"), st.integers(0, 25))


@given(st.lists(st.one_of(puts, puts, puts, forgets), max_size=25), ranges)
def test_spans_say_what_a_dictionary_says(
    steps: list[tuple[str, object]], asked: tuple[int, int]
) -> None:
    pvalues, slots, floor = PValues(), dict[int, int](), 0
    for offset, (_, arg) in enumerate(steps):
        if isinstance(arg, tuple):
            first, last = arg
            pvalues.put(Span(first, last, offset, 8))
            slots |= {slot: offset for slot in range(first, last + 1) if slot > floor}
        elif isinstance(arg, int):
            pvalues.forget(arg)
            floor = max(floor, arg)
            slots = {slot: at for slot, at in slots.items() if slot > floor}
        pvalues.check()
    assert told(list(pvalues)) == dict(sorted(slots.items()))
    first, last = asked
    part = {slot: at for slot, at in sorted(slots.items()) if first <= slot <= last}
    assert told(pvalues.within(first, last)) == part
    assert pvalues.bytes == 8 * len(pvalues)


def told(spans: list[Span]) -> dict[int, int]:
    """The offset by slot, in the order of the spans."""
    found = [(slot, span.offset) for span in spans for slot in range(span.first, span.last + 1)]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_a_span_costs_32_bytes() -> None:
    pvalues = PValues()
    for number in range(1000):
        pvalues.put(Span(2 * number + 1, 2 * number + 1, 64 * number, 64))
    columns = pvalues._columns
    assert sum(column.itemsize for column in columns) == 32
    assert [len(column) for column in columns] == [1000] * 4


def test_the_check_finds_spans_that_overlap() -> None:
    pvalues = PValues()
    pvalues.put(Span(1, 3, 0, 8))
    pvalues._splice(1, 1, [Span(3, 4, 8, 8)])
    with pytest.raises(InvariantViolation, match="do not follow"):
        pvalues.check()


def test_the_check_finds_a_wrong_sum() -> None:
    pvalues = PValues()
    pvalues.put(Span(1, 3, 0, 8))
    pvalues.bytes += 1
    with pytest.raises(InvariantViolation, match="9"):
        pvalues.check()
