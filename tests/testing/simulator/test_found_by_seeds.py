"""What the simulator found, each in its smallest form; the seed that found it stands beside it."""

from __future__ import annotations

import random

from sirius.codec import BlockCodec
from sirius.paxos import Configuration, Envelope, Machine, Member, PaxosConfig, Recovered
from sirius.paxos.effects import KeepNote
from sirius.paxos.members import next_step
from sirius.paxos.messages import Accept, Accepted, Found, Message, Welcome
from sirius.paxos.state import FOUNDED
from sirius.types import Ballot, NodeId, Seq
from tests.testing.simulator.blocks import noops

A, B, C = (Member(NodeId(number), name) for number, name in ((1, "a"), (2, "b"), (3, "c")))
OLD_A = Member(NodeId(9), "a")
THREE = Configuration(7, 1, (A, B, C))
CODEC = BlockCodec(lambda: 0)


def make_machine(me: Member, config: PaxosConfig | None = None) -> Machine:
    return Machine(
        me,
        config or PaxosConfig(),
        CODEC,
        random.Random(1),
        0.0,
        Recovered(configuration=THREE, cluster=THREE.cluster),
    )


def from_a(message: Message, to: Member = B) -> Envelope:
    return Envelope(THREE.cluster, THREE.number, A, to.node, message)


def accept(first: int, last: int) -> Envelope:
    return from_a(Accept(Ballot(1, A.node), noops(first, last), Seq(0)))


def test_accepts_that_overtook_each_other_are_all_answered_at_once() -> None:
    """Seed 77: each of them waited for the leader to repeat it, and the cluster wrote five batches a second."""
    machine = make_machine(B)
    for first, last in ((3, 3), (2, 2)):
        assert machine.step(accept(first, last)).send == []
    answers = [message for _, message in machine.step(accept(1, 1)).send]
    assert answers == [Accepted(Ballot(1, A.node), Seq(slot), Seq(slot)) for slot in (1, 2, 3)]


def test_accepts_that_came_too_early_are_bounded_and_counted() -> None:
    machine = make_machine(B, PaxosConfig(pipeline_accepts_max=2))
    for slot in range(9, 2, -1):
        machine.step(accept(slot, slot))
        assert 0 < machine.held_bytes <= 2 * len(noops(3, 3))


def test_an_accept_of_an_earlier_ballot_does_not_follow_one_of_a_later() -> None:
    machine = make_machine(B)
    machine.step(accept(2, 2))
    later = from_a(Accept(Ballot(2, A.node), noops(1, 1), Seq(0)))
    answers = [message for _, message in machine.step(later).send]
    assert answers == [Accepted(Ballot(2, A.node), Seq(1), Seq(1))]


def test_a_late_greeting_of_an_earlier_life_does_not_cost_a_living_voter_its_place() -> None:
    """Seed 191: a leader took itself out, in favour of its own earlier life."""
    seen = {"a": OLD_A.node, "b": B.node, "c": C.node}
    everybody = {A.node, B.node, C.node}
    assert next_step(THREE, ("a", "b", "c"), seen, everybody, A.node) is None


def test_a_life_that_is_dead_gives_way_to_the_one_that_greets() -> None:
    seen = {"c": NodeId(8)}
    step = next_step(THREE, ("a", "b", "c"), seen, {A.node, B.node}, A.node)
    assert step is not None
    assert step.learners == (Member(NodeId(8), "c"),)


def test_what_others_say_of_a_leader_counts_for_less_than_what_it_said_itself() -> None:
    machine = make_machine(B)
    machine.step(from_a(Welcome(False, OLD_A)))
    machine.step(from_a(Welcome(False, Member(NodeId(4), "b"))))
    assert machine._state.seen == {"a": A.node}


def test_nobody_hears_of_a_cluster_before_its_founder_has_it_on_disk() -> None:
    """Seed 165: the founder's sync failed. All had joined its cluster, and nobody knew who votes there."""
    machine = Machine(A, PaxosConfig(), CODEC, random.Random(1), 0.0)
    machine.wish(("a", "b", "c"))
    for member in (B, C):
        machine.step(Envelope(0, 0, member, A.node, Welcome(True, None)))
    effects = machine.tick(1.0)
    assert [entry.key for entry in effects.persist if isinstance(entry, KeepNote)] == [FOUNDED]
    told = [(to, message) for to, message in effects.send if isinstance(message, Found)]
    assert [to for to, _ in told] == [A, B, C]
    assert machine.envelope(B, Welcome(True, None)).cluster == 0
    assert machine.tick(2.0).persist == []
    to, found = told[0]
    assert machine.step(machine.envelope(to, found)).persist == []
    assert machine.cluster == found.configuration.cluster
    assert machine.is_voter
