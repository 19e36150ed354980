"""Clients: the Region-Level Protocol (Sprinkler, section 3.2 and Figure 3), and publishing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sirius.broadcast.ahead import Ahead
from sirius.broadcast.client import Client
from sirius.broadcast.config import ClientConfig, ProxyConfig, RegionConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import EventBatch, Stream, hole
from sirius.broadcast.messages import (
    Events,
    Gossip,
    Message,
    Notify,
    Peer,
    Publish,
    Published,
    Refused,
    Request,
)
from sirius.broadcast.recent import Recent, size_of
from sirius.errors import Overloaded, UsageError
from sirius.types import Seq
from tests.broadcast.histories import data

P, A, B = Peer("P"), Peer("a"), Peer("b")
S = Stream("s")
CONFIG = ClientConfig(region=RegionConfig(fanout=2, shuffle_s=9.0))


def client(config: ClientConfig = CONFIG, after: int = 0) -> Client:
    owners = {S: P, Stream("t"): Peer("Q")}
    made = Client(Peer("me"), P, owners, config, random.Random(1), now=0.0, publisher=7)
    made.subscribe(S, Seq(after))
    return made


def notify(machine: Client, sender: Peer, count: int) -> list[tuple[Peer, Message]]:
    return requests(machine.step(sender, Notify(((S, Seq(count)),))))


def requests(effects: Effects) -> list[tuple[Peer, Message]]:
    return [each for each in effects.send if isinstance(each[1], Request)]


def answer(
    machine: Client, sender: Peer, number: int, position: int, *batches: EventBatch
) -> Effects:
    return machine.step(sender, Events(S, number, Seq(position), batches))


def delivered(effects: Effects) -> list[tuple[int, int]]:
    return [(batch.first, batch.last) for _, batch in effects.deliver]


def ask(first: int, last: int, number: int) -> Request:
    return Request(S, Seq(first), Seq(last), number)


# ---------------------------------------------------------------------- Figure 3


def test_who_is_notified_of_more_asks_the_notifier() -> None:
    machine = client()
    assert notify(machine, A, 5) == [(A, ask(1, 5, 1))]
    assert notify(machine, B, 5) == []
    assert notify(machine, B, 7) == [(B, ask(6, 7, 2))]


def test_events_are_delivered_in_order_and_once() -> None:
    machine = client()
    notify(machine, A, 2)
    notify(machine, B, 4)
    late = data(3, "c", "d")
    assert delivered(answer(machine, B, 2, 4, late)) == []
    assert delivered(answer(machine, A, 1, 2, data(1, "a", "b"))) == [(1, 2), (3, 4)]
    assert delivered(answer(machine, B, 2, 4, late)) == []
    assert machine.counts == ((S, 4),)


def test_what_overlaps_is_cut_and_holes_are_delivered() -> None:
    machine = client()
    notify(machine, A, 9)
    effects = answer(machine, A, 1, 9, data(1, "a", "b"), hole(Seq(3), Seq(6)))
    assert delivered(effects) == [(1, 2), (3, 6)]
    effects = answer(machine, A, 2, 9, data(5, "e", "f", "g", "h", "i"))
    assert [(batch.first, batch.seqs.tolist()) for _, batch in effects.deliver] == [(7, [7, 8, 9])]


def test_who_gets_on_notifies_a_few_neighbours() -> None:
    machine = client()
    machine.step(A, Gossip((B,), wants_answer=False))
    notify(machine, A, 1)
    effects = answer(machine, A, 1, 1, data(1, "a"))
    told = [(peer, message) for peer, message in effects.send if isinstance(message, Notify)]
    assert len(told) == 2
    assert {message for _, message in told} == {Notify(((S, Seq(1)),))}
    assert answer(machine, A, 1, 1, data(1, "a")).send == []


def test_it_says_how_far_it_is_although_nothing_is_new() -> None:
    machine = client(replace(CONFIG, region=RegionConfig(notify_s=0.2)))
    for now in (0.0, 0.2, 0.4):
        effects = machine.tick(now)
        assert (P, Notify(((S, Seq(0)),))) in effects.send


def test_requests_are_answered_from_what_is_recent() -> None:
    machine = client()
    notify(machine, A, 3)
    answer(machine, A, 1, 3, data(1, "a"), data(2, "b", "c"))
    ((_, found),) = machine.step(B, ask(2, 9, 44)).send
    assert isinstance(found, Events)
    assert (found.number, found.position, [batch.first for batch in found.batches]) == (44, 3, [2])
    ((_, found),) = machine.step(B, ask(4, 9, 45)).send
    assert found == Events(S, 45, Seq(3), ())


def test_a_part_is_followed_by_a_request_for_the_rest() -> None:
    machine = client()
    notify(machine, A, 9)
    assert requests(answer(machine, A, 1, 9, data(1, "a", "b"))) == [(A, ask(3, 9, 2))]


def test_what_a_neighbour_has_discarded_comes_from_the_proxy() -> None:
    """`requestFromProxy` of Figure 3."""
    machine = client()
    notify(machine, A, 9)
    assert requests(answer(machine, A, 1, 9)) == [(P, ask(1, 9, 2))]


def test_a_neighbour_that_does_not_answer_is_replaced_by_the_proxy() -> None:
    machine = client(replace(CONFIG, request_timeout_s=0.4))
    notify(machine, A, 9)
    assert requests(machine.tick(0.3)) == []
    assert requests(machine.tick(0.4)) == [(P, ask(1, 9, 2))]


def test_if_the_proxy_does_not_answer_either_the_next_notifier_is_asked() -> None:
    machine = client(replace(CONFIG, request_timeout_s=0.4, stall_s=9.0))
    notify(machine, A, 9)
    machine.tick(0.4)
    machine.tick(0.8)
    assert notify(machine, B, 9) == [(B, ask(1, 9, 3))]


def test_if_nobody_is_asked_and_there_is_more_the_proxy_is_asked() -> None:
    machine = client(replace(CONFIG, request_timeout_s=0.1, stall_s=0.5))
    notify(machine, P, 9)
    assert requests(machine.tick(0.1)) == []
    assert requests(machine.tick(0.5)) == []
    assert requests(machine.tick(0.6)) == [(P, ask(1, 9, 2))]


def test_a_proxy_that_is_behind_does_not_help_and_does_no_harm() -> None:
    machine = client()
    notify(machine, P, 9)
    assert requests(answer(machine, P, 1, 0)) == []
    assert notify(machine, P, 9) == [(P, ask(1, 9, 2))]
    assert machine.counts == ((S, 0),)


# ---------------------------------------------------------------------- bounds


def test_requests_are_bounded_in_number_and_length() -> None:
    machine = client(replace(CONFIG, request_events_max=3, requests_max=2))
    assert notify(machine, A, 99) == [(A, ask(1, 3, 1)), (A, ask(4, 6, 2))]
    assert requests(answer(machine, A, 1, 99, data(1, "a", "b", "c"))) == [(A, ask(7, 9, 3))]


def test_what_is_early_is_bounded_and_asked_for_again() -> None:
    machine = client(replace(CONFIG, ahead_bytes_max=100, request_events_max=1, requests_max=3))
    notify(machine, A, 3)
    assert delivered(answer(machine, A, 3, 3, data(3, "c" * 200))) == []
    assert machine.fetching(S).waiting_bytes == 0
    answer(machine, A, 1, 3, data(1, "a"))
    effects = answer(machine, A, 2, 3, data(2, "b"))
    assert machine.counts == ((S, 2),)
    again = requests(effects) + notify(machine, B, 3)
    assert all(message.first == 3 for _, message in again if isinstance(message, Request))
    assert delivered(answer(machine, A, 9, 3, data(3, "c" * 200))) == [(3, 3)]


def test_a_full_waiting_place_does_not_keep_one_from_asking_for_what_is_next() -> None:
    """Found by seed 1025: nothing was asked for any more."""
    most = size_of(data(3, "c"))
    machine = client(
        replace(CONFIG, ahead_bytes_max=most, request_events_max=1, request_timeout_s=0.1)
    )
    notify(machine, P, 3)
    answer(machine, P, 3, 3, data(3, "c"))
    assert machine.fetching(S).waiting_bytes == most
    machine.tick(0.1)
    assert notify(machine, A, 3) == [(A, ask(1, 1, 4))]
    assert delivered(answer(machine, A, 4, 3, data(1, "a", "b"))) == [(1, 2), (3, 3)]


def test_an_application_that_does_not_take_stops_the_asking() -> None:
    machine = client(replace(CONFIG, backlog_bytes_max=100))
    notify(machine, A, 1)
    answer(machine, A, 1, 1, data(1, "a" * 200))
    assert machine.fetching(S).backlog_bytes >= 200
    assert notify(machine, A, 5) == []
    assert requests(machine.consumed(S, Seq(1))) == [(A, ask(2, 5, 2))]
    assert machine.fetching(S).backlog_bytes == 0


def test_recent_events_are_bounded_and_the_last_is_kept() -> None:
    recent = Recent(2 * size_of(data(1, "a")))
    for seq in range(1, 6):
        recent.add(data(seq, "a"))
    assert recent.first == 4
    assert recent.read(Seq(3), Seq(5), 999) == ()
    assert [batch.first for batch in recent.read(Seq(4), Seq(5), 999)] == [4, 5]
    assert [batch.first for batch in recent.read(Seq(4), Seq(5), 1)] == [4]
    assert [batch.first for batch in recent.read(Seq(4), Seq(4), 999)] == [4]
    recent.add(data(6, "a" * 999))
    assert [batch.first for batch in recent.read(Seq(6), Seq(6), 1)] == [6]


def test_attributes_and_topics_take_room_like_keys() -> None:
    plain = EventBatch.of([b"key"] * 100)
    numbers = EventBatch.of([b"key"] * 100, attributes={"a": [1] * 100, "b": [2] * 100})
    topics = EventBatch.of([b"key"] * 100, topic=["/" + "x" * 50 + f"{at:02}" for at in range(100)])
    assert size_of(numbers) - size_of(plain) == 1600
    assert size_of(topics) - size_of(plain) == 5300


def test_of_two_early_ones_that_begin_alike_the_longer_one_counts() -> None:
    ahead = Ahead(1000)
    for batch in (data(3, "a"), data(3, "a", "b"), data(3, "a"), data(6, "d"), data(4, "b")):
        assert ahead.put(batch)
    assert ahead.take(Seq(1)) is None
    found = ahead.take(Seq(2))
    assert found is not None
    assert (found.first, found.last) == (3, 4)
    assert ahead.take(Seq(4)) is None
    assert len(ahead) == 1
    assert ahead.nbytes == size_of(data(6, "d"))


# ---------------------------------------------------------------------- lives


def test_a_client_resumes_where_it_was() -> None:
    machine = client(after=40)
    assert notify(machine, A, 40) == []
    assert notify(machine, A, 42) == [(A, ask(41, 42, 1))]
    assert delivered(answer(machine, A, 1, 42, data(39, *"abcd"))) == [(41, 42)]


def test_streams_that_are_not_there_or_wanted() -> None:
    machine = client()
    with pytest.raises(UsageError, match="no stream 'x'"):
        machine.subscribe(Stream("x"))
    with pytest.raises(UsageError, match="already"):
        machine.subscribe(S)
    other = Stream("t")
    assert machine.step(A, Notify(((other, Seq(5)),))).send == []
    assert machine.step(A, Request(other, Seq(1), Seq(2), 1)).send == []
    assert machine.step(A, Events(other, 1, Seq(5), (data(1, "a"),))).deliver == []


# ---------------------------------------------------------------------- publishing


def published(machine: Client, serial: int) -> Effects:
    return machine.step(P, Published(S, 7, serial, Seq(1), Seq(1)))


def test_batches_are_published_one_after_the_other() -> None:
    machine = client()
    one, two = EventBatch.of([b"a"]), EventBatch.of([b"b"])
    assert machine.publish(S, one)[1].send == [(P, Publish(S, 7, 1, one))]
    serial, effects = machine.publish(S, two)
    assert (serial, effects.send) == (2, [])
    effects = published(machine, 1)
    assert effects.answers == [Published(S, 7, 1, Seq(1), Seq(1))]
    assert effects.send == [(P, Publish(S, 7, 2, two))]
    assert published(machine, 1).answers == []
    assert machine.unpublished == 1


def test_what_is_not_answered_is_repeated() -> None:
    machine = client(replace(CONFIG, publish_retry_s=0.5))
    _, effects = machine.publish(S, EventBatch.of([b"a"]))
    assert not [each for each in machine.tick(0.4).send if isinstance(each[1], Publish)]
    assert [each for each in machine.tick(0.5).send if isinstance(each[1], Publish)] == effects.send


def test_a_refusal_is_an_answer_unless_it_may_be_taken_later() -> None:
    machine = client(replace(CONFIG, publish_retry_s=0.5))
    machine.publish(S, EventBatch.of([b"a"]))
    full = Refused(S, 7, 1, "full", again=True)
    assert machine.step(P, full).answers == []
    assert [each for each in machine.tick(0.5).send if isinstance(each[1], Publish)]
    wrong = full._replace(again=False)
    assert machine.step(P, wrong).answers == [wrong]


def test_answers_of_others_and_to_others_do_not_count() -> None:
    machine = client()
    machine.publish(S, EventBatch.of([b"a"]))
    good = Published(S, 7, 1, Seq(1), Seq(1))
    assert machine.step(A, good).answers == []
    assert machine.step(P, good._replace(publisher=8)).answers == []
    assert machine.step(P, good._replace(stream=Stream("t"))).answers == []
    assert machine.step(P, good).answers == [good]


def test_what_waits_to_be_published_is_bounded() -> None:
    machine = client(replace(CONFIG, publish_waiting_max=2))
    for _ in range(2):
        machine.publish(S, EventBatch.of([b"a"]))
    with pytest.raises(Overloaded, match="2 batches wait"):
        machine.publish(S, EventBatch.of([b"a"]))
    with pytest.raises(UsageError, match="no stream"):
        machine.publish(Stream("x"), EventBatch.of([b"a"]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClientConfig(requests_max=0),
        lambda: ProxyConfig(window_bytes=0),
        lambda: ProxyConfig(switch_c=-1.0),
        lambda: RegionConfig(fanout=0),
    ],
)
def test_settings_that_make_no_sense(make: object) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match="is too small"):
        make()
