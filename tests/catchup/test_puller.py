"""The pulling end: what it believes, whom it asks next, and how it gives up."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from sirius.catchup import (
    Catchup,
    CatchupConfig,
    Edition,
    Effects,
    SegmentOffer,
    Source,
    Standing,
    Start,
)
from sirius.catchup.effects import (
    AbandonResync,
    BeginResync,
    DropSegment,
    FinishResync,
    InstallSegment,
    Stage,
    WritePart,
)
from sirius.catchup.messages import (
    Busy,
    FilePart,
    Pull,
    PullFile,
    PullSegments,
    Push,
    Range,
    Resync,
    Segments,
    Subscribe,
    Unavailable,
)
from sirius.errors import InvariantViolation
from sirius.types import NodeId, SegmentId, Seq
from tests.catchup.logs import Piece, puts
from tests.catchup.world import SMALL, member

ONE, TWO = member(1), member(2)
FILES = replace(SMALL, segment_slots=5, file_bytes_max=60, file_parts_max=1, window_bytes_min=60)
OFFER = SegmentOffer(SegmentId(3), Seq(1), Seq(8), 100, 7)


def standing(
    tip: int = 20, *, floor: int = 0, era: int = 0, path: tuple[int, ...] = (1,)
) -> Standing:
    edition = Edition(era, Seq(floor))
    return Standing(Seq(tip), Seq(tip), edition, tuple(NodeId(node) for node in path))


class Bench:
    """A machine with two sources, of which the first is nearer, and its last effects."""

    def __init__(self, position: int = 0, config: CatchupConfig = SMALL, known: int = 0) -> None:
        self.config = replace(config, prefer="nearest", shun_s=3.0, resync_patience_s=50.0)
        start = Start(Seq(position))
        self.machine = Catchup(member(9), self.config, random.Random(1), 0.0, start)
        self.machine.set_sources([Source(ONE), Source(TWO, distance=1.0), Source(member(9))])
        self.machine.heard(Seq(known))
        self.now = 0.0
        self.out = self.tick(0.1)

    def tick(self, seconds: float) -> Effects:
        self.now += seconds
        self.out = self.machine.tick(self.now)
        return self.out

    @property
    def asked(self) -> Any:
        """The question in the last effects."""
        [(self.to, question)] = self.out.send
        return question

    def answer(self, make: type[Any], *fields: Any, sender: Any = None) -> Effects:
        """Answer the question in the last effects."""
        question = self.asked
        self.out = self.machine.step(sender or self.to, make(question.request, *fields))
        return self.out

    def give(self, *values: Piece, **kwargs: Any) -> Effects:
        first = self.asked.first
        last = values[-1].last if values else first - 1
        return self.answer(Range, first, last, values, standing(**kwargs))

    def to_whom(self) -> Any:
        """Whom the question in the last effects goes to."""
        [(to, _)] = self.out.send
        return to

    def until_asked(self) -> Any:
        for _ in range(200):
            if self.tick(0.1).send:
                return self.asked
        raise AssertionError("it never asks")

    def until_some_asked(self) -> None:
        while not self.tick(0.1).send:
            assert self.now < 20, "it never asks"


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
        FilePart(request, SegmentId(1), 0, b"x", standing()),
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


# ---------------------------------------------------------------------- streams


def following(position: int = 4) -> Bench:
    """Level with the first source, and subscribed to it."""
    bench = Bench(position)
    [(to, message)] = bench.give(tip=position).send
    assert (to, message) == (ONE, Subscribe(Seq(position), 8, 200))
    assert bench.machine.source == ONE
    return bench


def push(bench: Bench, *values: Piece, sender: Any = ONE, **kwargs: Any) -> Effects:
    bench.out = bench.machine.step(sender, Push(values, standing(**kwargs)))
    return bench.out


def test_pushes_that_follow_are_learned() -> None:
    bench = following()
    assert push(bench, puts(5, 5), puts(6, 7), tip=7).learned == [puts(5, 5), puts(6, 7)]
    assert push(bench, puts(6, 8), tip=8).learned == [puts(8, 8)], "and renewed when half is used"
    assert bench.out.send == [(ONE, Subscribe(Seq(8), 8, 200))]
    assert push(bench, puts(7, 8), tip=8).learned == []


def test_a_gap_before_a_push_is_pulled() -> None:
    bench = following()
    assert push(bench, puts(6, 6), tip=6).learned == []
    question = bench.asked
    assert (type(question), question.first, bench.to) == (Pull, 5, ONE)
    assert bench.machine.position == 4


def test_a_gap_within_a_push_is_pulled() -> None:
    bench = following()
    assert push(bench, puts(5, 5), puts(7, 7), tip=7).learned == []
    assert bench.asked.first == 5


def test_a_sign_of_life_tells_of_what_was_lost() -> None:
    bench = following()
    push(bench, tip=6)
    assert bench.asked.first == 5
    bench.give(puts(5, 6), tip=6)
    assert bench.out.send == [(ONE, Subscribe(Seq(6), 8, 200))], "the same stream goes on"


def test_a_push_from_elsewhere_or_below_a_floor_is_not_taken() -> None:
    bench = following()
    assert push(bench, puts(5, 5), tip=5, sender=TWO) == Effects()
    assert push(bench, puts(5, 5), tip=5, floor=5).learned == []


def test_a_stream_of_one_that_follows_us_is_left() -> None:
    bench = following()
    assert push(bench, puts(5, 5), tip=5, path=(9, 1)) == Effects()
    assert bench.machine.source is None
    bench.until_asked()
    assert bench.to == TWO


def test_bytes_are_confirmed_too() -> None:
    bench = following()
    big = replace(puts(5, 5), updates=puts(5, 5).updates * 12)
    assert push(bench, big, tip=5).send == [(ONE, Subscribe(Seq(5), 8, 200))]


def test_what_cannot_be_taken_does_not_make_room_for_more() -> None:
    """Seed 58 of the simulator, with a clock that stood still: the source pushed, and was asked for, the same again
    and again, as fast as the network carried it."""
    bench = following()
    big = replace(puts(6, 6), updates=puts(6, 6).updates * 12)
    answers = push(bench, big, tip=6).send
    assert [type(message) for _, message in answers] == [Pull], "there is a gap before it"


def test_a_silent_stream_is_left() -> None:
    bench = following()
    bench.tick(1.0)
    assert bench.machine.source == ONE
    bench.tick(1.5)
    assert bench.machine.source is None
    assert (bench.asked.first, bench.to) == (5, TWO)


def test_a_stream_that_does_not_bring_what_is_known_is_left() -> None:
    bench = following()
    bench.machine.heard(Seq(9))
    for _ in range(70):
        for to, message in bench.tick(0.1).send:
            if isinstance(message, Pull):
                answer = Range(
                    message.request, message.first, Seq(message.first - 1), (), standing(4)
                )
                bench.machine.step(to, answer)
        bench.machine.step(ONE, Push((), standing(4)))
    assert bench.machine.source is None


def test_a_voter_subscribes_to_nobody() -> None:
    bench = following()
    bench.machine.set_voter(True)
    bench.tick(0.1)
    assert bench.machine.source is None
    assert list(bench.machine.path) == [9]
    bench.until_asked()
    assert bench.give(tip=4).send == []


NEAR = Source(member(3), distance=-1.0)


def approached() -> Bench:
    """Subscribed to the first source, when a nearer one becomes known."""
    bench = following()
    bench.machine.set_sources([Source(ONE), NEAR])
    for _ in range(30):
        push(bench, tip=4)
        bench.tick(0.1)
        questions = [each for each in bench.out.send if type(each[1]) is Pull]
        if questions:
            bench.out.send = questions
            return bench
    raise AssertionError("nobody else is asked")


def test_a_stream_is_left_for_a_nearer_source_once_that_answers() -> None:
    bench = approached()
    assert (bench.asked.first, bench.to) == (5, NEAR.member)
    assert bench.machine.source == ONE, "it goes on meanwhile"
    bench.answer(Range, Seq(5), Seq(4), (), standing(4, path=(1, 3)))
    assert bench.out.send == [(NEAR.member, Subscribe(Seq(4), 8, 200))]
    assert bench.machine.source == NEAR.member


def test_a_nearer_source_that_does_not_answer_costs_nothing() -> None:
    bench = approached()
    asked_at = bench.now
    assert bench.to_whom() == NEAR.member
    while bench.now < asked_at + 4.9:
        bench.tick(0.1)
        assert all(type(message) is Subscribe for _, message in bench.out.send)
        number = bench.machine.position + 1
        assert push(bench, puts(number, number), tip=number).learned
        assert bench.machine.source == ONE
    # Two seconds for the answer, three of being passed over: then it is asked again.
    while NEAR.member not in [to for to, _ in bench.tick(0.1).send]:
        push(bench, tip=bench.machine.position)
        assert bench.now < asked_at + 8


def test_without_a_preference_a_stream_is_left_for_nobody() -> None:
    start = Start(Seq(4))
    bench = Bench(4)
    bench.machine = Catchup(member(9), SMALL, random.Random(1), bench.now, start)
    bench.machine.set_sources([Source(ONE)])
    bench.tick(0.1)
    bench.give(tip=4)
    bench.machine.set_sources([Source(ONE), NEAR])
    for _ in range(50):
        push(bench, tip=4)
        assert all(to == ONE for to, _ in bench.tick(0.1).send)
    assert bench.machine.source == ONE


def test_a_source_that_is_none_any_more_is_left() -> None:
    bench = following()
    bench.machine.set_sources([Source(TWO)])
    bench.tick(0.1)
    assert bench.machine.source is None


# ---------------------------------------------------------------------- segments


def transfer() -> Bench:
    """The first question about a file is asked."""
    bench = Bench(config=FILES, known=20)
    assert type(bench.asked) is PullSegments
    bench.answer(Segments, (OFFER,), standing(floor=5))
    assert tuple(bench.asked[1:]) == (3, 0, 60, 0)
    return bench


def part(bench: Bench, size: int = 60, **changes: Any) -> Effects:
    question = bench.asked
    answer = FilePart(question.request, question.segment, question.offset, b"x" * size, standing())
    bench.out = bench.machine.step(bench.to, answer._replace(**changes))
    for step in bench.out.segments:
        if isinstance(step, WritePart):
            bench.out.send += bench.machine.written(step.transfer).send
    return bench.out


def test_a_file_comes_in_parts_and_is_installed() -> None:
    bench = transfer()
    assert part(bench).segments == [WritePart(1, OFFER, 0, b"x" * 60)]
    assert bench.asked[2:4] == (60, 40)
    out = part(bench, 40)
    assert out.segments == [
        WritePart(1, OFFER, 60, b"x" * 40),
        InstallSegment(1, OFFER, staged=False),
    ]
    assert (out.floor, out.send, bench.machine.position) == (5, [], 0)
    assert bench.tick(9.0).send == [], "it waits for the driver"
    assert bench.machine.advanced([puts(1, 8)]).send == []
    assert bench.machine.position == 0, "what the driver tells of the segment is not news"
    bench.out = bench.machine.installed(1)
    assert bench.machine.position == 8
    assert isinstance(bench.asked, PullSegments)
    assert bench.asked.era == 0, "all of it is of one source and era"


def test_what_is_installed_is_there_for_others() -> None:
    bench = transfer()
    part(bench)
    part(bench, 40)
    bench.machine.installed(1)
    [(_, answer)] = bench.machine.step(TWO, Pull(1, Seq(9), Seq(9), 9)).send
    assert isinstance(answer, Range)
    assert answer.standing.tip == 8


def test_a_lost_part_is_asked_for_again() -> None:
    bench = transfer()
    part(bench)
    bench.tick(2.0)
    question = bench.until_asked()
    assert (type(question), question.offset, bench.to) == (PullFile, 60, ONE)


def test_a_source_that_is_silent_for_long_is_left_with_its_file() -> None:
    bench = transfer()
    part(bench)
    for _ in range(SMALL.attempts_max - 1):
        bench.tick(2.0)
        bench.until_asked()
    assert bench.tick(2.0).segments == [DropSegment(1, OFFER)]
    assert isinstance(bench.until_asked(), PullSegments)
    assert bench.to == TWO


@pytest.mark.parametrize(
    "changes",
    [{"offset": 1}, {"segment": SegmentId(9)}, {"data": b""}, {"data": b"x" * 61}],
    ids=str,
)
def test_a_part_that_was_not_asked_for_is_not_written(changes: dict[str, Any]) -> None:
    bench = transfer()
    assert part(bench, **changes).segments == [DropSegment(1, OFFER)]
    assert (bench.asked.first, bench.to) == (1, TWO)


def fast() -> Bench:
    """Three parts of a file may be under way; the first three are asked for."""
    bench = Bench(config=replace(FILES, file_bytes_max=30, file_parts_max=3), known=20)
    bench.answer(Segments, (OFFER,), standing())
    return bench


def parts(bench: Bench) -> list[tuple[int, int]]:
    """Where the parts that the last effects ask for begin, and how long they are."""
    return [
        (each.offset, each.bytes_max) for _, each in bench.out.send if isinstance(each, PullFile)
    ]


def file_part(question: PullFile, size: int | None = None) -> FilePart:
    data = b"%d" % (question.offset // 10) * (question.bytes_max if size is None else size)
    return FilePart(question.request, question.segment, question.offset, data, standing())


def test_several_parts_are_under_way_and_no_more_than_are_written() -> None:
    bench = fast()
    assert parts(bench) == [(0, 30), (30, 30), (60, 30)]
    first = bench.out.send[0][1]
    assert isinstance(first, PullFile)
    bench.out = bench.machine.step(ONE, file_part(first))
    assert [type(step) for step in bench.out.segments] == [WritePart]
    assert parts(bench) == [], "what is not written takes its place"
    bench.out = bench.machine.written(1)
    assert parts(bench) == [(90, 10)]
    assert bench.machine.written(1).send == [], "there is nothing more to ask for"


def test_parts_that_overtake_others_wait_for_them() -> None:
    bench = fast()
    one, two, three = (each for _, each in bench.out.send if isinstance(each, PullFile))
    assert bench.machine.step(ONE, file_part(three)).segments == []
    assert bench.machine.step(ONE, file_part(two)).segments == []
    assert bench.machine.step(ONE, file_part(two)).segments == [], "repeated by the network"
    steps = bench.machine.step(ONE, file_part(one)).segments
    assert [(step.offset, step.data) for step in steps if isinstance(step, WritePart)] == [
        (0, b"0" * 30),
        (30, b"3" * 30),
        (60, b"6" * 30),
    ]


def test_progress_is_told_in_bytes() -> None:
    bench = Bench(config=FILES, known=20)
    assert bench.machine.progress is None
    offers = (OFFER, OFFER._replace(id=SegmentId(4), first=Seq(9), last=Seq(12)))
    bench.answer(Segments, offers, standing())
    assert bench.machine.progress == (0, 200)
    part(bench)
    assert bench.machine.progress == (60, 200)
    part(bench, 40)
    bench.out = bench.machine.installed(1)
    assert bench.machine.progress == (100, 200)
    assert bench.asked.segment == 4


def test_a_part_of_a_segment_is_asked_for_where_it_is_in_its_file() -> None:
    bench = Bench(config=FILES, known=20)
    offer = OFFER._replace(offset=1000)
    bench.answer(Segments, (offer,), standing())
    assert bench.asked.offset == 1000
    assert part(bench).segments == [WritePart(1, offer, 0, b"x" * 60)]
    assert bench.asked.offset == 1060


def test_a_source_that_gives_less_at_a_time_is_asked_for_less() -> None:
    bench = fast()
    first = bench.out.send[0][1]
    assert isinstance(first, PullFile)
    bench.out = bench.machine.step(ONE, file_part(first, 12))
    assert [step.data for step in bench.out.segments if isinstance(step, WritePart)] == [b"0" * 12]
    assert parts(bench) == [(12, 12), (24, 12)]


def test_everything_behind_a_lost_part_is_asked_for_again() -> None:
    bench = fast()
    three = bench.out.send[2][1]
    assert isinstance(three, PullFile)
    bench.tick(1.0)
    bench.machine.step(ONE, file_part(three))
    bench.tick(1.5)
    assert bench.out.send == [], "something came a moment ago"
    bench.tick(1.0)
    assert bench.out.send == [], "after a loss it waits"
    bench.until_some_asked()
    assert parts(bench) == [(0, 30), (30, 30), (60, 30)]


def test_a_source_that_is_busy_is_asked_for_parts_later() -> None:
    bench = transfer()
    bench.answer(Busy, 0.5)
    assert bench.tick(0.4).send == []
    bench.tick(0.2)
    assert (type(bench.asked), bench.asked.offset) == (PullFile, 0)


def test_words_about_a_transfer_that_was_given_up_are_nobodys() -> None:
    bench = transfer()
    bench.machine.advanced([puts(1, 1)])
    assert bench.machine.written(1) == Effects()
    assert bench.machine.refused(1) == Effects()


def test_a_driver_may_refuse_before_all_of_it_is_there() -> None:
    bench = transfer()
    part(bench)
    bench.out = bench.machine.refused(1)
    assert bench.out.segments == [DropSegment(1, OFFER)]
    assert bench.to_whom() == TWO


def test_a_ring_that_forms_while_files_come_is_left() -> None:
    for make in (
        lambda question: file_part(question)._replace(standing=standing(path=(9, 1))),
        lambda question: Unavailable(question.request, "", standing(path=(9, 1))),
    ):
        bench = transfer()
        bench.out = bench.machine.step(ONE, make(bench.asked))
        assert bench.out.segments == [DropSegment(1, OFFER)]
        assert bench.to_whom() == TWO


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


def test_a_file_that_is_gone_is_replaced_by_ranges() -> None:
    bench = transfer()
    out = bench.answer(Unavailable, "compacted", standing())
    assert out.segments == [DropSegment(1, OFFER)]
    assert (type(bench.asked), bench.asked.first, bench.to) == (Pull, 1, ONE)


def test_a_source_that_cannot_list_its_segments_gives_ranges() -> None:
    bench = Bench(config=FILES, known=20)
    bench.answer(Unavailable, "rot", standing())
    assert (type(bench.asked), bench.asked.first, bench.to) == (Pull, 1, ONE)


def test_parts_grow_with_prompt_answers_alone() -> None:
    config = replace(FILES, file_bytes_max=60, window_bytes_min=10)
    for waited, length in ((0.1, 20), (1.5, 10)):
        bench = Bench(config=config, known=20)
        bench.answer(Segments, (OFFER,), standing())
        question = bench.asked
        bench.tick(waited)
        bench.out = bench.machine.step(ONE, file_part(question))
        bench.out = bench.machine.written(1)
        assert parts(bench) == [(10, length)]


def test_nothing_is_pushed_in_front_of_a_segment() -> None:
    bench = Bench(config=FILES)
    bench.give(tip=0)
    push(bench, tip=20)
    bench.answer(Segments, (OFFER,), standing())
    assert isinstance(bench.asked, PullFile)
    assert bench.machine.source is None, "what came could not be taken"
    assert bench.machine.step(ONE, Push((puts(1, 2),), standing())) == Effects()
    assert bench.machine.position == 0


def test_a_file_that_the_driver_refuses_is_dropped() -> None:
    bench = transfer()
    part(bench)
    part(bench, 40)
    bench.out = bench.machine.refused(1)
    assert bench.out.segments == [DropSegment(1, OFFER)]
    assert (type(bench.asked), bench.asked.first, bench.to) == (Pull, 1, TWO)
    bench.give(puts(1, 2))
    assert (type(bench.asked), bench.asked.last) == (Pull, 8), "a source checks its ranges"
    bench.give(puts(3, 8))
    assert isinstance(bench.asked, PullSegments)


def test_a_file_that_consensus_has_overtaken_is_dropped() -> None:
    bench = transfer()
    question = bench.asked
    assert bench.machine.advanced([puts(1, 1)]).segments == [DropSegment(1, OFFER)]
    late = FilePart(question.request, question.segment, question.offset, b"x" * 60, standing())
    assert bench.machine.step(ONE, late).segments == []


def test_consensus_may_go_past_a_segment_that_is_being_installed() -> None:
    bench = transfer()
    part(bench)
    part(bench, 40)
    assert bench.machine.advanced([puts(1, 9)]).segments == []
    bench.machine.installed(1)
    assert bench.machine.position == 9


def test_the_driver_must_not_answer_what_was_not_asked() -> None:
    for machine in (Bench().machine, transfer().machine):
        with pytest.raises(InvariantViolation, match="no segment of transfer 1 is being installed"):
            machine.installed(1)
    with pytest.raises(InvariantViolation, match="no resync is being finished"):
        machine.resync_failed("")


# ---------------------------------------------------------------------- resync


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


def test_a_whole_log_may_come_as_segments() -> None:
    bench = resyncing(FILES, known=20)
    assert isinstance(bench.asked, PullSegments)
    offers = (
        OFFER._replace(last=Seq(3)),
        OFFER._replace(id=SegmentId(4), first=Seq(4), last=Seq(6)),
    )
    bench.answer(Segments, (*offers, OFFER._replace(first=Seq(7))), standing(8, floor=5))
    for offer in offers:
        part(bench)
        assert part(bench, 40).segments[1:] == [InstallSegment(1, offer, staged=True)]
        bench.out = bench.machine.installed(1)
        assert bench.machine.position == 2
    assert bench.out.resync == [FinishResync(Seq(6), Seq(5))]
    assert bench.out.segments == []
