"""Several nodes in one process. gRPC shares its events between all event loops of a process."""

from __future__ import annotations

from pathlib import Path

from sirius import Sirius, SiriusConfig
from sirius.testing.processes import free_ports
from tests.node.nodes import SMALL, Dict


def test_nodes_go_on_when_others_of_their_process_are_closed(tmp_path: Path) -> None:
    names = [f"127.0.0.1:{port}" for port in free_ports(3)]
    nodes = [
        Sirius(
            Dict(),
            SiriusConfig(
                name=name, members=names, data=tmp_path / str(at), log=SMALL, durability="os"
            ),
        )
        for at, name in enumerate(names)
    ]
    try:
        for node in nodes:
            assert node.wait_until_ready(30)
        nodes.pop().close()
        for number in range(200):
            assert nodes[number % 2].enqueue_put(f"k{number}", b"v").result(20).seq
        assert [node.status().problem for node in nodes] == [None, None]
    finally:
        for node in nodes:
            node.close()
