"""The parts of the machine, one at a time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sirius.errors import InvariantViolation, UsageError
from sirius.paxos import Configuration, Content, Member, PaxosConfig, Request, Run
from sirius.paxos.acceptor import Acceptor, Under
from sirius.paxos.commander import Pipeline
from sirius.paxos.election import Election
from sirius.paxos.genesis import Genesis
from sirius.paxos.leader import Leader
from sirius.paxos.members import next_step
from sirius.paxos.pulse import Pulse
from sirius.paxos.replica import Replica
from sirius.paxos.sessions import Sessions
from sirius.paxos.values import PValue
from sirius.types import NO_BALLOT, Ballot, NodeId, Seq
from tests.paxos.timing import timed
from tests.paxos.words import WordCodec, Words, words

CONFIG = timed()
A, B, C, D = (Member(NodeId(at), name) for at, name in enumerate("abcd", 1))
ABC = Configuration(1, 1, (A, B, C))
ONE, TWO = Ballot(1, 1), Ballot(2, 2)

# ---------------------------------------------------------------------- acceptor


def test_an_acceptor_never_promises_below_its_promise() -> None:
    acceptor = Acceptor()
    assert acceptor.prepare(TWO)
    assert not acceptor.prepare(ONE)
    assert acceptor.promised == TWO
    assert acceptor.prepare(TWO), "the same one again is no harm"


def test_an_acceptor_never_accepts_below_its_promise() -> None:
    acceptor = Acceptor(promised=TWO)
    assert not acceptor.accept(ONE, words(1, "x"))
    assert acceptor.accepted(after=0) == ()


def test_accepting_is_promising() -> None:
    acceptor = Acceptor()
    assert acceptor.accept(TWO, words(1, "x"))
    assert not acceptor.prepare(ONE)


def test_an_acceptor_holds_values_of_one_ballot_behind_the_decided_slots() -> None:
    acceptor = Acceptor()
    acceptor.accept(ONE, words(1, "x", "x", "x"))
    acceptor.accept(ONE, words(4, "x"))
    acceptor.accept(TWO, words(2, "y"))
    assert acceptor.accepted(after=0) == (PValue(ONE, words(1, "x")), PValue(TWO, words(2, "y")))
    assert acceptor.under == Under(TWO, 2)


def test_an_acceptor_that_starts_again_has_what_was_accepted_last() -> None:
    held = [PValue(TWO, words(2, "y")), PValue(ONE, words(1, "x")), PValue(ONE, words(3, "x"))]
    wanted = (PValue(ONE, words(1, "x")), PValue(TWO, words(2, "y")))
    assert Acceptor(TWO, held).accepted(after=0) == wanted
    before = Acceptor(TWO, held, under=Under(ONE, 1))
    assert before.accepted(after=0) == wanted, "a crash may come before the note"
    assert before.under == Under(TWO, 2)


def test_an_acceptor_that_starts_again_does_not_hold_what_it_had_forgotten() -> None:
    held = [PValue(ONE, words(1, "x", "x")), PValue(ONE, words(3, "x"))]
    acceptor = Acceptor(TWO, held, under=Under(TWO, 2))
    wanted = (PValue(ONE, words(1, "x")),)
    assert acceptor.accepted(after=0) == wanted, "what it accepted under TWO is in the log"
    assert acceptor.under == Under(TWO, 2)


def test_an_acceptor_knows_a_value_that_came_twice() -> None:
    acceptor = Acceptor()
    acceptor.accept(ONE, words(1, "x", "y"))
    assert acceptor.holds(ONE, words(1, "x", "y"))
    assert acceptor.holds(ONE, words(2, "y"))
    assert not acceptor.holds(TWO, words(1, "x", "y"))
    assert not acceptor.holds(ONE, words(2, "y", "z"))
    assert not acceptor.holds(ONE, words(3, "z"))


@pytest.mark.parametrize(
    ("ballot", "first", "decided", "follows"),
    [
        (TWO, 8, 3, True),  # right behind what it has accepted under this ballot
        (ONE, 8, 3, False),  # another ballot's value says nothing of this one's
        (TWO, 9, 3, False),  # a gap
        (TWO, 9, 8, True),  # no gap: all in front of it is decided
        (TWO, 4, 3, True),
    ],
)
def test_an_acceptor_takes_nothing_behind_a_gap(
    ballot: Ballot, first: int, decided: int, follows: bool
) -> None:
    acceptor = Acceptor()
    acceptor.accept(TWO, words(5, "x", "y", "z"))
    assert acceptor.follows(ballot, first, decided) is follows


def test_an_acceptor_forgets_what_the_log_has() -> None:
    acceptor = Acceptor()
    acceptor.accept(ONE, words(1, "x", "y", "z"))
    acceptor.trim(2)
    assert [value.first for _, value in acceptor.accepted(after=0)] == [3]
    acceptor.trim(3)
    assert acceptor.spans.bytes == 0


# ---------------------------------------------------------------------- commanders


def pipeline(*values: Words, **limits: int) -> Pipeline:
    made = Pipeline(PaxosConfig(**limits), 1)  # type: ignore[arg-type]
    for value in values:
        made.begin(value, 0.0)
    return made


def test_commanders_decide_in_slot_order() -> None:
    made = pipeline(words(1, "x"), words(2, "y"))
    for node in (A, B):
        made.vote(node.node, 2, 2)
    assert made.pop_decided(ABC) is None
    for node in (A, B):
        made.vote(node.node, 1, 1)
    assert [made.pop_decided(ABC), made.pop_decided(ABC)] == [words(1, "x"), words(2, "y")]
    assert (len(made), made.bytes) == (0, 0)


def test_a_vote_counts_once_and_only_from_a_voter_and_only_for_the_whole_value() -> None:
    made = pipeline(words(1, "x", "y"))
    for _ in range(3):
        made.vote(A.node, 1, 2)
        made.vote(D.node, 1, 2)
        made.vote(B.node, 1, 1)
        made.vote(C.node, 7, 8)
    assert made.pop_decided(ABC) is None


def test_commanders_are_bounded_in_number_and_bytes() -> None:
    assert not pipeline(words(1, "x"), words(2, "y"), pipeline_accepts_max=2).has_room
    assert not pipeline(words(1, "x"), pipeline_bytes_max=10).has_room
    assert pipeline(words(1, "x"), pipeline_bytes_max=11).has_room
    assert pipeline(pipeline_bytes_max=0).has_room, "one value may always be under way"


def test_a_commander_repeats_itself_after_a_while() -> None:
    made = pipeline(words(1, "x"))
    assert made.overdue(0.1, 0.2) == []
    assert [each.value.first for each in made.overdue(0.2, 0.2)] == [1]
    assert made.overdue(0.3, 0.2) == []


# ---------------------------------------------------------------------- elections


def election(now: float = 0.0) -> Election:
    return Election(CONFIG, random.Random(1), now)


def test_every_wait_is_drawn_anew_between_one_and_two_time_outs() -> None:
    ours = election()
    waits = set()
    for _ in range(50):
        ours.rest(10.0)
        waits.add(ours.deadline)
        assert 10.5 <= ours.deadline <= 11.0
    assert len(waits) > 40


def test_whoever_hears_a_leader_sits_still() -> None:
    ours = election()
    assert ours.heard(B, TWO, 3.0), "another leader than before"
    assert not ours.heard(B, TWO, 4.0)
    assert (ours.leader, ours.ballot) == (B, TWO)
    assert not ours.is_due(4.49)
    assert ours.is_due(5.0)
    assert not ours.is_silent(4.49)
    assert ours.is_silent(4.5)


def test_a_node_that_has_just_started_may_have_forgotten_a_leader() -> None:
    ours = election(now=7.0)
    assert not ours.is_silent(7.4)
    assert ours.is_silent(7.5)


def test_pre_votes_count_for_one_ballot_and_once_each() -> None:
    ours = election()
    ours.heard(B, TWO, 0.0)
    ours.ask(Ballot(3, 1), 1.0)
    assert ours.leader is None
    assert not ours.granted(A.node, Ballot(3, 1), ABC)
    assert not ours.granted(A.node, Ballot(3, 1), ABC)
    assert not ours.granted(B.node, Ballot(2, 1), ABC)
    assert not ours.granted(D.node, Ballot(3, 1), ABC)
    assert ours.granted(C.node, Ballot(3, 1), ABC)
    ours.rest(2.0)
    assert not ours.granted(B.node, Ballot(3, 1), ABC), "it does not ask any more"


# ---------------------------------------------------------------------- the pulse


def test_a_leader_that_hears_no_majority_has_no_quorum_after_a_time_of_grace() -> None:
    pulse = Pulse(A.node, 5.0)
    assert pulse.has_quorum(ABC, since=5.0)
    assert not pulse.has_quorum(ABC, since=5.1)
    pulse.heard(C.node, 5.2)
    assert pulse.has_quorum(ABC, since=5.1)
    assert pulse.alive(5.2) == {A.node, C.node}
    assert pulse.alive(5.3) == {A.node}


def test_a_heartbeat_is_confirmed_by_a_majority_and_its_lease_counts_from_when_it_was_sent() -> (
    None
):
    pulse = Pulse(A.node, 0.0)
    assert pulse.confirmed(ABC) == 0
    first, second = pulse.beat(1.0), pulse.beat(2.0)
    assert pulse.confirmed(ABC) == 0
    assert pulse.lease_until(ABC, 0.4) == float("-inf")
    pulse.acked(B.node, first, Seq(0), 2.5)
    assert pulse.confirmed(ABC) == first
    assert pulse.lease_until(ABC, 0.4) == 1.4
    pulse.acked(C.node, second, Seq(7), 2.6)
    pulse.acked(C.node, first, Seq(7), 2.7)
    assert pulse.confirmed(ABC) == second, "an answer that comes late takes nothing back"
    assert pulse.lease_until(ABC, 0.4) == 2.4
    assert pulse.decided == {B.node: 0, C.node: 7}


def test_nobody_confirms_for_a_configuration_without_voters() -> None:
    assert Pulse(A.node, 0.0).confirmed(Configuration(1, 1, ())) == 0


# ---------------------------------------------------------------------- the leader


def leader(**limits: Any) -> Leader:
    made = Leader(A.node, ONE, PaxosConfig(**limits), WordCodec(), Sessions(1, 10), 0.0)
    made.adopt([], 0, ABC)
    value = made.next_value(0.0)
    assert value is not None
    for node in (A, B):
        made.pipeline.vote(node.node, 1, 1)
    assert made.pipeline.pop_decided(ABC) is not None
    return made


def request(serial: int, *texts: str, session: int = 5) -> Request:
    return Request(session, serial, Seq(0), texts, 10 * len(texts))


def test_a_leader_begins_its_reign_before_it_gives_slots_to_requests() -> None:
    made = Leader(A.node, TWO, CONFIG, WordCodec(), Sessions(1, 10), 0.0)
    made.adopt([], 6, ABC)
    made.take(request(1, "x"))
    value = made.next_value(0.0)
    assert isinstance(value, Words)
    assert (value.first, [word.configuration for word in value]) == (
        7,
        [Configuration(1, 1, (A, B, C), reign=TWO)],
    )
    assert made.next_value(0.0) is None
    assert made.is_changing


def test_what_is_taken_over_is_proposed_in_one_value() -> None:
    made = Leader(A.node, TWO, CONFIG, WordCodec(), Sessions(1, 10), 0.0)
    one, two = words(2, "x", session=5, serial=1), words(3, "y", session=5, serial=2)
    made.adopt([one, two], 1, ABC)
    assert made.has_adopted
    assert made.held_bytes == 10 * 2
    value = made.next_value(0.0)
    assert isinstance(value, Words)
    assert ([word.text for word in value], value.first, value.last) == (["x", "y"], 2, 3)
    assert made.next_value(0.0) is None, "the reign begins when it is decided"
    assert made.adopted_last == 3
    assert made.take(request(2, "y")) is None
    assert made.take(request(4, "z")) is not None, "the serials of adopted values are known"


def test_a_change_of_members_that_is_taken_over_needs_both_majorities() -> None:
    made = Leader(A.node, TWO, CONFIG, WordCodec(), Sessions(1, 10), 0.0)
    four = ABC.with_learner(D).promoted(D)
    made.adopt([words(2, "x"), WordCodec().membership(3, four), words(4, "y")], 1, ABC)
    assert made.next_value(0.0) is not None
    for node in (A, B):
        made.pipeline.vote(node.node, 2, 4)
    assert made.pipeline.pop_decided(ABC) is None, "two of a, b, c, but not three of a, b, c, d"
    made.pipeline.vote(D.node, 2, 4)
    assert made.pipeline.pop_decided(ABC) is not None


def test_a_request_comes_after_the_one_before_it() -> None:
    made = leader()
    answer = made.take(request(2, "y"))
    assert answer is not None
    assert (answer.session, answer.serial) == (5, 1)
    assert made.take(request(1, "x")) is None
    assert made.take(request(1, "x")) is None, "again"
    assert made.take(request(2, "y")) is None
    value = made.next_value(0.0)
    assert isinstance(value, Words)
    assert [word.text for word in value] == ["x", "y"]


def test_a_batch_has_a_bound_but_a_single_request_always_fits() -> None:
    made = leader(batch_updates_max=3)
    for serial, texts in [(1, "abcd"), (5, "ef"), (7, "g"), (8, "h")]:
        assert made.take(request(serial, *texts)) is None
    values = [made.next_value(0.0) for _ in range(4)]
    assert [len(value) // 10 if value else 0 for value in values] == [4, 3, 1, 0]
    made = leader(batch_bytes_max=20)
    for serial in (1, 2, 3):
        made.take(request(serial, "x"))
    assert [len(made.next_value(0.0) or ()) for _ in range(2)] == [20, 10]


def test_a_leader_forgets_sessions_of_which_nothing_is_under_way() -> None:
    made = leader()
    made.take(request(1, "x"))
    made.take(request(2, "y"))
    made.forget(Content((Run(5, 1, Seq(2)),)))
    assert made._taken == {5: 2}
    made.forget(Content((Run(5, 2, Seq(3)),)))
    assert made._taken == {}


# ---------------------------------------------------------------------- replica, members, founding, settings


def test_a_replica_takes_decisions_in_order_only() -> None:
    replica = Replica(WordCodec(), Seq(4), ABC, Sessions(1, 10))
    with pytest.raises(InvariantViolation, match="slots 6 to 6 cannot follow 4"):
        replica.decide(words(6, "x"))
    replica.hear(9)
    replica.hear(3)
    assert replica.is_behind
    replica.decide(words(5, "v", "w", "x", "y", "z"))
    assert not replica.is_behind


def test_members_and_quorums() -> None:
    four = ABC.with_learner(D)
    assert (four.number, four.members, four.is_voter(D.node)) == (2, (A, B, C, D), False)
    assert four.promoted(D).voters == (A, B, C, D)
    assert four.promoted(D).majority == 3
    assert four.without(D).members == (A, B, C)
    assert ABC.is_quorum([A.node, C.node])
    assert not ABC.is_quorum([A.node, D.node])


def test_nobody_is_taken_out_while_somebody_wished_is_missing() -> None:
    level = {A.node, B.node, C.node}
    assert next_step(ABC, "abd", {}, level, A.node) is None
    step = next_step(ABC, "ab", {}, level, A.node)
    assert step is not None
    assert step.voters == (A, B)


def test_a_cluster_is_founded_by_the_first_name_when_everybody_is_fresh() -> None:
    genesis = Genesis(A)
    assert genesis.found("abc", 9) is None
    genesis.heard(B, fresh=True)
    genesis.heard(C, fresh=True)
    assert genesis.found("cba", 9) == Configuration(9, 1, (A, B, C))
    assert genesis.found("", 9) is None
    genesis.heard(C, fresh=False)
    assert genesis.found("abc", 9) is None
    genesis.heard(A, fresh=False)
    assert genesis.found("ab", 9) is not None, "what others say of oneself is no news"
    second = Genesis(B)
    for member in (A, C):
        second.heard(member, fresh=True)
    assert second.found("abc", 9) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heartbeat_s": 0.5}, "heartbeat_s = 0.5 must be above 0 and below"),
        ({"heartbeat_s": 0.0}, "heartbeat_s"),
        ({"clock_drift_max": 0.5}, "clock_drift_max = 0.5 is not in"),
        ({"reads_max": -1}, "reads_max = -1 is negative"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PaxosConfig(**settings)


def test_the_lowest_ballot_is_nobodys() -> None:
    assert Ballot(1, 0) > NO_BALLOT
