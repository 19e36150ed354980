"""The same events through Redis pub/sub and NATS, where they are installed.

Both take one message an event. They get them pipelined, as fast as they take them, over three connections; three
subscribers get all of them. Neither keeps anything: who is away misses it. They are spoken to over bare sockets,
so that no client library of Python is measured.

`python -m benchmarks.broadcast_peers publish|subscribe redis|nats PORT` are the processes.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.broadcast_live import SECONDS, Child
from benchmarks.figures import Figure, say
from sirius.testing.processes import free_ports

EVENT = b"0123456789"
PIPELINE = 1000
EACH = 3


@dataclass(frozen=True)
class Peer:
    """How to start a server, and what to say to it."""

    program: str
    arguments: tuple[str, ...]
    publish: bytes
    """One event."""
    sync: bytes
    synced: bytes
    """What to ask so that an answer comes when all before was taken; and the answer."""
    answer: bytes
    """What is answered to each event, in bytes; nothing is."""
    subscribe: bytes
    delivered: bytes
    """One event, as a subscriber gets it."""
    greeting: bytes = b""

    def start(self, stack: ExitStack, port: int) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = [self.program, *(word.format(port=port) for word in self.arguments)]
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        self.connect(port).close()

    def connect(self, port: int) -> socket.socket:
        for _ in range(200):
            try:
                found = socket.create_connection(("127.0.0.1", port))
            except OSError:
                time.sleep(0.02)
                continue
            if self.greeting:
                found.recv(1 << 16)
                found.sendall(self.greeting)
            return found
        raise TimeoutError(f"{self.program} does not answer on {port}")


PEERS = {
    "redis": Peer(
        "redis-server",
        ("--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"),
        b"*3\r\n$7\r\nPUBLISH\r\n$1\r\ns\r\n$10\r\n" + EVENT + b"\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"+PONG\r\n",
        b":3\r\n",
        b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\ns\r\n",
        b"*3\r\n$7\r\nmessage\r\n$1\r\ns\r\n$10\r\n" + EVENT + b"\r\n",
    ),
    "nats": Peer(
        "nats-server",
        ("-p", "{port}", "-a", "127.0.0.1"),
        b"PUB s 10\r\n" + EVENT + b"\r\n",
        b"PING\r\n",
        b"PONG\r\n",
        b"",
        b"SUB s 1\r\n",
        b"MSG s 1 10\r\n" + EVENT + b"\r\n",
        greeting=b'CONNECT {"verbose":false}\r\n',
    ),
}


def figures(ours: float) -> Iterator[Figure]:
    """Measure those that are there; `ours` is what came through every proxy in the same run."""
    for name, peer in PEERS.items():
        if shutil.which(peer.program) is None:
            say(f"{peer.program} is not installed: nothing to compare with")
            continue
        say(f"{name}, the same events")
        with ExitStack() as stack:
            rate = _through(stack, name, peer)
        note = f"{rate:,.0f} events/s to each of {EACH} subscribers, nothing kept"
        yield Figure(f"broadcast.vs_{name}", ours / rate, f"x {name}", note=note)


def _through(stack: ExitStack, name: str, peer: Peer) -> float:
    port = free_ports(1)[0]
    peer.start(stack, port)
    me = "benchmarks.broadcast_peers"
    hearing = [stack.enter_context(Child(me, "subscribe", name, str(port))) for _ in range(EACH)]
    telling = [stack.enter_context(Child(me, "publish", name, str(port))) for _ in range(EACH)]
    for child in (*hearing, *telling):
        child.line()
    for child in (*hearing, *telling):
        child.begin()
    return min(float(child.report()["rate"]) for child in hearing)


def publish(name: str, port: int) -> None:
    peer = PEERS[name]
    data = peer.publish * PIPELINE + peer.sync
    wanted = len(peer.answer) * PIPELINE + len(peer.synced)
    with peer.connect(port) as found:
        print("ready", flush=True)
        sys.stdin.readline()
        ends, waiting = time.perf_counter() + SECONDS + 1.0, 0
        while time.perf_counter() < ends:
            found.sendall(data)
            waiting += wanted
            while waiting > wanted:
                waiting -= len(found.recv(1 << 16))
    print(json.dumps({}), flush=True)


def subscribe(name: str, port: int) -> None:
    """Count what comes in the middle of the run."""
    peer = PEERS[name]
    with peer.connect(port) as found:
        found.sendall(peer.subscribe)
        print("ready", flush=True)
        sys.stdin.readline()
        began, size = time.perf_counter() + 0.5, 0
        while time.perf_counter() < began + SECONDS - 1.0:
            count = len(found.recv(1 << 18))
            size += count if time.perf_counter() > began else 0
        rate = size / len(peer.delivered) / (time.perf_counter() - began)
    print(json.dumps({"rate": rate}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    {"publish": publish, "subscribe": subscribe}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
