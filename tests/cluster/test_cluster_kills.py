"""Many kills of real processes, at random, under load; and members that come and go meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from sirius.testing.processes import NodeProcess, ProcessCluster

pytestmark = pytest.mark.deep

CYCLES = 1000 if os.environ.get("SIRIUS_SOAK") else 10
"""Twice, once in each mode."""


class Load:
    """Load on every voter of a cluster. Each life of a process has keys of its own."""

    def __init__(self, cluster: ProcessCluster, outstanding: int = 32) -> None:
        self._cluster = cluster
        self._outstanding = outstanding
        self._lives = 0

    def begin(self, *nodes: NodeProcess) -> None:
        for node in nodes:
            self._lives += 1
            prefix = f"life{self._lives}/"
            node.call("load", name="load", prefix=prefix, keys=50, outstanding=self._outstanding)

    def end(self, *nodes: NodeProcess) -> None:
        for node in nodes:
            node.call("finish", name="load", timeout_s=60)

    def goes_on(self, node: NodeProcess, count: int = 50) -> None:
        """Wait until more is acknowledged on a node."""
        before = sum(node.acknowledged().values())
        self._cluster.until(
            lambda: sum(node.acknowledged().values()) > before + count, "progress", 30
        )


def victims(cluster: ProcessCluster, rng: random.Random) -> list[NodeProcess]:
    """Whom to kill: mostly the leader, sometimes another one, or two, or all of them."""
    choices: list[Callable[[], list[NodeProcess]]] = [
        lambda: [cluster.leader()],
        lambda: [cluster.leader()],
        lambda: [rng.choice(cluster.nodes)],
        lambda: rng.sample(cluster.nodes, 2),
        lambda: list(cluster.nodes),
    ]
    return rng.choice(choices)()


@pytest.mark.parametrize("mode", ["fsync", "os"])
def test_nothing_acknowledged_is_lost_whoever_is_killed(mode: str) -> None:
    rng = random.Random(mode)
    with ProcessCluster.temporary(3, 1, durability=mode) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        load = Load(cluster)
        load.begin(*cluster.voters)
        for _ in range(CYCLES):
            load.goes_on(cluster.leader())
            killed = victims(cluster, rng)
            for node in killed:
                node.kill()
            for node in killed:
                node.start()
            cluster.wait_until_ready(60)
            load.begin(*(node for node in killed if node in cluster.voters))
            load.goes_on(rng.choice(cluster.voters))
        load.end(*cluster.voters)
        cluster.settle(60)
        assert cluster.lost() == {}


def voters_become(cluster: ProcessCluster, wished: list[NodeProcess]) -> None:
    names = {node.name for node in wished}
    cluster.until(
        lambda: set(cluster.leader().call("status")["voters"]) == names,
        f"configuration of {len(names)} voters",
        60,
    )


def test_every_member_is_replaced_while_writes_go_on() -> None:
    """Three, five, the other two and one of the first: any set to any set, and nothing is lost."""
    with ProcessCluster.temporary(3, 3) as cluster:
        first, second = cluster.nodes[:3], cluster.nodes[3:]
        cluster.start()
        cluster.wait_until_ready()
        load = Load(cluster)
        load.begin(*first)
        for wished in (
            [*first, *second[:2]],
            first,
            [first[0], *second[:2]],
            second,
        ):
            cluster.write_members([node.name for node in wished])
            voters_become(cluster, wished)
            load.goes_on(first[0])
        load.end(*first)
        cluster.settle(60)
        assert cluster.lost() == {}
        leaders = [node for node in cluster.nodes if node.call("status")["role"] == "leader"]
        assert len(leaders) == 1
        assert leaders[0] in second


def test_a_cluster_of_followers_is_promoted_when_the_members_are_gone() -> None:
    with ProcessCluster.temporary(3, 3) as cluster:
        first, second = cluster.nodes[:3], cluster.nodes[3:]
        cluster.start()
        cluster.wait_until_ready()
        load = Load(cluster)
        load.begin(*first)
        load.goes_on(first[0])
        # While the members live they vote their successors in; then they may go.
        cluster.write_members([node.name for node in second])
        cluster.until(
            lambda: {node.name for node in second} == set(second[0].call("status")["voters"]),
            "promotion",
            60,
        )
        load.end(*first)
        for node in first:
            node.kill()
        assert cluster.leader(30) in second
        assert second[0].call("put", key="after", body="1 x")
        cluster.settle(30)
        assert cluster.lost() == {}
