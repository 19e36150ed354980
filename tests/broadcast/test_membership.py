"""Views: gossip membership (Sprinkler, section 3.2)."""

from __future__ import annotations

import random

import pytest

from sirius.broadcast.config import RegionConfig
from sirius.broadcast.context import Context
from sirius.broadcast.membership import View
from sirius.broadcast.messages import Gossip, Peer

PROXY = Peer("P")


def peers(count: int) -> list[Peer]:
    return [Peer(f"c{number}") for number in range(count)]


def view_of(
    config: RegionConfig, name: str = "me", proxy: Peer | None = PROXY
) -> tuple[View, Context]:
    context = Context(Peer(name), random.Random(name), 0.0)
    return View(context, config, proxy), context


class Region:
    """Some members, and a network without faults."""

    def __init__(self, count: int, config: RegionConfig) -> None:
        self.views: dict[Peer, tuple[View, Context]] = {PROXY: view_of(config, PROXY, None)}
        for name in peers(count):
            self.views[name] = view_of(config, name)
        self.now = 0.0

    def round(self) -> None:
        self.now += 0.05
        for view, context in list(self.views.values()):
            context.at(self.now)
            view.tick()
        while self.deliver():
            pass

    def deliver(self) -> int:
        sent = [
            (name, *each)
            for name, (_, context) in self.views.items()
            for each in context.taken().send
        ]
        for source, target, message in sent:
            assert isinstance(message, Gossip)
            if target in self.views:
                self.views[target][0].gossip(source, message)
        return len(sent)

    def reached(self, start: Peer) -> set[Peer]:
        """Return who hangs together with one, whoever knows whom."""
        found: set[Peer] = set()
        more = {start}
        while more:
            found |= more
            known = {peer for name in more for peer in self.views[name][0].members}
            knowing = {
                name for name, (view, _) in self.views.items() if not more.isdisjoint(view.members)
            }
            more = (known | knowing) & set(self.views) - found
        return found


def test_a_new_client_knows_the_proxy_alone() -> None:
    view, _ = view_of(RegionConfig())
    assert view.members == (PROXY,)


def test_the_sender_of_a_view_is_always_in_the_new_one() -> None:
    """Reinforcement: without it the graph becomes a star."""
    view, _ = view_of(RegionConfig(view_max=3))
    for number in range(50):
        sender = Peer(f"s{number}")
        view.gossip(sender, Gossip(tuple(peers(10)), wants_answer=False))
        assert sender in view.members
        assert len(view.members) <= 3
        assert Peer("me") not in view.members


def test_who_asks_is_answered_and_who_answers_is_not() -> None:
    view, context = view_of(RegionConfig())
    view.gossip(Peer("a"), Gossip((), wants_answer=True))
    assert context.taken().send == [(Peer("a"), Gossip((PROXY,), wants_answer=False))]
    view.gossip(Peer("a"), Gossip((), wants_answer=False))
    assert context.taken().send == []


def test_a_view_that_is_not_full_has_the_proxy_as_a_neighbour() -> None:
    view, _ = view_of(RegionConfig(view_max=3))
    view._members = peers(2)
    assert PROXY in view.neighbours
    view._members = peers(3)
    assert PROXY not in view.neighbours


def test_a_few_are_notified_and_others_after_a_shuffle() -> None:
    """Section 3.2, shuffling: a subset of size F that changes."""
    view, context = view_of(RegionConfig(view_max=20, fanout=4, shuffle_s=0.03))
    view._members = peers(20)
    first = view.targets
    assert len(set(first)) == 4
    assert view.targets == first
    context.at(0.03)
    assert view.targets != first


def test_who_does_not_answer_leaves_the_view_and_is_not_taken_back_on_hearsay() -> None:
    config = RegionConfig(gossip_timeout_s=0.4, suspect_s=3.0)
    view, context = view_of(config)
    view._members = [Peer("dead")]
    view._proxy = None
    view.tick()
    context.at(0.5)
    view.tick()
    assert view.members == ()
    view.gossip(Peer("a"), Gossip((Peer("dead"),), wants_answer=False))
    assert Peer("dead") not in view.members
    view.gossip(Peer("dead"), Gossip((), wants_answer=False))
    assert Peer("dead") in view.members


def test_suspicion_ends() -> None:
    view, context = view_of(RegionConfig(gossip_timeout_s=0.4, suspect_s=3.0))
    view._unanswered[Peer("late")] = 0.0
    view.tick()
    context.at(3.5)
    view._gossip_at = 99.0
    view.tick()
    view.gossip(Peer("a"), Gossip((Peer("late"),), wants_answer=False))
    assert Peer("late") in view.members


@pytest.mark.parametrize("count", [3, 40])
def test_everybody_reaches_everybody(count: int) -> None:
    region = Region(count, RegionConfig(view_max=6))
    for _ in range(100):
        region.round()
    for name in region.views:
        assert region.reached(name) == set(region.views)


def test_who_is_gone_disappears_from_all_views() -> None:
    region = Region(10, RegionConfig(view_max=20))
    for _ in range(60):
        region.round()
    gone = peers(10)[:4]
    for name in gone:
        del region.views[name]
    for _ in range(200):
        region.round()
    assert not {peer for view, _ in region.views.values() for peer in view.members} & set(gone)


def test_a_partition_mends_itself_through_the_proxy() -> None:
    """Section 3.2: each client occasionally gossips with its proxy."""
    region = Region(12, RegionConfig(view_max=3, proxy_share=0.1))
    names = peers(12)
    for group in (names[:6], names[6:]):
        for name in group:
            region.views[name][0]._members = [peer for peer in group if peer != name][:3]
    region.views[PROXY][0]._members = names[:3]
    for _ in range(300):
        region.round()
    assert region.reached(names[0]) == set(region.views)
