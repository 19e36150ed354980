"""The feeding end: what it declares, what it bounds, and what it does with the driver's word."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from sirius.catchup import Catchup, CatchupConfig, Edition, SegmentOffer, Start
from sirius.catchup.effects import Effects, ListSegments, ReadRange
from sirius.catchup.messages import (
    Busy,
    Message,
    Pull,
    PullFile,
    PullSegments,
    Push,
    Range,
    Resync,
    Subscribe,
    Unavailable,
)
from sirius.errors import InvariantViolation
from sirius.types import SegmentId, Seq
from tests.catchup.logs import puts
from tests.catchup.world import SMALL, member

OLD, NEW = Edition(1, Seq(0)), Edition(2, Seq(6))
OFFER = SegmentOffer(SegmentId(3), Seq(5), Seq(8), 100, 7)


def feeder(tip: int = 20, config: CatchupConfig = SMALL, edition: Edition = OLD) -> Catchup:
    machine = Catchup(member(1), config, random.Random(1), 0.0, Start(Seq(tip), edition))
    machine.set_voter(True)
    return machine


def pull(first: int = 5, last: int = 8, request: int = 7, era: int | None = None) -> Pull:
    return Pull(request, Seq(first), Seq(last), 1000, era)


def answers(effects: Effects) -> list[Message]:
    return [message for _, message in effects.send]


def only(effects: Effects) -> Any:
    [answer] = answers(effects)
    return answer


def test_it_knows_who_follows_and_how_far_each_is() -> None:
    machine = feeder()
    machine.step(member(2), pull(first=5))
    machine.step(member(3), Subscribe(Seq(19), 10, 1000))
    assert machine.followers == {member(2).name: 4, member(3).name: 19}


def test_it_knows_whether_it_votes() -> None:
    machine = feeder()
    assert machine.is_voter
    machine.set_voter(False)
    assert not machine.is_voter


def test_an_answer_bears_the_edition_that_was_read() -> None:
    """A snapshot from before a compaction pass is answered after it: it is the old edition all the same."""
    machine = feeder()
    [read] = machine.step(member(2), pull(1, 4)).read
    machine.compacted(NEW)
    answer = only(machine.found(read.read, [puts(1, 4)], OLD))
    assert isinstance(answer, Range)
    assert answer.standing.edition == OLD


def test_a_read_that_met_a_newer_edition_does_not_fit_any_more() -> None:
    machine = feeder()
    [read] = machine.step(member(2), pull()).read
    answer = only(machine.found(read.read, [puts(5, 8)], NEW))
    assert isinstance(answer, Resync)
    assert answer.standing.edition == NEW
    [read] = machine.step(member(2), PullSegments(8, Seq(5))).read
    assert isinstance(only(machine.listed(read.read, [OFFER], NEW)), Resync)


def test_below_the_floor_only_the_same_era_is_served() -> None:
    machine = feeder(edition=NEW)
    assert isinstance(only(machine.step(member(2), pull())), Resync)
    assert isinstance(only(machine.step(member(2), PullSegments(8, Seq(5), 1))), Resync)
    assert machine.step(member(2), pull(era=2)).read
    assert machine.step(member(3), pull(first=7)).read
    assert machine.step(member(4), pull(first=1)).read


def test_the_cache_is_not_used_below_the_floor() -> None:
    machine = feeder(tip=0, edition=Edition(2, Seq(9)))
    machine.advanced([puts(1, 4)])
    assert machine.step(member(2), pull(1, 4)).read == [ReadRange(0, Seq(1), Seq(4), 1000)]


def test_a_cached_value_is_cut_to_the_range() -> None:
    machine = feeder()
    machine.advanced([puts(19, 21), puts(22, 24)])
    answer = only(machine.step(member(2), pull(22, 23)))
    assert answer.values == (puts(22, 23),)
    assert machine.step(member(2), pull(20, 23)).read, "what is older than the cache is read"


@pytest.mark.parametrize("values", [[puts(22, 22)], [puts(21, 21), puts(23, 23)]], ids=str)
def test_a_driver_that_tells_of_a_log_with_a_gap_is_a_bug(values: list[Any]) -> None:
    machine = feeder()
    with pytest.raises(InvariantViolation):
        machine.advanced(values)
    assert machine.position == 20


def test_what_is_asked_for_is_bounded() -> None:
    machine = feeder(config=replace(SMALL, range_slots_max=3, range_bytes_max=50))
    assert machine.step(member(2), pull()).read == [ReadRange(0, Seq(5), Seq(7), 50)]


def test_reads_are_bounded_and_one_a_puller() -> None:
    machine = feeder(config=replace(SMALL, reads_max=2, busy_retry_s=0.7))
    assert machine.step(member(2), pull()).read
    assert machine.step(member(2), pull()) == Effects(), "repeated by the network"
    assert answers(machine.step(member(2), pull(request=8))) == [Busy(8, 0.7)]
    assert machine.step(member(3), pull()).read
    assert answers(machine.step(member(4), pull())) == [Busy(7, 0.7)]
    machine.unreadable(0, "rot")
    assert machine.step(member(4), pull()).read


def test_segments_are_offered() -> None:
    machine = feeder()
    effects = machine.step(member(2), PullSegments(7, Seq(5)))
    assert effects.read == [ListSegments(0, Seq(5), SMALL.segments_max)]
    assert only(machine.listed(0, [OFFER], OLD))[:2] == (7, (OFFER,))


def take_file(machine: Catchup, position: int) -> Effects:
    return machine.step(member(2), PullFile(SegmentId(3), 20, 10, Seq(position)))


def test_who_takes_a_file_follows_from_where_it_is() -> None:
    machine = feeder(config=replace(SMALL, follower_timeout_s=60.0))
    assert take_file(machine, 4) == Effects(), "the file itself is the driver's business"
    assert (machine.lowest_position, machine.followers) == (4, {member(2).name: 4})
    take_file(machine, 9)
    assert machine.lowest_position == 9
    machine.at(50.0)
    take_file(machine, 9)
    machine.tick(100.0)
    assert machine.lowest_position == 9, "each stream is a sign of life"
    machine.tick(111.0)
    assert machine.lowest_position is None


def test_who_takes_a_file_may_have_a_range_read_too() -> None:
    machine = feeder(config=replace(SMALL, reads_max=1))
    take_file(machine, 4)
    assert machine.step(member(2), pull()).read


def test_what_cannot_be_read_is_unavailable() -> None:
    machine = feeder()
    machine.step(member(2), pull())
    answer = only(machine.unreadable(0, "quarantined"))
    assert isinstance(answer, Unavailable)
    assert answer.reason == "quarantined"


@pytest.mark.parametrize(
    "values", [[], [puts(6, 8)], [puts(5, 6), puts(8, 8)], [puts(5, 9)]], ids=str
)
def test_a_driver_that_finds_something_else_is_a_bug(values: list[Any]) -> None:
    machine = feeder()
    machine.step(member(2), pull())
    with pytest.raises(InvariantViolation):
        machine.found(0, values, OLD)


def test_an_answer_to_another_question_is_a_bug() -> None:
    machine = feeder()
    machine.step(member(2), pull())
    machine.step(member(3), PullSegments(7, Seq(5)))
    with pytest.raises(InvariantViolation, match="segments are no answer"):
        machine.listed(0, [], OLD)
    with pytest.raises(InvariantViolation, match="1 values are no answer"):
        machine.found(1, [puts(5, 5)], OLD)
    with pytest.raises(InvariantViolation, match="read 1 was not asked for, or is done"):
        machine.unreadable(1, "twice")


# ---------------------------------------------------------------------- streams


def subscribe(machine: Catchup, after: int, slots: int = 8, node: int = 2) -> list[Message]:
    return answers(machine.step(member(node), Subscribe(Seq(after), slots, 200)))


def pushed(effects: Effects) -> list[tuple[int, int]]:
    """Which slots were pushed to whom it may concern."""
    return [
        (message.values[0].first, message.values[-1].last)
        for message in answers(effects)
        if isinstance(message, Push) and message.values
    ]


def test_a_subscriber_gets_what_is_new() -> None:
    machine = feeder()
    [hello] = subscribe(machine, 20)
    assert isinstance(hello, Push)
    assert (hello.values, hello.standing.tip) == ((), 20)
    assert pushed(machine.advanced([puts(21, 22), puts(23, 23)])) == [(21, 23)]
    assert pushed(machine.advanced([puts(22, 23)])) == [], "nothing is new"
    assert pushed(machine.advanced([puts(23, 24)])) == [(24, 24)]


def test_a_subscriber_gets_no_more_slots_than_it_allows() -> None:
    machine = feeder()
    subscribe(machine, 20, slots=3)
    assert pushed(machine.advanced([puts(21, 22)])) == [(21, 22)]
    [last_word] = answers(machine.advanced([puts(23, 24)]))
    assert isinstance(last_word, Push)
    assert (last_word.values, last_word.standing.tip) == ((), 24)
    assert answers(machine.advanced([puts(25, 25)])) == [], "it has been dropped, and pulls"
    again = subscribe(machine, 22, slots=3)
    assert pushed(Effects(send=[(member(2), each) for each in again])) == [(23, 25)]


def test_a_subscriber_gets_no_more_bytes_than_it_allows() -> None:
    machine = feeder()
    subscribe(machine, 20, slots=99)
    assert pushed(machine.advanced([puts(21, 24)])) == [(21, 24)], "50 bytes"
    subscribe(machine, 24, slots=99)
    for first in (25, 28):
        assert pushed(machine.advanced([puts(first, first + 2)])), "40 bytes each"
    big = replace(puts(31, 31), updates=puts(31, 31).updates * 12)
    assert pushed(machine.advanced([big])) == [], "130 more would be above 200"


def test_what_left_the_cache_is_not_pushed() -> None:
    machine = feeder()
    machine.advanced([puts(21, 24), puts(25, 28)])
    [answer] = subscribe(machine, 22)
    assert isinstance(answer, Push)
    assert answer.values == ()
    assert pushed(machine.advanced([puts(29, 29)])) == []


def test_nothing_is_pushed_below_the_floor() -> None:
    machine = feeder()
    subscribe(machine, 20)
    machine.compacted(Edition(3, Seq(21)))
    assert pushed(machine.advanced([puts(21, 21)])) == []
    [answer] = subscribe(machine, 20)
    assert isinstance(answer, Push)
    assert answer.standing.edition.floor == 21


def test_subscribers_are_bounded_and_lapse() -> None:
    machine = feeder(config=replace(SMALL, subscribers_max=1))
    subscribe(machine, 20)
    subscribe(machine, 20, node=3)
    assert [to.node for to, _ in machine.advanced([puts(21, 21)]).send] == [2]
    effects = machine.tick(SMALL.keepalive_s)
    assert [to.node for to, _ in effects.send] == [2], "a sign of life"
    assert machine.tick(SMALL.stream_timeout_s).send == []
    assert machine.advanced([puts(22, 22)]).send == []


def test_nothing_new_is_nothing_to_do() -> None:
    assert feeder().advanced([]) == Effects()
