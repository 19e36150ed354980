"""Disks that fail or are full under one node of three, while callers on all three go on asking."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sirius.errors import SiriusError
from sirius.testing.processes import NodeProcess, ProcessCluster, ProcessDied
from tests.cluster.bad_disks import BadDisk, build, small_disk, traced


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("bad-disk"))


class Cluster(ProcessCluster):
    """Three nodes in mode `fsync`, each with a disk that can be told to fail."""

    def begin(self, library: Path | None = None) -> None:
        if library is not None:
            self.disks = {node.name: BadDisk(library, node) for node in self.nodes}
        self.start()
        self.wait_until_ready()
        for number, node in enumerate(self.voters):
            node.call("load", name="load", prefix=f"{number}/", outstanding=16, keys=200)
        for node in self.voters:
            self.goes_on(node)

    def goes_on(self, node: NodeProcess, count: int = 100) -> None:
        """Wait until more is acknowledged to a node's callers."""
        before = sum(node.acknowledged().values())
        self.until(lambda: sum(node.acknowledged().values()) > before + count, "progress", 60)

    def others(self, node: NodeProcess) -> list[NodeProcess]:
        return [each for each in self.voters if each is not node]

    def becomes(self, node: NodeProcess, state: str) -> dict[str, Any]:
        """Wait until a node is in a state; return its status."""

        def look() -> dict[str, Any] | None:
            status: dict[str, Any] = node.call("status")
            return status if status["state"] == state else None

        found: dict[str, Any] = self.until(look, f"{state} on {node.name}", 90)
        return found

    def holds(self) -> None:
        """Nothing that was acknowledged is lost, and all have the same."""
        for node in self.voters:
            node.call("finish", name="load", timeout_s=60)
        self.settle(60)
        assert self.lost() == {}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster.temporary(3, log={"reserve_bytes": 1 << 20}) as found:
        yield found


def sick_one(cluster: Cluster, role: str) -> NodeProcess:
    leader = cluster.leader()
    return leader if role == "leader" else cluster.others(leader)[0]


def suffers(cluster: Cluster, sick: NodeProcess, says: str) -> None:
    """A node says what is wrong and takes nothing, while the two others go on."""
    status = cluster.becomes(sick, "disk_trouble")
    assert says in status["problem"], status["problem"]
    assert status["role"] == "passive"
    with pytest.raises(SiriusError, match=r"RequestRejected.*disk of this node is out of order"):
        sick.call("put", key="refused", body="1 x")
    # What it has in memory can still be read.
    assert sick.call("get", key="0/1") is not None
    for node in cluster.others(sick):
        cluster.goes_on(node)
    assert cluster.leader() is not sick


def recovers(cluster: Cluster, sick: NodeProcess) -> None:
    """It comes back without a restart, takes updates again, and has everything."""
    assert cluster.becomes(sick, "ready")["problem"] is None
    cluster.goes_on(sick)
    cluster.holds()


EIO = {"sync": errno.EIO}
FULL = {"write": errno.ENOSPC, "allocate": errno.ENOSPC}


@pytest.mark.parametrize(
    ("role", "fault", "says"),
    [
        ("leader", EIO, "Input/output error"),
        ("voter", FULL, "disk is full"),
        pytest.param("voter", EIO, "Input/output error", marks=pytest.mark.deep),
        pytest.param("leader", FULL, "disk is full", marks=pytest.mark.deep),
        pytest.param("leader", {"write": errno.EIO}, "Input/output error", marks=pytest.mark.deep),
        pytest.param("voter", {"write": errno.EIO}, "Input/output error", marks=pytest.mark.deep),
        pytest.param("leader", {"sync": errno.ENOSPC}, "No space left", marks=pytest.mark.deep),
    ],
)
def test_a_disk_that_fails_costs_one_node_for_a_while(
    cluster: Cluster, library: Path, role: str, fault: dict[str, int], says: str
) -> None:
    cluster.begin(library)
    sick = sick_one(cluster, role)
    disk = cluster.disks[sick.name]
    disk.fail(**fault)
    suffers(cluster, sick, says)
    assert disk.failed
    disk.mend()
    recovers(cluster, sick)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("role", "fault", "says"),
    [
        ("leader", "fsync,fdatasync:error=EIO", "Input/output error"),
        ("voter", "writev:error=ENOSPC", "disk is full"),
    ],
)
def test_the_same_with_system_calls_that_fail(
    cluster: Cluster, role: str, fault: str, says: str
) -> None:
    """Log and journal write by `writev` alone; `write` is how the process answers the test."""
    cluster.begin()
    sick = sick_one(cluster, role)
    with traced(sick, fault):
        suffers(cluster, sick, says)
    recovers(cluster, sick)


@pytest.mark.deep
@pytest.mark.parametrize("role", ["leader", "voter"])
def test_a_disk_that_is_really_full_costs_one_node_for_a_while(tmp_path: Path, role: str) -> None:
    settings = {"reserve_bytes": 256 << 10, "segment_bytes_max": 256 << 10}
    with Cluster.temporary(3, log=settings) as cluster, small_disk(tmp_path / "d", "16m") as disk:
        sick = cluster.voters[0]
        sick.config = {**sick.config, "data": str(disk / "data")}
        cluster.begin()
        leader = sick if role == "leader" else cluster.others(sick)[0]
        cluster.leader().call("transfer", to=leader.name)
        cluster.until(lambda: cluster.leader() is leader, "hand-over")
        stuffing = disk / "stuffing"
        with suppress(OSError), open(stuffing, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        status = cluster.becomes(sick, "disk_trouble")
        assert "disk is full" in status["problem"]
        for node in cluster.others(sick):
            cluster.goes_on(node)
        stuffing.unlink()
        recovers(cluster, sick)


def test_a_node_whose_disk_fails_at_the_start_says_so_and_the_others_go_on(
    cluster: Cluster, library: Path
) -> None:
    cluster.begin(library)
    sick = sick_one(cluster, "voter")
    sick.kill()
    disk = cluster.disks[sick.name]
    disk.fail(sync=errno.EIO, write=errno.EIO)
    with pytest.raises(ProcessDied, match="Input/output error"):
        sick.start()
    for node in cluster.others(sick):
        cluster.goes_on(node)
    disk.mend()
    sick.start()
    cluster.wait_until_ready()
    for node in cluster.others(sick):
        node.call("finish", name="load")
    cluster.settle()
    assert cluster.lost() == {}


@pytest.mark.deep
@pytest.mark.parametrize("fault", [EIO, FULL], ids=["eio", "full"])
def test_when_all_disks_fail_at_once_nothing_is_lost(
    cluster: Cluster, library: Path, fault: dict[str, int]
) -> None:
    cluster.begin(library)
    for disk in cluster.disks.values():
        disk.fail(**fault)
    for node in cluster.voters:
        cluster.becomes(node, "disk_trouble")
    for disk in cluster.disks.values():
        disk.mend()
    for node in cluster.voters:
        cluster.becomes(node, "ready")
        cluster.goes_on(node)
    cluster.holds()


@pytest.mark.deep
def test_a_source_that_cannot_read_its_log_is_passed_over(library: Path) -> None:
    """Nothing is kept in memory for others, so whoever serves a follower has to read."""
    catchup = {"cache_slots_max": 1, "shun_s": 0.5, "backoff_s_max": 0.5}
    with Cluster.temporary(3, 1, catchup=catchup) as cluster:
        (follower,) = cluster.followers
        cluster.nodes.remove(follower)
        cluster.begin(library)
        cluster.holds()
        for disk in cluster.disks.values():
            disk.fail(read=errno.EIO)
        follower.start()
        cluster.nodes.append(follower)
        cluster.until(lambda: sum(disk.failed for disk in cluster.disks.values()), "failed read")
        assert follower.call("status")["decided"] == 0
        cluster.disks[cluster.leader().name].mend()
        cluster.wait_until_ready()
        cluster.settle()
        assert cluster.lost() == {}
