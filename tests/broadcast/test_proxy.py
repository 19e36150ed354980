"""Proxies: the Proxy-Level Protocol (Sprinkler, section 3.1), and what is published (Figure 1)."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from sirius.broadcast.config import ProxyConfig, RegionConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import EventBatch, Kind, Stream, hole
from sirius.broadcast.history import History, MemoryHistory
from sirius.broadcast.limits import Limits
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
from tests.broadcast.histories import data, gc, keyed

X, Y, Z = Peer("X"), Peer("Y"), Peer("Z")
S = Stream("s")
LAYOUT = Layout((X, Y, Z), {S: Y})
CONFIG = ProxyConfig(switch_c=10.0)


class World:
    """Proxies, and links that can be cut. Y owns the stream."""

    def __init__(self, config: ProxyConfig = CONFIG) -> None:
        self.now = 1.0
        self.histories: dict[Peer, MemoryHistory] = {}
        self.cut: set[tuple[Peer, Peer]] = set()
        self.log: list[str] = []
        self.proxies = {name: self.boot(name, config) for name in (X, Y, Z)}

    def boot(self, name: Peer, config: ProxyConfig, life: int = 1) -> Proxy:
        def open_history(_: Stream) -> History:
            return self.histories.setdefault(name, MemoryHistory())

        rng = random.Random(name)
        return Proxy(name, LAYOUT, open_history, config, rng, now=self.now, life=life)

    def post(self, source: Peer, effects: Effects) -> None:
        for target, message in effects.send:
            if target in self.proxies and (source, target) not in self.cut:
                self.log.append(f"{source} to {target}: {shown(message)}")
                self.proxies[target].at(self.now, 0)
                self.post(target, self.proxies[target].step(source, message))

    def tick(self, name: Peer, after: float = 0.0) -> None:
        self.now += after
        self.post(name, self.proxies[name].tick(self.now, int(self.now * 1e6)))

    def publish(self, *keys: str) -> None:
        batch = EventBatch.of([key.encode() for key in keys])
        answer, effects = self.proxies[Y].publish(S, batch)
        assert isinstance(answer, Published)
        self.post(Y, effects)

    def count(self, name: Peer) -> int:
        return self.proxies[name].counts[0][1]


def shown(message: Message) -> str:
    match message:
        case Advertise(((_, count),)):
            return f"advertises {count}"
        case Subscribe(_, after, _):
            return f"subscribes behind {after}"
        case Unsubscribe():
            return "unsubscribes"
        case Forward(_, batch):
            return f"events {batch.first} to {batch.last}"
    return type(message).__name__


def lone(
    config: ProxyConfig = CONFIG, name: Peer = X, history: MemoryHistory | None = None
) -> Proxy:
    """One proxy, spoken to by hand."""
    kept = MemoryHistory() if history is None else history
    rng = random.Random(1)
    return Proxy(name, LAYOUT, lambda _: kept, config, rng, now=0.0, life=1)


def sent(effects: Effects, *kinds: type[Message]) -> list[tuple[Peer, Message]]:
    return [each for each in effects.send if isinstance(each[1], kinds)]


def advertise(proxy: Proxy, sender: Peer, count: int, now: float) -> list[tuple[Peer, Message]]:
    proxy.at(now, 0)
    effects = proxy.step(sender, Advertise(((S, Seq(count)),)))
    return sent(effects, Subscribe, Unsubscribe)


# ---------------------------------------------------------------------- the figures


def test_figure_2_a_link_goes_down_and_is_bypassed() -> None:
    world = World()
    world.publish("a", "b", "c")
    world.tick(Y)
    assert world.log == [
        "Y to X: advertises 3",
        "X to Y: subscribes behind 0",
        "Y to X: events 1 to 3",
        "Y to Z: advertises 3",
        "Z to Y: subscribes behind 0",
        "Y to Z: events 1 to 3",
    ]
    world.log.clear()
    world.publish("d")
    assert world.log == ["Y to X: events 4 to 4", "Y to Z: events 4 to 4"]
    world.cut = {(Y, Z), (Z, Y)}
    world.log.clear()
    world.publish(*"efghijklmnopqrstuvwxyz")
    world.tick(X, after=1.0)
    assert world.log == [
        "Y to X: events 5 to 26",
        "X to Y: advertises 26",
        "X to Z: advertises 26",
        "Z to X: subscribes behind 4",
        "X to Z: events 5 to 26",
        "X to Y: subscribes behind 26",
    ]
    world.log.clear()
    world.publish("1")
    assert world.log == ["Y to X: events 27 to 27", "X to Z: events 27 to 27"]
    assert world.proxies[Z].source(S) == X


def test_figure_1_events_are_numbered_and_kept() -> None:
    proxy = lone(name=Y)
    for first, keys in ((1, [b"a", b"b"]), (3, [b"c"])):
        answer, _ = proxy.publish(S, EventBatch.of(keys))
        assert answer == Published(S, 0, 0, Seq(first), Seq(first + len(keys) - 1))


# ---------------------------------------------------------------------- whom to subscribe to


def test_the_first_who_has_something_is_the_source() -> None:
    proxy = lone()
    assert advertise(proxy, Z, 0, now=1.0) == []
    assert advertise(proxy, Z, 1, now=1.0) == [(Z, Subscribe(S, Seq(0), (1, 1)))]


@pytest.mark.parametrize(
    ("count", "elapsed", "switches"), [(105, 2.0, False), (106, 2.0, True), (102, 6.0, True)]
)
def test_another_source_has_to_be_ahead_by_c_over_the_time_since(
    count: int, elapsed: float, switches: bool
) -> None:
    """Figure 1: cnt > expects.seq + C/(T - t), with C = 10."""
    proxy = lone(replace(CONFIG, patience_s=99.0))
    advertise(proxy, Y, 100, now=1.0)
    found = advertise(proxy, Z, count, now=1.0 + elapsed)
    if switches:
        assert found == [(Y, Unsubscribe(S, (1, 1))), (Z, Subscribe(S, Seq(0), (1, 2)))]
    else:
        assert found == []


def test_progress_of_the_source_keeps_it() -> None:
    proxy = lone(replace(CONFIG, patience_s=99.0))
    advertise(proxy, Y, 100, now=1.0)
    advertise(proxy, Y, 200, now=2.0)
    assert advertise(proxy, Z, 205, now=2.5) == []
    assert proxy.source(S) == Y


def test_nobody_switches_to_who_has_nothing_new() -> None:
    """What is pushed runs ahead of what is advertised: two proxies would subscribe to each other."""
    proxy = lone()
    advertise(proxy, Y, 1, now=1.0)
    proxy.step(Y, Forward(S, data(1, *map(str, range(50)))))
    assert advertise(proxy, Z, 50, now=99.0) == []
    assert proxy.source(S) == Y


def test_the_lead_of_another_source_is_over_what_one_has() -> None:
    proxy = lone(replace(CONFIG, patience_s=99.0))
    advertise(proxy, Y, 1, now=1.0)
    proxy.step(Y, Forward(S, data(1, *map(str, range(50)))))
    assert advertise(proxy, Z, 60, now=2.0) == []
    assert advertise(proxy, Z, 61, now=2.0) != []


def test_what_a_dead_source_announced_does_not_keep_one_from_taking_what_others_have() -> None:
    proxy = lone(replace(CONFIG, patience_s=1.0))
    advertise(proxy, Y, 1000, now=1.0)
    assert advertise(proxy, Z, 80, now=1.5) == []
    assert advertise(proxy, Z, 80, now=2.0) == [
        (Y, Unsubscribe(S, (1, 1))),
        (Z, Subscribe(S, Seq(0), (1, 2))),
    ]


def test_advertisements_go_to_all_others_again_and_again() -> None:
    proxy = lone()
    for now in (0.0, 0.2, 0.4):
        assert sent(proxy.tick(now, 0), Advertise) == [
            (Y, Advertise(((S, Seq(0)),))),
            (Z, Advertise(((S, Seq(0)),))),
        ]
    assert sent(proxy.tick(0.5, 0), Advertise) == []


def test_one_s_own_streams_and_unknown_ones_are_not_subscribed_to() -> None:
    proxy = lone(name=Y)
    assert advertise(proxy, Z, 100, now=1.0) == []
    assert proxy.step(Z, Advertise(((Stream("?"), Seq(5)),))).send == []


# ---------------------------------------------------------------------- the subscriber's end


def following(config: ProxyConfig = CONFIG) -> Proxy:
    """A proxy that is subscribed to Y, at time 1."""
    proxy = lone(config)
    advertise(proxy, Y, 100, now=1.0)
    return proxy


def test_what_comes_next_is_taken_whoever_sent_it() -> None:
    proxy = following()
    proxy.step(Z, Forward(S, data(1, "a", "b")))
    assert proxy.counts == ((S, 2),)


def test_repetitions_and_overlaps_change_nothing() -> None:
    proxy = following()
    for batch in (data(1, "a", "b"), data(1, "a", "b"), data(2, "b", "c"), data(1, "a")):
        proxy.step(Y, Forward(S, batch))
    assert proxy.counts == ((S, 3),)


def test_what_is_early_waits_for_what_is_late() -> None:
    proxy = following()
    for batch in (data(4, "d"), data(3, "c"), data(2, "b")):
        proxy.step(Y, Forward(S, batch))
        assert proxy.counts == ((S, 0),)
    proxy.step(Y, Forward(S, data(1, "a")))
    assert proxy.counts == ((S, 4),)


def test_a_gap_that_stays_begins_the_subscription_anew() -> None:
    proxy = following(replace(CONFIG, gap_s=0.05, retry_s=9.0))
    proxy.step(Y, Forward(S, data(1, "a")))
    proxy.at(1.2, 0)
    proxy.step(Y, Forward(S, data(3, "c")))
    assert sent(proxy.tick(1.22, 0), Subscribe) == []
    assert sent(proxy.tick(1.25, 0), Subscribe) == [(Y, Subscribe(S, Seq(1), (1, 2)))]


def test_silence_although_there_is_more_begins_it_anew() -> None:
    proxy = following(replace(CONFIG, retry_s=0.25))
    assert sent(proxy.tick(1.2, 0), Subscribe) == []
    assert sent(proxy.tick(1.3, 0), Subscribe) == [(Y, Subscribe(S, Seq(0), (1, 2)))]


def test_a_subscription_is_confirmed_now_and_then_and_when_half_the_window_has_come() -> None:
    proxy = following(replace(CONFIG, renew_s=0.5, retry_s=9.0, window_bytes=1000))
    assert sent(proxy.tick(1.5, 0), Subscribe) == [(Y, Subscribe(S, Seq(0), (1, 1)))]
    assert sent(proxy.tick(1.6, 0), Subscribe) == []
    effects = proxy.step(Y, Forward(S, data(1, "k" * 500)))
    assert sent(effects, Subscribe) == [(Y, Subscribe(S, Seq(1), (1, 1)))]


def test_garbage_from_a_peer_is_counted_and_not_believed() -> None:
    proxy = following()
    proxy.step(Y, Forward(S, gc(1, "seq >")))
    assert (proxy.bad_messages, proxy.counts) == (1, ((S, 0),))
    proxy.step(Y, Forward(S, data(1, "a")))
    assert proxy.counts == ((S, 1),)


def test_nobody_forwards_to_the_owner() -> None:
    proxy = lone(name=Y)
    proxy.step(X, Forward(S, data(1, "a")))
    assert proxy.counts == ((S, 0),)


# ---------------------------------------------------------------------- the source's end


def source(config: ProxyConfig = CONFIG, *batches: EventBatch) -> Proxy:
    history = MemoryHistory()
    for batch in batches:
        history.append(batch)
    return lone(config, Y, history)


def subscribe(proxy: Proxy, after: int, epoch: int = 1, now: float = 0.0) -> list[EventBatch]:
    proxy.at(now, 0)
    return forwarded(proxy.step(Z, Subscribe(S, Seq(after), (1, epoch))))


def forwarded(effects: Effects) -> list[EventBatch]:
    return [message.batch for _, message in effects.send if isinstance(message, Forward)]


def test_a_subscriber_gets_what_is_left_of_the_history_from_where_it_got_to() -> None:
    proxy = source(CONFIG, keyed(1, "a", "b", "a", "c"))
    (batch,) = subscribe(proxy, after=1)
    assert (batch.first, batch.last, batch.seqs.tolist()) == (2, 4, [2, 3, 4])
    (batch,) = subscribe(proxy, after=0, epoch=2)
    assert (batch.first, batch.last, batch.seqs.tolist()) == (1, 4, [2, 3, 4])


def test_what_is_new_is_passed_on_as_it_came() -> None:
    """No work an event on the way: the very columns travel, and their bytes."""
    proxy = lone()
    advertise(proxy, Y, 1, now=1.0)
    subscribe(proxy, after=0)
    batch = data(1, "a", "b")
    assert forwarded(proxy.step(Y, Forward(S, batch))) == [batch]


def test_no_more_than_a_window_is_under_way() -> None:
    config = replace(CONFIG, window_bytes=400, forward_bytes_max=10)
    proxy = source(config, data(1, *[f"{n:0100}" for n in range(10)]))
    found = subscribe(proxy, after=0)
    assert [batch.last for batch in found] == [1, 2, 3]
    assert proxy.under_way >= 400
    assert subscribe(proxy, after=0) == []
    assert [batch.last for batch in subscribe(proxy, after=2)] == [4, 5]


def test_a_higher_epoch_begins_anew_and_a_lower_one_is_old() -> None:
    proxy = source(CONFIG, data(1, "a", "b"))
    assert [batch.last for batch in subscribe(proxy, after=0, epoch=2)] == [2]
    assert subscribe(proxy, after=0, epoch=2) == []
    assert subscribe(proxy, after=0, epoch=1) == []
    assert [batch.first for batch in subscribe(proxy, after=1, epoch=3)] == [2]


def test_what_an_earlier_life_confirmed_does_not_count() -> None:
    """A proxy that lost a foreign stream begins again, while an old confirmation is still on its way."""
    proxy = source()
    subscribe(proxy, after=0, epoch=2)
    assert subscribe(proxy, after=5, epoch=1) == []
    assert forwarded(proxy.publish(S, EventBatch.of([b"a"]))[1]) != []


def test_who_unsubscribes_gets_no_more() -> None:
    proxy = source()
    subscribe(proxy, after=0, epoch=2)
    proxy.step(Z, Unsubscribe(S, (1, 1)))
    assert forwarded(proxy.publish(S, EventBatch.of([b"a"]))[1]) != []
    proxy.step(Z, Unsubscribe(S, (1, 2)))
    assert forwarded(proxy.publish(S, EventBatch.of([b"a"]))[1]) == []


def test_who_is_silent_is_forgotten() -> None:
    proxy = source(replace(CONFIG, subscriber_timeout_s=2.0))
    subscribe(proxy, after=0)
    proxy.tick(1.9, 0)
    assert forwarded(proxy.publish(S, EventBatch.of([b"a"]))[1]) != []
    proxy.tick(2.1, 0)
    assert forwarded(proxy.publish(S, EventBatch.of([b"a"]))[1]) == []


def test_subscribers_are_bounded() -> None:
    proxy = source(replace(CONFIG, subscribers_max=1), data(1, "a"))
    assert forwarded(proxy.step(X, Subscribe(S, Seq(0), (1, 1)))) != []
    assert subscribe(proxy, after=0) == []


# ---------------------------------------------------------------------- publishing


def publish(proxy: Proxy, batch: EventBatch, serial: int = 1, stream: Stream = S) -> object:
    effects = proxy.step(Peer("c"), Publish(stream, 7, serial, batch))
    answers = sent(effects, Published, Refused)
    return answers[0][1] if answers else None


def test_a_repeated_publication_takes_effect_once() -> None:
    history = MemoryHistory()
    proxy = lone(name=Y, history=history)
    batch = EventBatch.of([b"a", b"b"])
    for _ in range(3):
        assert publish(proxy, batch) == Published(S, 7, 1, Seq(1), Seq(2))
    reborn = lone(name=Y, history=history)
    assert publish(reborn, batch) == Published(S, 7, 1, Seq(1), Seq(2))
    assert publish(reborn, batch, serial=2) == Published(S, 7, 2, Seq(3), Seq(4))
    assert publish(reborn, batch, serial=1) is None
    assert history.last == 4


@pytest.mark.parametrize(
    ("stream", "batch", "reason"),
    [
        ("?", EventBatch.of([b"a"]), "there is no stream '?'"),
        ("s", EventBatch.of([b"a" * 99]), "a key of 99 bytes is longer than 10"),
        ("s", EventBatch.of([]), "what is published has events"),
        ("s", hole(Seq(1), Seq(2)), "no holes"),
        ("s", replace(EventBatch.of([b"a", b"b"]), times=np.array([1, 2])), "no times of its own"),
        ("s", EventBatch.of([b""], Kind.GC, payloads=[b"seq >"]), "\n  seq >\n      ^"),
    ],
)
def test_what_cannot_be_published_is_refused(stream: str, batch: EventBatch, reason: str) -> None:
    proxy = lone(replace(CONFIG, limits=Limits(key_bytes_max=10)), Y)
    answer = publish(proxy, batch, stream=Stream(stream))
    assert isinstance(answer, Refused)
    assert reason in answer.reason
    assert not answer.again
    assert proxy.counts == ((S, 0),)


def test_only_the_owner_takes_publications() -> None:
    answer = publish(lone(), EventBatch.of([b"a"]))
    assert isinstance(answer, Refused)
    assert answer.reason == "stream 's' belongs to Y, not to X"


def test_a_full_stream_takes_nothing_but_what_makes_room() -> None:
    proxy = lone(replace(CONFIG, history_bytes_max=100), Y)
    publish(proxy, EventBatch.of([b"a" * 200], Kind.DATA))
    answer = publish(proxy, EventBatch.of([b"b"]), serial=2)
    assert isinstance(answer, Refused)
    assert answer.again
    assert isinstance(publish(proxy, gc(1, "seq < 2"), serial=3), Published)
    assert isinstance(publish(proxy, EventBatch.of([b"b"]), serial=4), Published)


def test_time_does_not_fall_when_the_clock_does() -> None:
    history = MemoryHistory()
    proxy = lone(name=Y, history=history)
    for time_us in (5000, 3000, 6000):
        proxy.at(0.0, time_us)
        proxy.publish(S, EventBatch.of([b"a"], Kind.DATA))
    assert history.read(Seq(1), Seq(3), 99).times.tolist() == [5000, 5000, 6000]


# ---------------------------------------------------------------------- in the region


def test_a_proxy_notifies_a_few_clients_and_answers_requests() -> None:
    """Section 3.2: the proxy is one of the members."""
    config = replace(CONFIG, region=RegionConfig(fanout=2, shuffle_s=9.0))
    proxy = lone(config, Y)
    for name in ("a", "b", "c"):
        proxy.step(Peer(name), Gossip((), wants_answer=True))
    _, effects = proxy.publish(S, EventBatch.of([b"k"]))
    told = sent(effects, Notify)
    assert len({peer for peer, _ in told}) == 2
    assert {message for _, message in told} == {Notify(((S, Seq(1)),))}
    ((_, answer),) = proxy.step(Peer("a"), Request(S, Seq(1), Seq(5), 9)).send
    assert isinstance(answer, Events)
    assert (answer.number, answer.position) == (9, 1)
    assert [batch.last for batch in answer.batches] == [1]
    ((_, answer),) = proxy.step(Peer("a"), Request(S, Seq(2), Seq(5), 10)).send
    assert answer == Events(S, 10, Seq(1), ())


def test_a_quiet_stream_is_notified_again() -> None:
    """Gossip is not agreement: the last event would be missed otherwise."""
    proxy = lone(replace(CONFIG, region=RegionConfig(notify_s=0.2)), Y)
    proxy.step(Peer("a"), Gossip((), wants_answer=True))
    proxy.publish(S, EventBatch.of([b"k"]))
    for now in (0.2, 0.4):
        assert sent(proxy.tick(now, 0), Notify) == [(Peer("a"), Notify(((S, Seq(1)),)))]


def test_who_is_far_behind_is_answered_from_the_history() -> None:
    proxy = source(CONFIG, keyed(1, "a", "b"), keyed(3, "a", "b"))
    ((_, answer),) = proxy.step(Peer("a"), Request(S, Seq(1), Seq(4), 1)).send
    assert isinstance(answer, Events)
    (batch,) = answer.batches
    assert (batch.first, batch.last, batch.seqs.tolist()) == (1, 4, [3, 4])
