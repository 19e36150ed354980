"""Nodes that do not vote: whom they send requests to, and what they may found."""

from __future__ import annotations

import random

from sirius.paxos import Configuration, Envelope, Machine, Member, PaxosConfig, Recovered
from sirius.paxos.effects import Effects, Unknown
from sirius.paxos.messages import (
    AskIndex,
    Beat,
    Expected,
    Forward,
    Found,
    Hello,
    Message,
    Welcome,
)
from sirius.types import Ballot, NodeId, Seq
from tests.paxos.harness import Cluster
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


# ---------------------------------------------------------------------- a log without a cluster


def imported(*wish: str) -> Machine:
    """Make a node whose log has entries and was never a cluster's, at the time when it may found one."""
    found = Machine(A, CONFIG, WordCodec(), random.Random(1), 0.0, Recovered(decided=Seq(10)))
    found.wish(wish)
    return found


def founds(node: Machine) -> list[Configuration]:
    sent = [message for _, message in node.tick(10.0).send]
    return [message.configuration for message in sent if isinstance(message, Found)]


def test_alone_a_node_begins_a_cluster_with_the_log_that_it_has() -> None:
    (configuration,) = founds(imported("a"))
    assert configuration.voters == (A,)


def test_with_others_it_does_not() -> None:
    node = imported("a", "b")
    node.step(Envelope(0, 0, B, A.node, Welcome(True, None)))
    assert founds(node) == []


def test_and_not_while_others_come_to_fetch_it() -> None:
    node = imported("a")
    node.step(Envelope(0, 0, B, A.node, Hello(False, wanted=True)))
    assert founds(node) == []


def test_one_that_has_voted_belongs_somewhere() -> None:
    disk = Recovered(decided=Seq(10), promised=Ballot(3, 2))
    node = Machine(A, CONFIG, WordCodec(), random.Random(1), 0.0, disk)
    node.wish(["a"])
    assert founds(node) == []


def test_a_lost_session_answers_each_request_once() -> None:
    """A request that was reported as unknown stays in its place, without its updates, until its session ends."""
    follower = machine(D)
    told(follower, B, Welcome(False, A))
    (_, forward), *_ = said(follower.propose(1, ["x"], 1), Forward)
    assert isinstance(forward, Forward)
    assert follower.tick(10.0 + CONFIG.request_timeout_s).answers == [
        Unknown(1, "not decided in time")
    ]
    follower.propose(2, ["y"], 1)
    lost = told(follower, A, Expected(forward.requests[0].session, 0))
    assert lost.answers == [Unknown(2, "the session had expired")]


def test_a_leader_is_settled_when_all_that_was_begun_is_decided() -> None:
    """Until then a node that has everything that it knows of may still lack what was acknowledged before."""
    cluster = Cluster()
    cluster.run(5.0)
    machines = [node.machine for node in cluster.nodes.values() if node.machine is not None]
    (leader,) = [each for each in machines if each.is_leader]
    assert leader.is_settled
    fresh = machine(D)
    assert not fresh.is_settled
