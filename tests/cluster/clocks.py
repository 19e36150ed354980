"""A cluster whose nodes' clocks can be set. Not a test itself."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final

from sirius.testing.processes import NodeProcess, ProcessCluster
from tests.cluster.bad_disks import build

SOURCE: Final = Path(__file__).with_name("clock.c")


class Clocks(ProcessCluster):
    """A cluster whose nodes' clocks can be set."""

    def prepare(self, folder: Path) -> None:
        """Build what the clocks need, in a folder of the test; nodes that start from then on have them."""
        library = build(folder, SOURCE)
        self._clocks: dict[str, mmap.mmap] = {}
        for node in self.nodes:
            node.folder.mkdir(parents=True, exist_ok=True)
            path = node.folder / "clock"
            path.write_bytes(bytes(8))
            with open(path, "r+b") as file:
                self._clocks[node.name] = mmap.mmap(file.fileno(), 8)
            node.environment = {"LD_PRELOAD": str(library), "CLOCK_CONTROL": str(path)}

    def jump(self, node: NodeProcess, offset_s: int) -> None:
        self._clocks[node.name][:] = struct.pack("q", offset_s)

    def goes_on(self, node: NodeProcess, count: int = 100) -> None:
        """Wait until more is acknowledged to a node's callers."""
        before = sum(node.acknowledged().values())
        self.until(lambda: sum(node.acknowledged().values()) > before + count, "progress")

    def compacts(self, node: NodeProcess) -> None:
        before = node.call("status")["compactions"]
        self.until(lambda: node.call("status")["compactions"] > before, "compaction")
