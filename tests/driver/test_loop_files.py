"""To whom a node gives files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirius import Sirius
from sirius.catchup.messages import PullFile
from sirius.engine import Engine
from sirius.errors import NodeClosed, NodeError
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.types import NodeId, SegmentId, Seq
from tests.node.nodes import Dict, config


def asked(engine: Engine, cluster: int) -> Envelope:
    question = PullFile(SegmentId(1), 0, 10, Seq(0))
    return Envelope(cluster, 1, Member(NodeId(9), "other"), engine.machine.me.node, question)


def test_files_are_for_nodes_of_the_same_cluster(tmp_path: Path) -> None:
    with Sirius(Dict(), config(tmp_path)) as sirius:
        assert sirius.wait_until_ready(30)
        driver = sirius._node.driver
        refused = driver.call(lambda engine: driver.give(asked(engine, 99)))
        with pytest.raises(NodeError, match="files are for nodes of this cluster"):
            refused.result(30)
        driver.call(lambda engine: driver.give(asked(engine, engine.machine.cluster))).result(30)
        assert driver.call(lambda engine: engine.catchup.followers).result(30) == {"other": 0}


def test_a_node_without_a_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `NodeClosed`, which whoever asked takes for a reason to ask again later."""
    with Sirius(Dict(), config(tmp_path)) as sirius:
        driver = sirius._node.driver

        def happen(engine: Engine) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(driver, "engine", None)
                patched.setattr(driver, "trouble", "EIO")
                driver.give(asked(engine, engine.machine.cluster))

        with pytest.raises(NodeClosed, match="the disk of this node is out of order: EIO"):
            driver.call(happen).result(30)
