"""Everything is bounded: what a node holds in memory stays below what its settings say, whatever happens to it."""

from __future__ import annotations

from typing import Any

from sirius.paxos.effects import Rejected, Unknown
from sirius.paxos.members import Member
from sirius.paxos.messages import Hello
from sirius.paxos.state import SEEN_MAX
from sirius.types import NodeId
from tests.paxos.harness import Cluster
from tests.paxos.timing import timed

SMALL = timed(
    pending_requests_max=50,
    pending_bytes_max=1000,
    forward_bytes_max=500,
    intake_requests_max=40,
    intake_bytes_max=800,
    pipeline_accepts_max=4,
    pipeline_bytes_max=400,
    accept_bytes_max=1000,
    reads_max=20,
    sessions_max=30,
)
HELD_MAX = (
    SMALL.pending_bytes_max
    + SMALL.intake_bytes_max
    + 2 * SMALL.pipeline_bytes_max
    + SMALL.accept_bytes_max
)


def sizes(cluster: Cluster, name: str) -> dict[str, int]:
    """How much a node holds, thing by thing."""
    machine = cluster.machine(name)
    state: Any = machine._state
    leader = state.leader
    return {
        "bytes": machine.held_bytes,
        "requests": len(state.proposer),
        "reads": len(machine._reads),
        "spans": len(state.acceptor.spans),
        "sessions": len(state.replica.sessions),
        "syncing": len(machine._syncing),
        "seen": len(state.seen),
        "intake": len(leader._intake) if leader else 0,
        "taken": len(leader._taken) if leader else 0,
        "leader's reads": len(leader.reads) if leader else 0,
        "heartbeats": len(leader.pulse._times) if leader else 0,
    }


def assert_bounded(cluster: Cluster, name: str) -> None:
    held = sizes(cluster, name)
    assert held["bytes"] <= HELD_MAX, held
    assert held["requests"] <= SMALL.pending_requests_max, held
    assert held["reads"] <= SMALL.reads_max, held
    assert held["leader's reads"] <= SMALL.reads_max, held
    assert held["sessions"] <= SMALL.sessions_max, held
    assert held["intake"] <= SMALL.intake_requests_max, held
    rest = ("spans", "syncing", "seen", "taken", "heartbeats")
    assert all(held[each] < 100 for each in rest), held


def test_a_minority_under_load_builds_up_no_state_in_an_hour() -> None:
    """Section 5 of the Sirius paper: a minority does not make progress, and degrades gracefully."""
    cluster = Cluster("abcde", SMALL)
    cluster.elect("a")
    cluster.cut("ab", "cde")
    token = 0
    for _ in range(720):
        for name in "ab":
            for _ in range(60):
                token += 1
                cluster.propose(name, token, f"x{token}")
            cluster.read(name, -token)
        cluster.run(5.0, step_s=0.5)
        cluster.trace.clear()
        for name in "ab":
            assert_bounded(cluster, name)
    outcomes = {type(answer) for answer in cluster.answers("b")}
    assert Rejected in outcomes
    cluster.heal()
    cluster.run(3)
    cluster.propose("b", -1, "back")
    cluster.run(1)
    assert "back" in cluster.log("a"), "and it is as good as new when the others are back"


def test_a_leader_without_votes_holds_no_more_than_it_may() -> None:
    """More comes in than goes out: requests wait at their nodes, and then are refused."""
    cluster = Cluster("abc", SMALL)
    cluster.elect("a")
    for token in range(400):
        cluster.propose("abc"[token % 3], token, f"x{token}", "y")
        cluster.deliver("Forward")
        for name in "abc":
            assert_bounded(cluster, name)
    refused = [each for name in "abc" for each in cluster.answers(name)]
    assert refused
    assert {type(each) for each in refused} == {Rejected}
    cluster.run(3)
    assert len(cluster.log("a")) == 2 * (400 - len(refused))


def test_a_leader_that_nobody_reads_from_keeps_no_heartbeats_and_no_sessions() -> None:
    cluster = Cluster("abc", SMALL)
    cluster.elect("a")
    for token in range(200):
        cluster.propose("abc"[token % 3], token, "x")
        cluster.run(0.1)
    assert sizes(cluster, "a")["heartbeats"] <= 2
    assert sizes(cluster, "a")["taken"] == 0


def test_a_node_that_restarts_a_lot_does_not_fill_the_table_of_sessions() -> None:
    cluster = Cluster("abc", SMALL)
    cluster.elect("a")
    for token in range(2 * SMALL.sessions_max):
        cluster.propose("c", token, "x")
        cluster.settle()
        cluster.restart("c")
        cluster.run(0.2)
    assert sizes(cluster, "a")["sessions"] == SMALL.sessions_max
    assert not [each for each in cluster.answers("c") if isinstance(each, Unknown)]


def test_requests_that_timed_out_keep_their_place_without_their_updates() -> None:
    cluster = Cluster("abc", SMALL)
    cluster.elect("a")
    for token in range(30):
        cluster.propose("b", token, "x")
    cluster.drop()
    cluster.cut_off("b")
    cluster.run(6)
    assert cluster.machine("b").held_bytes == 0
    assert {type(each) for each in cluster.answers("b")} == {Unknown}
    cluster.heal()
    cluster.run(2)
    assert sizes(cluster, "b")["requests"] == 0
    assert cluster.log("a") == []


def test_followers_whose_names_change_for_years_do_not_fill_the_memory() -> None:
    """As those of a scheduler do, with each rollout. The latest ones are known, and so is the new life of a name."""
    cluster = Cluster("abc", SMALL)
    cluster.elect("a")
    machine = cluster.machine("a")
    state: Any = machine._state
    greeting = machine.envelope(machine.me, Hello(False))
    for number in range(SEEN_MAX + 50):
        machine.step(greeting._replace(sender=Member(NodeId(1000 + number), f"pod-{number}")))
    machine.step(greeting._replace(sender=Member(NodeId(7), f"pod-{SEEN_MAX + 49}")))
    assert len(state.seen) == SEEN_MAX
    assert state.seen[f"pod-{SEEN_MAX + 48}"] == 1000 + SEEN_MAX + 48
    assert state.seen[f"pod-{SEEN_MAX + 49}"] == 7
    assert "pod-0" not in state.seen
    cluster.propose("b", 1, "x")
    cluster.run(1)
    assert cluster.log("c") == ["x"]
