"""`plan` decides which neighbours to rewrite: purely, within limits, and only what is worth it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.errors import UsageError
from sirius.types import SegmentId, Seq
from sirius.wal import CompactionPolicy, SegmentInfo, State
from sirius.wal.compaction.plan import Rewrite, SegmentStats, plan

BYTES_MAX: Final = 1000
RECORDS_MAX: Final = 100
Surveyed = list[SegmentStats | None]


def stats(number: int, live: int, size: int, dead: int = 0, records: int = 10) -> SegmentStats:
    """A segment of `size` bytes of which `live` are alive, and `dead` of its records are not."""
    info = SegmentInfo(
        SegmentId(number),
        Seq(number * 100 + 1),
        Seq(number * 100 + 100),
        State.SEALED,
        bytes=size,
        blocks=1,
        records=records,
    )
    return SegmentStats(info, records - dead, live)


def segments(*shapes: tuple[int, int, int] | None) -> Surveyed:
    """Segments given as (live bytes, bytes, dead records)."""
    return [
        None if shape is None else stats(number, shape[0], shape[1], shape[2])
        for number, shape in enumerate(shapes)
    ]


def planned(surveyed: Sequence[SegmentStats | None], fraction: float = 0.25) -> list[list[int]]:
    rewrites = plan(
        surveyed,
        CompactionPolicy(dead_fraction_min=fraction),
        segment_bytes_max=BYTES_MAX,
        segment_records_max=RECORDS_MAX,
    )
    return [[int(segment) for segment in item.ids] for item in rewrites]


FULL: Final = (900, 1000, 0)
HALF_DEAD: Final = (500, 1000, 5)
ALL_DEAD: Final = (0, 1000, 10)
LITTLE_DEAD: Final = (880, 1000, 1)
SMALL: Final = (200, 260, 0)


@pytest.mark.parametrize(
    ("shapes", "groups"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([FULL], [], id="nothing is dead"),
        pytest.param([FULL, FULL], [], id="nothing is dead in either"),
        pytest.param([HALF_DEAD], [[0]], id="one that is half dead"),
        pytest.param([LITTLE_DEAD], [], id="not enough is dead"),
        pytest.param([FULL, HALF_DEAD, FULL], [[1]], id="only the one in the middle"),
        pytest.param([HALF_DEAD, HALF_DEAD], [[0, 1]], id="two halves make one"),
        pytest.param([HALF_DEAD] * 3, [[0, 1], [2]], id="three halves are too much for one"),
        pytest.param([ALL_DEAD] * 3, [[0, 1, 2]], id="nothing is left of any"),
        pytest.param([SMALL], [], id="small, but nobody to join"),
        pytest.param([SMALL, SMALL], [[0, 1]], id="two small ones"),
        pytest.param([SMALL, FULL, SMALL], [], id="small ones that are no neighbours"),
        pytest.param([SMALL] * 6, [[0, 1, 2, 3, 4]], id="as many small ones as fit, one left over"),
        pytest.param([SMALL, HALF_DEAD], [[0, 1]], id="a small one joins what is rewritten anyway"),
        pytest.param([HALF_DEAD, None, HALF_DEAD], [[0], [2]], id="never across an unreadable one"),
        pytest.param([None], [], id="unreadable"),
        pytest.param([ALL_DEAD, FULL], [[0]], id="a full one is not drawn in"),
    ],
)
def test_what_is_rewritten(shapes: list[tuple[int, int, int] | None], groups: object) -> None:
    assert planned(segments(*shapes)) == groups


def test_a_fraction_of_zero_rewrites_all_that_have_anything_dead() -> None:
    assert planned(segments(LITTLE_DEAD, FULL, LITTLE_DEAD), fraction=0.0) == [[0], [2]]


def test_a_fraction_of_one_leaves_all_alone_in_which_anything_lives() -> None:
    assert planned(segments(HALF_DEAD, FULL, ALL_DEAD), fraction=1.0) == [[2]]


def test_a_fraction_is_a_fraction() -> None:
    with pytest.raises(UsageError, match="fraction"):
        CompactionPolicy(dead_fraction_min=1.5)


def test_the_records_of_a_group_fit_into_a_segment() -> None:
    surveyed: Surveyed = [stats(n, 10, 300, records=60) for n in range(3)]
    assert planned(surveyed) == []
    surveyed = [stats(n, 10, 300, records=50) for n in range(4)]
    assert planned(surveyed) == [[0, 1], [2, 3]]


def test_no_more_than_sixty_four_are_joined_at_a_time() -> None:
    surveyed: Surveyed = [stats(n, 1, 100, records=1) for n in range(70)]
    assert [len(group) for group in planned(surveyed)] == [64, 6]


def surveys() -> st.SearchStrategy[Surveyed]:
    shape = st.none() | st.tuples(
        st.integers(0, 1200), st.integers(0, 300), st.integers(0, 10), st.integers(0, 60)
    )
    return st.lists(shape, max_size=90).map(
        lambda shapes: [
            None
            if drawn is None
            else stats(number, drawn[0], drawn[0] + drawn[1], min(drawn[2], drawn[3]), drawn[3])
            for number, drawn in enumerate(shapes)
        ]
    )


@given(surveyed=surveys(), fraction=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_a_plan_keeps_its_limits_and_touches_nothing_else(
    surveyed: Surveyed, fraction: float
) -> None:
    before = copy.deepcopy(surveyed)
    rewrites = plan(
        surveyed,
        policy := CompactionPolicy(dead_fraction_min=fraction),
        segment_bytes_max=BYTES_MAX,
        segment_records_max=RECORDS_MAX,
    )
    assert surveyed == before, "a plan is pure"
    order = [None if item is None else item.info.id for item in surveyed]
    taken: list[SegmentId] = []
    for item in rewrites:
        check_group(item, order, policy)
        taken += item.ids
    assert taken == sorted(set(taken)), "each at most once, oldest first"


def check_group(item: Rewrite, order: list[SegmentId | None], policy: CompactionPolicy) -> None:
    ids = item.ids
    at = order.index(ids[0])
    assert order[at : at + len(ids)] == ids, "neighbours, and none that cannot be read"
    assert (item.first, item.last) == (item.inputs[0].info.first, item.inputs[-1].info.last)
    if len(ids) == 1:
        assert is_dead_enough(item.inputs[0], policy)
        return
    assert len(ids) <= 64
    assert sum(member.live_bytes for member in item.inputs) <= BYTES_MAX
    assert sum(member.live_records for member in item.inputs) <= RECORDS_MAX
    for member in item.inputs:
        assert is_dead_enough(member, policy) or member.live_bytes * 4 <= BYTES_MAX


def is_dead_enough(member: SegmentStats, policy: CompactionPolicy) -> bool:
    return member.has_dead and member.dead_fraction >= policy.dead_fraction_min


@given(surveyed=surveys())
def test_planning_what_a_plan_leaves_comes_to_an_end(surveyed: Surveyed) -> None:
    """Take each group as rewritten, and plan again: there must soon be nothing to do."""
    for _ in range(8):
        groups = planned(surveyed)
        if not groups:
            return
        surveyed = rewritten(surveyed, groups)
    raise AssertionError(f"still {groups}")


def rewritten(surveyed: Surveyed, groups: list[list[int]]) -> Surveyed:
    left: Surveyed = []
    for item in surveyed:
        group = next((g for g in groups if item and item.info.id in g), None)
        if item is None or group is None:
            left.append(item)
        elif item.info.id == group[0]:
            members = [member for member in surveyed if member and member.info.id in group]
            live = sum(member.live_bytes for member in members)
            records = sum(member.live_records for member in members)
            left.append(stats(int(item.info.id), live, live + 200, records=records))
    return left
