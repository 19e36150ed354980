"""Load for a node or a cluster, through the public interface: so many requests under way, for so long."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sirius.cli.nodes import Connection
from sirius.config import RequestSettings, SiriusConfig
from sirius.errors import SiriusError
from sirius.handler import RequestHandler, SiriusResult
from sirius.node import Sirius
from sirius.wal import Op, Update

_KEYS: Final = 100_000
_THREADS: Final = 4


class Load(NamedTuple):
    """How much."""

    outstanding: int
    seconds: float
    body: bytes


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of it."""

    updates: int
    seconds: float
    latencies_s: list[float]
    """Sorted. One a request; a request to a cluster is a batch."""

    @property
    def rate(self) -> float:
        """Updates a second."""
        return self.updates / self.seconds if self.seconds else 0.0

    def percentile(self, part: float) -> float:
        """The time within which this part of the requests was answered."""
        last = len(self.latencies_s) - 1
        return self.latencies_s[min(last, int(part * len(self.latencies_s)))] if last >= 0 else 0.0


class _Last(RequestHandler):
    """Keeps the last value alone, so that the handler costs next to nothing."""

    body = b""

    def handle_put(self, key: str, body: bytes) -> SiriusResult:  # noqa: ARG002
        self.body = body
        return SiriusResult.none()

    def handle_delete(self, key: str) -> SiriusResult:  # noqa: ARG002
        return SiriusResult.none()


def keys() -> Iterator[str]:
    """Keys, again and again."""
    return (f"bench/{number % _KEYS:06d}" for number in itertools.count())


# ---------------------------------------------------------------------- one node in this process


def load_embedded(folder: str, durability: Any, load: Load) -> Measured:
    """Load a node that lives here."""
    config = SiriusConfig(
        data=folder, durability=durability, requests=RequestSettings(timeout_s=30.0)
    )
    with Sirius(_Last(), config) as node:
        window = _Window(load.outstanding)
        began = time.perf_counter()
        end = began + load.seconds
        for key in keys():
            now = time.perf_counter()
            if now >= end:
                break
            window.enter()
            node.enqueue_put(key, load.body).add_done_callback(window.leaves(now))
        window.drain()
        return window.measured(time.perf_counter() - began)


class _Window:
    """Lets so many requests be under way, and notes how long each took."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._room = threading.Semaphore(size)
        self._latencies: list[float] = []
        self._errors: list[BaseException] = []

    def enter(self) -> None:
        self._room.acquire()
        if self._errors:
            raise self._errors[0]

    def leaves(self, asked_at: float) -> Callable[[Any], None]:
        def done(future: Any) -> None:
            if (error := future.exception()) is not None:
                self._errors.append(error)
            self._latencies.append(time.perf_counter() - asked_at)
            self._room.release()

        return done

    def drain(self) -> None:
        for _ in range(self._size):
            self._room.acquire()
        if self._errors:
            raise self._errors[0]

    def measured(self, seconds: float) -> Measured:
        return Measured(len(self._latencies), seconds, sorted(self._latencies))


# ---------------------------------------------------------------------- a cluster, over gRPC


def load_cluster(addresses: Sequence[str], connection: Connection, load: Load) -> Measured:
    """Load a cluster: some threads, each with a batch under way."""
    threads = min(_THREADS, load.outstanding)
    batch = load.outstanding // threads
    each = load._replace(outstanding=batch)
    workers = [_Worker(addresses, connection, each) for _ in range(threads)]
    began = time.perf_counter()
    _run(workers)
    took_s = time.perf_counter() - began
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    latencies = sorted(latency for worker in workers for latency in worker.latencies)
    return Measured(len(latencies) * batch, took_s, latencies)


def _run(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            worker.is_over = True
        for worker in workers:
            worker.join()


class _Worker(threading.Thread):
    def __init__(self, addresses: Sequence[str], connection: Connection, load: Load) -> None:
        super().__init__(daemon=True)
        self._addresses = addresses
        self._connection = connection
        self._load = load
        self.is_over = False
        self.latencies: list[float] = []
        self.error: SiriusError | None = None

    def run(self) -> None:
        try:
            self._publish()
        except SiriusError as error:
            self.error = error

    def _publish(self) -> None:
        found, end = keys(), time.perf_counter() + self._load.seconds
        with self._connection.client(self._addresses) as client:
            while not self.is_over and time.perf_counter() < end:
                some = itertools.islice(found, self._load.outstanding)
                updates = [Update(Op.PUT, key.encode(), self._load.body) for key in some]
                asked_at = time.perf_counter()
                client.publish(updates)
                self.latencies.append(time.perf_counter() - asked_at)


def random_body(size: int) -> bytes:
    """A body that no disk or network can make smaller."""
    return os.urandom(size)
