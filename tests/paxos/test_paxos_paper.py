"""The rules of the papers: "Sirius" (sections 3 to 5) and "Paxos Made Moderately Complex" (PMMC).

Where we depart from the paper a test says so, and why.
"""

from __future__ import annotations

from sirius.paxos import Configuration, Machine, Member
from sirius.paxos.effects import Done, KeepAccepted, ReadFailed, Rejected, Unknown
from sirius.paxos.messages import Prepare, PreVoted
from sirius.paxos.sessions import Sessions
from sirius.types import Ballot, NodeId
from tests.paxos.harness import CLUSTER, Cluster, Patient
from tests.paxos.test_paxos_faults import done
from tests.paxos.timing import timed
from tests.paxos.words import WordCodec, hole, words

# ---------------------------------------------------------------------- Sirius, 5: stable leader


def test_a_leader_stays_while_it_is_heard() -> None:
    """5, Stable leader: no continuous elections."""
    cluster = Cluster()
    cluster.elect("b")
    before = cluster.machine("b").ballot
    cluster.run(20)
    assert cluster.leader == "b"
    assert {cluster.machine(name).ballot for name in "abc"} == {before}


def test_a_pre_empted_leader_follows() -> None:
    """5, Stable leader: it does not try to win again."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.cut_off("a")
    cluster.run(2)
    (other,) = [name for name in cluster.leaders if name != "a"]
    cluster.heal()
    cluster.run(2)
    assert cluster.leader == other
    assert cluster.machine("a").leader == cluster.member(other)


def test_a_leader_that_hears_of_a_higher_promise_gives_up_at_once() -> None:
    """PMMC: a pre-empted message ends the reign, also when it answers an Accept."""
    cluster = Cluster()
    cluster.elect("a")
    machine = cluster.machine("b")
    prepare = Prepare(Ballot(9, 3), machine.decided)
    cluster._step("b", cluster.machine("c").envelope(machine.me, prepare))
    cluster.propose("a", 1, "x")
    cluster.deliver("a>b Accept")
    cluster.deliver("b>a Preempted")
    assert cluster.leaders == []


def test_followers_forward_updates_to_the_leader() -> None:
    """5, Stable leader."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("c", 1, "x")
    assert [(each.source, each.target) for each in cluster.packets("Forward")] == [("c", "a")]
    cluster.settle()
    assert done(cluster, "c") == {1}


def test_an_election_begins_when_the_leader_is_silent() -> None:
    """5, Stable leader: if the pings fail, a new phase 1 begins."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.crash("a")
    cluster.run(0.4)
    assert cluster.leaders == []
    cluster.run(2)
    assert cluster.leader in "bc"


def test_nobody_is_asked_to_promise_before_a_majority_says_that_it_would() -> None:
    """Our pre-vote: a node that is alone keeps asking, and disturbs nobody when it is back."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.cut_off("c")
    before = cluster.machine("c").ballot
    cluster.run(10)
    assert cluster.machine("c").ballot == before
    assert "c keeps" not in " ".join(cluster.trace[-50:])
    cluster.heal()
    cluster.run(1)
    assert cluster.leader == "a"


def test_a_yes_that_comes_when_a_node_may_not_run_any_more_counts_for_nothing() -> None:
    cluster = Cluster()
    cluster.wait(0.5)
    cluster.tick()
    cluster.deliver("PreVote")
    cluster.wish("a", "")
    assert cluster.packets("PreVoted")
    cluster.deliver("PreVoted")
    assert not [line for line in cluster.trace if "keeps ballot" in line]


def test_a_no_tells_how_far_the_others_are() -> None:
    cluster = Cluster()
    message = PreVoted(Ballot(1, 1), False, cluster.machine("a").decided, Ballot(7, 2))
    cluster._step("a", cluster.machine("b").envelope(cluster.member("a"), message))
    cluster.wait(0.5)
    cluster.tick("a")
    (packet, _) = cluster.packets("a> PreVote")
    assert packet.message.ballot == Ballot(8, 1)


# ---------------------------------------------------------------------- Sirius, 5: end-to-end retries


def test_a_retry_takes_effect_once_although_updates_are_idempotent() -> None:
    """5, End-to-end retries: the paper does not track requests. We do: a retry could revive an older value."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("c", 1, "k=1")
    (forward,) = cluster.packets("Forward")
    cluster.settle()
    cluster.propose("c", 2, "k=2")
    cluster.settle()
    cluster.arrive(forward)
    cluster.settle()
    assert cluster.log("a") == ["k=1", "k=2"]


def test_a_request_that_timed_out_is_unknown_and_never_comes_after_a_later_one() -> None:
    """5, End-to-end retries; a time-out means unknown, not failed."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("c", 1, "k=1")
    (forward,) = cluster.drop("Forward")
    cluster.cut_off("c")
    cluster.run(6)
    assert [type(each) for each in cluster.answers("c")] == [Unknown]
    cluster.heal()
    cluster.propose("c", 2, "k=2")
    cluster.run(2)
    assert done(cluster, "c") == {2}
    cluster.arrive(forward)
    cluster.settle()
    assert cluster.log("a") == ["k=2"], "its serial is used up by something that does nothing"


def test_a_request_that_was_never_sent_is_rejected() -> None:
    cluster = Cluster()
    cluster.propose("c", 1, "x")
    cluster.wait(5.0)
    cluster.tick("c")
    assert [type(each) for each in cluster.answers("c")] == [Rejected]


def test_a_session_that_is_not_known_any_more_makes_its_requests_unknown_and_a_new_one_begins() -> (
    None
):
    cluster = Cluster("a", timed(sessions_max=1))
    cluster.elect("a")
    machine = cluster.machine("a")
    cluster.learn("a", [words(machine.decided + 1, "v", "w", session=8), words(4, "x", session=9)])
    cluster.run(1)
    cluster.propose("a", 1, "y")
    cluster.propose("a", 2, "z")
    cluster.settle()
    assert [type(each) for each in cluster.answers("a")] == [Unknown, Done]


# ---------------------------------------------------------------------- Sirius, 5: bounded commanders


def test_commanders_repeat_themselves_to_those_who_have_not_voted() -> None:
    """5, End-to-end retries: time-outs and retries, so that no network has to be reliable."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.drop("Accept")
    cluster.wait(0.2)
    cluster.tick("a")
    assert {packet.target for packet in cluster.packets("Accept")} == {"b", "c"}
    assert cluster.machine("a").repeated_accepts == 1
    cluster.deliver("a>b Accept")
    cluster.drop("a>c")
    cluster.settle()
    assert done(cluster, "a") == {1}


def test_a_leader_without_a_majority_steps_down() -> None:
    """5, End-to-end retries: a minority cannot make progress, and gives up instead of trying for ever."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.cut_off("a")
    cluster.run(0.7)
    assert not cluster.machine("a").is_leader


# ---------------------------------------------------------------------- Sirius, 5: write behind, pruning


def test_decisions_are_applied_in_order_by_everybody() -> None:
    """5, Write behind: in sequence number order. The harness's judge checks it for every node at every step."""
    cluster = Cluster()
    cluster.elect("a")
    for token in range(1, 30):
        cluster.propose("abc"[token % 3], token, f"x{token}")
        if token % 4 == 0:
            cluster.settle()
    cluster.settle()
    assert cluster.log("a") == cluster.log("b") == cluster.log("c")
    assert len(cluster.log("a")) == 29


def test_an_accept_that_overtook_another_is_taken_when_that_one_comes() -> None:
    """5, Write behind: out-of-order messages are buffered as needed."""
    cluster = Cluster()
    cluster.elect("a")
    for token in (1, 2, 3):
        cluster.propose("a", token, f"x{token}")
    first = cluster.drop("a>b Accept")
    cluster.drop("a>c")
    for packet in (first[2], first[1], first[0]):
        cluster.arrive(packet)
    cluster.settle()
    assert done(cluster, "a") == {1, 2, 3}


def test_a_write_is_acknowledged_when_it_is_on_disk_at_a_majority() -> None:
    """5, Write behind: the paper acknowledges before anything is on disk. With us what is decided is on disk."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.deliver("Accept")
    assert cluster.packets("Accepted") == []
    assert done(cluster, "a") == set()
    cluster.sync("b", "c")
    cluster.deliver("b>a Accepted")
    assert done(cluster, "a") == set(), "its own disk is not one of a majority yet"
    cluster.deliver("c>a Accepted")
    assert done(cluster, "a") == {1}, "the others' disks are enough"


def test_what_the_log_has_is_pruned_and_the_journal_is_told_so_now_and_then() -> None:
    """5, State pruning: below the durable end of the log, and never by a clock."""
    cluster = Cluster(config=timed(trim_slots_min=10))
    cluster.elect("a")
    for token in range(1, 31):
        cluster.propose("a", token, f"x{token}")
        cluster.settle()
    assert all(cluster.machine(name).held_bytes == 0 for name in "abc")
    assert [line for line in cluster.trace if line.startswith("b keeps trim")] == [
        "b keeps trim 10",
        "b keeps trim 20",
        "b keeps trim 30",
    ]
    cluster.crash("b")
    cluster.restart("c")
    assert cluster.machine("c").decided == 31


def test_what_is_decided_but_not_in_the_log_is_kept() -> None:
    """5, State pruning; a crash now must not lose it."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.deliver("Accept")
    cluster.sync("b", "c")
    cluster.deliver("Accepted")
    cluster.deliver("Decided")
    assert cluster.machine("b").held_bytes == 10
    cluster.restart("b")
    assert cluster.machine("b").decided == 1
    assert [value.first for _, value in cluster.machine("b")._state.acceptor.accepted(1)] == [2]


# ---------------------------------------------------------------------- Sirius, 5.1: catch-up


def test_a_node_that_missed_decisions_says_how_far_it_should_catch_up() -> None:
    """5.1: nodes are susceptible to lost decisions; the machine hands over `known` above `decided`."""
    cluster = Cluster()
    cluster.catching_up = False
    cluster.elect("a")
    cluster.cut_off("c")
    cluster.propose("a", 1, "x", "y")
    cluster.settle()
    cluster.heal()
    cluster.run(0.2)
    machine = cluster.machine("c")
    assert (machine.decided, machine.known) == (1, 3)
    cluster.catch_up("c", "b")
    assert (machine.decided, machine.known) == (3, 3)


def test_values_accepted_under_another_ballot_are_not_taken_for_decided() -> None:
    """5.1 and trap 10: nothing is assumed; the slot comes by catch-up."""
    cluster = Cluster()
    cluster.catching_up = False
    cluster.elect("a")
    cluster.propose("a", 1, "old")
    cluster.sync("a")
    cluster.drop()
    cluster.cut_off("a")
    cluster.run(2)
    cluster.heal()
    cluster.run(0.2)
    machine = cluster.machine("a")
    assert machine.decided == 1
    assert machine.known > 1


def test_ranges_that_were_compacted_end_the_session_and_its_requests_are_unknown() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("c", 1, "x")
    cluster.drop("Forward")
    cluster.learn("c", [hole(2, 9)])
    assert [type(each) for each in cluster.answers("c")] == [Unknown]
    assert cluster.machine("c").decided == 9


def test_a_candidate_that_is_behind_leads_as_soon_as_it_has_caught_up() -> None:
    cluster = Cluster()
    cluster.catching_up = False
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.drop("a>b Accept")
    cluster.settle()
    cluster.crash("a")
    cluster.run(0.3)
    machine = cluster.machine("b")
    cluster.campaign("b")
    cluster.settle()
    assert not machine.is_leader
    cluster.catch_up("b", "c")
    assert machine.is_leader


def test_a_leader_that_learns_of_a_decision_it_did_not_make_steps_down() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.learn("a", [words(1, "old"), words(2, "x")])
    assert cluster.leaders == []


def test_a_node_whose_log_was_taken_anew_follows_from_there() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("c", 1, "x")
    cluster.drop("Forward")
    machine = cluster.machine("c")
    cluster.nodes["c"].disk.log = [hole(1, 50)]
    cluster._do("c", machine.resynced(hole(1, 50).last, None, Sessions(51, 10)))
    assert machine.decided == machine.known == 50
    assert machine.configuration == cluster.machine("a").configuration
    assert [type(each) for each in cluster.answers("c")] == [Unknown]


# ---------------------------------------------------------------------- Sirius, 5.1: membership


def test_the_pushed_list_of_members_is_a_wish_that_is_reached_through_the_log() -> None:
    """5.1: activated by pushing a configuration, without a restart. With us the log decides who votes."""
    cluster = Cluster("abc")
    for name in "de":
        cluster.add(name)
        cluster.start(name)
    cluster.elect("a")
    cluster.wish_all("bde")
    cluster.run(5)
    voters = {voter for name in "bde" for voter in cluster.voters(name)}
    assert voters == set("bde")
    assert cluster.leader in "bde"
    cluster.propose("e", 1, "x")
    cluster.settle()
    assert done(cluster, "e") == {1}


def test_dependent_nodes_follow_without_a_vote() -> None:
    """5.1: other members catch up via the primaries. A learner hears what is decided and never votes."""
    cluster = Cluster("abc")
    cluster.add("d")
    cluster.start("d")
    cluster.elect("a")
    cluster.catching_up = False
    cluster.wish_all("abcd")
    cluster.run(1)
    assert not cluster.machine("d").is_voter
    assert cluster.machine("d").known == cluster.machine("a").decided
    assert cluster.machine("d").cluster == cluster.machine("a").cluster


def test_a_leader_that_finds_its_own_removal_among_the_accepted_values_decides_it_and_goes() -> (
    None
):
    cluster = Cluster("abcd")
    cluster.elect("a")
    cluster.wish_all("acd")
    while not any("#2 acd" in line for line in cluster.trace):
        cluster.wait(0.05)
        cluster.tick()
        cluster.deliver("Beat")
        cluster.deliver("BeatAck")
    cluster.deliver("a>b Accept")
    cluster.sync("b")
    cluster.drop()
    cluster.crash("a")
    cluster.campaign("b")
    cluster.settle()
    assert not cluster.machine("b").is_voter
    assert not cluster.machine("b").is_leader
    cluster.run(3)
    assert cluster.leader in "cd"


# ---------------------------------------------------------------------- Sirius, 4: the interface


def test_an_update_completes_only_when_it_is_replicated() -> None:
    """4: enqueued updates do not complete until successful replication has occurred."""
    cluster = Cluster()
    cluster.elect("a")
    cluster.cut_off("a")
    cluster.propose("a", 1, "x")
    cluster.run(0.3)
    assert cluster.answers("a") == []


def test_a_node_that_stops_answers_everybody() -> None:
    cluster = Cluster()
    cluster.propose("a", 1, "x")
    cluster.read("a", 2)
    cluster._do("a", cluster.machine("a").stop("good night"))
    assert cluster.answers("a") == [Rejected(1, "good night"), ReadFailed(2, "good night")]


def test_a_machine_without_a_disk_begins_with_nothing() -> None:
    machine = Machine(Member(NodeId(1), "a"), timed(), WordCodec(), Patient(1), 0.0)
    assert (machine.decided, machine.cluster, machine.configuration) == (0, 0, None)
    assert machine.acquaintances == []


def test_a_node_is_acquainted_with_voters_and_with_those_it_is_told_of() -> None:
    cluster = Cluster("abc")
    for name in "de":
        cluster.add(name)
        cluster.start(name)
    cluster.elect("a")
    cluster.wish("a", "abcd")
    cluster.wish("d", "abcd")
    cluster.wish("e", "abce")
    cluster.settle()
    assert [member.name for member in cluster.machine("a").acquaintances] == ["b", "c", "d"]


# ---------------------------------------------------------------------- PMMC: what counts, and what does not


def granted(cluster: Cluster, name: str) -> bool:
    """Whether a node says yes to c, which asks for an election."""
    cluster.tick("c")
    cluster.deliver(f"c>{name} PreVote")
    (answer,) = cluster.packets(f"{name}>c PreVoted")
    return bool(answer.message.granted)


def test_whoever_hears_a_leader_grants_no_election() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.wait(1.0)
    assert not granted(cluster, "b")


def test_whoever_knows_more_grants_no_election() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.cut_off("c")
    cluster.propose("a", 1, "x")
    cluster.settle()
    cluster.heal()
    cluster.crash("a")
    cluster.nodes["b"].rng.patience = 5.0
    cluster.machine("b")._state.election.rest(cluster.now)
    cluster.wait(1.0)
    cluster.tick("b")
    assert not granted(cluster, "b")


def test_a_candidate_that_finds_a_change_of_members_needs_a_majority_of_the_new_ones_too() -> None:
    cluster = Cluster()
    cluster.add("d")
    change = WordCodec().membership(1, Configuration(CLUSTER, 2, four("abcd")))
    ballot = Ballot(1, 1)
    for name in "bc":
        cluster.crash(name)
        cluster.nodes[name].disk.journal.append(KeepAccepted(ballot, change))
        cluster.nodes[name].disk.sync()
        cluster.start(name)
    cluster.crash("a")
    cluster.campaign("b")
    cluster.settle()
    assert cluster.leaders == [], "b and c are two of three, but only two of four"
    cluster.start("d")
    cluster.wait(0.2)
    cluster.tick("b")
    cluster.settle()
    assert cluster.leaders == ["b"]


def four(names: str) -> tuple[Member, ...]:
    return tuple(Member(NodeId(at), name) for at, name in enumerate(names, 1))


def test_a_promise_counts_for_its_own_ballot_only() -> None:
    cluster = Cluster()
    cluster.campaign("a")
    cluster.settle()
    cluster.restart("a")
    cluster.campaign("a")
    cluster.sync("a")
    cluster.deliver("a>b Prepare")
    cluster.sync("b")
    (late,) = cluster.drop("b>a Promise")
    cluster.restart("a")
    cluster.campaign("a")
    cluster.sync("a")
    cluster.arrive(late)
    assert cluster.leaders == []


def test_a_vote_counts_for_its_own_ballot_only() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.deliver("a>b Accept")
    cluster.sync("a", "b")
    (late,) = cluster.drop("b>a Accepted")
    cluster.disable("a", "no room")
    cluster.disable("a", None)
    cluster.drop()
    cluster.campaign("a")
    cluster.sync("a")
    cluster.deliver("a>c Prepare")
    cluster.sync("c")
    cluster.deliver("c>a Promise")
    cluster.sync("a")
    assert cluster.leaders == ["a"]
    cluster.arrive(late)
    assert cluster.machine("a").decided == 1
