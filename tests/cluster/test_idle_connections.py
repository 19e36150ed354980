"""Strangers that connect to a node by the thousand and say nothing."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sirius.testing.processes import NodeProcess, ProcessCluster
from sirius.transport.limits import TransportLimits

OWN_FILES_MAX = 100
"""What a node of a small cluster has open besides what strangers cost it."""
CONNECTION_BYTES_MAX = 20_000
"""What one of them may cost in memory; 10 to 15 KB were measured."""


@contextmanager
def files_max(soft: int) -> Iterator[None]:
    """Let this process, and those that it starts meanwhile, open so many files."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


@contextmanager
def strangers(node: NodeProcess, count: int) -> Iterator[list[socket.socket]]:
    """Connect so many times."""
    host, _, port = node.name.rpartition(":")
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection((host, int(port)), 10))
            for _ in range(count)
        ]


def hung_up(sockets: list[socket.socket]) -> int:
    """How many of them the node has closed."""
    return sum(_is_closed(each) for each in sockets)


def _is_closed(stranger: socket.socket) -> bool:
    """Read what the node says, which greets before it knows whom."""
    stranger.setblocking(False)
    try:
        while stranger.recv(4096):
            continue
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def open_files(node: NodeProcess) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


def goes_on(cluster: ProcessCluster, node: NodeProcess, count: int = 200) -> None:
    before = sum(node.acknowledged().values())
    cluster.until(lambda: sum(node.acknowledged().values()) > before + count, "progress", 60)


def besieged(cluster: ProcessCluster, count: int, connections_max: int) -> None:
    """Let strangers come to the leader: it takes so many of them, works on, and is rid of them in the end."""
    leader = cluster.leader()
    other = next(node for node in cluster.voters if node is not leader)
    for node in (leader, other):
        node.call("load", name="load", prefix=f"{node.name}/", outstanding=16, keys=100)
        goes_on(cluster, node)
    memory = leader.call("memory")
    with strangers(leader, count) as sockets:
        for node in (leader, other):
            goes_on(cluster, node)
        assert open_files(leader) <= connections_max + OWN_FILES_MAX
        refused = max(0, count - connections_max)
        cluster.until(lambda: hung_up(sockets) >= refused, "refusals")
        grown = leader.call("memory") - memory
        assert grown < 32 * 1024 * 1024 + connections_max * CONNECTION_BYTES_MAX
        # They need not go away by themselves: who says nothing sensible is sent away, and makes room for a member.
        other.kill()
        other.start()
        cluster.wait_until_ready()
        cluster.until(lambda: hung_up(sockets) == count, "departure", 60)
        assert open_files(leader) < OWN_FILES_MAX
    leader.call("finish", name="load")
    cluster.settle()
    assert cluster.lost() == {}


@pytest.mark.deep
def test_more_strangers_than_a_node_takes_cost_it_half_of_its_files_for_a_while() -> None:
    with files_max(500), ProcessCluster.temporary(3, durability="os") as cluster:
        cluster.start()
        cluster.wait_until_ready()
        with files_max(2000):
            besieged(cluster, 1000, 250)


@pytest.mark.deep
def test_ten_thousand_idle_connections() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 10_000
    if hard < count + 1000:
        pytest.skip(f"a process may have {hard} files open here, and {count} connections want more")
    with files_max(hard), ProcessCluster.temporary(3, durability="os") as cluster:
        cluster.start()
        cluster.wait_until_ready()
        besieged(cluster, count, min(TransportLimits().connections_max, hard // 2))
