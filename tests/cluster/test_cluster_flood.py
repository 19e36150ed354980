"""A caller that never waits."""

from __future__ import annotations

from typing import Any

import pytest

from sirius.testing.processes import ProcessCluster

COUNT = 1_000_000
KEYS = 10_000
PATIENT: dict[str, Any] = {
    "paxos": {"heartbeat_s": 0.25, "election_timeout_s": 3.0},
    "requests": {"timeout_s": 60.0},
}
"""What is under way when a leader is replaced, or for too long, is unknown. This is not about that, and machines may be
busy."""
MEMORY_MAX = 400 * 1024 * 1024
"""What the inbox, the consensus machine and the backlog may hold by default, and the interpreter with all its modules.
The updates themselves would be twice that."""


@pytest.mark.deep
def test_a_million_updates_without_a_pause_stay_bounded_and_all_arrive() -> None:
    with ProcessCluster.temporary(3, durability="os", **PATIENT) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        leader = cluster.leader()
        outcomes = leader.call(
            "flood", prefix="flood/", count=COUNT, keys=KEYS, timeout=120, timeout_s=500
        )
        assert outcomes == {"acknowledged": COUNT}
        cluster.settle(60)
        for node in cluster.nodes:
            assert node.call("memory") < MEMORY_MAX, node.name
            numbers = node.call("numbers", timeout_s=60)
            assert len(numbers) == KEYS
            assert min(numbers.values()) > COUNT - KEYS
