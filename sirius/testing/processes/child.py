"""The process of one node: commands come as lines of JSON, and so do the answers."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from sirius.config import SiriusConfig
from sirius.errors import SiriusError
from sirius.node import Sirius
from sirius.testing.processes.load import Loader, LoadPlan, flood
from sirius.testing.processes.state import Store


class Child:
    """A node and its loads."""

    def __init__(self, config: SiriusConfig, acknowledged: str) -> None:
        self._store = Store()
        self._sirius = Sirius(self._store, config)
        self._opened_at = time.perf_counter()
        # Written through at once: what the operating system has survives kill -9.
        self._journal = open(acknowledged, "ab")  # noqa: SIM115 (until the node is closed)
        self._loads: dict[str, Loader] = {}

    def do(self, command: dict[str, Any]) -> Any:
        """Carry a command out."""
        operation: Callable[..., Any] = getattr(self, f"do_{command.pop('do')}")
        return operation(**command)

    def do_put(self, key: str, body: str, timeout: float = 25) -> int | None:
        return self._sirius.enqueue_put(key, body.encode()).result(timeout).seq

    def do_get(self, key: str) -> str | None:
        body = self._store.by_key.get(key)
        return None if body is None else body.decode()

    def do_delete(self, key: str, timeout: float = 25) -> int | None:
        return self._sirius.enqueue_delete(key).result(timeout).seq

    def do_read(self, key: str, timeout: float = 25) -> str | None:
        result = self._sirius.enqueue_get(key, linearizable=True).result(timeout)
        return result.value.decode() if result.has_value else None

    def do_status(self) -> dict[str, Any]:
        return self._sirius.status().as_dict()

    def do_ready(self, timeout: float) -> bool:
        return self._sirius.wait_until_ready(timeout)

    def do_wait_for(self, seq: int, timeout: float) -> bool:
        return self._sirius.wait_for(seq, timeout)

    def do_catch_up(self, seq: int, timeout: float) -> dict[str, float]:
        """Wait until everything up to `seq` is on disk, and applied; return how long each took since the node opened.

        An opened node listens and may ask others: what Python needs to start is not in it.
        """
        times = {}
        for name in ("durable", "applied"):
            while getattr(self._sirius.status(), name) < seq:
                if time.perf_counter() - self._opened_at > timeout:
                    raise TimeoutError(f"not {name} after {timeout} s: {self._sirius.status()}")
                time.sleep(0.002)
            times[f"{name}_s"] = time.perf_counter() - self._opened_at
        return times

    def do_transfer(self, to: str | None = None) -> bool:
        return self._sirius.transfer_leadership(to)

    def do_compact(self) -> None:
        self._sirius.compact()

    def do_digest(self) -> str:
        return self._store.digest()

    def do_numbers(self) -> dict[str, int]:
        """The number that each key holds."""
        return {key: int(body.split()[0]) for key, body in self._store.by_key.items()}

    def do_load(self, name: str, journal: bool = True, **plan: Any) -> None:
        loader = Loader(self._sirius, LoadPlan(**plan), self._journal if journal else None)
        self._loads[name] = loader
        loader.start()

    def do_finish(self, name: str, stop: bool = True) -> dict[str, Any]:
        return self._loads.pop(name).finish(stop=stop)

    def do_report(self, name: str) -> dict[str, Any]:
        return self._loads[name].report()

    def do_flood(self, prefix: str, count: int, keys: int, timeout: float) -> dict[str, int]:
        """Put without ever waiting for an answer; return how many of each outcome there were in the end."""
        return flood(self._sirius, prefix, count, keys, timeout)

    def do_memory(self) -> int:
        """The highest memory use of this process so far, in bytes."""
        with open("/proc/self/status") as status:
            return 1024 * next(int(line.split()[1]) for line in status if "VmHWM" in line)

    def do_close(self) -> None:
        self._sirius.close()
        self._journal.close()


def main() -> None:
    """Serve commands until the other end goes away."""
    settings = json.loads(sys.stdin.readline())
    try:
        child = Child(SiriusConfig(**_config(settings["config"])), settings["acknowledged"])
    except SiriusError as error:
        _say({"error": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    _say({"value": os.getpid()})
    for line in sys.stdin:
        number, command = json.loads(line)
        if command.get("do") == "close":
            _serve(child, number, command)
            break
        # Each in a thread of its own: a command that waits must not hold up the others.
        threading.Thread(target=_serve, args=(child, number, command), daemon=True).start()


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    """Rebuild the sections of a configuration from JSON."""
    sections = SiriusConfig()
    built: dict[str, Any] = {}
    for name, value in fields.items():
        built[name] = type(getattr(sections, name))(**value) if isinstance(value, dict) else value
    return built


_OUT = threading.Lock()


def _serve(child: Child, number: int, command: dict[str, Any]) -> None:
    try:
        answer = {"number": number, "value": child.do(command)}
    except Exception as error:
        answer = {"number": number, "error": f"{type(error).__name__}: {error}"}
    _say(answer)


def _say(answer: dict[str, Any]) -> None:
    with _OUT:
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
