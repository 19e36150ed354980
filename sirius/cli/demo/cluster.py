"""Nodes as processes: `sirius serve` on free ports of the loopback. Whatever happens, all of them are ended."""

from __future__ import annotations

import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sirius.cli.nodes import http_json
from sirius.errors import NodeError, Unreachable

_PORTS: Final = range(10_000, 20_000)
"""Below those that systems hand out by themselves: one of these might go to anybody before the node that is to have it
is up."""
_START_S: Final = 60.0
_STOP_S: Final = 15.0
_ASK_S: Final = 5.0


class ServedNode:
    """One process. Its standard input is a pipe from here, and it ends with that: also if we are killed."""

    def __init__(self, label: str, name: str, folder: Path, members: Sequence[str]) -> None:
        self.label = label
        self.name = name
        self.http = ""
        self._folder = folder
        self._members = members
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def port(self) -> int:
        return int(self.http.rpartition(":")[2] or 0)

    def launch(self) -> None:
        """Start the process, on the same ports as before."""
        command = [sys.executable, "-m", "sirius", "serve", "--json", "--until-eof"]
        command += ["--data", str(self._folder / self.label), "--name", self.name]
        command += ["--members", ",".join(self._members), "--http", f"127.0.0.1:{self.port}"]
        with open(self._folder / f"{self.label}.log", "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for us; we tell the nodes, in order.
                start_new_session=True,
            )

    def await_address(self) -> None:
        """Wait until it listens."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        line = _line(process.stdout.fileno(), time.monotonic() + _START_S)
        if not line:
            raise NodeError(f"{self.label} did not start: {self._last_words()}")
        self.http = json.loads(line)["http"]

    def check(self) -> None:
        """Raise if it has ended by itself."""
        if self._process is not None and self._process.poll() not in (None, -signal.SIGKILL):
            raise NodeError(f"{self.label} has ended: {self._last_words()}")

    def _last_words(self) -> str:
        lines = (self._folder / f"{self.label}.log").read_text("utf-8", "replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def status(self) -> dict[str, Any] | None:
        """What it says of itself; None if it does not answer."""
        return self._ask("status")

    def digest(self) -> dict[str, Any] | None:
        """The sum of its state."""
        return self._ask("digest")

    def _ask(self, what: str) -> dict[str, Any] | None:
        if not self.is_running or not self.http:
            return None
        try:
            return http_json(f"{self.http}/{what}", _ASK_S)
        except Unreachable:
            return None

    def kill(self) -> None:
        """Kill it, with SIGKILL: it has no time to say or write anything."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def ask_to_stop(self) -> None:
        if self.is_running and self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it in order; kill it if it does not come to an end."""
        self.ask_to_stop()
        try:
            if self._process is not None:
                self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()


class Cluster:
    """Some voters and some followers. Used as a context manager it ends all of them."""

    def __init__(self, folder: Path, voters: int, followers: int) -> None:
        names = [f"127.0.0.1:{port}" for port in free_ports(voters + followers)]
        labels = [f"node-{n + 1}" for n in range(voters)]
        labels += [f"follower-{n + 1}" for n in range(followers)]
        self.nodes = [
            ServedNode(label, name, folder, names[:voters])
            for label, name in zip(labels, names, strict=True)
        ]
        self.voters = self.nodes[:voters]

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.await_address()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process. A Ctrl-C meanwhile does not leave any behind."""
        try:
            for node in self.nodes:
                node.ask_to_stop()
            for node in self.nodes:
                node.stop()
        except BaseException:
            for node in self.nodes:
                node.kill()
            raise


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody uses at the moment."""
    return list(islice(filter(_is_free, random.sample(_PORTS, len(_PORTS))), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _line(fd: int, deadline: float) -> bytes:
    """Read a line from a pipe; empty if it ends, or does not come in time."""
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return b""
            if not (data := os.read(fd, 4096)):
                return b""
            line += data
    return line
