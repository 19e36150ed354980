"""Clusters of real processes, over real gRPC, on real disks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sirius.testing.processes import NodeProcess, ProcessCluster

PATIENT: dict[str, Any] = {"paxos": {"heartbeat_s": 0.2, "election_timeout_s": 2.0}}
"""So that nobody is replaced only because the machine is busy."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[ProcessCluster]:
    """Three voters and a follower, in mode `os` unless a test says otherwise."""
    with ProcessCluster.temporary(
        3, 1, **{"durability": "os", **getattr(request, "param", {})}
    ) as found:
        found.start()
        found.wait_until_ready()
        yield found


def others(cluster: ProcessCluster, node: NodeProcess) -> list[NodeProcess]:
    return [each for each in cluster.voters if each is not node]


def test_every_node_takes_updates_and_has_those_of_the_others(cluster: ProcessCluster) -> None:
    seqs = [
        node.call("put", key=f"k{number}", body=f"{number} x")
        for number, node in enumerate(cluster.nodes)
    ]
    for node in cluster.nodes:
        assert node.call("wait_for", seq=max(seqs), timeout=25)
        assert node.call("numbers") == {f"k{number}": number for number in range(4)}
    cluster.leader().call("delete", key="k0")
    # Not a matter of waiting: a linearizable read sees what was acknowledged before, on any node.
    assert [node.call("read", key="k0") for node in cluster.voters] == [None, None, None]

    def roles() -> list[str]:
        return sorted(node.call("status")["role"] for node in cluster.nodes)

    # One node after the other is asked, and there may be an election meanwhile.
    cluster.until(lambda: roles() == ["follower", "leader", "voter", "voter"], "division of roles")


@pytest.mark.parametrize("cluster", [{"durability": "fsync"}], indirect=True)
def test_a_killed_leader_costs_nothing_that_was_acknowledged(cluster: ProcessCluster) -> None:
    for number, node in enumerate(cluster.voters):
        node.call("load", name="load", prefix=f"{number}/", outstanding=16)
    leader = cluster.leader()
    cluster.until(lambda: len(leader.acknowledged()) > 100, "load")
    leader.kill()
    survivor = others(cluster, leader)[0]
    before = sum(survivor.acknowledged().values())
    cluster.until(lambda: sum(survivor.acknowledged().values()) > before + 100, "progress")
    assert cluster.leader() is not leader
    leader.start()
    cluster.wait_until_ready()
    for node in others(cluster, leader):
        node.call("finish", name="load")
    cluster.settle()
    assert cluster.lost() == {}


def test_a_paused_leader_is_replaced_and_knows_it_when_it_comes_back(
    cluster: ProcessCluster,
) -> None:
    leader = cluster.leader()
    ballot = leader.call("status")["ballot"]
    leader.pause()
    try:
        survivor = others(cluster, leader)[0]
        seq = cluster.until(lambda: put(survivor, "during", "1 x"), "leader", 20)
    finally:
        leader.go_on()
    assert leader.call("wait_for", seq=seq, timeout=25)
    # It does not answer from memory: its time is over, even if it was chosen again since.
    assert leader.call("read", key="during") == "1 x"
    assert leader.call("status")["ballot"] > ballot
    cluster.settle()


def put(node: NodeProcess, key: str, body: str) -> int | None:
    """Put, if it can be decided."""
    from sirius.errors import SiriusError

    try:
        seq: int = node.call("put", key=key, body=body)
    except SiriusError:
        return None
    return seq


def test_a_node_without_a_majority_says_that_it_does_not_know(cluster: ProcessCluster) -> None:
    leader = cluster.leader()
    for node in others(cluster, leader):
        node.kill()
    with pytest.raises(Exception, match=r"OutcomeUnknown|RequestRejected"):
        leader.call("put", key="lonely", body="1 x", timeout=20)
    # Reads go on, and say how old they are.
    assert leader.call("get", key="lonely") in (None, "1 x")
    cluster.until(lambda: leader.call("status")["staleness_s"] > 1, "staleness")
    for node in others(cluster, leader):
        node.start()
    cluster.until(lambda: put(leader, "back", "1 x"), "majority")
    cluster.settle()


@pytest.mark.parametrize("cluster", [PATIENT], indirect=True)
def test_leadership_is_handed_over_on_request_and_at_the_end(cluster: ProcessCluster) -> None:
    leader = cluster.leader()
    target = others(cluster, leader)[1]
    assert leader.call("transfer", to=target.name)
    assert cluster.leader() is target
    target.stop()
    next_leader = cluster.leader()
    assert next_leader is not target
    assert put(next_leader, "after", "1 x")


def test_all_nodes_killed_at_once_come_back_with_everything(cluster: ProcessCluster) -> None:
    leader = cluster.leader()
    leader.call("load", name="load", prefix="all/", outstanding=64)
    cluster.until(lambda: len(leader.acknowledged()) > 200, "load")
    cluster.kill()
    cluster.start()
    cluster.wait_until_ready()
    cluster.settle()
    assert cluster.lost() == {}
    assert put(cluster.leader(), "after", "1 x")
