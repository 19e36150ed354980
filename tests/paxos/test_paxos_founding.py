"""Clusters that are founded, and those of which nothing comes because somebody belongs elsewhere."""

from __future__ import annotations

import random

from sirius.codec import BlockCodec
from sirius.paxos import Configuration, Envelope, Machine, Member, PaxosConfig, Recovered
from sirius.paxos.effects import Effects, KeepNote
from sirius.paxos.messages import Accept, Beat, Hello, Message, Prepare, PreVoted, Promise, Welcome
from sirius.paxos.state import FOUNDED, JOINED
from sirius.paxos.values import PValue
from sirius.types import NO_BALLOT, Ballot, NodeId, Seq
from tests.testing.simulator.blocks import noops

A, B, C = (Member(NodeId(number), name) for number, name in ((1, "a"), (2, "b"), (3, "c")))
NEW_C = Member(NodeId(9), "c")
HERE, ELSEWHERE = 7, 8
THREE = Configuration(HERE, 1, (A, B, C))


class Founder:
    """The node `a` of a cluster that was founded, with nothing in its log."""

    def __init__(self) -> None:
        disk = Recovered(configuration=THREE, cluster=HERE, founded=True)
        codec = BlockCodec(lambda: 0)
        self.machine = Machine(A, PaxosConfig(), codec, random.Random(1), 0.0, disk)
        self.machine.wish(("a", "b", "c"))
        self.now = 0.0

    def hear(self, sender: Member, message: Message, cluster: int = HERE) -> Effects:
        return self.machine.step(Envelope(cluster, 1, sender, A.node, message))

    def wait(self, for_s: float = 10.0) -> Effects:
        self.now += for_s
        return self.machine.tick(self.now)

    def campaign(self) -> Ballot:
        """Run for leader; return the ballot, which the node itself has promised."""
        self.wait()
        ballot = Ballot(1, A.node)
        effects = self.hear(B, PreVoted(ballot, True, Seq(0), ballot))
        prepare = next(
            message for to, message in effects.send_now if to == A and isinstance(message, Prepare)
        )
        self.hear(A, Promise(prepare.ballot, Seq(0), NO_BALLOT, ()))
        return prepare.ballot

    def promise(self, sender: Member, ballot: Ballot, *accepted: PValue) -> None:
        under = accepted[-1].ballot if accepted else NO_BALLOT
        self.hear(sender, Promise(ballot, Seq(0), under, accepted))


def test_a_cluster_begins_when_all_have_promised() -> None:
    founder = Founder()
    ballot = founder.campaign()
    founder.promise(B, ballot)
    assert not founder.machine.is_leader, "c may belong to another cluster"
    founder.promise(C, ballot)
    assert founder.machine.is_leader


def test_a_majority_is_enough_once_something_was_accepted() -> None:
    founder = Founder()
    ballot = founder.campaign()
    founder.promise(B, ballot, PValue(Ballot(0, C.node), noops(1, 1)))
    assert founder.machine.is_leader, "somebody had all promises before"


def test_a_majority_is_enough_for_a_cluster_that_has_begun() -> None:
    founder = Founder()
    founder.machine.learn([noops(1, 1)])
    ballot = founder.campaign()
    founder.promise(B, ballot)
    assert founder.machine.is_leader


def test_a_voter_whose_disk_is_lost_is_not_waited_for() -> None:
    founder = Founder()
    ballot = founder.campaign()
    founder.hear(NEW_C, Hello(True, wanted=False), cluster=0)
    founder.promise(B, ballot)
    assert founder.machine.is_leader


def test_a_cluster_that_has_not_begun_is_left_when_one_of_its_voters_belongs_elsewhere() -> None:
    founder = Founder()
    effects = founder.hear(C, Welcome(False, None), cluster=ELSEWHERE)
    kept = [(entry.key, entry.value) for entry in effects.persist if isinstance(entry, KeepNote)]
    assert kept == [(FOUNDED, ""), (JOINED, 0)]
    assert (founder.machine.cluster, founder.machine.configuration) == (0, None)


def test_who_left_is_taken_in_by_the_other_cluster_also_if_it_has_promised_something() -> None:
    founder = Founder()
    ballot = founder.campaign()
    founder.hear(A, Prepare(ballot, Seq(0), None))
    assert founder.machine.ballot == ballot
    founder.hear(C, Welcome(False, None), cluster=ELSEWHERE)
    founder.hear(C, Beat(Ballot(5, C.node), 1, Seq(0)), cluster=ELSEWHERE)
    assert founder.machine.cluster == ELSEWHERE


def test_a_cluster_is_not_left_for_the_word_of_a_stranger_or_of_another_life() -> None:
    founder = Founder()
    founder.hear(NEW_C, Welcome(False, None), cluster=ELSEWHERE)
    founder.hear(Member(NodeId(4), "d"), Hello(False, wanted=True), cluster=ELSEWHERE)
    assert founder.machine.cluster == HERE


def test_a_cluster_that_has_begun_is_never_left() -> None:
    founder = Founder()
    founder.hear(B, Accept(Ballot(1, B.node), noops(1, 1), Seq(0)))
    founder.hear(C, Welcome(False, None), cluster=ELSEWHERE)
    assert founder.machine.cluster == HERE, "it has accepted something"
    founder = Founder()
    founder.machine.learn([noops(1, 1)])
    founder.hear(C, Welcome(False, None), cluster=ELSEWHERE)
    assert founder.machine.cluster == HERE, "something is decided"


def test_who_waits_for_its_cluster_to_begin_greets_the_others() -> None:
    founder = Founder()
    greeted = {to.name for to, message in founder.wait().send_now if isinstance(message, Hello)}
    assert greeted == {"b", "c"}
    founder.machine.learn([noops(1, 1)])
    greeted = {to.name for to, message in founder.wait().send_now if isinstance(message, Hello)}
    assert greeted == set()
