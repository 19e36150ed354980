"""The pulling end: what it believes, whom it asks next, and how it gives up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sirius.catchup import Effects, Source
from sirius.catchup.messages import Busy, Range, Resync, Segments, Unavailable
from sirius.types import Seq
from tests.catchup.bench import ONE, TWO, Bench, standing
from tests.catchup.logs import Piece, puts
from tests.catchup.world import SMALL

# ---------------------------------------------------------------------- ranges


def test_what_is_proven_is_learned_and_the_next_range_asked() -> None:
    bench = Bench()
    out = bench.give(puts(1, 1), puts(2, 2))
    assert out.learned == [puts(1, 1), puts(2, 2)]
    assert (bench.to, bench.asked.first, bench.machine.position) == (ONE, 3, 2)


@pytest.mark.parametrize(
    ("first", "last", "values", "tip"),
    [
        (1, 2, [puts(2, 2)], 20),
        (1, 2, [puts(1, 1)], 20),
        (1, 2, [], 20),
        (1, 1, [puts(1, 1), puts(1, 1)], 20),
        (1, 3, [puts(1, 3)], 20),
        (2, 2, [puts(2, 2)], 20),
        (1, 2, [puts(1, 2)], 1),
    ],
)
def test_a_range_that_proves_something_else_proves_nothing(
    first: int, last: int, values: list[Piece], tip: int
) -> None:
    bench = Bench()
    out = bench.answer(Range, Seq(first), Seq(last), tuple(values), standing(tip))
    assert (out.learned, bench.machine.position) == ([], 0)
    assert (bench.asked.first, bench.to) == (1, TWO), "another one is asked"


def test_an_answer_that_is_late_repeated_or_astray_is_nobodys() -> None:
    bench = Bench()
    request = bench.asked.request
    good = Range(request, Seq(1), Seq(2), (puts(1, 2),), standing())
    assert bench.machine.step(TWO, good) == Effects()
    assert bench.machine.step(ONE, good._replace(request=request + 1)) == Effects()
    assert bench.machine.step(ONE, Segments(request, (), standing())) == Effects()
    assert bench.machine.step(ONE, good).learned
    assert bench.machine.step(ONE, good) == Effects()
    for late in (
        Unavailable(request, "", standing()),
        Resync(request, standing()),
        Busy(request, 1.0),
        Segments(request, (), standing()),
    ):
        assert bench.machine.step(ONE, late) == Effects()


def test_consensus_may_be_faster_than_an_answer() -> None:
    bench = Bench()
    question = bench.asked
    bench.machine.advanced([puts(1, 1)])
    answer = Range(question.request, Seq(1), Seq(2), (puts(1, 2),), standing())
    assert bench.machine.step(ONE, answer).learned == [puts(2, 2)]
    bench = Bench()
    question = bench.asked
    bench.machine.advanced([puts(1, 5)])
    out = bench.machine.step(ONE, answer._replace(request=question.request))
    assert out.learned == []
    assert bench.machine.position == 5
    assert bench.machine.advanced([puts(4, 5)]).send == []


def test_the_window_grows_with_full_and_prompt_answers_and_halves_with_losses() -> None:
    bench = Bench()
    sizes = []
    for _ in range(5):
        first, last = bench.asked.first, bench.asked.last
        sizes.append((last - first + 1, bench.asked.bytes_max))
        bench.give(puts(first, last), tip=500)
    assert sizes == [(2, 40), (4, 80), (8, 160), (16, 320), (16, 400)]
    assert bench.machine.window_slots == 16
    first, last = bench.asked.first, bench.asked.last
    request = bench.asked.request
    bench.machine.tick(bench.now + 1.5)
    slow = Range(request, first, last, (puts(first, last),), standing(500))
    bench.out = bench.machine.step(ONE, slow)
    assert bench.asked.last - bench.asked.first == 15, "an answer that is slow does not let it grow"
    bench.tick(4.0)
    question = bench.until_asked()
    assert (question.last - question.first + 1, question.bytes_max, bench.to) == (8, 200, TWO)


def test_waits_grow_with_failures_up_to_a_bound() -> None:
    config = replace(SMALL, retry_s=1.0, backoff_s_max=4.0)
    bench = Bench(config=config)
    waits = []
    for _ in range(8):
        bench.tick(2.0)
        lost_at = bench.now
        bench.until_asked()
        waits.append(bench.now - lost_at)
    assert waits[0] < 1.7
    assert waits[-1] > 1.9
    assert max(waits) < 6.2


def test_a_busy_source_is_asked_again_when_it_says_so() -> None:
    bench = Bench()
    bench.answer(Busy, 0.5)
    assert bench.tick(0.3).send == []
    assert bench.tick(0.3).send
    bench.answer(Busy, 1e9)
    assert bench.tick(SMALL.backoff_s_max).send, "nobody keeps it waiting for ever"


def test_without_sources_nothing_is_asked() -> None:
    bench = Bench()
    bench.machine.set_sources([])
    bench.tick(5.0)
    assert bench.tick(5.0).send == []


def test_the_first_source_that_becomes_known_is_asked_at_once() -> None:
    bench = Bench()
    bench.answer(Busy, 0.0)
    bench.machine.set_sources([])
    bench.tick(5.0)
    bench.machine.set_sources([Source(TWO)])
    assert bench.tick(0.01).send, "not only with the next period"
    assert bench.to_whom() == TWO


def test_a_source_without_an_answer_for_us_is_not_asked_for_ever() -> None:
    """A tip above an empty range: nothing was proven, and the round ends."""
    bench = Bench()
    assert bench.give(tip=20).send == []
    assert bench.tick(0.01).send == []


# ---------------------------------------------------------------------- paths


def test_a_source_that_is_behind_is_not_above_us() -> None:
    """Seed 1049009: a leader had taken itself out, and followed the one voter that was left. That one was behind, asked
    back, and found itself in the path of the answer: neither ever moved again."""
    bench = Bench(position=10)
    bench.give(tip=9)
    assert list(bench.machine.path) == [9]
    bench.until_asked()
    bench.give(tip=10)
    assert list(bench.machine.path) == [1, 9]


@pytest.mark.parametrize("path", [(1, 9, 2), tuple(range(10, 18))])
def test_a_source_that_follows_us_or_is_too_far_down_is_refused(path: tuple[int, ...]) -> None:
    bench = Bench()
    out = bench.give(puts(1, 2), path=path)
    assert out.learned == []
    assert (bench.asked.first, bench.to) == (1, TWO)
    out = bench.give(puts(1, 2), path=path)
    assert out.send == [], "refused everywhere"
    bench.until_asked()
    assert bench.give(puts(1, 2)).learned, "but it keeps trying"
    assert list(bench.machine.path) == [1, 9]
    bench.machine.tick(bench.now + SMALL.path_timeout_s)
    assert list(bench.machine.path) == [9]


@pytest.mark.parametrize(
    "make",
    [lambda ring: (Unavailable, "", ring), lambda ring: (Resync, ring)],
    ids=["unavailable", "resync"],
)
def test_whatever_a_source_says_that_follows_us_is_refused(make: Any) -> None:
    bench = Bench(position=2)
    bench.answer(*make(standing(path=(9, 1), floor=9)))
    assert bench.to == ONE
    assert (bench.asked.first, bench.to, bench.machine.path) == (3, TWO, (9,))
