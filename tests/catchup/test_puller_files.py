"""Segments as files: what is fetched when, and what becomes of one that does not come."""

from __future__ import annotations

from typing import Any

import pytest

from sirius.catchup import Effects, SegmentOffer, Source
from sirius.catchup.effects import DropSegment, FetchSegment, InstallSegment
from sirius.catchup.messages import (
    Busy,
    Pull,
    PullSegments,
    Push,
    Range,
    Resync,
    Segments,
    Unavailable,
)
from sirius.errors import InvariantViolation
from sirius.types import SegmentId, Seq
from tests.catchup.bench import FILES, OFFER, ONE, TWO, Bench, push, standing
from tests.catchup.logs import puts

NEXT = OFFER._replace(id=SegmentId(4), first=Seq(9), last=Seq(12), bytes=60)
FETCH = FetchSegment(1, OFFER, ONE, Seq(0))
DROP = DropSegment(1, OFFER)


def transfer(*offers: SegmentOffer) -> Bench:
    """The first segment is to be fetched from the first source, whose floor is 5."""
    bench = Bench(config=FILES, known=20)
    assert type(bench.asked) is PullSegments
    bench.answer(Segments, offers or (OFFER,), standing(floor=5))
    assert (bench.out.segments, bench.out.send) == ([FETCH], [])
    return bench


def interrupt(bench: Bench, *, progressed: bool = False) -> Effects:
    bench.out = bench.machine.interrupted(1, progressed=progressed)
    return bench.out


def fail(bench: Bench, times: int) -> None:
    """Have so many streams break off before anything comes; each time the same is fetched again."""
    for _ in range(times):
        assert interrupt(bench) == Effects()
        assert bench.until_fetched() == FETCH


def give_ranges(bench: Bench) -> PullSegments:
    """Have the second source give the ranges that it is asked for, until it is asked for something else."""
    while isinstance(question := bench.asked, Pull):
        assert question.last <= OFFER.last, "not more than was offered"
        bench.give(puts(question.first, question.last), path=(2,))
    assert isinstance(question, PullSegments)
    return question


# ---------------------------------------------------------------------- fetched and installed


def test_a_file_is_fetched_and_installed() -> None:
    bench = transfer()
    out = bench.machine.fetched(1)
    assert out.segments == [InstallSegment(1, OFFER, staged=False)]
    assert (out.send, bench.machine.position) == ([], 0)
    assert bench.machine.advanced([puts(1, 8)]).send == []
    assert bench.machine.position == 0, "what the driver tells of the segment is not news"
    bench.out = bench.machine.installed(1)
    assert bench.machine.position == 8
    assert isinstance(bench.asked, PullSegments)
    assert bench.asked.era == 0, "all of it is of one source and era"


def test_what_is_installed_is_there_for_others() -> None:
    bench = transfer()
    bench.machine.fetched(1)
    bench.machine.installed(1)
    [(_, answer)] = bench.machine.step(TWO, Pull(1, Seq(9), Seq(9), 9)).send
    assert isinstance(answer, Range)
    assert answer.standing.tip == 8


def test_segments_come_one_after_the_other() -> None:
    bench = transfer(OFFER, NEXT)
    assert bench.machine.fetched(1).segments == [InstallSegment(1, OFFER, staged=False)]
    out = bench.machine.installed(1)
    assert out.segments == [FetchSegment(1, NEXT, ONE, Seq(8))]
    assert out.send == [], "what is on offer need not be asked for"
    bench.machine.fetched(1)
    bench.out = bench.machine.installed(1)
    assert (bench.machine.position, type(bench.asked), bench.to) == (12, PullSegments, ONE)


def test_the_floor_rises_before_a_segment_is_installed_that_lacks_deletes() -> None:
    bench = transfer(OFFER, NEXT)
    assert bench.out.floor == 0, "what is on its way is no part of the log"
    assert bench.machine.fetched(1).floor == 5
    assert bench.machine.installed(1).floor == 0
    assert bench.machine.fetched(1).floor == 0, "what follows the floor has all deletes"


def test_a_segment_is_on_its_way_once() -> None:
    bench = transfer()
    for _ in range(100):
        assert bench.tick(0.1) == Effects(), "a driver says when it is over"
    bench.machine.heard(Seq(30))
    assert bench.tick(0.1) == Effects()


def test_nothing_is_asked_while_a_segment_is_installed() -> None:
    bench = transfer(OFFER, NEXT)
    bench.machine.fetched(1)
    bench.machine.heard(Seq(30))
    for _ in range(100):
        assert bench.tick(0.1) == Effects()


def test_progress_counts_the_bytes_of_installed_segments() -> None:
    bench = Bench(config=FILES, known=20)
    assert bench.machine.progress is None
    bench.answer(Segments, (OFFER, NEXT), standing())
    assert bench.machine.progress == (0, 160)
    bench.machine.fetched(1)
    assert bench.machine.progress == (0, 160), "it may be refused yet"
    bench.machine.installed(1)
    assert bench.machine.progress == (100, 160)
    bench.machine.fetched(1)
    bench.machine.installed(1)
    assert bench.machine.progress is None


def test_nothing_is_pushed_in_front_of_a_segment() -> None:
    bench = Bench(config=FILES)
    bench.give(tip=0)
    push(bench, tip=20)
    assert bench.answer(Segments, (OFFER,), standing()).segments == [FETCH]
    assert bench.machine.source is None, "what came could not be taken"
    assert bench.machine.step(ONE, Push((puts(1, 2),), standing())) == Effects()
    assert bench.machine.position == 0


# ---------------------------------------------------------------------- offers


@pytest.mark.parametrize(
    "offers",
    [
        [OFFER._replace(last=Seq(21))],
        [OFFER._replace(bytes=0)],
        [OFFER, OFFER._replace(first=Seq(10), last=Seq(11))],
        [OFFER._replace(first=Seq(0))],
    ],
    ids=str,
)
def test_a_bad_offer_is_refused(offers: list[SegmentOffer]) -> None:
    bench = Bench(config=FILES, known=20)
    bench.answer(Segments, tuple(offers), standing())
    assert (type(bench.asked), bench.to) == (PullSegments, TWO)


def test_an_offer_of_nothing_and_one_of_later_segments_lead_to_ranges() -> None:
    bench = Bench(config=FILES, known=20)
    bench.answer(Segments, (), standing())
    assert bench.asked[1:3] == (1, 2)
    bench.give(puts(1, 2))
    bench.answer(Segments, (OFFER._replace(first=Seq(4)),), standing())
    assert bench.asked[1:3] == (3, 3)


def test_an_offer_below_the_floor_does_not_fit() -> None:
    bench = Bench(2, config=FILES, known=20)
    bench.answer(Segments, (OFFER._replace(first=Seq(3)),), standing(floor=5))
    assert (type(bench.asked), bench.to) == (PullSegments, TWO)


def test_a_ring_is_refused_before_files_come() -> None:
    bench = Bench(config=FILES, known=20)
    bench.answer(Segments, (OFFER,), standing(path=(9, 1)))
    assert (type(bench.asked), bench.to) == (PullSegments, TWO)


def test_a_source_that_cannot_list_its_segments_gives_ranges() -> None:
    bench = Bench(config=FILES, known=20)
    bench.answer(Unavailable, "rot", standing())
    assert (type(bench.asked), bench.asked.first, bench.to) == (Pull, 1, ONE)


def test_answers_to_what_was_asked_before_do_not_disturb_a_file() -> None:
    bench = Bench(config=FILES, known=20)
    request = bench.asked.request
    bench.answer(Segments, (OFFER,), standing())
    for late in (
        Segments(request, (NEXT,), standing()),
        Unavailable(request, "", standing()),
        Resync(request, standing(floor=9)),
        Busy(request, 1.0),
    ):
        assert bench.machine.step(ONE, late) == Effects()
    assert bench.machine.fetched(1).segments == [InstallSegment(1, OFFER, staged=False)]


# ---------------------------------------------------------------------- broken off


def test_what_breaks_off_goes_on_with_the_same_source_after_a_while() -> None:
    bench = transfer()
    assert interrupt(bench) == Effects()
    assert bench.tick(FILES.retry_s / 4) == Effects(), "not at once"
    assert bench.until_fetched() == FETCH
    assert bench.machine.fetched(1).segments == [InstallSegment(1, OFFER, staged=False)]


def test_waits_grow_while_nothing_comes_of_a_file() -> None:
    bench = transfer()
    interrupt(bench)
    bench.until_fetched()
    began = bench.now
    interrupt(bench)
    bench.until_fetched()
    interrupt(bench)
    second, third = bench.now - began, bench.now
    bench.until_fetched()
    assert bench.now - third > second


def test_a_source_of_which_nothing_comes_is_left_and_its_file_is_taken_as_ranges() -> None:
    """A stream needs a connection of its own. Whoever has no room for one may answer all the same."""
    bench = transfer()
    fail(bench, FILES.attempts_max - 1)
    assert interrupt(bench).segments == [DROP]
    assert (type(bench.until_asked()), bench.asked.first, bench.to) == (Pull, 1, TWO)
    assert (type(give_ranges(bench)), bench.asked.first) == (PullSegments, 9)


def test_who_has_one_source_takes_what_does_not_come_as_ranges_from_there() -> None:
    bench = transfer()
    bench.machine.set_sources([Source(ONE)])
    fail(bench, FILES.attempts_max - 1)
    assert interrupt(bench).segments == [DROP]
    assert (type(bench.until_asked()), bench.to) == (Pull, ONE)


def test_another_file_has_as_many_attempts() -> None:
    bench = transfer()
    fail(bench, FILES.attempts_max - 1)
    interrupt(bench)
    bench.until_asked()
    give_ranges(bench)
    bench.answer(Segments, (NEXT,), standing(path=(2,)))
    for _ in range(FILES.attempts_max - 1):
        assert bench.out.segments == [FetchSegment(2, NEXT, TWO, Seq(8))]
        assert bench.machine.interrupted(2, progressed=False) == Effects()
        bench.until_fetched()
    assert bench.machine.interrupted(2, progressed=False).segments == [DropSegment(2, NEXT)]


def test_a_source_of_which_something_comes_now_and_then_is_not_left() -> None:
    bench = transfer()
    for _ in range(3):
        fail(bench, FILES.attempts_max - 2)
        assert interrupt(bench, progressed=True) == Effects()
        assert bench.until_fetched() == FETCH
    fail(bench, FILES.attempts_max - 2)
    assert interrupt(bench).segments == [DROP], "the last one that progressed counts, too"


def test_waits_do_not_grow_while_something_comes() -> None:
    bench = transfer()
    for _ in range(20):
        broke_off = bench.now
        assert interrupt(bench, progressed=True) == Effects()
        assert bench.until_fetched() == FETCH
        assert bench.now - broke_off < 2 * FILES.retry_s


def test_a_segment_that_came_makes_up_for_failures_before_it() -> None:
    bench = transfer(OFFER, NEXT)
    fail(bench, FILES.attempts_max - 1)
    bench.machine.fetched(1)
    bench.machine.installed(1)
    assert interrupt(bench) == Effects()
    broke_off = bench.now
    assert bench.until_fetched() == FetchSegment(1, NEXT, ONE, Seq(8))
    assert bench.now - broke_off < 2 * FILES.retry_s


# ---------------------------------------------------------------------- withheld and refused


def test_a_file_that_is_gone_is_replaced_by_ranges() -> None:
    bench = transfer()
    bench.out = bench.machine.withheld(1)
    assert bench.out.segments == [DROP]
    assert (type(bench.asked), bench.asked.first, bench.to) == (Pull, 1, ONE)
    bench.give(puts(1, 2))
    assert (type(bench.asked), bench.to) == (PullSegments, ONE), "others may be there by now"


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_file_that_the_driver_refuses_is_dropped(is_whole: bool) -> None:
    bench = transfer()
    if is_whole:
        bench.machine.fetched(1)
    bench.out = bench.machine.refused(1)
    assert bench.out.segments == [DROP]
    assert (type(bench.asked), bench.asked.first, bench.to) == (Pull, 1, TWO)
    bench.give(puts(1, 2))
    bench.give(puts(3, 6))
    assert bench.asked[1:3] == (7, 8), "a source checks its ranges, so all of it comes in this way"
    bench.give(puts(7, 8))
    assert isinstance(bench.asked, PullSegments)


def test_who_has_one_source_takes_what_was_refused_as_ranges_from_there() -> None:
    bench = transfer()
    bench.machine.set_sources([Source(ONE)])
    assert bench.machine.refused(1).segments == [DROP]
    assert (type(bench.until_asked()), bench.to) == (Pull, ONE)


# ---------------------------------------------------------------------- given up


def test_a_file_that_consensus_has_overtaken_is_dropped() -> None:
    bench = transfer()
    assert bench.machine.advanced([puts(1, 1)]).segments == [DROP]
    assert bench.until_asked().first == 2


def test_a_file_that_waits_to_go_on_may_be_overtaken_too() -> None:
    bench = transfer()
    interrupt(bench, progressed=True)
    assert bench.machine.advanced([puts(1, 1)]).segments == [DROP]
    assert bench.until_asked().first == 2
    assert bench.out.segments == []


def test_consensus_may_go_past_a_segment_that_is_being_installed() -> None:
    bench = transfer()
    bench.machine.fetched(1)
    assert bench.machine.advanced([puts(1, 9)]).segments == []
    bench.machine.installed(1)
    assert bench.machine.position == 9


ANSWERS: dict[str, Any] = {
    "fetched": lambda machine, number: machine.fetched(number),
    "interrupted": lambda machine, number: machine.interrupted(number, progressed=True),
    "withheld": lambda machine, number: machine.withheld(number),
    "refused": lambda machine, number: machine.refused(number),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_words_about_a_transfer_that_was_given_up_are_nobodys(answer: str) -> None:
    bench = transfer()
    bench.machine.advanced([puts(1, 1)])
    assert ANSWERS[answer](bench.machine, 1) == Effects()
    bench.until_asked()
    offer = OFFER._replace(first=Seq(2))
    assert bench.answer(Segments, (offer,), standing()).segments == [
        FetchSegment(2, offer, ONE, Seq(1))
    ]
    assert ANSWERS[answer](bench.machine, 1) == Effects()
    assert bench.tick(5.0) == Effects(), "the new one is on its way"
    assert bench.machine.fetched(2).segments == [InstallSegment(2, offer, staged=False)]


def test_the_driver_must_not_answer_what_was_not_asked() -> None:
    for machine in (Bench().machine, transfer().machine):
        with pytest.raises(InvariantViolation, match="no segment of transfer 1 is being installed"):
            machine.installed(1)
    with pytest.raises(InvariantViolation, match="no resync is being finished"):
        machine.resync_failed("")
