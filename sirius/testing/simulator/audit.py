"""The last look: every disk is read again as if all power had just gone, and held against the truth."""

from __future__ import annotations

from sirius.errors import CorruptLog, RangeUnavailable
from sirius.testing.simulator.cluster import Cluster
from sirius.testing.simulator.node import SimNode
from sirius.testing.simulator.truth import Replay, Violation, decode
from sirius.types import NodeId
from sirius.wal import Log
from sirius.wal.journal import Journal


def audit(cluster: Cluster) -> None:
    """See that what was acknowledged is on the disks of a majority, and that every log holds what was decided."""
    held: dict[NodeId, set[int]] = {}
    for node in cluster.nodes.values():
        if node.node_id in cluster.lost:
            continue
        held[NodeId(node.node_id)] = _held(cluster, node)
    cluster.checkers.check_kept(held, cluster.lost)


def _held(cluster: Cluster, node: SimNode) -> set[int]:
    """Return the slots whose decided value is on a node's disk for certain."""
    node.disk.fs = node.disk.worst()
    node.disk.make_room()
    try:
        log, journal = node.disk.open(lambda: 0.0, lambda: 0)
        replay = Replay()
        for block in log.blocks():
            cluster.checkers.decided(f"{node.name}'s log", replay, block)
    except (CorruptLog, RangeUnavailable) as error:
        if node.disk.rotten:
            return set()
        raise Violation(f"W: {node.name} finds damage where there is none: {error}") from error
    return set(range(1, replay.position + 1)) | _accepted(cluster, log, journal)


def _accepted(cluster: Cluster, log: Log, journal: Journal) -> set[int]:
    facts = cluster.checkers.truth.facts
    found = set()
    for _, block in journal.accepted(log.durable_seq + 1, 1 << 62):
        for slot, fact in decode(block).items():
            if slot <= len(facts) and facts[slot - 1] == fact:
                found.add(slot)
    return found
