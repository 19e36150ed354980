"""A cluster whose links go through a proxy that can cut them, each direction on its own. Not a test itself.

A node's name is the proxy's address, and the node listens elsewhere. Who connects is found out from the kernel's table
of connections: the socket at the other end belongs to one of the nodes' processes. A link carries messages one way, so
to hold back what comes from A for B is a one-way partition. What is held back comes when the cut is mended, as with a
real one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sirius.testing.processes import NodeProcess, ProcessCluster, free_ports

_HELD_S = 0.02


class Proxy:
    """Forwards connections, in a thread of its own."""

    def __init__(self, nodes: Iterable[NodeProcess], ports: dict[str, int]) -> None:
        self._nodes = list(nodes)
        self._ports = ports
        self.cut: set[tuple[str, str]] = set()
        """Pairs of names: nothing goes from the first to the second."""
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(30)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Transports close in the turn after.
        await asyncio.sleep(0.01)

    async def _listen(self) -> None:
        for name, port in self._ports.items():
            host, own = name.split(":")

            async def serve(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                name: str = name,
                port: int = port,
            ) -> None:
                await self._serve(reader, writer, name, port)

            self._servers.append(await asyncio.start_server(serve, host, int(own)))

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str, port: int
    ) -> None:
        source = self._who(writer.get_extra_info("peername")[1])
        try:
            if source is None:
                raise ConnectionError("whoever it was has gone already")
            up, down = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            self._pump(reader, down, (source, to)), self._pump(up, writer, (source, to))
        )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: tuple[str, str]
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                while way in self.cut:
                    await asyncio.sleep(_HELD_S)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def _who(self, port: int) -> str | None:
        """Return the name of the node whose process has a socket with this port, if one still has."""
        inode = _inode(port)
        for node in self._nodes:
            if node.is_alive and inode in _sockets(node.pid):
                return node.name
        return None


def _inode(port: int) -> str:
    """Return the inode of the socket on this machine that has a port; an IPv6 socket may hold an IPv4 connection."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(f"0100007F:{port:04X}"):
                return fields[9]
    return ""


def _sockets(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


class CutCluster(ProcessCluster):
    """A cluster with a proxy in front of every node."""

    def __init__(self, folder: Path, voters: int, followers: int = 0, **config: Any) -> None:
        super().__init__(folder, voters, followers, **config)
        ports = dict(
            zip((node.name for node in self.nodes), free_ports(len(self.nodes)), strict=True)
        )
        for node in self.nodes:
            node.config = {**node.config, "listen": f"127.0.0.1:{ports[node.name]}"}
        self.proxy = Proxy(self.nodes, ports)

    def cut(self, sources: Iterable[NodeProcess], targets: Iterable[NodeProcess]) -> None:
        """Let nothing through from some nodes to others."""
        targets = list(targets)
        self.proxy.cut |= {(a.name, b.name) for a in sources for b in targets if a is not b}

    def heal(self) -> None:
        self.proxy.cut = set()

    def kill(self) -> None:
        super().kill()
        self.proxy.close()
