"""Hundreds of clients, and proxies and clients that are killed while events are published.

Nothing is lost and nothing comes twice, for every client that lives: each checks the sequence numbers itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from sirius.broadcast import Broadcast, connect
from sirius.testing.processes import free_ports
from tests.cli.test_cli_broadcast import ProxyProcess

ROOT = Path(__file__).resolve().parents[3]


class Fleet:
    """A process with some clients."""

    def __init__(self, proxy: str, clients: int, first: int) -> None:
        self.clients = clients
        command = [sys.executable, "-m", "tests.broadcast.live.fleet"]
        self.popen = subprocess.Popen(
            [*command, proxy, "films", str(clients), str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )

    def wait_up(self) -> None:
        assert self.popen.stdout is not None
        assert self.popen.stdout.readline() == "up\n"

    def report(self, goal: int, patience_s: float = 120.0) -> dict[str, Any]:
        """Wait until all clients are there, but not for ever; return what they found."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write(f"goal {goal} {patience_s}\n")
        self.popen.stdin.flush()
        found: dict[str, Any] = json.loads(self.popen.stdout.readline())
        return found

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            pipe.close()


class Region:
    """One proxy, with its stream on disk: it survives being killed."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self.name = f"127.0.0.1:{free_ports(1)[0]}"
        self.file = folder / "proxy.toml"
        self.file.write_text(
            f'name = "{self.name}"\ndata = "data"\ndurability = "os"\n'
            f'[streams]\nfilms = "{self.name}"\n'
            "[region]\ngossip_s = 2.0\ngossip_timeout_s = 3.0\nsuspect_s = 10.0\n"
        )
        self.process = self._start()

    def _start(self) -> ProxyProcess:
        arguments = ("--config", str(self.file), "--log-level", "error")
        return self._stack.enter_context(ProxyProcess(*arguments))

    def kill(self) -> None:
        """Kill the proxy with -9, and start it again."""
        self.process.popen.kill()
        self.process.popen.wait()
        self.process = self._start()


def publish_until(done: threading.Event, broadcast: Broadcast, every_s: float, count: int) -> int:
    """Publish batches of events that carry the time; return the number of the last one."""
    while True:
        stamps = [b"%d" % time.monotonic_ns()] * count
        keys = [b"key"] * count
        last = broadcast.publish_many("films", keys, stamps, keyed=False).result(60).last
        if done.wait(every_s):
            return last


def run(tmp_path: Path, fleets: int, clients: int, rounds: int, round_s: float) -> None:
    with ExitStack() as stack:
        region = Region(stack, tmp_path)
        broadcast = stack.enter_context(connect(region.name))
        found = [Fleet(region.name, clients, first=1) for _ in range(fleets)]
        for fleet in found:
            stack.callback(fleet.end)
        for fleet in found:
            fleet.wait_up()
        with ThreadPoolExecutor(1) as pool, ExitStack() as ending:
            done = threading.Event()
            ending.callback(done.set)
            publishing = pool.submit(publish_until, done, broadcast, 0.25, 25)
            time.sleep(round_s / 2)
            for doomed in found[: fleets // 3]:
                doomed.popen.kill()
            for _ in range(rounds):
                region.kill()
                time.sleep(round_s)
            done.set()
            last = publishing.result()
        check([fleet.report(last) for fleet in found[fleets // 3 :]], clients, last)


def check(reports: list[dict[str, Any]], clients: int, published: int) -> None:
    assert [fault for report in reports for fault in report["faults"]] == []
    counts = [count for report in reports for count in report["counts"]]
    assert len(counts) == clients * len(reports)
    assert set(counts) == {published}
    latencies = [ms for report in reports for ms in report["latencies_ms"]]
    cuts = quantiles(latencies, n=1000)
    print(
        f"\n{len(counts)} clients lived, {published:,} events each; from publish to application: "
        f"p50 {cuts[499]:.0f} ms, p90 {cuts[899]:.0f} ms, p99 {cuts[989]:.0f} ms, "
        f"p99.9 {cuts[998]:.0f} ms, longest {max(latencies):.0f} ms"
    )


def test_a_client_that_misses_something_is_seen(tmp_path: Path) -> None:
    with ExitStack() as stack:
        region = Region(stack, tmp_path)
        broadcast = stack.enter_context(connect(region.name))
        fleet = Fleet(region.name, 2, first=2)
        stack.callback(fleet.end)
        fleet.wait_up()
        done = threading.Event()
        done.set()
        last = publish_until(done, broadcast, 0.0, 3)
        assert fleet.report(last)["faults"] == []
        with pytest.raises(AssertionError):
            check([fleet.report(last)], 2, last)
        with pytest.raises(AssertionError):
            check([fleet.report(last + 1, patience_s=0.0)], 2, last + 1)


def test_sixty_clients_lose_nothing_when_a_proxy_and_a_third_of_them_are_killed(
    tmp_path: Path,
) -> None:
    run(tmp_path, fleets=3, clients=20, rounds=1, round_s=1.5)


@pytest.mark.deep
def test_five_hundred_clients_lose_nothing_when_proxies_and_a_third_of_them_are_killed(
    tmp_path: Path,
) -> None:
    run(tmp_path, fleets=6, clients=84, rounds=3, round_s=6.0)
