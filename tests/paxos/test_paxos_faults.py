"""The traps of the paper's design, and of our own: what must never happen, each with the story of how it would."""

from __future__ import annotations

from sirius.paxos import PaxosConfig
from tests.paxos.harness import Cluster


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
    config = PaxosConfig(intake_requests_max=1, pipeline_accepts_max=1)
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
    cluster = Cluster("abcde", PaxosConfig(lease=True))
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
