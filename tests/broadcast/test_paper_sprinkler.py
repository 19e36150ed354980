"""Sprinkler (Middleware 2013), sentence by sentence, where a machine can be held to it. Each test cites its section.

The figures of section 5 are in `test_evaluation`; Figure 2 is in `test_proxy`.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.broadcast.config import ClientConfig, ProxyConfig, RegionConfig
from sirius.broadcast.events import EventBatch, Kind, hole, holes
from sirius.broadcast.history import MemoryHistory
from sirius.broadcast.messages import (
    Advertise,
    Events,
    Forward,
    Gossip,
    Notify,
    Peer,
    Publish,
    Published,
    Request,
    Subscribe,
    Unsubscribe,
)
from sirius.types import Seq
from tests.broadcast.histories import ALL, data, events_of, gc, keyed, read_all
from tests.broadcast.test_client import A, B, S, answer, client, delivered, notify, requests
from tests.broadcast.test_membership import PROXY, Region, peers
from tests.broadcast.test_proxy import X, Y, Z, lone, sent

# ---------------------------------------------------------------------- section 2.1: the interface


def test_2_1_events_of_one_client_keep_their_order() -> None:
    """ "If the same client publishes e and e' for stream s in that order, then e ≺ e'." Also if answers are lost."""
    publisher, owner = client(), lone(name=Y)
    sent_first = publisher.publish(S, EventBatch.of([b"e"]))[1].send
    publisher.publish(S, EventBatch.of([b"e'"]))
    owner_answers = []
    for _ in range(3):
        for _, message in sent_first:
            assert isinstance(message, Publish)
            owner_answers += sent(owner.step(A, message), Published)
    (_, first), *repeated = owner_answers
    assert all(message == first for _, message in repeated)
    assert isinstance(first, Published)
    ((_, second),) = publisher.step(Peer("P"), first).send
    assert isinstance(second, Publish)
    ((_, stands),) = sent(owner.step(A, second), Published)
    assert isinstance(stands, Published)
    assert (first.first, stands.first) == (1, 2)


def test_2_1_a_tombstone_and_then_a_matching_gc_event() -> None:
    """Each client is delivered e, or a tombstone for e followed by a matching garbage collection event."""
    history = MemoryHistory()
    for batch in (keyed(1, "a"), keyed(2, "b"), keyed(3, "a")):
        history.append(batch)
    machine = client()
    notify(machine, A, 3)
    effects = answer(machine, A, 1, 3, history.read(Seq(1), Seq(3), ALL))
    ((_, batch),) = effects.deliver
    assert holes([batch]) == [(1, 1)]
    assert [(event.seq, event.key) for event in batch.events()] == [(2, b"b"), (3, b"a")]


def test_2_1_overlapping_tombstones_are_one() -> None:
    """ "Two consecutive tombstone events as well as two overlapping tombstone events can be replaced by one." """
    machine = client()
    notify(machine, A, 9)
    first = answer(machine, A, 1, 9, hole(Seq(1), Seq(4)))
    second = answer(machine, B, 7, 9, hole(Seq(3), Seq(8)))
    batches = [batch for _, batch in (*first.deliver, *second.deliver)]
    assert holes(batches) == [(1, 8)]
    assert delivered(second) == [(5, 8)]


# ---------------------------------------------------------------------- section 3.1 and Figure 1


def test_figure_1_add_remote_event_is_for_streams_of_others() -> None:
    """addRemoteEvent, precondition: e.stream ∉ streams_p and e.seq > cnt."""
    owner = lone(name=Y)
    owner.step(X, Forward(S, data(1, "a")))
    assert owner.counts == ((S, 0),)
    other = lone(name=X)
    other.step(Y, Forward(S, data(1, "a")))
    other.step(Y, Forward(S, data(1, "z")))
    assert other.counts == ((S, 1),)


class Paper:
    """`rcvAdvertisement` as it is printed, for one stream of which nothing has come in."""

    def __init__(self, c: float) -> None:
        self.c = c
        self.source: Peer | None = None
        self.seq, self.time = 0, 0.0

    def advertised(self, sender: Peer, count: int, now: float) -> None:
        lead = self.c / (now - self.time) if self.source is not None else 0.0
        if count > self.seq + lead:
            self.source, self.seq, self.time = sender, count, now


@settings(deadline=None)
@given(
    st.sampled_from((0.0, 1.0, 20.0)),
    st.lists(
        st.tuples(st.sampled_from((Y, Z)), st.integers(1, 60), st.sampled_from((0.25, 1.0, 4.0))),
        max_size=20,
    ),
)
def test_figure_1_sources_are_chosen_as_in_the_paper(
    c: float, adverts: list[tuple[Peer, int, float]]
) -> None:
    """While nothing comes in, and without our `patience_s`, the rule is the printed one, advert by advert."""
    machine = lone(replace(ProxyConfig(switch_c=c), patience_s=1e9))
    paper, now, subscribed = Paper(c), 1.0, 0
    for sender, count, pause in adverts:
        now += pause
        before = paper.source
        paper.advertised(sender, count, now)
        machine.at(now, 0)
        found = sent(machine.step(sender, Advertise(((S, Seq(count)),))), Subscribe, Unsubscribe)
        assert machine.source(S) == paper.source
        told = {(peer, type(message)) for peer, message in found}
        changes = paper.source != before
        subscribed += changes
        assert ((sender, Subscribe) in told) == changes
        assert ((before, Unsubscribe) in told) == (changes and before is not None)


def test_3_1_at_most_one_subscription_for_a_stream() -> None:
    """Whatever is advertised by whom, the others are told that they are not wanted any more."""
    rng = random.Random(4)
    machine = lone(ProxyConfig(switch_c=0.0))
    wanted: dict[Peer, bool] = {}
    for number in range(1, 200):
        machine.at(float(number), 0)
        sender = rng.choice((Y, Z))
        effects = machine.step(sender, Advertise(((S, Seq(number * rng.randrange(1, 3))),)))
        for peer, message in effects.send:
            wanted[peer] = isinstance(message, Subscribe)
        assert sum(wanted.values()) == 1
    assert len(wanted) == 2


# ---------------------------------------------------------------------- section 3.2 and Figure 3


def test_figure_3_deliver_event_broadcasts_a_notify() -> None:
    """deliverEvent: sendNotify(e.stream, cnt), to F of the neighbours; and nothing for what was delivered before."""
    machine = client()
    machine.step(A, Gossip((B,), wants_answer=False))
    notify(machine, A, 2)
    told = sent(answer(machine, A, 1, 2, data(1, "a", "b")), Notify)
    assert {message for _, message in told} == {Notify(((S, Seq(2)),))}
    assert sent(answer(machine, A, 1, 2, data(1, "a", "b")), Notify) == []


def test_figure_3_receive_notify_asks_once_for_each_event() -> None:
    """receiveNotify: next <= cnt; what was asked for is not asked for again."""
    machine = client()
    asked: list[int] = []
    for sender, count in ((A, 3), (B, 3), (B, 5), (A, 4), (A, 6)):
        for _, message in notify(machine, sender, count):
            assert isinstance(message, Request)
            asked += range(message.first, message.last + 1)
    assert asked == [1, 2, 3, 4, 5, 6]


def test_figure_3_receive_request_says_how_far_one_is() -> None:
    """receiveRequest: an EVENTS message, possibly empty, with cnt so that the recipient can tell what is missing."""
    machine = client(ClientConfig(recent_bytes_max=1))
    notify(machine, A, 4)
    answer(machine, A, 1, 4, data(1, "a", "b"), data(3, "c", "d"))
    assert sent(machine.step(B, Request(S, Seq(1), Seq(2), 5)), Events) == [
        (B, Events(S, 5, Seq(4), ()))
    ]
    ((_, found),) = sent(machine.step(B, Request(S, Seq(3), Seq(4), 6)), Events)
    assert isinstance(found, Events)
    assert [event.key for event in events_of(found.batches)] == [b"c", b"d"]


def test_figure_3_request_from_proxy_is_for_what_others_were_asked_for() -> None:
    """requestFromProxy(c, p, s): from cnt + 1 to next - 1."""
    machine = client(ClientConfig(request_timeout_s=0.4))
    notify(machine, A, 3)
    notify(machine, B, 5)
    answer(machine, A, 1, 3, data(1, "a"))
    found = [(peer, m.first, m.last) for peer, m in requests(machine.tick(0.5))]  # type: ignore[union-attr]
    assert sorted(found) == [("P", 2, 3), ("P", 4, 5)]


def test_3_2_views_are_a_random_graph_and_no_star() -> None:
    """Reinforcement: "without it the induced graph is likely to become star-like"."""
    config = RegionConfig(view_max=8, gossip_s=0.1)
    region = Region(120, config)
    for _ in range(120):
        region.round()
    known = dict.fromkeys(peers(120), 0)
    for view, _ in region.views.values():
        assert len(view.members) <= 8
        for peer in view.members:
            if peer != PROXY:
                known[peer] += 1
    assert sum(count == 0 for count in known.values()) <= 4
    assert max(known.values()) <= 4 * 8


@pytest.mark.parametrize("seed", range(6))
def test_3_2_no_partition_stays(seed: int) -> None:
    """Groups that know only themselves, and a proxy that knows one of them, find each other through the proxy."""
    rng = random.Random(seed)
    region = Region(24, RegionConfig(view_max=3, proxy_share=0.1, gossip_s=0.2))
    names = peers(24)
    rng.shuffle(names)
    size = rng.choice((3, 4, 8, 12))
    groups = [names[at : at + size] for at in range(0, 24, size)]
    for group in groups:
        for name in group:
            others = [peer for peer in group if peer != name]
            region.views[name][0]._members = rng.sample(others, min(3, len(others)))
    region.views[PROXY][0]._members = groups[0][:3]
    for _ in range(400):
        region.round()
    assert region.reached(names[-1]) == set(region.views)


# ---------------------------------------------------------------------- section 3.4: policies


def test_3_4_only_the_most_recent_n_are_kept() -> None:
    """ "An event at index i collects all events with indices less than i - N": each event is a GC event."""
    history, n = MemoryHistory(), 20
    for i in range(1, 201):
        history.append(gc(i, f"seq < {max(0, i - n)}"))
    assert [event.seq for event in events_of(read_all(history))] == list(range(180, 201))
    assert holes([history.read(Seq(1), Seq(200), ALL)]) == [(1, 179)]


def test_3_4_what_is_older_than_k_days_goes_once_a_day() -> None:
    history, day_us, first = MemoryHistory(), 86_400_000_000, 1
    for day in range(1, 11):
        now = day * day_us
        history.append(data(first, "x", "y", time=now))
        history.append(gc(first + 2, f"time < {now - 3 * day_us}", time=now))
        first += 3
    kept = events_of(read_all(history))
    assert {event.time // day_us for event in kept} == {7, 8, 9, 10}
    assert sum(event.kind == Kind.GC for event in kept) == 4


def test_3_4_a_later_invalidation_of_a_key_implies_the_earlier_one() -> None:
    history = MemoryHistory()
    for number in range(1, 100):
        history.append(keyed(number, f"k{number % 7}"))
    assert sorted(event.seq for event in events_of(read_all(history))) == list(range(93, 100))


def test_the_twin_of_figure_1_can_tell() -> None:
    """The paper's rule, by hand: C = 20, 4 s after 10, so more than 15 is wanted."""
    paper = Paper(20.0)
    paper.advertised(Y, 10, 1.0)
    paper.advertised(Z, 15, 5.0)
    assert paper.source == Y
    paper.advertised(Z, 16, 5.0)
    assert (paper.source, paper.seq) == (Z, 16)
