"""Taking a whole log anew: when that begins, when it comes to nothing, and when it is done."""

from __future__ import annotations

import pytest

from sirius.catchup import CatchupConfig, Edition, Effects
from sirius.catchup.effects import (
    AbandonResync,
    BeginResync,
    DropSegment,
    FetchSegment,
    FinishResync,
    InstallSegment,
    Stage,
)
from sirius.catchup.messages import Pull, PullSegments, Range, Resync, Segments, Unavailable
from sirius.errors import InvariantViolation
from sirius.types import SegmentId, Seq
from tests.catchup.bench import FILES, OFFER, ONE, TWO, Bench, standing
from tests.catchup.logs import puts
from tests.catchup.world import SMALL


def resyncing(config: CatchupConfig = SMALL, known: int = 0) -> Bench:
    """At 2, below the floors of both sources; the first range of the first is asked for."""
    bench = Bench(2, config, known)
    bench.answer(Resync, standing(6, floor=5))
    bench.answer(Resync, standing(6, floor=5))
    assert bench.out.resync == [BeginResync(ONE, Seq(5))]
    assert bench.machine.is_resyncing
    return bench


def test_a_whole_log_is_staged_and_put_in_place() -> None:
    bench = resyncing()
    out = bench.give(puts(1, 2), tip=6, floor=5)
    assert (out.resync, out.learned, out.floor) == ([Stage((puts(1, 2),))], [], 0)
    assert bench.machine.position == 2, "what others see is the old log"
    out = bench.give(puts(3, 6), tip=7, floor=5)
    assert out.resync == [Stage((puts(3, 6),)), FinishResync(Seq(6), Seq(5))]
    assert bench.tick(9.0).send == [], "it waits for the driver"
    bench.machine.resynced(Edition(77, Seq(5)))
    assert (bench.machine.position, bench.machine.is_resyncing) == (6, False)
    assert isinstance(bench.until_asked(), Pull)


def test_a_resync_goes_past_a_floor_that_has_risen() -> None:
    bench = resyncing()
    bench.give(puts(1, 2), tip=9, floor=7)
    out = bench.give(puts(3, 6), tip=9, floor=7)
    assert out.resync == [Stage((puts(3, 6),))]
    out = bench.give(puts(7, 8), tip=9, floor=7)
    assert out.resync[1:] == [FinishResync(Seq(8), Seq(7))]


@pytest.mark.parametrize("how", ["era", "resync", "unavailable", "dry"])
def test_a_resync_whose_source_fails_is_abandoned_for_another(how: str) -> None:
    bench = resyncing()
    bench.give(puts(1, 2), tip=6, floor=5)
    if how == "era":
        out = bench.give(puts(3, 4), tip=6, floor=5, era=1)
    elif how == "resync":
        out = bench.answer(Resync, standing(6, floor=5, era=1))
    elif how == "unavailable":
        out = bench.answer(Unavailable, "rot", standing(6))
    else:
        out = bench.give(tip=2)
    assert out.resync == [AbandonResync("n1 cannot help")]
    assert bench.machine.position == 2
    bench.tick(4.0)
    while not bench.out.resync:
        question = bench.asked if bench.out.send else bench.until_asked()
        assert question.first == 3
        bench.answer(Resync, standing(6, floor=5))
    assert bench.out.resync == [BeginResync(TWO, Seq(5))]
    assert bench.asked.first == 1


def test_a_resync_whose_source_is_silent_is_abandoned() -> None:
    bench = resyncing()
    for _ in range(SMALL.attempts_max - 1):
        bench.tick(2.0)
        assert bench.until_asked().first == 1
    assert bench.tick(2.0).resync == [AbandonResync("n1 does not answer")]


def test_a_resync_that_the_driver_cannot_finish_is_abandoned() -> None:
    bench = resyncing()
    bench.give(puts(1, 2), tip=6, floor=5)
    bench.give(puts(3, 6), tip=6, floor=5)
    out = bench.machine.resync_failed("no room")
    assert out.resync == [AbandonResync("no room")]
    assert bench.until_asked().first == 3


def test_a_resync_is_abandoned_when_consensus_brings_what_is_missing() -> None:
    bench = resyncing()
    late = Range(bench.asked.request, Seq(1), Seq(2), (puts(1, 2),), standing(6, floor=5))
    assert bench.machine.advanced([puts(3, 4)]).resync == []
    out = bench.machine.advanced([puts(5, 5)])
    assert out.resync == [AbandonResync("the log got past the floor by itself")]
    assert bench.machine.step(ONE, late) == Effects()
    assert bench.until_asked().first == 6


def test_a_log_must_not_grow_while_it_is_replaced() -> None:
    bench = resyncing()
    bench.give(puts(1, 2), tip=6, floor=5)
    bench.give(puts(3, 6), tip=6, floor=5)
    bench.machine.advanced([puts(3, 7)])
    with pytest.raises(InvariantViolation, match="went on to 7 while one up to 6"):
        bench.machine.resynced(Edition(7, Seq(5)))


@pytest.mark.parametrize(("tip", "floor"), [(6, 7), (1, 5)])
def test_a_source_that_is_no_gain_is_not_taken_over(tip: int, floor: int) -> None:
    bench = Bench(2)
    bench.answer(Resync, standing(tip, floor=floor))
    out = bench.answer(Resync, standing(tip, floor=floor))
    assert (out.resync, out.send) == ([], [])


# ---------------------------------------------------------------------- as files


OFFERS = (
    OFFER._replace(last=Seq(3)),
    OFFER._replace(id=SegmentId(4), first=Seq(4), last=Seq(6)),
)


def staging(floor: int = 5) -> Bench:
    """As above, but the log comes as segments; the first of them is to be fetched."""
    bench = resyncing(FILES, known=20)
    assert isinstance(bench.asked, PullSegments)
    rest = OFFER._replace(first=Seq(7))
    bench.answer(Segments, (*OFFERS, rest), standing(8, floor=floor))
    assert bench.out.segments == [FetchSegment(1, OFFERS[0], ONE, Seq(0))]
    return bench


def test_a_whole_log_may_come_as_segments() -> None:
    bench = staging()
    for offer, position in zip(OFFERS, (0, 3), strict=True):
        assert bench.out.segments == [FetchSegment(1, offer, ONE, Seq(position))]
        bench.out = bench.machine.fetched(1)
        assert bench.out.segments == [InstallSegment(1, offer, staged=True)]
        bench.out = bench.machine.installed(1)
        assert bench.machine.position == 2
    assert bench.out.resync == [FinishResync(Seq(6), Seq(5))]
    assert bench.out.segments == []


def test_a_floor_that_has_risen_is_that_of_the_staged_log_alone() -> None:
    bench = staging(floor=7)
    for _ in OFFERS:
        assert bench.machine.fetched(1).floor == 0
        bench.out = bench.machine.installed(1)
    assert bench.out.resync == [], "it has to get past that floor"
    bench.machine.fetched(1)
    bench.out = bench.machine.installed(1)
    assert bench.out.resync == [FinishResync(Seq(8), Seq(7))]


def test_a_resync_goes_on_where_a_file_broke_off() -> None:
    bench = staging()
    for _ in range(9):
        assert bench.machine.interrupted(1, progressed=True) == Effects()
        assert bench.until_fetched() == FetchSegment(1, OFFERS[0], ONE, Seq(0))
    bench.machine.fetched(1)
    assert bench.machine.installed(1).segments == [FetchSegment(1, OFFERS[1], ONE, Seq(3))]


def without_files() -> Bench:
    """The first file does not come, however often it is asked for."""
    bench = staging()
    for _ in range(SMALL.attempts_max - 1):
        assert bench.machine.interrupted(1, progressed=False) == Effects()
        bench.until_fetched()
    out = bench.machine.interrupted(1, progressed=False)
    assert (out.segments, out.resync) == ([DropSegment(1, OFFERS[0])], [])
    question = bench.until_asked()
    assert (type(question), question.first, bench.to) == (Pull, 1, ONE)
    return bench


def test_a_resync_whose_files_do_not_come_goes_on_with_ranges() -> None:
    bench = without_files()
    while isinstance(question := bench.asked, Pull):
        value = puts(question.first, question.last)
        assert bench.give(value, tip=8, floor=5).resync == [Stage((value,))]
    assert (type(question), question.first) == (PullSegments, OFFERS[0].last + 1)


def test_a_resync_of_which_neither_files_nor_ranges_come_is_abandoned() -> None:
    bench = without_files()
    for _ in range(SMALL.attempts_max - 1):
        bench.until_asked()
        assert bench.machine.is_resyncing
    while not bench.out.resync:
        bench.tick(0.1)
    assert bench.out.resync == [AbandonResync("n1 does not answer")]


def test_a_resync_whose_files_are_refused_is_abandoned() -> None:
    for is_whole in (False, True):
        bench = staging()
        if is_whole:
            bench.machine.fetched(1)
        bench.out = bench.machine.refused(1)
        assert bench.out.segments == [DropSegment(1, OFFERS[0])]
        assert bench.out.resync == [AbandonResync("n1 cannot help")]
        assert not bench.machine.is_resyncing


def test_a_resync_whose_files_are_gone_goes_on_with_ranges() -> None:
    bench = staging()
    bench.machine.fetched(1)
    bench.machine.installed(1)
    bench.out = bench.machine.withheld(1)
    assert bench.out.segments == [DropSegment(1, OFFERS[1])]
    assert bench.out.resync == []
    assert (type(bench.asked), bench.asked.first, bench.asked.era, bench.to) == (Pull, 4, 0, ONE)
    assert bench.give(puts(4, 5), tip=8, floor=5).resync == [Stage((puts(4, 5),))]


def test_a_resync_with_a_file_on_its_way_is_abandoned_when_consensus_brings_what_is_missing() -> (
    None
):
    bench = staging()
    assert bench.machine.advanced([puts(3, 4)]) == Effects()
    out = bench.machine.advanced([puts(5, 5)])
    assert out.segments == [DropSegment(1, OFFERS[0])]
    assert out.resync == [AbandonResync("the log got past the floor by itself")]
    assert bench.machine.fetched(1) == Effects()
    assert bench.until_asked().first == 6


def test_a_resync_is_not_abandoned_while_a_segment_of_it_is_installed() -> None:
    bench = staging()
    bench.machine.fetched(1)
    assert bench.machine.advanced([puts(3, 5)]) == Effects()
    bench.machine.installed(1)
    bench.machine.fetched(1)
    assert bench.machine.installed(1).resync == [FinishResync(Seq(6), Seq(5))]
