"""Clients of the demonstration: threads that read and write over HTTP, and remember what they were promised."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final, NamedTuple

from sirius.cli.demo.cluster import ServedNode
from sirius.cli.demo.films import key_of

_TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 0.002
_RETRY_S: Final = 0.02
_KEYS: Final = 50
"""How many keys a writer writes again and again."""


class Acknowledged(NamedTuple):
    """An update that a client was told is safe."""

    asked_at: float
    at: float


class HttpClient:
    """One connection, kept open as long as it works."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body; 0 if there is no answer."""
        try:
            self._connection.request(method, path, body)
            response: HTTPResponse = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, HTTPException):
            self._connection.close()
            return 0, b""

    def close(self) -> None:
        self._connection.close()


class Reader(threading.Thread):
    """Reads films from one node."""

    def __init__(self, node: ServedNode, films: int, stop: threading.Event) -> None:
        super().__init__(name=f"reader of {node.label}", daemon=True)
        self.node = node
        self.reads = 0
        self._films = films
        self._stop_now = stop

    def run(self) -> None:
        rng, client = random.Random(self.name), HttpClient(self.node.port)
        while not self._stop_now.wait(_PAUSE_S):
            status, _ = client.ask("GET", f"/storage/{key_of(rng.randrange(self._films))}")
            self.reads += status == 200
            if status == 0:
                self._stop_now.wait(_RETRY_S)
        client.close()


class Writer(threading.Thread):
    """Writes numbers that grow, each key from one thread alone, through whichever node answers."""

    def __init__(self, number: int, nodes: Sequence[ServedNode], stop: threading.Event) -> None:
        super().__init__(name=f"writer {number}", daemon=True)
        self.acknowledged: list[Acknowledged] = []
        self.promised: dict[str, int] = {}
        """The highest number of each key that was acknowledged."""
        self._nodes = [*nodes[number % len(nodes) :], *nodes[: number % len(nodes)]]
        self._prefix = f"showing/{number}"
        self._stop_now = stop

    def run(self) -> None:
        count = 0
        while not self._stop_now.is_set():
            for node in self._running():
                client = HttpClient(node.port)
                while not self._stop_now.wait(_PAUSE_S):
                    count += 1
                    if not self._write(client, count):
                        break
                client.close()
            self._stop_now.wait(_RETRY_S)

    def _running(self) -> Iterator[ServedNode]:
        return (node for node in self._nodes if node.is_running)

    def _write(self, client: HttpClient, count: int) -> bool:
        """Write a number; say whether this node is worth another."""
        key = f"{self._prefix}/{count % _KEYS}"
        asked_at = time.monotonic()
        status, _ = client.ask("PUT", f"/storage/{key}", json.dumps({"number": count}).encode())
        if status == 204:
            self.promised[key] = count
            self.acknowledged.append(Acknowledged(asked_at, time.monotonic()))
        # Anything else may have taken effect, or may yet: the next number is a higher one in any case.
        return status == 204


def broken_promises(nodes: Sequence[ServedNode], writers: Sequence[Writer]) -> list[str]:
    """Return what was acknowledged and is not there on one of the nodes, in words."""
    found = []
    for node in nodes:
        client = HttpClient(node.port)
        for key, number in ((k, n) for writer in writers for k, n in writer.promised.items()):
            status, body = client.ask("GET", f"/storage/{key}")
            there = json.loads(body)["number"] if status == 200 else 0
            if there < number:
                found.append(f"{node.label} has {there} under {key}, and {number} was acknowledged")
        client.close()
    return found
