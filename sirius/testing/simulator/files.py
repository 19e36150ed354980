"""Files that simulated nodes give each other.

A stream is read in one step, after the time that it would have taken: what happens to both nodes meanwhile happens
before that. It breaks off anywhere, and what a source reads may be damaged.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from sirius.catchup.messages import PullFile
from sirius.engine import Engine
from sirius.errors import TransportError, Unreachable
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope

if TYPE_CHECKING:
    from sirius.testing.simulator.cluster import Cluster
    from sirius.testing.simulator.node import SimNode

HOPS_MAX: Final = 20.0
"""How many delays of the network a stream takes at most."""
_SIZES: Final = (100, 1000, 10_000)
"""How many bytes are read at a time."""


class SimStream:
    """A file that one node gives to another; see `sirius.taking.Stream`."""

    def __init__(self, cluster: Cluster, reader: str, source: Member, envelope: Envelope) -> None:
        self._cluster = cluster
        self._reader = reader
        self._source = source
        self._envelope = envelope
        self._data = b""
        self._is_whole = False
        self._rng = cluster.nodes[reader].rng
        self.is_closed = False

    def ask(self, question: PullFile) -> None:
        source = self._cluster.nodes.get(self._source.name)
        if self.is_closed or source is None:
            raise Unreachable("nobody is there, or nobody needs it")
        data = give(source, self._envelope._replace(message=question))
        network = self._cluster.network
        self._data, self._is_whole = network.stream(source.name, self._reader, data)

    def read_into(self, buffer: memoryview) -> int:
        if not self._data and not self._is_whole:
            raise Unreachable("the stream breaks off")
        size = min(len(buffer), len(self._data), self._rng.choice(_SIZES))
        buffer[:size] = self._data[:size]
        self._data = self._data[size:]
        return size


def give(source: SimNode, envelope: Envelope) -> bytes:
    """Read a file on one node for another."""
    if source.pauses:
        raise Unreachable("nobody answers")
    found: list[bytes] = []
    source.enter(partial(_give, found, envelope))
    if not found:
        raise Unreachable("nobody is there, or it died of it")
    return spoilt(found[0], source.bad_files, source.rng)


def _give(found: list[bytes], envelope: Envelope, engine: Engine, now: float) -> None:
    if (question := engine.serve(now, envelope)) is None:
        raise TransportError("that is no node of this cluster")
    segment, offset, length, _ = question
    try:
        data = engine.log.read_raw(segment, offset, length)
    except OSError as error:
        raise TransportError(str(error)) from None
    if len(data) < length:
        raise TransportError("the file ends before")
    found.append(data)


def spoilt(data: bytes, faults: list[float], rng: random.Random) -> bytes:
    """Let a file be damaged or gone, if a fault says so."""
    if not faults:
        return data
    if rng.random() < max(faults):
        raise TransportError("a fault")
    damaged = bytearray(data)
    damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(damaged)
