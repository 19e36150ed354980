"""Clusters of three real processes on this machine, through the public API. About six minutes.

Load is a closed loop with so many requests outstanding, of 179-byte values on 10,000 keys. Callers sit in the leader's
process, or in all three: both are shown. Everything shares the machine's cores, the callers too.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure, say
from sirius.errors import SiriusError
from sirius.testing.processes import NodeProcess, ProcessCluster

MODES = ("fsync", "os", "memory")
OUTSTANDING = (1, 64, 256, 1024)
SECONDS = 3.0
WARM_UP_S = 1.0
BARS = {("fsync", 1024): 30_000.0}
KILLS = 50
ROLLING_RATE = 1000.0
BEHIND = 1_000_000


def figures() -> Iterator[Figure]:
    """Measure everything."""
    for mode in MODES:
        yield from throughput(mode)
    yield from failover()
    yield from rolling_restart()
    yield from catching_up()


# ---------------------------------------------------------------------- throughput


def throughput(mode: str) -> Iterator[Figure]:
    """Rate and latency at some numbers of requests outstanding."""
    say(f"three nodes, mode {mode}")
    with ProcessCluster.temporary(3, durability=mode) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        for outstanding in OUTSTANDING:
            bar = BARS.get((mode, outstanding))
            on_leader = load([cluster.leader()], outstanding)
            yield _rate(f"node.{mode}_{outstanding}", on_leader, "callers on the leader", bar)
            everywhere = load(cluster.voters, outstanding)
            yield _rate(f"node.{mode}_{outstanding}_spread", everywhere, "callers on all three")


def _rate(name: str, reports: list[dict[str, Any]], where: str, bar: float | None = None) -> Figure:
    rate = sum(report["rate"] for report in reports)
    p50 = median(report["p50_ms"] for report in reports)
    p99 = max(report["p99_ms"] for report in reports)
    return Figure(name, rate, "writes/s", bar, note=f"p50 {p50:.2f} p99 {p99:.2f} ms, {where}")


_loads = iter(range(1, 1_000_000))


def load(nodes: list[NodeProcess], outstanding: int) -> list[dict[str, Any]]:
    """Run a load with so many requests outstanding in all; return a report a node."""
    name = f"load-{next(_loads)}"
    shares = [max(1, outstanding // len(nodes))] * len(nodes)
    # With fewer requests than nodes, one node does all of the asking.
    busy = nodes if outstanding >= len(nodes) else nodes[:1]
    for number, (node, share) in enumerate(zip(busy, shares, strict=False)):
        node.call(
            "load",
            name=name,
            journal=False,
            prefix=f"{number}/",
            outstanding=share,
            seconds=SECONDS,
            warm_up_s=WARM_UP_S,
            keys=10_000 // len(busy),
        )
    asked = [(node, node.ask("finish", name=name, stop=False)) for node in busy]
    return [node.answer(number, SECONDS + WARM_UP_S + 60) for node, number in asked]


# ---------------------------------------------------------------------- failures


def failover() -> Iterator[Figure]:
    """How long no update is acknowledged after the leader is killed."""
    say(f"killing {KILLS} leaders")
    gaps = []
    with ProcessCluster.temporary(3) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        for _ in range(KILLS):
            leader = cluster.leader()
            survivor = next(node for node in cluster.voters if node is not leader)
            leader.kill()
            gaps.append(until_acknowledged(survivor))
            leader.start()
            cluster.wait_until_ready()
    gaps.sort()
    note = f"{KILLS} kills, from the kill to the next acknowledged update"
    yield Figure("node.failover_p50", median(gaps), "s", 0.5, True, note)
    yield Figure("node.failover_p99", gaps[int(0.99 * len(gaps))], "s", 1.5, True, note)


def until_acknowledged(node: NodeProcess) -> float:
    """Put until it works; return how long it took."""
    began = time.perf_counter()
    while True:
        try:
            node.call("put", key="failover", body="1 x")
        except SiriusError:
            continue
        return time.perf_counter() - began


def rolling_restart() -> Iterator[Figure]:
    """Which part of its load a cluster still does while all of its nodes are restarted, one after the other."""
    say("restarting one node after the other")
    with ProcessCluster.temporary(3, 1) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        # The callers sit in a node that does not vote, which is not restarted. They ask for a fixed rate: what a
        # machine can do at most is less while processes start on it, whatever the cluster does.
        caller = cluster.followers[0]
        plan = {"journal": False, "keys": 1000, "outstanding": 256, "rate": ROLLING_RATE}
        caller.call("load", name="calm", prefix="calm/", seconds=10.0, warm_up_s=1.0, **plan)
        calm = caller.call("finish", name="calm", stop=False)["rate"]
        caller.call("load", name="restart", prefix="restart/", warm_up_s=0.0, **plan)
        for node in cluster.voters:
            node.stop()
            node.start()
            cluster.wait_until_ready()
            # A node that has just come back has work to do: the next one waits, as an operator would.
            time.sleep(2)
        shaken = caller.call("finish", name="restart")["rate"]
    note = f"{shaken:,.0f} of {calm:,.0f} writes/s"
    yield Figure("node.rolling_restart", shaken / calm, "of load", 0.9, note=note)


# ---------------------------------------------------------------------- catching up


def catching_up() -> Iterator[Figure]:
    """How fast an empty follower gets a log, against the plain copying of its files through a socket."""
    say(f"a follower that is {BEHIND:,} records behind")
    with ProcessCluster.temporary(1, 1, durability="os") as cluster:
        voter, follower = cluster.nodes
        voter.start()
        cluster.wait_until_ready(60)
        plan = {"outstanding": 8192, "count": BEHIND, "keys": BEHIND, "journal": False}
        voter.call("load", name="fill", prefix="title/", **plan)
        voter.call("finish", name="fill", stop=False, timeout_s=300)
        size = sum(path.stat().st_size for path in _segments(voter))
        copied_s = median(copy_through_a_socket(voter) for _ in range(3))
        began = time.perf_counter()
        follower.start()
        last = voter.call("status")["decided"]
        if not follower.call("wait_for", seq=last, timeout=300, timeout_s=310):
            raise SiriusError(f"it did not catch up: {cluster.summary()}")
        took_s = time.perf_counter() - began
    note = f"{size / took_s / 1e6:.0f} MB/s with checks and handler; copying {size / copied_s / 1e6:.0f}"
    yield Figure("node.catch_up", copied_s / took_s, "of copying", 0.5, note=note)


def _segments(node: NodeProcess) -> list[Path]:
    return sorted((node.folder / "data" / "segments").rglob("data"))


def copy_through_a_socket(node: NodeProcess) -> float:
    """Send the segments' files over loopback and write them down; return how long it took."""
    target = Path(tempfile.mkdtemp(prefix="sirius-copy-"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.perf_counter()
        sender = threading.Thread(target=_send, args=(server.getsockname()[1], _segments(node)))
        sender.start()
        connection, _ = server.accept()
        with connection, open(target / "copy", "wb") as file:
            while data := connection.recv(1 << 20):
                file.write(data)
        sender.join()
        took_s = time.perf_counter() - began
    shutil.rmtree(target)
    return took_s


def _send(port: int, paths: list[Path]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for path in paths:
            with open(path, "rb") as file:
                connection.sendfile(file)
