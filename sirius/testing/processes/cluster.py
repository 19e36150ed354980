"""A cluster of node processes, and what must hold of it in the end."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sirius.errors import SiriusError
from sirius.testing.processes.ports import free_ports
from sirius.testing.processes.process import NodeProcess, ProcessDied


class ProcessCluster:
    """Voters and followers. Whatever it starts, it ends."""

    def __init__(self, folder: Path, voters: int, followers: int = 0, **config: Any) -> None:
        names = [f"127.0.0.1:{port}" for port in free_ports(voters + followers)]
        self.folder = folder
        self.members_file = folder / "members.toml"
        folder.mkdir(parents=True, exist_ok=True)
        self.write_members(names[:voters])
        config = {"members_file": str(self.members_file), "members_poll_s": 0.2, **config}
        self.nodes = [
            NodeProcess(name, folder / f"node-{number}", config)
            for number, name in enumerate(names, 1)
        ]
        self.voters, self.followers = self.nodes[:voters], self.nodes[voters:]

    @classmethod
    def temporary(cls, voters: int, followers: int = 0, **config: Any) -> Self:
        """Make one in a temporary folder, which goes with it."""
        cluster = cls(Path(tempfile.mkdtemp(prefix="sirius-cluster-")), voters, followers, **config)
        cluster._is_temporary = True
        return cluster

    _is_temporary = False

    def write_members(self, names: Sequence[str]) -> None:
        """Say who should vote."""
        from sirius.config import write_members

        write_members(self.members_file, names)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        for node in self.nodes:
            if not node.is_alive:
                node.start()

    def kill(self) -> None:
        """kill -9, all of them."""
        for node in self.nodes:
            node.kill()

    # ------------------------------------------------------------------ waiting

    def wait_until_ready(self, timeout_s: float = 60) -> None:
        """Wait until every living node has caught up."""
        deadline = time.monotonic() + timeout_s
        for node in self.alive():
            left = max(0.1, deadline - time.monotonic())
            if not node.call("ready", timeout=left, timeout_s=left + 5):
                raise SiriusError(f"{node.name} is not ready: {node.call('status')}")

    def alive(self) -> list[NodeProcess]:
        return [node for node in self.nodes if node.is_alive]

    def leader(self, timeout_s: float = 60) -> NodeProcess:
        """Wait until a living node leads, and return it."""
        found: NodeProcess = self.until(self._find_leader, "leader", timeout_s)
        return found

    def _find_leader(self) -> NodeProcess | None:
        for node in self.alive():
            try:
                if node.call("status", timeout_s=5)["role"] == "leader":
                    return node
            except ProcessDied:
                continue
        return None

    def until(
        self, find: Callable[[], Any], what: str, timeout_s: float = 60, every_s: float = 0.02
    ) -> Any:
        """Wait until something is found."""
        deadline = time.monotonic() + timeout_s
        while not (found := find()):
            if time.monotonic() > deadline:
                raise SiriusError(f"there was no {what} within {timeout_s} s: {self.summary()}")
            time.sleep(every_s)
        return found

    def summary(self) -> list[str]:
        """One line a node, for messages."""
        lines = []
        for node in self.nodes:
            try:
                status = node.call("status", timeout_s=3)
                lines.append(
                    f"{node.name} {status['role']} {status['state']} leader={status['leader']} "
                    f"decided={status['decided']} applied={status['applied']} {status['problem']}"
                )
            except SiriusError as error:
                lines.append(f"{node.name}: {str(error)[-300:]}")
        return lines

    # ------------------------------------------------------------------ what must hold

    def settle(self, timeout_s: float = 60) -> str:
        """Wait until all living nodes have the same state; return its digest."""
        return str(self.until(self._common_digest, "common state", timeout_s))

    def _common_digest(self) -> str | None:
        applied = {node.call("status")["applied"] for node in self.alive()}
        digests = {node.call("digest") for node in self.alive()}
        return digests.pop() if len(digests) == 1 and len(applied) == 1 else None

    def lost(self) -> dict[str, tuple[int, int]]:
        """Return the keys of which a living node has less than was acknowledged: (acknowledged, found)."""
        wanted: dict[str, int] = {}
        for node in self.nodes:
            for key, number in node.acknowledged().items():
                wanted[key] = max(wanted.get(key, 0), number)
        found: dict[str, tuple[int, int]] = {}
        for node in self.alive():
            numbers = node.call("numbers")
            for key, number in wanted.items():
                if numbers.get(key, 0) < number:
                    found[key] = (number, numbers.get(key, 0))
        return found
