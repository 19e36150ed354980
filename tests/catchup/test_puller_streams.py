"""Streams at the tip: what is taken of them, when they are left, and for whom."""

from __future__ import annotations

import random
from dataclasses import replace

from sirius.catchup import Catchup, Effects, Source, Start
from sirius.catchup.messages import Pull, Push, Range, Subscribe
from sirius.types import Seq
from tests.catchup.bench import ONE, TWO, Bench, push, standing
from tests.catchup.logs import puts
from tests.catchup.world import SMALL, member


def following(position: int = 4) -> Bench:
    """Level with the first source, and subscribed to it."""
    bench = Bench(position)
    [(to, message)] = bench.give(tip=position).send
    assert (to, message) == (ONE, Subscribe(Seq(position), 8, 200))
    assert bench.machine.source == ONE
    return bench


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
