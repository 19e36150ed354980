"""The story: a cluster starts, is filled, is read and written, loses its leader, goes on, and gets it back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sirius.cli.demo.cluster import Cluster, ServedNode
from sirius.cli.demo.films import films
from sirius.cli.demo.interrupt import Interrupt
from sirius.cli.demo.screen import Screen, Seen
from sirius.cli.demo.traffic import Reader, Writer, broken_promises
from sirius.cli.text import duration, plural
from sirius.errors import NodeError
from sirius.wal import Op, Update

_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.05
_WRITERS: Final = 4


class Story:
    """Tells it once. `run` returns whether it ended well."""

    def __init__(
        self,
        cluster: Cluster,
        screen: Screen,
        interrupt: Interrupt,
        film_count: int,
        seconds: float,
    ) -> None:
        self._cluster = cluster
        self._screen = screen
        self._interrupt = interrupt
        self._film_count = film_count
        self._seconds = seconds
        self._stop_writing = threading.Event()
        self._stop_reading = threading.Event()
        self._readers: list[Reader] = []
        self._writers: list[Writer] = []

    def run(self) -> bool:
        """Tell it."""
        self._await_ready("started")
        self._load()
        with self._traffic():
            self._go_on(self._seconds / 2)
            if len(self._cluster.voters) > 2:
                self._lose_the_leader()
            self._go_on(self._seconds / 2)
            self._stop_writing.set()
            self._join(self._writers)
            return self._compare()

    def follow(self) -> None:
        """Show the cluster until somebody has seen enough."""
        with self._traffic(writing=False):
            while True:
                self._wait_a_moment()

    # ------------------------------------------------------------------ the acts

    def _await_ready(self, what: str) -> None:
        began = time.monotonic()
        nodes = self._cluster.nodes
        self._until("all nodes are ready", lambda: all(map(_is_ready, nodes)))
        voters, followers = len(self._cluster.voters), len(nodes) - len(self._cluster.voters)
        who = plural(voters, "voter")
        if followers:
            who += f" and {plural(followers, 'follower')}"
        took_s = time.monotonic() - began
        text = f"{who} {what}; ready after {duration(took_s)}"
        self._screen.event(text, "bold", leader=self._leader().label)

    def _load(self) -> None:
        from sirius.transport.client import Client

        guide = list(films(self._film_count))
        updates = [Update(Op.PUT, key.encode(), body) for key, body in guide]
        began = time.monotonic()
        with Client([node.name for node in self._cluster.voters]) as client:
            last = client.publish(updates)
        seconds = time.monotonic() - began
        rate = len(updates) / seconds
        text = f"{len(updates):,} films published in {duration(seconds)}: {rate:,.0f} a second"
        self._screen.event(text, updates=len(updates), seconds=round(seconds, 3), last=last)
        self._until("everybody has the films", lambda: self._applied_everywhere(last or 0))
        key, film = guide[len(guide) // 2]
        self._screen.event(f"everybody has them in memory; {key}: {film.decode()}")

    def _lose_the_leader(self) -> None:
        leader = self._leader()
        began = time.monotonic()
        leader.kill()
        self._screen.event(
            f"kill -9: {leader.label}, the leader, is gone", "red", node=leader.label
        )
        self._until("writing goes on", lambda: self._first_write_since(began) is not None)
        back_s = (self._first_write_since(began) or began) - began
        self._until("there is a leader", lambda: self._find_leader() is not None)
        self._screen.event(
            f"{self._leader().label} leads; the first write since was acknowledged after {duration(back_s)}",
            "green",
            failover_s=round(back_s, 3),
            leader=self._leader().label,
        )
        self._go_on(self._seconds / 2)
        began = time.monotonic()
        leader.launch()
        leader.await_address()
        self._until(f"{leader.label} is ready", lambda: _is_ready(leader))
        text = f"{leader.label} is back, with all it missed, after {duration(time.monotonic() - began)}"
        self._screen.event(text, "green", node=leader.label)

    def _compare(self) -> bool:
        """See whether all nodes have the same, and what was promised."""
        nodes = self._cluster.nodes
        written = sum(len(writer.acknowledged) for writer in self._writers)
        self._until("everybody has everything", self._is_level)
        digests = {node.label: node.digest() for node in nodes}
        for label, digest in digests.items():
            found = digest or {"digest": "no answer", "keys": 0}
            text = f"{label:<12} {found['keys']:,} keys, digest {found['digest']}"
            self._screen.event(text, node=label, digest=found["digest"])
        broken = broken_promises(nodes, self._writers)
        for text in broken[:5]:
            self._screen.event(text, "red")
        same = len({str(digest and digest["digest"]) for digest in digests.values()}) == 1
        well = same and None not in digests.values() and not broken
        text = (
            f"all nodes have the same state, and each of {written:,} acknowledged writes is in it"
            if well
            else "the nodes do not have what they should have"
        )
        self._screen.event(text, "green" if well else "red", written=written, well=well)
        return well and written > 0

    # ------------------------------------------------------------------ traffic

    @contextlib.contextmanager
    def _traffic(self, writing: bool = True) -> Iterator[None]:
        self._stop_reading.clear()
        nodes = self._cluster.nodes
        self._readers = [Reader(node, self._film_count, self._stop_reading) for node in nodes]
        started: list[threading.Thread] = [*self._readers]
        if writing:
            self._writers = [Writer(n, nodes, self._stop_writing) for n in range(_WRITERS)]
            started += self._writers
        self._screen.begin_rates()
        try:
            for thread in started:
                thread.start()
            yield
        finally:
            self._stop_writing.set()
            self._stop_reading.set()
            self._join(started)

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            if thread.ident is not None:
                thread.join()

    def _first_write_since(self, moment: float) -> float | None:
        """When the first update was acknowledged that was asked for after a moment."""
        found = [
            each.at
            for writer in self._writers
            for each in writer.acknowledged[-200:]
            if each.asked_at >= moment
        ]
        return min(found, default=None)

    # ------------------------------------------------------------------ looking

    def _go_on(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._wait_a_moment()
        self._screen.table(self._seen())

    def _until(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not done():
            if time.monotonic() >= deadline:
                raise NodeError(f"waited {_PATIENCE_S:g} s in vain until {what}")
            for node in self._cluster.nodes:
                node.check()
            self._wait_a_moment()

    def _wait_a_moment(self) -> None:
        self._interrupt.check()
        if self._screen.is_due():
            self._screen.draw(self._seen())
        time.sleep(_LOOK_S)

    def _seen(self) -> list[Seen]:
        reads = {reader.node.label: reader.reads for reader in self._readers}
        return [
            Seen(node.label, node.status(), reads.get(node.label, 0))
            for node in self._cluster.nodes
        ]

    def _find_leader(self) -> ServedNode | None:
        for node in self._cluster.nodes:
            status = node.status()
            if status is not None and status["role"] == "leader":
                return node
        return None

    def _leader(self) -> ServedNode:
        leader: list[ServedNode] = []

        def is_found() -> bool:
            leader[:] = [node] if (node := self._find_leader()) else []
            return bool(leader)

        self._until("there is a leader", is_found)
        return leader[0]

    def _applied_everywhere(self, seq: int) -> bool:
        statuses = [node.status() for node in self._cluster.nodes]
        return all(status is not None and status["applied"] >= seq for status in statuses)

    def _is_level(self) -> bool:
        """Whether all nodes have applied the same, which is all that anybody knows."""
        statuses = [node.status() for node in self._cluster.nodes]
        return None not in statuses and (
            len({(status or {})["applied"] for status in statuses}) == 1
            and all((status or {})["lag"] == 0 for status in statuses)
        )


def _is_ready(node: ServedNode) -> bool:
    status = node.status()
    return status is not None and status["state"] == "ready"
