"""Nodes that are far behind take segments as files: over real gRPC, on real disks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sirius import Sirius, SiriusConfig
from sirius.catchup.config import CatchupConfig
from sirius.config.settings import LogSettings
from sirius.driver import network
from sirius.errors import Unreachable
from sirius.paxos import PaxosConfig
from sirius.testing.processes import ProcessCluster, free_ports
from sirius.wal.incoming import Incoming
from tests.node.nodes import Dict

RECORDS = 3000
FILES = CatchupConfig(
    segment_slots=200,
    interval_s=0.1,
    retry_s=0.05,
    # Who has to wait for a source's index goes on with ranges. They must not be enough for all of it.
    window_slots_min=64,
    window_slots_max=64,
)
SETTINGS = {
    "paxos": {"heartbeat_s": 0.05, "election_timeout_s": 0.5},
    "catchup": {"segment_slots": 200, "interval_s": 0.1},
    "log": {"segment_bytes_max": 100_000, "reserve_bytes": 0},
}


class Pair:
    """A leader and a node that follows it, in this process."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        names = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self._configs = [
            SiriusConfig(
                name=name,
                data=folder / f"node-{number}",
                members=names[:1],
                durability="os",
                # Many blocks, however late the machine is: a range has at least one, and two or three might be all.
                paxos=PaxosConfig(heartbeat_s=0.05, election_timeout_s=0.5, batch_bytes_max=4096),
                catchup=FILES,
                log=LogSettings(reserve_bytes=0),
            )
            for number, name in enumerate(names)
        ]
        self._stack = stack
        self.folder = folder
        self.leader, self.data = self.start(0)

    def start(self, number: int, handler: Dict | None = None) -> tuple[Sirius, Dict]:
        handler = handler or Dict()
        node = Sirius(handler, self._configs[number])
        self._stack.callback(node.close)
        return node, handler

    def write(self, count: int = RECORDS) -> int:
        acks = [self.leader.enqueue_put(f"k/{at}", bytes(50)) for at in range(count)]
        return max(ack.result(30).seq or 0 for ack in acks)


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    with ExitStack() as stack:
        found = Pair(tmp_path, stack)
        assert found.leader.wait_until_ready(30)
        yield found


def until(found: Callable[[], object], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < deadline, "it never was"
        threading.Event().wait(0.002)


def test_a_node_says_that_it_replays_catches_up_and_is_ready(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, _ = pair.start(1)
    assert follower.wait_for(pair.write(10), 30)
    follower.close()
    last = pair.write()

    arrived, install = threading.Event(), threading.Event()
    finish = Incoming.finish

    def gated(incoming: Incoming) -> Any:
        arrived.set()
        assert install.wait(120)
        return finish(incoming)

    monkeypatch.setattr(Incoming, "finish", gated)
    handler = Dict()
    handler.gate.close()
    follower, _ = pair.start(1, handler)
    until(handler.gate.waiting.is_set)
    status = follower.status()
    assert (status.state, status.replayed, status.replay_total >= 10) == ("replaying", 0, True)

    handler.gate.open()
    assert arrived.wait(60)
    until(lambda: follower.status().state == "catching_up")
    status = follower.status()
    # How much of the active segment is offered depends on how far its index is.
    assert status.catch_up_bytes == status.catch_up_bytes_total > 4000
    assert status.decided < last <= status.known
    assert not follower.wait_until_ready(0)

    install.set()
    assert follower.wait_until_ready(30)
    assert follower.wait_for(last, 30)
    status = follower.status()
    assert (status.state, status.catch_up_bytes_total) == ("ready", 0)
    assert handler.values == pair.data.values


def test_a_segment_that_is_damaged_at_its_source_is_never_installed(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    last = pair.write()
    damage(pair.folder / "node-0")
    follower, handler = pair.start(1)
    until(lambda: "a segment from another node was refused" in caplog.text)
    assert follower.status().decided < last
    damage(pair.folder / "node-0")
    assert follower.wait_for(last, 60), "the same bit flipped again is as it was"
    assert handler.values == pair.data.values


def test_a_node_that_no_stream_reaches_catches_up_by_ranges(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream has a connection of its own, and a source that answers may have no room for one."""
    tried: list[str] = []

    def unreachable(address: str, *_: object) -> Any:
        tried.append(address)
        raise Unreachable("it takes no more connections")

    monkeypatch.setattr(network, "fetch", unreachable)
    last = pair.write()
    follower, handler = pair.start(1)
    assert follower.wait_for(last, 60)
    assert handler.values == pair.data.values
    assert tried


def damage(folder: Path) -> None:
    """Flip a bit in the middle of a log's only segment."""
    [path] = (folder / "segments").glob("*/data")
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@contextmanager
def far_behind(voters: int) -> Iterator[ProcessCluster]:
    """A cluster with a log, and a follower that has not started."""
    with ProcessCluster.temporary(voters, 1, durability="os", **SETTINGS) as cluster:
        for node in cluster.voters:
            node.start()
        cluster.wait_until_ready()
        leader = cluster.leader()
        leader.call("load", name="fill", prefix="k/", outstanding=512, count=20_000, keys=20_000)
        leader.call("finish", name="fill", stop=False, timeout_s=120)
        yield cluster


def test_sources_that_are_killed_in_the_middle_are_replaced() -> None:
    with far_behind(3) as cluster:
        [follower] = cluster.followers
        follower.start()
        cluster.until(lambda: follower.call("status")["known"], "source", every_s=0)
        victim = cluster.voters[0]
        victim.kill()
        cluster.until(lambda: follower.call("status")["decided"] >= 20_000, "catching up", 60)
        victim.start()
        cluster.wait_until_ready(60)
        cluster.settle(60)
        assert cluster.lost() == {}
        assert follower.call("status")["segments"] > 1, "some of it came as files"


def test_a_follower_that_is_killed_in_the_middle_goes_on() -> None:
    with far_behind(1) as cluster:
        [follower] = cluster.followers
        for _ in range(3):
            follower.start()
            cluster.until(lambda: follower.call("status")["decided"], "first segment", every_s=0)
            follower.kill()
        follower.start()
        cluster.wait_until_ready(60)
        cluster.settle(60)
        assert cluster.lost() == {}


def test_compaction_may_replace_segments_while_they_are_taken() -> None:
    with far_behind(1) as cluster:
        [leader], [follower] = cluster.voters, cluster.followers
        leader.call("load", name="again", prefix="k/", outstanding=512, count=20_000, keys=200)
        leader.call("finish", name="again", stop=False, timeout_s=120)
        follower.start()
        leader.call("compact")
        cluster.wait_until_ready(60)
        cluster.settle(60)
        assert cluster.lost() == {}
