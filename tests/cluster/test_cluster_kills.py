"""Many kills of real processes, at random, under load; and members that come and go meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from sirius.config import write_members
from sirius.testing.processes import NodeProcess, ProcessCluster

pytestmark = pytest.mark.deep

CYCLES = 1000 if os.environ.get("SIRIUS_SOAK") else 10
"""Twice, once in each mode."""
ROUND = 10
"""After so many all nodes are compared, and whoever waits is told."""
SETTINGS = {"log": {"segment_bytes_max": 2_000_000}, "compaction": {"interval_s": 1.0}}
"""Compaction goes on meanwhile, is killed as well, and keeps the log short enough for a thousand replays."""


class Load:
    """Load on every voter of a cluster. Each life of a process has keys of its own."""

    def __init__(self, cluster: ProcessCluster, number: int = 0, outstanding: int = 32) -> None:
        self._cluster = cluster
        self._number = number
        self._outstanding = outstanding
        self._lives = 0

    def begin(self, *nodes: NodeProcess) -> None:
        for node in nodes:
            self._lives += 1
            prefix = f"load{self._number}/life{self._lives}/"
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
def test_nothing_acknowledged_is_lost_whoever_is_killed(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(mode)
    with ProcessCluster.temporary(3, 1, durability=mode, **SETTINGS) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        for done in range(0, CYCLES, ROUND):
            load = Load(cluster, done)
            load.begin(*cluster.voters)
            for _ in range(ROUND):
                kill_some(cluster, load, rng)
            load.end(*cluster.voters)
            cluster.settle(60)
            assert cluster.lost() == {}, f"after {done + ROUND} cycles"
            count = sum(node.acknowledgements for node in cluster.nodes)
            with capsys.disabled():
                print(
                    f" {mode}: {done + ROUND} of {CYCLES} kill cycles, {count:,} updates acknowledged, none lost"
                )


def kill_some(cluster: ProcessCluster, load: Load, rng: random.Random) -> None:
    """One cycle: kill, start again, and see that everybody goes on."""
    load.goes_on(cluster.leader())
    killed = victims(cluster, rng)
    for node in killed:
        node.kill()
    for node in killed:
        node.start()
    cluster.wait_until_ready(60)
    load.begin(*(node for node in killed if node in cluster.voters))
    load.goes_on(rng.choice(cluster.voters))


def voters_become(cluster: ProcessCluster, wished: list[NodeProcess]) -> None:
    names = {node.name for node in wished}
    cluster.until(
        lambda: set(cluster.leader().call("status")["voters"]) == names,
        f"configuration of {len(names)} voters",
        60,
    )


def leads_alone(cluster: ProcessCluster) -> NodeProcess:
    """Wait until one node alone says that it leads: they are asked one after the other, and may change their minds."""

    def look() -> NodeProcess | None:
        leaders = [node for node in cluster.nodes if node.call("status")["role"] == "leader"]
        return leaders[0] if len(leaders) == 1 else None

    found: NodeProcess = cluster.until(look, "one leader")
    return found


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
        assert leads_alone(cluster) in second


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


class OwnFiles(ProcessCluster):
    """A cluster in which every node has a member file of its own."""

    def prepare(self) -> None:
        self.files = {node.name: node.folder / "members.toml" for node in self.nodes}
        for node in self.nodes:
            node.folder.mkdir(parents=True)
            node.config = {**node.config, "members_file": str(self.files[node.name])}
            write_members(self.files[node.name], [voter.name for voter in self.voters])

    def spoil(self, node: NodeProcess, rubbish: bytes) -> None:
        """Make a node's file unreadable, and wait until it says so."""
        self.files[node.name].write_bytes(rubbish)
        self.until(lambda: node.call("status")["members_problem"], "complaint")


def problems(cluster: ProcessCluster) -> list[str | None]:
    return [node.call("status")["members_problem"] for node in cluster.nodes]


RUBBISH = (b"members = [", b"members = 7\n", b"\x00\xff\xfe", b'member = ["127.0.0.1:1"]\n')


def test_files_may_be_edited_in_any_order_and_be_rubbish_meanwhile() -> None:
    """3, 5, 3 others and back: for a while nobody's file is like another's, and a leader dies in the middle of it."""
    rng = random.Random(9)
    with OwnFiles.temporary(3, 2) as cluster:
        cluster.prepare()
        cluster.start()
        cluster.wait_until_ready()
        first, others = cluster.nodes[:3], cluster.nodes[2:]
        load = Load(cluster, outstanding=8)
        load.begin(*cluster.nodes)
        for wished in (cluster.nodes, others, cluster.nodes, first):
            order = rng.sample(cluster.nodes, len(cluster.nodes))
            for at, node in enumerate(order):
                cluster.spoil(node, rng.choice(RUBBISH))
                if at == 2:
                    leader = cluster.leader()
                    leader.kill()
                    leader.start()
                    load.begin(leader)
                load.goes_on(cluster.leader(), 10)
                write_members(cluster.files[node.name], [each.name for each in wished])
            voters_become(cluster, list(wished))
        load.end(*cluster.nodes)
        cluster.settle(60)
        assert cluster.lost() == {}
        # A file is believed when it was seen twice, and the last one may have been written a moment ago.
        cluster.until(lambda: not any(problems(cluster)), "no complaints")
        statuses = [node.call("status") for node in cluster.nodes]
        assert len({status["cluster"] for status in statuses}) == 1
        assert leads_alone(cluster) in first
