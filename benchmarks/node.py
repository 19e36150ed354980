"""Clusters of three real processes on this machine, through the public API. About six minutes.

Load is a closed loop with so many requests outstanding, of 179-byte values on 10,000 keys. Callers sit in the leader's
process, or in all three: both are shown. Everything shares the machine's cores, the callers too.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
TURNS = 3


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
            leader = cluster.leader()
            on_leader = load([leader], outstanding)
            yield _rate(f"node.{mode}_{outstanding}", on_leader, "callers on the leader", bar)
            # With one request there is one caller, and then not on the leader.
            voters = sorted(cluster.voters, key=lambda node: node is leader)
            everywhere = load(voters, outstanding)
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
    """How fast an empty follower gets a log, against plain copying of its files; and what that costs the leader."""
    with ProcessCluster.temporary(1, 1) as cluster:
        voter, follower = cluster.nodes
        voter.start()
        cluster.wait_until_ready(60)
        say(f"a log of {BEHIND:,} records")
        plan = {"outstanding": 8192, "count": BEHIND, "keys": BEHIND, "journal": False}
        voter.call("load", name="fill", prefix="title/", **plan)
        voter.call("finish", name="fill", stop=False, timeout_s=300)
        yield from _against_copying(voter, follower)
        yield from _leading_meanwhile(voter, follower)


def _against_copying(voter: NodeProcess, follower: NodeProcess) -> Iterator[Figure]:
    say("a follower that has nothing, and a copy, in turns")
    last, size = voter.call("status")["decided"], sum(path.stat().st_size for path in _files(voter))
    copied, durable, applied = [], [], []
    for _ in range(TURNS):
        copied.append(copy_over_a_socket(voter))
        follower.start()
        times = _catch_up(voter, follower)
        durable.append(times["durable_s"])
        applied.append(times["applied_s"])
        _empty(follower)
    copied_s, took_s = median(copied), median(durable)
    note = (
        f"{size / took_s / 1e6:.0f} MB/s, checked and on disk; {size / copied_s / 1e6:.0f} is what the same files take "
        f"from disk through one TCP connection into files that are synced"
    )
    yield Figure("node.catch_up", copied_s / took_s, "of copying", 0.5, note=note)
    note = f"until {last:,} records are applied as well, by a handler that is a dict"
    yield Figure("node.catch_up_applied", median(applied), "s", note=note)


def _leading_meanwhile(voter: NodeProcess, follower: NodeProcess) -> Iterator[Figure]:
    """Which part of its load a leader still does while a follower catches up.

    A follower has a machine of its own. Here it shares two cores with the leader, its callers and its disk, so it runs
    at the lowest priority: then it takes from the leader what serving it costs, and not the processor. How it is when
    both want the same cores is shown beside it.
    """
    say("a leader with a load, and a follower that has nothing")
    beside = f"writes/s while a follower takes and applies {BEHIND:,} records"
    share, rate = _share_of_load(voter, follower, nice=19)
    note = f"{rate:,.0f} {beside}"
    yield Figure("node.catch_up_leader", share, "of load", 0.8, note=note)
    share, rate = _share_of_load(voter, follower, nice=0)
    note = f"{rate:,.0f} {beside} on the leader's own cores"
    yield Figure("node.catch_up_leader_crowded", share, "of load", note=note)


def _share_of_load(voter: NodeProcess, follower: NodeProcess, nice: int) -> tuple[float, float]:
    """Return which part of its load a leader does meanwhile, and how many writes a second that is."""
    plan: dict[str, Any] = {"prefix": "load/", "outstanding": 256, "keys": 10_000}
    shares, rates = [], []
    for turn in range(TURNS):
        voter.call("load", name=f"{nice}/{turn}", journal=False, **plan)
        follower.start()
        follower.pause()
        _set_priority(follower, nice)
        calm = _rate_of(voter, lambda: time.sleep(SECONDS))
        follower.go_on()
        rates.append(_rate_of(voter, lambda: _catch_up(voter, follower)))
        shares.append(rates[-1] / calm)
        voter.call("finish", name=f"{nice}/{turn}")
        _empty(follower)
    return median(shares), median(rates)


def _set_priority(node: NodeProcess, nice: int) -> None:
    """Linux has priorities of threads; those to come inherit that of whoever starts them."""
    for thread in os.listdir(f"/proc/{node.pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), nice)


def _rate_of(node: NodeProcess, work: Callable[[], object]) -> float:
    """Return how many updates a second a node decides while something else is done."""
    began, before = time.perf_counter(), node.call("status")["decided"]
    work()
    return float(node.call("status")["decided"] - before) / (time.perf_counter() - began)


def _catch_up(voter: NodeProcess, follower: NodeProcess) -> dict[str, float]:
    """Wait until a follower is where its voter is now; return how long it took since it opened."""
    last = voter.call("status")["decided"]
    times: dict[str, float] = follower.call("catch_up", seq=last, timeout=300, timeout_s=310)
    return times


def _empty(node: NodeProcess) -> None:
    node.kill()
    shutil.rmtree(node.folder / "data")


def _files(node: NodeProcess) -> list[Path]:
    return sorted((node.folder / "data" / "segments").rglob("data"))


SENDER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    for path in sys.argv[2:]:
        with open(path, "rb") as file:
            connection.sendall(file.seek(0, 2).to_bytes(8, "big"))
            file.seek(0)
            connection.sendfile(file)
"""


def copy_over_a_socket(node: NodeProcess) -> float:
    """Have another process send the segments' files, and put them on disk; return how long it took.

    A copy that power loss may take back is none. The sender's start is not in it.
    """
    target, files = Path(tempfile.mkdtemp(prefix="sirius-copy-")), _files(node)
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", SENDER, str(server.getsockname()[1]), *map(str, files)]
        sender = subprocess.Popen(command)
        connection, _ = server.accept()
        began = time.perf_counter()
        with connection:
            for number, _ in enumerate(files):
                _receive(connection, target / f"{number}")
        took_s = time.perf_counter() - began
        sender.wait()
    shutil.rmtree(target)
    return took_s


def _receive(connection: socket.socket, path: Path) -> None:
    left = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
    buffer = memoryview(bytearray(1 << 20))
    with path.open("wb", buffering=0) as file:
        while left:
            count = connection.recv_into(buffer[: min(left, len(buffer))])
            file.write(buffer[:count])
            left -= count
        os.fsync(file.fileno())
