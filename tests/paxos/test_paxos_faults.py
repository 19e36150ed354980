"""The traps of the paper's design, and of our own: what must never happen, each with the story of how it would."""

from __future__ import annotations

from sirius.paxos import Configuration, Member, PValue
from sirius.paxos.effects import ReadAt, ReadFailed
from sirius.paxos.messages import Beat, Found, Hello, Promise, ReadIndex
from sirius.types import Ballot, NodeId, Seq
from tests.paxos.harness import Cluster
from tests.paxos.timing import timed
from tests.paxos.words import words


def done(cluster: Cluster, name: str) -> set[int]:
    """The tokens of the requests that a node has acknowledged."""
    return {each.token for each in cluster.answers(name) if type(each).__name__ == "Done"}


# ---------------------------------------------------------------------- at most once, in order, never half


def test_a_request_is_not_decided_when_the_one_before_it_is_lost() -> None:
    # 1. a proposes x and then y, of one session. The Accept of x gets lost, b accepts y alone.
    # 2. a dies. b leads with c, and finds nothing of x.
    # 3. If b had accepted y behind the gap, it would be decided, and the last serial would speak for x too.
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("c", 1, "x")
    cluster.deliver("Forward")
    cluster.drop("Accept")
    cluster.propose("c", 2, "y")
    cluster.deliver("Forward")
    cluster.drop("a>c")
    cluster.deliver("a>b Accept")
    cluster.sync("b")
    cluster.crash("a")
    cluster.elect("b")
    assert cluster.log("c") == ["x", "y"]
    assert done(cluster, "c") == {1, 2}


def test_a_leader_without_room_does_not_start_a_storm_of_forwards() -> None:
    # 1. The leader's intake is full, so it ignores the next request of a session.
    # 2. If it complained about the gap behind that one, its node would send all of them again, at once and for ever.
    config = timed(intake_requests_max=1, pipeline_accepts_max=1)
    cluster = Cluster(config=config)
    cluster.elect("a")
    cluster.cut("ab", "c")
    for token in range(5):
        cluster.propose("b", token, f"x{token}")
    cluster.deliver("b>a Forward")
    assert [packet.kind for packet in cluster.packets("a>b")] == ["Accept"]


def test_a_request_that_two_leaders_saw_takes_effect_once() -> None:
    # 1. a proposes w and then x; nobody but a accepts either.
    # 2. b leads with c, hears of neither, gets x once more from c, and decides it.
    # 3. b dies. a comes back, and finds x in its journal, for a slot that is free.
    cluster = Cluster()
    cluster.elect("a")
    cluster.cut_off("a")
    cluster.propose("a", 1, "w")
    cluster.heal()
    cluster.propose("c", 2, "x")
    cluster.deliver("Forward")
    cluster.drop()
    cluster.sync("a")
    cluster.crash("a")
    cluster.elect("b")
    assert cluster.log("c") == ["x"]
    cluster.crash("b")
    cluster.start("a")
    cluster.run(3)
    assert cluster.log("a") == cluster.log("c") == ["x"]


def test_a_node_that_restarts_remembers_that_it_knows_every_session() -> None:
    # An empty table of sessions is not an unknown one.
    cluster = Cluster()
    cluster.elect("a")
    cluster.restart("a")
    cluster.elect("a")
    cluster.propose("c", 1, "x")
    cluster.settle()
    assert done(cluster, "c") == {1}


def test_a_request_without_updates_is_rejected_and_stops_nobody() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("b", 1)
    cluster.propose("b", 2, "x")
    cluster.settle()
    assert [str(each) for each in cluster.answers("b")] == [
        "Rejected(token=1, reason='there is nothing to decide')",
        "Done(token=2, last=2)",
    ]


# ---------------------------------------------------------------------- members


def test_a_new_leader_finishes_a_change_of_members_and_does_not_take_it_back() -> None:
    # 1. a proposes that d votes; b accepts it, and a dies.
    # 2. b leads, proposes it again, and then states the configuration in force: the new one.
    cluster = Cluster()
    cluster.add("d")
    cluster.elect("a")
    cluster.start("d")
    cluster.wish_all("abcd")
    while not any("#3 abcd" in line for line in cluster.trace):
        cluster.wait(0.05)
        cluster.tick()
        while cluster.wire and not any("#3 abcd" in line for line in cluster.trace):
            cluster.deliver()
            cluster.sync()
    cluster.drop("a>c")
    cluster.deliver("a>b Accept")
    cluster.sync("b")
    cluster.crash("a")
    cluster.wish_all(None)
    cluster.elect("b")
    assert [
        cluster.speaker.show_configuration(word.configuration)
        for value in cluster.nodes["b"].disk.log
        for word in value
        if word.configuration
    ][-2:] == ["[#3 abcd by 1.a]", "[#3 abcd by 2.b]"]


# ---------------------------------------------------------------------- leases


def test_a_take_over_that_comes_late_does_not_break_another_leaders_lease() -> None:
    # 1. a hands over to e; the message is late.
    # 2. b leads, with a lease from a, c and d.
    # 3. e gets the message, and asks for promises in the name of a, which has no lease to give up any more.
    cluster = Cluster("abcde", timed(lease=True))
    cluster.elect("a")
    cluster.hand_over("a", "e")
    cluster.deliver("Beat")
    cluster.deliver("e>a BeatAck")
    (late,) = cluster.drop("a>e TakeOver")
    cluster.cut("abcd", "e")
    cluster.elect("b")
    assert cluster.machine("b").holds_lease(cluster.now)
    cluster.heal()
    cluster.arrive(late)
    cluster.sync()
    cluster.deliver("e> Prepare")
    cluster.sync()
    assert cluster.packets("Promise") == []


def test_no_read_is_stale_after_a_pause() -> None:
    """Trap 22: the lease is asked for once more when the read is done."""
    cluster = Cluster(config=timed(lease=True))
    cluster.elect("a")
    assert cluster.machine("a").holds_lease(cluster.now)
    cluster.read("a", 1)
    assert [type(each) for each in cluster.answers("a")] == [ReadAt], "at once, without a message"
    assert cluster.packets() == []
    assert not cluster.machine("a").holds_lease(cluster.now + 10)
    assert not cluster.machine("b").holds_lease(cluster.now)


def test_a_lease_ends_before_anybody_else_can_lead() -> None:
    """Trap 22: those who answered sit still longer than the lease lasts, whatever their clocks do within the drift."""
    cluster = Cluster(config=timed(lease=True))
    cluster.elect("a")
    cluster.cut_off("a")
    while not [name for name in cluster.leaders if name != "a"]:
        cluster.run(0.01, step_s=0.01)
        for name in "bc":
            assert not (
                cluster.machine(name).is_leader and cluster.machine("a").holds_lease(cluster.now)
            )
    assert cluster.now < 10


def test_after_a_pause_a_message_finds_the_lease_at_its_end() -> None:
    """Trap 22: a question that waited while the node was stopped comes before its next tick."""
    cluster = Cluster(config=timed(lease=True))
    cluster.elect("a")
    cluster.run(0.3)
    cluster.read("b", 1)
    cluster.wait(5)
    cluster.machine("a").at(cluster.now)
    cluster.deliver("b>a AskIndex")
    assert not cluster.packets("a>b ReadIndex")


def test_a_leader_that_has_not_taken_over_yet_has_no_lease_and_answers_no_read() -> None:
    cluster = Cluster(config=timed(lease=True))
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.deliver("a>b Accept")
    cluster.sync("b")
    cluster.crash("a")
    cluster.drop()
    cluster.run(0.6)
    cluster.campaign("b")
    cluster.sync("b")
    cluster.deliver("b>c Prepare")
    cluster.sync("c")
    cluster.deliver("c>b Promise")
    cluster.wait(0.1)
    cluster.tick("b")
    cluster.deliver("Beat")
    cluster.deliver("BeatAck")
    assert cluster.machine("b").is_leader
    assert not cluster.machine("b").holds_lease(cluster.now)
    cluster.read("b", 2)
    cluster.settle()
    assert ReadAt(2, Seq(2)) in cluster.answers("b"), "when what it found is decided"


# ---------------------------------------------------------------------- memory of the disk


def test_a_voter_that_restarts_remembers_what_it_promised_and_accepted() -> None:
    # Trap 1. A and B accept x, A decides it and acknowledges. B restarts, A is cut off. C must find x at B.
    cluster = Cluster()
    cluster.elect("a")
    cluster.cut("ab", "c")
    cluster.propose("a", 1, "x")
    cluster.deliver("a>b Accept")
    cluster.sync("a", "b")
    cluster.deliver("b>a Accepted")
    assert done(cluster, "a") == {1}
    cluster.drop()
    cluster.restart("b")
    cluster.cut("a", "bc")
    cluster.run(3)
    assert cluster.log("c") == ["x"]


def test_no_answer_leaves_before_the_disk_has_what_it_says() -> None:
    # Traps 1 and 5.
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.deliver("Accept")
    assert cluster.packets("Accepted") == []
    cluster.restart("b")
    cluster.sync("b")
    assert cluster.packets("b> Accepted") == [], "what was not on disk was never said"


def test_a_node_with_an_empty_disk_is_no_voter_under_its_old_name() -> None:
    # Trap 2. The old life's vote must not be given twice.
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    (accept,) = cluster.packets("a>b Accept")
    cluster.drop()
    cluster.lose_disk("b")
    cluster.arrive(accept)
    cluster.sync("b")
    assert cluster.packets("b>") == []
    assert not cluster.machine("b").is_voter


def test_nodes_that_a_cluster_wants_do_not_found_another() -> None:
    # Trap 9. All voters are to be replaced by nodes with empty disks, which know only each other.
    cluster = Cluster("abc")
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.settle()
    for name in "def":
        cluster.add(name)
        cluster.start(name)
    cluster.crash("b")
    cluster.crash("c")
    for name in "adef":
        cluster.wish(name, "def")
    cluster.run(3)
    assert {cluster.machine(name).cluster for name in "def"} == {0}, "they wait to be fetched"
    for name in "bc":
        cluster.start(name)
        cluster.wish(name, "def")
    cluster.run(8)
    assert {cluster.machine(name).cluster for name in "abcdef"} == {cluster.machine("a").cluster}
    assert cluster.voters("d") == ["d", "e", "f"]
    assert cluster.leader in "def"
    assert cluster.log("f") == ["x"]


def test_a_voter_that_missed_the_founding_hears_of_it_when_it_greets() -> None:
    cluster = Cluster("abc", founded=False)
    cluster.wish_all("abc")
    while not cluster.packets("a>b Found"):
        cluster.deliver()
        cluster.sync("a")
        cluster.wait(0.1)
        cluster.tick()
    cluster.drop("a>b")
    cluster.drop("a>c")
    cluster.deliver("a>a Found")
    cluster.wait(1.0)
    cluster.tick("b")
    cluster.deliver("b>a Hello")
    cluster.sync("a")
    assert cluster.machine("b").cluster == 0
    cluster.deliver("a>b Found")
    assert cluster.voters("b") == ["a", "b", "c"]
    assert cluster.machine("b").cluster == cluster.machine("a").cluster


def test_a_node_that_belongs_to_a_cluster_takes_part_in_no_other_founding() -> None:
    cluster = Cluster("abc")
    b, c = cluster.member("b"), cluster.member("c")
    other = Configuration(99, 1, (b, c))
    before = cluster.machine("b").cluster
    envelope = cluster.machine("b").envelope(b, Found(other))
    cluster._step("b", envelope._replace(sender=c, cluster=99))
    assert cluster.machine("b").cluster == before
    assert cluster.voters("b") == ["a", "b", "c"]


def test_a_candidate_fetches_what_nobody_who_promised_has() -> None:
    """Somebody accepted slots 3 and 4 behind decided ones that it had missed, and nobody has those any more."""
    cluster = Cluster()
    cluster.campaign("b")
    cluster.deliver("PreVote")
    cluster.deliver("PreVoted")
    cluster.sync("b")
    (packet, *_) = cluster.packets("b>c Prepare")
    ballot, under = packet.message.ballot, Ballot(0, cluster.member("a").node)
    accepted = tuple(PValue(under, words(slot, "x")) for slot in (3, 4))
    promise = Promise(ballot, Seq(0), under, accepted)
    answer = packet.envelope._replace(sender=cluster.member("c"), to=packet.envelope.sender.node)
    cluster._step("b", answer._replace(message=promise))
    assert not cluster.machine("b").is_leader
    assert cluster.machine("b").known == 2
    cluster.learn("b", [words(1, "v", "w")])
    assert cluster.machine("b").is_leader


def test_who_leads_or_hears_its_leader_is_in_touch() -> None:
    cluster = Cluster()
    assert not cluster.machine("b").is_in_touch
    cluster.elect("a")
    assert cluster.machine("a").is_in_touch
    assert cluster.machine("b").is_in_touch
    cluster.cut_off("b")
    cluster.wait(cluster.config.election_timeout_s)
    cluster.tick("b")
    assert not cluster.machine("b").is_in_touch


def test_acquaintances_change_with_the_voters_the_wish_the_leader_and_who_greets() -> None:
    cluster = Cluster()
    machine = cluster.machine("b")
    a, c = cluster.member("a"), cluster.member("c")
    assert machine.acquaintances == machine.acquaintances == [a, c]
    d, e = Member(NodeId(4), "d"), Member(NodeId(5), "e")
    machine.step(machine.envelope(machine.me, Hello(True))._replace(sender=d))
    assert machine.acquaintances == [a, c], "nobody wishes for d"
    machine.wish(("b", "d"))
    assert machine.acquaintances == [a, c, d]
    machine.step(
        machine.envelope(machine.me, Beat(Ballot(1, e.node), 1, Seq(0)))._replace(sender=e)
    )
    assert machine.acquaintances == [a, c, d, e]


def test_a_ballot_is_used_once_also_when_its_node_restarts() -> None:
    # Trap 3.
    cluster = Cluster()
    cluster.campaign("a")
    cluster.sync("a")
    (first, _) = cluster.packets("Prepare")
    cluster.drop()
    cluster.restart("a")
    cluster.campaign("a")
    cluster.sync("a")
    (second, _) = cluster.packets("Prepare")
    assert second.message.ballot > first.message.ballot


def test_a_ballot_is_adopted_at_most_once() -> None:
    # Trap 3. A promise that comes twice, or late, starts no second reign.
    cluster = Cluster()
    cluster.campaign("a")
    cluster.sync("a")
    cluster.deliver("Prepare")
    cluster.sync()
    promises = cluster.drop("Promise")
    cluster.arrive(promises[0])
    reign = cluster.machine("a")._state.leader
    assert reign is not None
    for packet in promises:
        cluster.arrive(packet)
    assert cluster.machine("a")._state.leader is reign
    cluster.disable("a", "no room")
    cluster.disable("a", None)
    for packet in promises:
        cluster.arrive(packet)
    assert cluster.leaders == []


def test_an_empty_list_of_members_forgets_nothing() -> None:
    # Trap 4.
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.settle()
    cluster.wish_all("")
    cluster.run(3)
    for name in "abc":
        cluster.restart(name)
    cluster.run(3)
    assert cluster.leaders == []
    cluster.wish_all("abc")
    cluster.run(3)
    assert cluster.log(cluster.leader) == ["x"]


def test_holes_of_a_dead_leader_are_closed() -> None:
    # Trap 7. What it had proposed comes from its journal or from those who asked; the log has no gap.
    cluster = Cluster()
    cluster.elect("a")
    for token in (1, 2, 3):
        cluster.propose("c", token, f"x{token}")
    cluster.deliver("Forward")
    cluster.drop("a>c")
    cluster.wire.remove(cluster.packets("a>b Accept")[1])
    cluster.deliver("a>b")
    cluster.sync("b")
    cluster.crash("a")
    cluster.run(3)
    assert cluster.log("b") == ["x1", "x2", "x3"]
    assert done(cluster, "c") == {1, 2, 3}


def test_two_halves_of_a_growing_cluster_cannot_both_decide() -> None:
    # Trap 9. a and b still have the old list, c, d and e have the new one, and the network splits just so.
    cluster = Cluster("abc")
    for name in "de":
        cluster.add(name)
        cluster.start(name)
    cluster.elect("a")
    for name in "cde":
        cluster.wish(name, "abcde")
    cluster.run(1)
    cluster.cut("ab", "cde")
    cluster.propose("a", 1, "x")
    cluster.propose("c", 2, "y")
    cluster.run(3)
    assert cluster.log("b") == ["x"]
    assert cluster.log("c") == cluster.log("d") == []


def test_messages_of_another_cluster_or_for_another_life_are_ignored() -> None:
    # Trap 9.
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    (packet,) = cluster.packets("a>b Accept")
    for envelope in (packet.envelope._replace(cluster=5), packet.envelope._replace(to=NodeId(99))):
        cluster.arrive(packet._replace(envelope=envelope))
    assert "b keeps accepted 1.a 2 x" not in cluster.trace


# ---------------------------------------------------------------------- trouble with the disk


def test_a_node_whose_disk_failed_neither_votes_nor_leads() -> None:
    # Traps 16 and 18.
    cluster = Cluster()
    cluster.elect("a")
    cluster.disable("a", "the disk is full")
    assert cluster.leaders == []
    cluster.run(3)
    assert cluster.leader in "bc"
    before = len(cluster.trace)
    cluster.propose(cluster.leader, 1, "x")
    cluster.settle()
    assert not [line for line in cluster.trace[before:] if line.startswith("a keeps")]
    assert cluster.machine("a").known == cluster.machine("b").decided, "it still follows"
    cluster.disable("a", None)
    cluster.crash(next(name for name in "bc" if name != cluster.leader))
    cluster.propose(cluster.leader, 2, "y")
    cluster.run(1)
    assert 2 in done(cluster, cluster.leader), "there is room again, and it votes"


def test_a_leader_whose_disk_hangs_steps_down() -> None:
    # Trap 17.
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    for _ in range(12):
        cluster.wait(0.05)
        cluster.tick()
        cluster.deliver()
        cluster.sync("b", "c")
    assert not cluster.machine("a").is_leader
    assert not [packet for packet in cluster.packets("a> Beat")]


# ---------------------------------------------------------------------- half a network


def test_a_node_that_hears_but_is_not_heard_cannot_unseat_a_leader() -> None:
    # Trap 24.
    cluster = Cluster()
    cluster.elect("a")
    cluster.blocked = {("c", "a"), ("c", "b")}
    cluster.run(5)
    assert cluster.leader == "a"


def test_a_node_that_is_heard_but_does_not_hear_cannot_unseat_a_leader() -> None:
    # Trap 24. c asks for an election again and again; the others hear a leader, and say no.
    cluster = Cluster()
    cluster.elect("a")
    before = cluster.machine("a").ballot
    cluster.blocked = {("a", "c"), ("b", "c")}
    cluster.run(5)
    assert cluster.leader == "a"
    assert cluster.machine("a").ballot == before


def test_a_leader_that_is_heard_but_does_not_hear_gives_way() -> None:
    # Trap 24: check-quorum.
    cluster = Cluster()
    cluster.elect("a")
    cluster.blocked = {("b", "a"), ("c", "a")}
    cluster.run(4)
    assert "a" not in cluster.leaders
    assert len(cluster.leaders) == 1


def test_a_candidate_that_gets_no_majority_gives_up_its_ballot() -> None:
    cluster = Cluster()
    cluster.campaign("a")
    cluster.sync("a")
    cluster.cut_off("a")
    cluster.wait(0.2)
    cluster.tick("a")
    assert len(cluster.packets("a> Prepare")) == 4, "it asks again"
    cluster.wait(0.05)
    cluster.tick("a")
    assert len(cluster.packets("a> Prepare")) == 4, "but not all the time"
    cluster.wait(0.75)
    cluster.tick("a")
    cluster.heal()
    cluster.settle()
    assert cluster.leaders == []


def test_reads_are_asked_for_again_and_fail_in_time() -> None:
    cluster = Cluster(config=timed(reads_max=2))
    cluster.elect("a")
    cluster.read("b", 1)
    cluster.drop("AskIndex")
    cluster.wait(0.3)
    cluster.tick("b")
    cluster.settle()
    assert cluster.answers("b") == [ReadAt(1, Seq(1))]
    cluster.cut_off("b")
    cluster.read("b", 2)
    cluster.read("b", 3)
    cluster.read("b", 4)
    cluster.run(6)
    assert [(type(each), each.token) for each in cluster.answers("b")] == [
        (ReadFailed, 4),
        (ReadFailed, 2),
        (ReadFailed, 3),
    ]
    cluster.heal()
    cluster.run(2)
    (late,) = [cluster.machine("a").envelope(cluster.member("b"), ReadIndex(2, Seq(1)))]
    cluster._step("b", late)
    assert cluster.answers("b") == []


def test_a_leader_holds_only_so_many_reads() -> None:
    cluster = Cluster(config=timed(reads_max=2))
    cluster.elect("a")
    for name, token in (("b", 1), ("b", 2), ("c", 3)):
        cluster.read(name, token)
    cluster.deliver("AskIndex")
    leader = cluster.machine("a")._state.leader
    assert leader is not None
    assert len(leader.reads) == 2


def test_a_hand_over_that_does_not_come_about_is_called_off() -> None:
    cluster = Cluster()
    cluster.hand_over("a")
    cluster.elect("a")
    before = cluster.machine("a").ballot
    cluster.cut("ac", "b")
    cluster.propose("a", 1, "x")
    cluster.settle()
    cluster.hand_over("a", "b")
    cluster.propose("a", 2, "y")
    cluster.run(0.4)
    assert cluster.log("a") == ["x"], "it takes nothing new while it hands over"
    cluster.run(0.3)
    assert cluster.log("a") == ["x", "y"]
    cluster.hand_over("a", "b")
    cluster.run(0.1)
    assert cluster.leader == "a", "b has not been heard of for too long"
    assert cluster.machine("a").ballot == before


def test_messages_that_come_late_mean_nothing() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("c", 1, "x")
    late = cluster.packets("Forward")
    cluster.deliver("Forward")
    late += cluster.packets("Accept")
    cluster.deliver("Accept")
    cluster.sync()
    late += cluster.packets("Accepted")
    cluster.deliver("Accepted")
    late += cluster.packets("Decided")
    cluster.settle()
    cluster.wait(0.1)
    cluster.tick("a")
    late += cluster.packets("Beat")
    cluster.hand_over("a", "b")
    cluster.deliver("Beat")
    cluster.deliver("BeatAck")
    late += cluster.packets("TakeOver")
    cluster.settle()
    assert cluster.leader == "b"
    before = [cluster.machine(name).decided for name in "abc"]
    for packet in late:
        cluster.arrive(packet)
    assert {packet.kind for packet in cluster.packets()} == {"Preempted"}
    cluster.settle()
    assert cluster.leader == "b"
    assert [cluster.machine(name).decided for name in "abc"] == before
    assert cluster.log("c") == ["x"]


def test_values_that_came_too_early_are_kept_up_to_a_bound_and_for_one_ballot() -> None:
    cluster = Cluster(config=timed(pipeline_accepts_max=2))
    cluster.elect("a")
    cluster.propose("a", 1, "x")
    cluster.propose("a", 2, "y")
    (packet, *_) = [each for each in cluster.packets("a>b Accept") if each.message.value.first == 3]
    accept = packet.message
    for slot in range(3, 20):
        message = accept._replace(value=words(slot, "z"))
        cluster._step("b", packet.envelope._replace(message=message))
        assert cluster.machine("b").held_bytes <= 20
    message = accept._replace(ballot=Ballot(7, 1), value=words(5, "z"))
    cluster._step("b", packet.envelope._replace(message=message))
    assert cluster.machine("b").held_bytes == 10


def test_a_node_that_has_learned_half_of_a_value_accepts_the_other_half() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("a", 1, "x", "y")
    (packet,) = cluster.packets("a>b Accept")
    cluster.learn("b", [packet.message.value.cut(2, 2)])
    cluster.deliver("a>b Accept")
    assert cluster.trace[-1] == "b keeps accepted 1.a 3 y"
    cluster.sync("b")
    (answer,) = cluster.packets("b>a Accepted")
    assert (answer.message.first, answer.message.last) == (2, 3)


def test_a_node_that_learns_of_its_cluster_from_the_log_belongs_to_it() -> None:
    cluster = Cluster("abc")
    cluster.add("d")
    cluster.start("d")
    cluster.elect("a")
    cluster.catch_up("d", "a")
    assert cluster.machine("d").cluster == cluster.machine("a").cluster
    cluster.sync("d")
    cluster.restart("d")
    assert cluster.machine("d").cluster == cluster.machine("a").cluster
