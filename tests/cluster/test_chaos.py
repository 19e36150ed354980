"""Everything at once: kills, pauses, lost disks, jumping clocks, members that come and go, files that are rubbish.

Real processes on real disks, with segments so small and compaction so frequent that whatever happens, happens in the
middle of both. In the end nothing that was acknowledged is lost, and all nodes have the same.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sirius.testing.processes import NodeProcess
from tests.cluster.clocks import Clocks

pytestmark = pytest.mark.deep

SEEDS = range(100) if os.environ.get("SIRIUS_SOAK") else range(2)
ACTIONS = 12
SETTINGS = {
    "log": {"segment_bytes_max": 60_000, "reserve_bytes": 0, "retire_after_s": 0.5},
    "compaction": {"interval_s": 0.15, "dead_fraction_min": 0.0, "delete_age_s": 0.5},
    "catchup": {"segment_slots": 200, "interval_s": 0.1},
    "requests": {"timeout_s": 3.0},
}
JUMPS_S = (0, 5, -5, 3600, -3600, 30 * 86400, -365 * 86400)
RUBBISH = (b"", b"members = [", b"members = 7\n", b"\x00\xff\xfe")


class Chaos:
    """One cluster and what happens to it."""

    def __init__(self, cluster: Clocks, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._lives = 0
        self._calm = threading.Event()
        self.actions: list[Callable[[], object]] = [
            self.kill_some,
            self.kill_the_leader,
            self.pause_some,
            self.set_a_clock,
            self.spoil_the_file_and_kill_the_leader,
            self.change_the_members,
            self.lose_a_disk,
            self.hand_over,
            self.restart_one,
        ]

    def begin(self, *nodes: NodeProcess) -> None:
        """Load on nodes; each life has keys of its own."""
        for node in nodes:
            self._lives += 1
            prefix = f"life{self._lives}/"
            node.call("load", name="load", prefix=prefix, keys=40, outstanding=8, rate=200.0)

    def _some(self, *counts: int) -> list[NodeProcess]:
        return self._rng.sample(self._cluster.nodes, self._rng.choice(counts))

    def _wait_up_to(self, seconds: float) -> None:
        self._calm.wait(self._rng.uniform(0, seconds))

    def _start(self, *nodes: NodeProcess) -> None:
        for node in nodes:
            node.start()
        self.begin(*nodes)

    def _voters(self) -> set[str]:
        return set(self._cluster.leader().call("status")["voters"])

    # ------------------------------------------------------------------ what may happen

    def kill_some(self) -> None:
        killed = self._some(1, 1, 1, 2, 3, 5)
        for node in killed:
            node.kill()
        self._wait_up_to(0.5)
        self._start(*killed)

    def kill_the_leader(self) -> None:
        leader = self._cluster.leader()
        leader.kill()
        self._start(leader)

    def pause_some(self) -> None:
        paused = self._some(1, 1, 2, 3)
        for node in paused:
            node.pause()
        self._wait_up_to(2.5)
        for node in paused:
            node.go_on()

    def set_a_clock(self) -> None:
        self._cluster.jump(self._some(1)[0], self._rng.choice(JUMPS_S))

    def spoil_the_file_and_kill_the_leader(self) -> None:
        file, leader = self._cluster.members_file, self._cluster.leader()
        good = file.read_bytes()
        file.write_bytes(self._rng.choice(RUBBISH))
        self._wait_up_to(0.5)
        leader.kill()
        self._wait_up_to(1.0)
        if self._rng.random() < 0.5:
            file.write_bytes(good)
            self._start(leader)
        else:
            self._start(leader)
            file.write_bytes(good)

    def change_the_members(self) -> None:
        names = {node.name for node in self._some(1, 3, 3, 5)}
        self._cluster.write_members(sorted(names))
        self._cluster.until(lambda: self._voters() == names, f"configuration of {names}", 60)

    def lose_a_disk(self) -> None:
        """Of one node at a time, and not of one without which there is no majority."""
        [node], voters = self._some(1), self._voters()
        if node.name in voters and len(voters) < 3:
            return
        node.kill()
        shutil.rmtree(node.folder / "data")
        self._start(node)
        votes = ("leader", "voter") if node.name in voters else ("follower",)
        self._cluster.until(lambda: node.call("status")["role"] in votes, "old place", 60)

    def hand_over(self) -> None:
        self._cluster.leader().call("transfer")

    def restart_one(self) -> None:
        [node] = self._some(1)
        node.stop()
        self._start(node)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_nothing_is_lost_and_nobody_differs(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with Clocks.temporary(3, 2, durability=("fsync", "os")[seed % 2], **SETTINGS) as cluster:
        cluster.prepare(tmp_path)
        cluster.start()
        cluster.wait_until_ready()
        chaos = Chaos(cluster, rng)
        chaos.begin(*cluster.nodes)
        for number in range(ACTIONS):
            action = rng.choice(chaos.actions)
            print(f"{number}: {action.__name__}", flush=True)
            action()
            if number % 3 == 2:
                cluster.wait_until_ready(60)
                cluster.goes_on(cluster.leader(), 20)
        cluster.wait_until_ready(60)
        for node in cluster.nodes:
            node.call("finish", name="load", timeout_s=60)
        cluster.settle(60)
        assert cluster.lost() == {}
        assert len({node.call("status")["cluster"] for node in cluster.nodes}) == 1
