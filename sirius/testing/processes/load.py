"""Load on a node through its public API: a closed loop with so many requests outstanding.

Every key belongs to one loader, which writes rising numbers to it. So it is easy to tell afterwards whether something
was lost: no node may end with a lower number than the highest one that was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass
from io import BufferedWriter
from typing import Any, NamedTuple

from sirius.errors import NodeError
from sirius.handler import SiriusResult
from sirius.node import Sirius


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to do. Without `seconds` it goes on until it is told to stop."""

    prefix: str
    outstanding: int = 64
    seconds: float | None = None
    count: int | None = None
    keys: int = 1000
    body_bytes: int = 179
    warm_up_s: float = 0.0
    rate: float | None = None
    """So many a second, and no more; what was missed is made up for."""


class _Asked(NamedTuple):
    key: str
    number: int
    began: float
    ack: Future[SiriusResult]


class Loader:
    """One load that is under way, in a thread of its own."""

    def __init__(self, sirius: Sirius, plan: LoadPlan, journal: BufferedWriter | None) -> None:
        self._sirius = sirius
        self._plan = plan
        self._journal = journal
        self._waiting: deque[_Asked] = deque()
        self._stop = threading.Event()
        self._latencies: list[float] = []
        self._outcomes: Counter[str] = Counter()
        self._began = self._measured_from = self._ended = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, *, stop: bool = False) -> dict[str, Any]:
        """Wait for the end, or bring it about; return what came of it."""
        if stop:
            self._stop.set()
        self._thread.join()
        return self.report()

    def report(self) -> dict[str, Any]:
        """Return the figures so far."""
        end = self._ended or time.perf_counter()
        latencies = sorted(self._latencies)
        took = max(end - self._measured_from, 1e-9)
        return {
            "outcomes": dict(self._outcomes),
            "seconds": took,
            "rate": len(latencies) / took,
            "p50_ms": _at(latencies, 0.50),
            "p99_ms": _at(latencies, 0.99),
            "max_ms": _at(latencies, 1.0),
        }

    def _run(self) -> None:
        plan = self._plan
        self._began = time.perf_counter()
        self._measured_from = self._began + plan.warm_up_s
        until = float("inf") if plan.seconds is None else self._measured_from + plan.seconds
        filler = bytes(plan.body_bytes)
        number = 0
        while not self._stop.is_set() and time.perf_counter() < until:
            if plan.count is not None and number >= plan.count:
                break
            number += 1
            if plan.rate is not None:
                time.sleep(max(0.0, self._began + number / plan.rate - time.perf_counter()))
            key = f"{plan.prefix}{number % plan.keys}"
            self._ask(key, number, (b"%d " % number + filler)[: max(plan.body_bytes, 12)])
            if len(self._waiting) >= plan.outstanding:
                self._collect()
        while self._waiting:
            self._collect()
        self._ended = time.perf_counter()

    def _ask(self, key: str, number: int, body: bytes) -> None:
        began = time.perf_counter()
        try:
            ack = self._sirius.enqueue_put(key, body)
        except NodeError as error:
            self._outcomes[type(error).__name__] += 1
            time.sleep(0.01)
            return
        self._waiting.append(_Asked(key, number, began, ack))

    def _collect(self) -> None:
        """Wait for the oldest request, and take with it those that were answered at the same time."""
        self._waiting[0].ack.exception()
        now = time.perf_counter()
        lines = []
        while self._waiting and self._waiting[0].ack.done():
            key, number, began, ack = self._waiting.popleft()
            if (error := ack.exception()) is not None:
                self._outcomes[type(error).__name__] += 1
                continue
            self._outcomes["acknowledged"] += 1
            if began >= self._measured_from:
                self._latencies.append(now - began)
            lines.append(b"%s %d\n" % (key.encode(), number))
        if self._journal is not None:
            self._journal.write(b"".join(lines))
            self._journal.flush()


def flood(sirius: Sirius, prefix: str, count: int, keys: int, timeout: float) -> dict[str, int]:
    """Put without ever waiting for an answer, and keep none of the futures; return the outcomes."""
    outcomes: Counter[str] = Counter()
    done = threading.Semaphore(0)

    def answered(ack: Future[SiriusResult]) -> None:
        error = ack.exception()
        outcomes["acknowledged" if error is None else type(error).__name__] += 1
        if sum(outcomes.values()) == count:
            done.release()

    filler = bytes(160)
    for number in range(1, count + 1):
        ack = sirius.enqueue_put(f"{prefix}{number % keys}", b"%d " % number + filler)
        ack.add_done_callback(answered)
    done.acquire(timeout=timeout)
    return dict(outcomes)


def _at(ordered: list[float], part: float) -> float | None:
    if not ordered:
        return None
    return 1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))]
