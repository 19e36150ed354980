"""The broadcast layer in real processes: three proxies with a driver each, single events, and how long one takes.

As in section 5.1 of Sprinkler: drivers publish events of 10 bytes in a closed loop, every proxy gets those of all. Here
keys are drawn by Zipf out of 100,000, and an event collects the earlier ones of its key. The paper's proxies were
written in C and had a machine each; these, and the drivers, share the cores of one.

`python -m benchmarks.broadcast_live drive|single|hear …` are the processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.figures import Figure, say
from sirius.broadcast import Span, connect
from sirius.broadcast.net.asking import status_of
from sirius.testing.broadcast.workload import bounded_keys
from sirius.testing.processes import free_ports
from sirius.transport.security import Plaintext

BATCHES = (1_000, 10_000, 100_000)
SECONDS = 6.0
EVENT_BYTES = 10
PROXIES = 3
PAPER = 2.6e6
SINGLES = 1e5
UNDER_WAY = 200_000
"""Events of a driver that are not acknowledged."""
PACE_S = 0.002
PATIENCE_S = 120.0
"""What was published must be everywhere by then."""


def figures() -> Iterator[Figure]:
    """Measure everything."""
    yield from through_proxies()
    yield single_events()
    yield from latency()


class Child:
    """A process of this benchmark: says when it is ready, begins on a line, and ends with a report."""

    def __init__(self, *command: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline()

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.line())
        return found

    def begin(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


class Proxies:
    """So many proxies; each owns a stream `s0`, `s1`, …"""

    def __init__(self, stack: ExitStack, count: int) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.names = [f"127.0.0.1:{port}" for port in free_ports(count)]
        streams = "\n".join(f'{stream} = "{name}"' for stream, name in self.streams().items())
        for number, name in enumerate(self.names):
            path = folder / f"{number}.toml"
            path.write_text(
                f'name = "{name}"\nproxies = {json.dumps(self.names)}\n[streams]\n{streams}\n'
            )
            quiet = ("--log-level", "error", "--until-eof")
            child = Child("sirius", "broadcast", "proxy", "--config", str(path), *quiet)
            stack.enter_context(child).line()

    def streams(self) -> dict[str, str]:
        return {f"s{number}": name for number, name in enumerate(self.names)}

    def counts(self) -> list[dict[str, int]]:
        """How far each proxy is in each stream."""
        found = [status_of(name, Plaintext(), 10.0)["streams"] for name in self.names]
        return [{stream: each["count"] for stream, each in told.items()} for told in found]

    def await_counts(self, goals: dict[str, int]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not all(told[s] >= goal for told in self.counts() for s, goal in goals.items()):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.counts()} after {PATIENCE_S} s, not {goals}")
            time.sleep(0.01)


# ---------------------------------------------------------------------- three proxies


def through_proxies() -> Iterator[Figure]:
    """How many events a second come through every proxy, at some sizes of batches."""
    for batch in BATCHES:
        say(f"{PROXIES} proxies, batches of {batch:,}")
        with ExitStack() as stack:
            rate = _through(stack, batch)
        bar = PAPER if batch == BATCHES[-1] else None
        note = f"through each of {PROXIES} proxies, key GC on, the paper: 2.6 million"
        yield Figure(f"broadcast.proxies_{batch}", rate, "events/s", bar, note=note)


def _through(stack: ExitStack, batch: int) -> float:
    proxies = Proxies(stack, PROXIES)
    drivers = [
        stack.enter_context(Child(*_me("drive", name, stream, batch)))
        for stream, name in proxies.streams().items()
    ]
    for driver in drivers:
        driver.line()
    streams = proxies.streams()
    before = {s: told[s] for s, told in zip(streams, proxies.counts(), strict=True)}
    began = time.perf_counter()
    for driver in drivers:
        driver.begin()
    events = [int(driver.report()["events"]) for driver in drivers]
    proxies.await_counts({s: before[s] + n for s, n in zip(streams, events, strict=True)})
    return sum(events) / (time.perf_counter() - began)


def _me(*arguments: object) -> Sequence[str]:
    return ["benchmarks.broadcast_live", *map(str, arguments)]


def drive(proxy: str, stream: str, batch: int) -> None:
    """A driver: publishes for some seconds; two batches are under way, or as many as have `UNDER_WAY` events."""
    rng = np.random.default_rng(int(stream[1:]))
    blobs = [_wide(keys) for keys in bounded_keys(1.1, 20 * batch, rng, batch=batch)]
    with connect(proxy) as broadcast:
        _ready()
        ends, sent = time.perf_counter() + SECONDS, 0
        under_way: deque[Future[Span]] = deque()
        while time.perf_counter() < ends:
            blob = blobs[sent % len(blobs)]
            under_way.append(broadcast.publish_many(stream, blob, width=EVENT_BYTES))
            sent += 1
            if len(under_way) >= max(2, UNDER_WAY // batch):
                under_way.popleft().result(60)
        broadcast.flush(60)
        print(json.dumps({"events": sent * batch}), flush=True)
        sys.stdin.read()


def _wide(keys: bytes) -> bytes:
    """Make keys of 8 bytes keys of 10."""
    wide = np.zeros((len(keys) // 8, EVENT_BYTES), np.uint8)
    wide[:, :8] = np.frombuffer(keys, np.uint8).reshape(-1, 8)
    return wide.tobytes()


def _ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


# ---------------------------------------------------------------------- single events


def single_events() -> Figure:
    """How many single events a second one process publishes."""
    say("single events")
    with ExitStack() as stack:
        proxies = Proxies(stack, 1)
        child = stack.enter_context(Child(*_me("single", proxies.names[0])))
        child.line()
        child.begin()
        rate = float(child.report()["rate"])
    note = "publish() by one thread, each with a receipt, all acknowledged"
    return Figure("broadcast.publish_single", rate, "events/s", SINGLES, note=note)


def single(proxy: str) -> None:
    """Publish events one by one for some seconds; report the rate, all answered."""
    with connect(proxy) as broadcast:
        _ready()
        began, count = time.perf_counter(), 0
        while time.perf_counter() < began + SECONDS / 2:
            for _ in range(1000):
                receipt = broadcast.publish("s0", b"0123456789")
            count += 1000
        receipt.result(60)
        print(json.dumps({"rate": count / (time.perf_counter() - began)}), flush=True)
        sys.stdin.read()


# ---------------------------------------------------------------------- latency


def latency() -> Iterator[Figure]:
    """How long an event takes from one region to an application in another, at 500 a second."""
    say("from region to region")
    with ExitStack() as stack:
        proxies = Proxies(stack, 2)
        child = stack.enter_context(Child(*_me("hear", proxies.names[1])))
        child.line()
        with connect(proxies.names[0]) as broadcast:
            for _ in range(int(SECONDS / PACE_S)):
                broadcast.publish("s0", b"k", b"%d" % time.monotonic_ns(), keyed=False)
                time.sleep(PACE_S)
            last = broadcast.publish("s0", b"end", keyed=False)
            last.result(60)
            told = child.report()["latencies_ms"]
    cuts = quantiles(told, n=1000)
    note = f"{len(told):,} events from publish() to the application, over two proxies"
    for name, at in (("p50", 499), ("p99", 989), ("p999", 998)):
        yield Figure(f"broadcast.latency_{name}", cuts[at], "ms", note=note)


def hear(proxy: str) -> None:
    """Take events until the last; report how long each took."""
    found: list[float] = []
    with connect(proxy) as broadcast, broadcast.subscribe("s0", from_seq=1) as events:
        print("ready", flush=True)
        for event in events:
            if event.key == b"end":
                break
            if event.key == b"k":
                found.append((time.monotonic_ns() - int(event.payload)) / 1e6)
    print(json.dumps({"latencies_ms": found}), flush=True)


def main(role: str, *words: str) -> None:
    match role:
        case "drive":
            drive(words[0], words[1], int(words[2]))
        case "single":
            single(words[0])
        case _:
            hear(words[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
