"""Clients and proxies against peers that answer late, twice, too much, nothing, or what nobody asked for."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.broadcast.client import Client
from sirius.broadcast.config import ClientConfig, ProxyConfig, RegionConfig
from sirius.broadcast.events import Event, EventBatch, Stream
from sirius.broadcast.history import MemoryHistory
from sirius.broadcast.messages import (
    Advertise,
    Events,
    Forward,
    Gossip,
    Message,
    Notify,
    Peer,
    Publish,
    Published,
    Refused,
    Request,
    Subscribe,
    Unsubscribe,
)
from sirius.broadcast.proxy import Layout, Proxy
from sirius.types import Seq
from tests.broadcast.histories import ALL, data, events_of, read_all
from tests.broadcast.strategies import batch_of, placed
from tests.broadcast.test_client import A, B, P, S, answer, ask, client, notify, requests

# ---------------------------------------------------------------------- storms


def asked_in_a_second(machine: Client, position: int, rtt_s: float = 0.002) -> int:
    """Count the requests to everybody within a second, where all answer that they have nothing."""
    waiting = deque(requests(machine.step(P, Notify(((S, Seq(9)),)))))
    now, asked = 0.0, 0
    while now < 1.0:
        now += rtt_s
        machine.at(now)
        for peer, message in [waiting.popleft() for _ in range(len(waiting))]:
            assert isinstance(message, Request)
            asked += 1
            waiting += requests(answer(machine, peer, message.number, position))
        waiting += requests(machine.tick(now))
    return asked


def test_a_proxy_that_has_lost_events_is_not_asked_in_a_circle() -> None:
    """A proxy that starts again without foreign streams is behind its clients: thousands must not ask it at once."""
    assert asked_in_a_second(client(), position=0) <= 4


def test_neighbours_who_have_discarded_what_a_proxy_has_lost_are_not_asked_in_a_circle() -> None:
    machine = client()
    machine.step(A, Notify(((S, Seq(9)),)))
    assert asked_in_a_second(machine, position=0) <= 6


def test_what_nobody_has_is_asked_for_again_when_somebody_has_it() -> None:
    machine = client()
    notify(machine, P, 9)
    assert requests(answer(machine, P, 1, 3)) == []
    assert notify(machine, B, 9) == [(B, ask(1, 9, 2))]
    answer(machine, B, 2, 9, data(1, *"abcdefghi"))
    assert machine.counts == ((S, 9),)


def test_a_count_that_cannot_be_ends_with_the_proxy() -> None:
    machine = client()
    asked = deque(notify(machine, A, 1 << 61))
    rounds = 0
    while asked:
        rounds += 1
        assert rounds < 20
        peer, message = asked.popleft()
        assert isinstance(message, Request)
        asked += requests(answer(machine, peer, message.number, 0))


# ---------------------------------------------------------------------- answers to somebody else


def test_an_answer_of_another_does_not_end_a_request() -> None:
    machine = client()
    notify(machine, A, 9)
    assert requests(answer(machine, B, 1, 9)) == []
    assert machine.fetching(S).requests == 1
    assert requests(answer(machine, A, 1, 9)) == [(P, ask(1, 9, 2))]


def test_an_answer_to_an_earlier_life_does_not_end_a_request() -> None:
    """Numbers begin anew with each life: this one was for number 1 of the life before."""
    machine = client()
    notify(machine, A, 9)
    answer(machine, A, 1, 60, data(50, "x", "y"))
    assert machine.fetching(S).requests == 1
    answer(machine, A, 1, 9, data(1, *"abcdefghi"))
    assert machine.counts == ((S, 9),)


# ---------------------------------------------------------------------- everything at once

SMALL = ClientConfig(
    request_events_max=5,
    requests_max=3,
    ahead_bytes_max=300,
    backlog_bytes_max=600,
    recent_bytes_max=300,
    region=RegionConfig(fanout=2, reply_bytes_max=120),
)


class Truth:
    """A stream as its owner has it, and batches of any part of it."""

    def __init__(self, batches: list[list[Event]]) -> None:
        self.events = [event for batch in batches for event in batch]
        self.last = self.events[-1].seq

    def part(self, first: int, last: int) -> EventBatch:
        inside = [event for event in self.events if first <= event.seq <= last]
        return batch_of(inside, first, last)


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    found: list[list[Event]] = []
    first, time = 1, 0
    for _ in range(draw(st.integers(1, 5))):
        found.append(draw(placed(first, time)))
        first, time = found[-1][-1].seq + 1, found[-1][-1].time
    return Truth(found)


class Given:
    """What a client's application was given."""

    def __init__(self, machine: Client, truth: Truth) -> None:
        self.machine, self.truth = machine, truth
        self.events: list[Event] = []
        self.position = 0
        self.asked: list[tuple[Peer, Request]] = []

    def take(self, sender: Peer, message: Message) -> None:
        self.check(self.machine.step(sender, message))

    def check(self, effects: object) -> None:
        for stream, batch in effects.deliver:  # type: ignore[attr-defined]
            assert (stream, batch.first) == (S, self.position + 1)
            self.position = batch.last
            self.events += batch.events()
        expected = [event for event in self.truth.events if event.seq <= self.position]
        assert self.events == expected
        self.asked += [
            (peer, message)
            for peer, message in effects.send  # type: ignore[attr-defined]
            if isinstance(message, Request)
        ]
        state = self.machine.fetching(S)
        assert state.requests <= SMALL.requests_max
        assert state.waiting_bytes <= SMALL.ahead_bytes_max


@settings(max_examples=80, deadline=None)
@given(truths(), st.data())
def test_whatever_comes_is_delivered_once_in_order_and_in_the_end_all_of_it(
    truth: Truth, drawn: st.DataObject
) -> None:
    given_to = Given(client(SMALL), truth)
    now = 0.0
    for _ in range(drawn.draw(st.integers(0, 15))):
        now += drawn.draw(st.sampled_from((0.0, 0.05, 0.5)))
        sender = drawn.draw(st.sampled_from((P, A, B)))
        given_to.machine.at(now)
        match drawn.draw(st.sampled_from(("notify", "part", "answer", "nothing", "tick", "took"))):
            case "notify":
                count = drawn.draw(st.integers(0, truth.last + 3))
                given_to.take(sender, Notify(((S, Seq(count)),)))
            case "part":
                first = drawn.draw(st.integers(1, truth.last))
                last = drawn.draw(st.integers(first, truth.last))
                number = drawn.draw(st.integers(0, 6))
                position = Seq(drawn.draw(st.integers(0, truth.last)))
                batches = (truth.part(first, last),)
                given_to.take(sender, Events(S, number, position, batches))
            case "answer" if given_to.asked:
                peer, request = drawn.draw(st.sampled_from(given_to.asked))
                first = min(request.first, truth.last)
                last = min(request.last, truth.last)
                given_to.take(
                    peer, Events(S, request.number, Seq(last), (truth.part(first, last),))
                )
            case "nothing" if given_to.asked:
                peer, request = drawn.draw(st.sampled_from(given_to.asked))
                given_to.take(peer, Events(S, request.number, Seq(0), ()))
            case "tick":
                given_to.check(given_to.machine.tick(now))
            case "took":
                given_to.check(given_to.machine.consumed(S, Seq(given_to.position)))
    serve(given_to, now)
    assert given_to.position == truth.last


def serve(given_to: Given, now: float) -> None:
    """Answer as a proxy does that has everything, for 5 seconds; others are gone."""
    truth, machine = given_to.truth, given_to.machine
    given_to.asked.clear()
    for _ in range(100):
        now += 0.05
        machine.at(now)
        given_to.check(machine.consumed(S, Seq(given_to.position)))
        asked, given_to.asked = given_to.asked, []
        for peer, request in asked:
            if peer == P and request.first <= truth.last:
                batch = truth.part(request.first, min(request.last, truth.last))
                given_to.take(P, Events(S, request.number, Seq(truth.last), (batch,)))
            elif peer == P:
                given_to.take(P, Events(S, request.number, Seq(truth.last), ()))
        given_to.check(machine.tick(now))
        given_to.take(P, Notify(((S, Seq(truth.last)),)))


# ---------------------------------------------------------------------- proxies

X, Y = Peer("X"), Peer("Y")
TIGHT = ProxyConfig(window_bytes=400, forward_bytes_max=100, recent_bytes_max=200, switch_c=0.0)


def proxy(history: MemoryHistory, config: ProxyConfig = TIGHT) -> Proxy:
    layout = Layout((X, Y, P), {S: Y})
    return Proxy(X, layout, lambda _: history, config, random.Random(1), now=0.0, life=1)


@settings(max_examples=60, deadline=None)
@given(truths(), st.data())
def test_a_proxy_has_a_prefix_of_the_truth_whatever_comes(
    truth: Truth, drawn: st.DataObject
) -> None:
    history = MemoryHistory(random.Random(1))
    machine, now = proxy(history), 0.0
    for _ in range(drawn.draw(st.integers(0, 15))):
        now += drawn.draw(st.sampled_from((0.0, 0.05, 0.5)))
        sender = drawn.draw(st.sampled_from((Y, P)))
        machine.at(now, int(now * 1e6))
        first = drawn.draw(st.integers(1, truth.last))
        last = drawn.draw(st.integers(first, truth.last))
        count = Seq(drawn.draw(st.integers(0, truth.last + 2)))
        match drawn.draw(st.sampled_from(("forward", "next", "advertise", "subscribe", "tick"))):
            case "forward":
                machine.step(sender, Forward(S, truth.part(first, last)))
            case "next" if history.last < truth.last:
                machine.step(sender, Forward(S, truth.part(history.last + 1, truth.last)))
            case "advertise":
                machine.step(sender, Advertise(((S, count), (Stream("t"), count))))
            case "subscribe":
                machine.step(sender, Subscribe(S, count, (1, drawn.draw(st.integers(0, 3)))))
            case "tick":
                machine.tick(now, int(now * 1e6))
        assert_is_prefix(history, truth)
    machine.step(Y, Forward(S, truth.part(1, truth.last)))
    assert history.last == truth.last
    assert_is_prefix(history, truth)


def assert_is_prefix(history: MemoryHistory, truth: Truth) -> None:
    """What is there was published; what is missing may have been collected, or came as a hole."""
    history.check()
    published = {event.seq: event for event in truth.events}
    for event in events_of(read_all(history, ALL)):
        assert published[event.seq] == event


@pytest.mark.parametrize("after", [0, 3, 1 << 61])
def test_a_subscriber_who_is_ahead_gets_what_comes_behind_it(after: int) -> None:
    history = MemoryHistory()
    machine = proxy(history)
    machine.step(Y, Forward(S, data(1, "a")))
    sent = machine.step(P, Subscribe(S, Seq(after), (1, 1))).send
    sent += machine.step(Y, Forward(S, data(2, "b", "c", "d", "e"))).send
    got = [message.batch for peer, message in sent if isinstance(message, Forward) and peer == P]
    # Batches travel as they came: whoever has their beginning cuts it off.
    assert [batch.first for batch in got] == {0: [1, 2], 3: [2]}.get(after, [])


# ---------------------------------------------------------------------- nonsense

numbers = st.one_of(st.integers(0, 12), st.sampled_from((1 << 32, (1 << 62) - 1, 1 << 62)))
names = st.sampled_from((X, Y, P, A, B, Peer(""), Peer("me")))
streams = st.sampled_from((S, Stream("t"), Stream("nobody's")))
seqs = numbers.map(Seq)
counts = st.lists(st.tuples(streams, seqs), max_size=3).map(tuple)


@st.composite
def some_batches(draw: st.DrawFn) -> EventBatch:
    first = draw(st.one_of(st.integers(1, 12), st.just((1 << 62) - 30)))
    events = draw(placed(first, draw(st.integers(0, 5))))
    return batch_of(events, first, events[-1].seq + draw(st.integers(0, 2)))


messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Advertise, counts),
    st.builds(Subscribe, streams, seqs, st.tuples(numbers, numbers)),
    st.builds(Unsubscribe, streams, st.tuples(numbers, numbers)),
    st.builds(Forward, streams, some_batches()),
    st.builds(Gossip, st.lists(names, max_size=30).map(tuple), st.booleans()),
    st.builds(Notify, counts),
    st.builds(Request, streams, seqs, seqs, numbers),
    st.builds(Events, streams, numbers, seqs, st.lists(some_batches(), max_size=3).map(tuple)),
    st.builds(Publish, streams, numbers, numbers, some_batches()),
    st.builds(Published, streams, numbers, numbers, seqs, seqs),
    st.builds(Refused, streams, numbers, numbers, st.just("why"), st.booleans()),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(names, messages), max_size=12), st.booleans())
def test_no_message_makes_a_machine_raise(said: list[tuple[Peer, Message]], is_owner: bool) -> None:
    """Whatever a peer says that can be decoded: it is used or ignored, and the bounds hold."""
    history = MemoryHistory()
    layout = Layout((X, Y, P), {S: X if is_owner else Y})
    one = Proxy(X, layout, lambda _: history, TIGHT, random.Random(1), now=0.0, life=1)
    other = client(SMALL)
    for number, (sender, message) in enumerate(said, start=1):
        now = number * 0.1
        one.at(now, number)
        other.at(now)
        one.step(sender, message)
        other.step(sender, message)
        one.tick(now, number)
        other.tick(now)
        history.check()
        assert len(other.view) <= SMALL.region.view_max
        assert other.fetching(S).requests <= SMALL.requests_max
