"""Nodes that do not vote: whom they send requests to."""

from __future__ import annotations

import random

from sirius.paxos import Configuration, Envelope, Machine, Member, PaxosConfig, Recovered
from sirius.paxos.effects import Effects
from sirius.paxos.messages import AskIndex, Beat, Forward, Hello, Message, Welcome
from sirius.types import Ballot, NodeId, Seq
from tests.paxos.words import WordCodec

A, B, C, D = (Member(NodeId(number), name) for number, name in enumerate("abcd", 1))
ABC = Configuration(77, 1, (A, B, C))
CONFIG = PaxosConfig()


def machine(me: Member) -> Machine:
    """Make a node that knows its cluster, at the time when it has heard of no leader for long."""
    disk = Recovered(cluster=77, configuration=ABC)
    found = Machine(me, CONFIG, WordCodec(), random.Random(1), 0.0, disk)
    found.wish(["a", "b", "c"])
    found.tick(10.0)
    return found


def said(effects: Effects, kind: type[Message]) -> list[tuple[Member, Message]]:
    return [each for each in effects.send_now if isinstance(each[1], kind)]


def told(node: Machine, sender: Member, message: Message) -> Effects:
    return node.step(Envelope(77, 1, sender, node.me.node, message))


def test_a_follower_sends_requests_to_the_leader_that_it_was_told_of() -> None:
    follower = machine(D)
    assert said(follower.propose(1, ["x"], 1), Forward) == []
    ((to, _),) = said(told(follower, B, Welcome(False, A)), Forward)
    assert to == A
    assert follower.leader == A
    assert [to for to, _ in said(follower.read(2), AskIndex)] == [A]


def test_it_turns_to_another_one_when_that_is_what_it_is_told() -> None:
    follower = machine(D)
    told(follower, B, Welcome(False, A))
    told(follower, B, Welcome(False, C))
    assert [to for to, _ in said(follower.propose(1, ["x"], 1), Forward)] == [C]


def test_it_asks_more_often_while_requests_wait() -> None:
    follower = machine(D)
    assert said(follower.tick(10.0 + CONFIG.retry_s), Hello) == []
    follower.propose(1, ["x"], 1)
    assert len(said(follower.tick(10.0 + 2 * CONFIG.retry_s), Hello)) == 3


def test_a_voter_believes_the_leader_alone() -> None:
    voter = machine(B)
    told(voter, C, Welcome(False, A))
    assert voter.leader is None


def test_who_hears_a_leader_believes_nobody_else() -> None:
    learner = machine(D)
    told(learner, A, Beat(Ballot(1, 1), 1, Seq(0)))
    told(learner, B, Welcome(False, C))
    assert learner.leader == A
