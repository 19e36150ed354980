"""Delivering many records at once, in an order that no reader can tell from the log's.

One thread reads the log and deals the records out to workers, a queue each, by a checksum of the key: so the records of
a key go to one worker, which sends them one after the other. Everything is bounded: the queues, and how far the fastest
worker may be ahead of the slowest.

The *watermark* is the highest sequence number up to which everything is done. It is what an interrupted run has to
remember: whoever goes on behind it repeats a few records, which does no harm, and misses none. A record that was given
up holds it back for good.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from queue import Queue
from typing import Final

from sirius.errors import UsageError
from sirius.wal import Batch, Op
from waltool.delivery import Answer, Client, Request, Verdict
from waltool.text import plural

_QUEUE_MAX: Final = 64
_WINDOW_MAX: Final = 10_000
_BACKOFF_MAX_S: Final = 60.0
_SAVE_EVERY_S: Final = 1.0
_FAILURES_KEPT: Final = 10


class Watermark:
    """Knows up to where everything is done. Not thread-safe."""

    def __init__(self, done: int) -> None:
        self._reached = done
        self._begun: deque[int] = deque()
        self._done: set[int] = set()
        self._failed: int | None = None

    @property
    def value(self) -> int:
        """The highest sequence number up to which everything is done."""
        value = self._begun[0] - 1 if self._begun else self._reached
        return value if self._failed is None else min(value, self._failed - 1)

    @property
    def outstanding(self) -> int:
        """How far apart the first that is not done and the last that was begun are, counted in records."""
        return len(self._begun)

    def begin(self, seq: int) -> None:
        """A record is on its way; they come in order."""
        self._begun.append(seq)
        self._reached = seq

    def finish(self, seq: int, *, failed: bool = False) -> None:
        """A record is done, or given up."""
        if failed:
            self._failed = seq if self._failed is None else min(self._failed, seq)
        self._done.add(seq)
        while self._begun and self._begun[0] in self._done:
            self._done.remove(self._begun.popleft())

    def pass_over(self, seq: int) -> None:
        """Nothing up to `seq` is still to be begun."""
        self._reached = max(self._reached, seq)


@dataclass(slots=True)
class ResumeFile:
    """Remembers the watermark between two runs. Bound to its URL, so that it cannot be used for another by mistake."""

    path: str
    url: str

    def load(self) -> int:
        """Return the watermark of the run before, or 0."""
        try:
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            return 0
        except ValueError:
            raise UsageError(f"{self.path} is not a file that replay has written") from None
        if not isinstance(found, dict) or not isinstance(found.get("done"), int):
            raise UsageError(f"{self.path} is not a file that replay has written")
        if found.get("url") != self.url:
            raise UsageError(f"{self.path} belongs to {found.get('url')}, not to {self.url}")
        return int(found["done"])

    def save(self, done: int) -> None:
        """Replace the file, at once or not at all."""
        building = f"{self.path}.writing"
        with open(building, "w", encoding="utf-8") as file:
            json.dump({"url": self.url, "done": done}, file)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(building, self.path)


@dataclass(slots=True)
class Pace:
    """Lets so many requests through a second, evenly."""

    per_s: float | None
    clock: Callable[[], float] = time.monotonic
    _due: float = 0.0

    def delay(self) -> float:
        """Return how long the next request has to wait."""
        if self.per_s is None:
            return 0.0
        now = self.clock()
        self._due = max(self._due, now)
        wait, self._due = self._due - now, self._due + 1 / self.per_s
        return wait


@dataclass(frozen=True, slots=True)
class Settings:
    """How to deliver. `retries` counts the attempts after the first."""

    concurrency: int = 8
    retries: int = 5
    backoff_s: float = 0.2
    keep_going: bool = False
    per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was given up."""

    request: Request
    what: str


@dataclass(slots=True)
class Summary:
    """What a run did. `failures` holds the first few of those that `failed` counts."""

    sent: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    done: int = 0
    interrupted: bool = False


Save = Callable[[int], None]


class Replay:
    """One run. `save` is called with the watermark now and then, and at the end, by the thread that calls `run`."""

    def __init__(
        self,
        connect: Callable[[], Client],
        settings: Settings,
        done: int = 0,
        save: Save = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._settings = settings
        self._save = save
        self._clock = clock
        self._pace = Pace(settings.per_s, clock)
        self._queues = [Queue[Request | None](_QUEUE_MAX) for _ in range(settings.concurrency)]
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._watermark = Watermark(done)
        self._save_due = 0.0
        self.summary = Summary(done=done)

    # ------------------------------------------------------------------ the thread that reads

    def run(self, batches: Iterable[Batch]) -> Summary:
        """Deliver the updates of batches; return when all is done, or after a failure, or after Ctrl-C."""
        workers = [
            threading.Thread(target=self._work, args=(queue,), daemon=True)
            for queue in self._queues
        ]
        for worker in workers:
            worker.start()
        try:
            self._deal_out(batches)
        except KeyboardInterrupt:
            self.summary.interrupted = True
            self._halt()
        except BaseException:
            self._halt()
            raise
        finally:
            for queue in self._queues:
                queue.put(None)
            for worker in workers:
                worker.join()
            self._note(self._clock())
        return self.summary

    def _deal_out(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            for request in requests_of(batch):
                if not self._may_begin(request.seq):
                    return
                place = zlib.crc32(request.key.encode()) % len(self._queues)
                self._queues[place].put(request)
                if (now := self._clock()) >= self._save_due:
                    self._note(now)
            with self._changed:
                self._watermark.pass_over(batch.last)

    def _may_begin(self, seq: int) -> bool:
        """Wait for the pace and for the slowest worker; return False if there is to be no more."""
        if (wait := self._pace.delay()) > 0:
            self._stop.wait(wait)
        with self._changed:
            self._changed.wait_for(self._has_room)
            if self._stop.is_set():
                return False
            self._watermark.begin(seq)
            return True

    def _has_room(self) -> bool:
        return self._stop.is_set() or self._watermark.outstanding < _WINDOW_MAX

    def _note(self, now: float) -> None:
        with self._changed:
            self.summary.done = self._watermark.value
        self._save(self.summary.done)
        self._save_due = now + _SAVE_EVERY_S

    def _halt(self) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    # ------------------------------------------------------------------ workers

    def _work(self, queue: Queue[Request | None]) -> None:
        """Deliver what is queued; after a halt, empty the queue, so that nobody waits for room in it."""
        client = self._connect()
        try:
            while (request := queue.get()) is not None:
                if not self._stop.is_set():
                    self._guarded(client, request)
        finally:
            client.close()

    def _guarded(self, client: Client, request: Request) -> None:
        try:
            self._deliver(client, request)
        except Exception as error:
            self._give_up(request, f"{type(error).__name__}: {error}")
            self._halt()

    def _deliver(self, client: Client, request: Request) -> None:
        for attempt in range(self._settings.retries + 1):
            answer = client.send(request)
            if answer.verdict == Verdict.DONE:
                self._finish(request)
                return
            if answer.verdict == Verdict.REFUSED:
                self._give_up(request, answer.what)
                return
            if attempt < self._settings.retries and self._pause(answer, attempt):
                return
        attempts = plural(self._settings.retries + 1, "attempt")
        self._give_up(request, f"{answer.what}, after {attempts}")

    def _pause(self, answer: Answer, attempt: int) -> bool:
        """Wait before another attempt; return True if there shall be none."""
        with self._changed:
            self.summary.retries += 1
        seconds = self._settings.backoff_s * 2**attempt
        if answer.retry_after_s is not None:
            seconds = answer.retry_after_s
        return self._stop.wait(min(seconds, _BACKOFF_MAX_S))

    def _finish(self, request: Request) -> None:
        with self._changed:
            self.summary.sent[request.method] += 1
            self._watermark.finish(request.seq)
            self._changed.notify_all()

    def _give_up(self, request: Request, what: str) -> None:
        with self._changed:
            self.summary.failed += 1
            if len(self.summary.failures) < _FAILURES_KEPT:
                self.summary.failures.append(Failure(request, what))
            self._watermark.finish(request.seq, failed=True)
            self._changed.notify_all()
        if not self._settings.keep_going:
            self._halt()


def requests_of(batch: Batch) -> Iterable[Request]:
    """Turn updates into requests."""
    methods = {Op.PUT: "PUT", Op.DELETE: "DELETE"}
    updates = batch.updates()
    names = (methods[Op(op)] for op in updates.op.tolist())
    return map(Request, updates.seq.tolist(), names, updates.keys(), updates.bodies())
