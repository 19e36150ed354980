"""What a node knows of others from what they say."""

from __future__ import annotations

import pytest

from sirius.driver.acquaintances import Acquaintances
from sirius.paxos.members import Member
from sirius.paxos.messages import (
    Beat,
    BeatAck,
    Decided,
    Envelope,
    Forward,
    Hello,
    Message,
)
from sirius.types import Ballot, NodeId, Seq

A, B = Member(NodeId(1), "a:1"), Member(NodeId(2), "b:1")
BALLOT = Ballot(1, 1)


def envelope(sender: Member, message: Message, cluster: int = 7) -> Envelope:
    return Envelope(cluster, 1, sender, NodeId(0), message)


def test_the_last_life_of_those_who_are_followed_is_known_and_of_nobody_else() -> None:
    known = Acquaintances(followed=["b:1"])
    reborn = Member(NodeId(3), "b:1")
    for sender in (A, B, reborn):
        known.received(envelope(sender, Hello(fresh=False)), 7, 0.0)
    assert known.lives == {"b:1": reborn}


def test_a_stranger_is_named_once_and_forgotten_when_it_joins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = Acquaintances()
    for _ in range(3):
        known.received(envelope(A, Hello(fresh=False), cluster=8), 7, 0.0)
    assert known.strangers == {"a:1": 8}
    assert caplog.text.count("a:1 belongs to the cluster 0000000000000008") == 1
    known.received(envelope(A, Hello(fresh=False)), 7, 0.0)
    assert known.strangers == {}


@pytest.mark.parametrize(("theirs", "ours"), [(0, 7), (8, 0), (7, 7)])
def test_who_has_no_cluster_yet_is_no_stranger(theirs: int, ours: int) -> None:
    known = Acquaintances()
    known.received(envelope(A, Hello(fresh=True), cluster=theirs), ours, 0.0)
    assert known.strangers == {}


def test_names_of_strangers_are_bounded() -> None:
    known = Acquaintances()
    for number in range(2000):
        known.received(
            envelope(Member(NodeId(1), f"n:{number}"), Hello(fresh=False), cluster=8), 7, 0.0
        )
    assert len(known.strangers) == 1000


def test_a_round_trip_is_from_a_heartbeat_to_its_answer() -> None:
    known = Acquaintances()
    known.sent(B, envelope(A, Beat(BALLOT, 5, Seq(0))), 10.0)
    known.sent(B, envelope(A, Beat(BALLOT, 5, Seq(0))), 10.5)
    known.sent(B, envelope(A, Beat(BALLOT, 6, Seq(0))), 11.0)
    known.received(envelope(B, BeatAck(BALLOT, 5, Seq(0))), 7, 12.0)
    assert known.round_trips == {"b:1": 2.0}
    known.received(envelope(B, BeatAck(BALLOT, 6, Seq(0))), 7, 12.5)
    known.received(envelope(B, BeatAck(BALLOT, 99, Seq(0))), 7, 20.0)
    assert known.round_trips == {"b:1": 1.5}, "an answer to nothing tells nothing"


def test_heartbeats_that_nobody_answers_are_forgotten() -> None:
    known = Acquaintances()
    for number in range(1000):
        known.sent(B, envelope(A, Beat(BALLOT, number, Seq(0))), float(number))
    known.received(envelope(B, BeatAck(BALLOT, 1, Seq(0))), 7, 1000.0)
    assert known.round_trips == {}
    known.received(envelope(B, BeatAck(BALLOT, 999, Seq(0))), 7, 1000.0)
    assert known.round_trips == {"b:1": 1.0}


DECIDED = envelope(A, Decided(BALLOT, Seq(4)))


def test_word_of_a_decision_waits_for_company_unless_somebody_waits_for_it() -> None:
    known = Acquaintances()
    assert known.sent(B, DECIDED, 0.0) > 0
    known.received(envelope(B, Forward(())), 7, 0.0)
    assert known.sent(B, DECIDED, 0.0) == 0
    assert known.sent(B, DECIDED, 0.0) > 0, "it was told"
    known.received(envelope(B, Forward(())), 7, 0.0)
    known.sent(B, envelope(A, Hello(fresh=False)), 0.0)
    assert known.sent(A, DECIDED, 0.0) > 0, "another one asked"
    assert known.sent(B, DECIDED, 0.0) == 0


def test_nothing_else_waits() -> None:
    known = Acquaintances()
    for message in (Beat(BALLOT, 1, Seq(0)), BeatAck(BALLOT, 1, Seq(0)), Hello(fresh=False)):
        assert known.sent(B, envelope(A, message), 0.0) == 0
