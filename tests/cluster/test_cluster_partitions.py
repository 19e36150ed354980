"""Partitions of real clusters, also one-way ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sirius.errors import SiriusError
from sirius.testing.processes import NodeProcess
from tests.cluster.proxy import CutCluster

ELECTION_S = 2.0
PATIENT: dict[str, Any] = {"paxos": {"heartbeat_s": 0.2, "election_timeout_s": ELECTION_S}}
"""So that nobody is replaced only because the machine is busy."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[CutCluster]:
    with CutCluster.temporary(3, durability="os", **getattr(request, "param", {})) as found:
        found.start()
        found.wait_until_ready()
        yield found


def others(cluster: CutCluster, node: NodeProcess) -> list[NodeProcess]:
    return [each for each in cluster.voters if each is not node]


def put(node: NodeProcess, key: str, body: str) -> int | None:
    try:
        seq: int = node.call("put", key=key, body=body)
    except SiriusError:
        return None
    return seq


def test_a_leader_that_is_cut_off_acknowledges_nothing_and_is_replaced(cluster: CutCluster) -> None:
    old = cluster.leader()
    rest = others(cluster, old)
    assert put(old, "before", "1 x")
    cluster.cut([old], rest)
    cluster.cut(rest, [old])
    asked = old.ask("put", key="lost", body="1 x", timeout=20)
    assert cluster.until(lambda: put(rest[0], "during", "1 x"), "new leader", 30)
    with pytest.raises(SiriusError, match=r"OutcomeUnknown|RequestRejected"):
        old.answer(asked)
    with pytest.raises(SiriusError, match="ReadFailed"):
        old.call("read", key="during")
    cluster.heal()
    cluster.until(lambda: put(old, "after", "1 x"), "leader for the old one", 30)
    cluster.settle()
    assert old.call("get", key="during") == "1 x"


def test_a_leader_that_is_heard_by_nobody_is_replaced(cluster: CutCluster) -> None:
    old = cluster.leader()
    cluster.cut([old], others(cluster, old))
    rest = others(cluster, old)
    assert cluster.until(lambda: put(rest[0], "during", "1 x"), "new leader", 30)
    cluster.heal()
    cluster.settle()
    assert old.call("get", key="during") == "1 x"


@pytest.mark.parametrize("cluster", [PATIENT], indirect=True)
def test_a_node_that_hears_but_is_not_heard_unseats_nobody(cluster: CutCluster) -> None:
    leader = cluster.leader()
    mute = others(cluster, leader)[0]
    ballot = leader.call("status")["ballot"]
    cluster.cut([mute], others(cluster, mute))
    for number in range(20):
        assert put(leader, f"k{number}", "1 x"), "a majority is left"
    # And one that is heard but hears nothing asks in vain.
    cluster.heal()
    cluster.cut(others(cluster, mute), [mute])
    cluster.until(
        lambda: put(leader, "k", "2 x") and mute.call("status")["staleness_s"] > 2 * ELECTION_S,
        "time for it to ask",
        60,
    )
    cluster.heal()
    cluster.settle()
    assert leader.call("status")["role"] == "leader"
    assert leader.call("status")["ballot"] == ballot
