"""The time of day is for people: it may jump on any node, by any amount, and nothing depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.clocks import Clocks

HOUR_S, YEAR_S = 3600, 365 * 86400
SETTINGS = {
    "durability": "os",
    # Nobody is to be unseated only because the machine is busy.
    "paxos": {"heartbeat_s": 0.2, "election_timeout_s": 2.0},
    "log": {"segment_bytes_max": 60_000, "reserve_bytes": 0, "retire_after_s": 0.5},
    # Deletes go as soon as they are an hour old, by the clock of whoever compacts.
    "compaction": {"interval_s": 0.2, "dead_fraction_min": 0.0, "delete_age_s": 3600.0},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Clocks]:
    with Clocks.temporary(3, 1, **SETTINGS) as found:
        found.prepare(tmp_path)
        found.start()
        found.wait_until_ready()
        yield found


@pytest.mark.deep
def test_clocks_that_jump_change_nothing(cluster: Clocks) -> None:
    leader = cluster.leader()
    ballot = leader.call("status")["ballot"]
    for node in cluster.nodes:
        node.call("load", name="load", prefix=f"{node.name}/", keys=50, outstanding=8)
    for round_, offset_s in enumerate((HOUR_S, -HOUR_S, YEAR_S, -YEAR_S, 0)):
        for node in cluster.nodes:
            cluster.jump(node, offset_s)
            cluster.goes_on(node)
        leader.call("put", key="gone", body=f"{round_} x")
        leader.call("delete", key="gone")
        for node in cluster.nodes:
            cluster.compacts(node)
            assert node.call("read", key="gone") is None, (
                "a delete went too early, or came too late"
            )
    assert leader.call("status")["ballot"] == ballot, "nobody was unseated"
    for node in cluster.nodes:
        node.call("finish", name="load")
    cluster.settle()
    assert cluster.lost() == {}


@pytest.mark.deep
def test_a_leader_that_lives_in_another_year_dies_and_comes_back(cluster: Clocks) -> None:
    for node in cluster.voters:
        node.call("load", name="load", prefix=f"{node.name}/", keys=50, outstanding=8)
    leader = cluster.leader()
    survivor = next(node for node in cluster.voters if node is not leader)
    cluster.jump(leader, YEAR_S)
    cluster.goes_on(leader)
    leader.kill()
    cluster.goes_on(survivor)
    cluster.jump(leader, -YEAR_S)
    leader.start()
    cluster.wait_until_ready()
    for node in cluster.voters:
        if node is not leader:
            node.call("finish", name="load")
    cluster.settle()
    assert cluster.lost() == {}
