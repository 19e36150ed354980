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
