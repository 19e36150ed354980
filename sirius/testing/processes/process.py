"""One node in a process of its own, from the outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from typing import IO, Any

from sirius.errors import SiriusError

_CHILD = "sirius.testing.processes.child"


class ProcessDied(SiriusError):
    """The process is gone, and with it the answer."""


class NodeProcess:
    """A node that can be told what to do, and killed. `start` begins another life on the same folder."""

    def __init__(self, name: str, folder: Path, config: dict[str, Any]) -> None:
        self.name = name
        self.folder = folder
        self.config = config
        self.environment: dict[str, str] = {}
        """Variables that its lives have besides those of this process."""
        self._process: subprocess.Popen[str] | None = None
        self._acknowledged: dict[str, int] = {}
        self._acknowledged_to = 0
        self.acknowledgements = 0
        """How many `acknowledged` has seen."""
        """How much of the file was read so far: after a thousand kills it is long, and it is asked for often."""
        self._numbers = count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._log: IO[bytes] | None = None

    # ------------------------------------------------------------------ lives

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ProcessDied(f"{self.name} was not started")
        return self._process.pid

    @property
    def acknowledged_path(self) -> Path:
        """Where the loads of this node note what was acknowledged."""
        return self.folder / "acknowledged"

    def start(self) -> None:
        """Begin a life; return when the node answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = open(self.folder / "stderr", "ab")  # noqa: SIM115 (until the process is gone)
        self._process = subprocess.Popen(
            [sys.executable, "-m", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **self.environment},
        )
        config = {"name": self.name, "data": str(self.folder / "data"), **self.config}
        self._write({"config": config, "acknowledged": str(self.acknowledged_path)})
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if not first or "error" in json.loads(first):
            self._end(signal.SIGKILL)
            raise ProcessDied(f"{self.name} did not start: {first or self.errors()}")
        args = (self._process, self._process.stdout)
        threading.Thread(target=self._read, args=args, daemon=True).start()

    def errors(self) -> str:
        """What the process has written to its standard error."""
        return (self.folder / "stderr").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        self._end(signal.SIGKILL)

    def stop(self, timeout_s: float = 60) -> None:
        """Close the node in order."""
        if self.is_alive:
            self.call("close", timeout_s=timeout_s)
            self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if (process := self._process) is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            if how == signal.SIGKILL:
                process.send_signal(signal.SIGCONT)
        process.wait()
        for pipe in (process.stdin, process.stdout, self._log):
            if pipe is not None:
                try:
                    pipe.close()
                except (BrokenPipeError, ValueError):
                    continue
        with self._changed:
            self._changed.notify_all()

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    # ------------------------------------------------------------------ commands

    def call(self, do: str, timeout_s: float = 30, **arguments: Any) -> Any:
        """Have a command carried out; return its value or raise its error."""
        return self.answer(self.ask(do, **arguments), timeout_s)

    def ask(self, do: str, **arguments: Any) -> int:
        """Send a command; return the number of its answer."""
        number = next(self._numbers)
        self._write([number, {"do": do, **arguments}])
        return number

    def answer(self, number: int, timeout_s: float = 30) -> Any:
        """Wait for an answer."""
        with self._changed:
            self._changed.wait_for(
                lambda: number in self._answers or not self.is_alive, timeout=timeout_s
            )
            answer = self._answers.pop(number, None)
        if answer is None:
            reason = "no answer in time" if self.is_alive else f"it is dead: {self.errors()}"
            raise ProcessDied(f"{self.name}: {reason}")
        if "error" in answer:
            raise SiriusError(f"{self.name}: {answer['error']}")
        return answer["value"]

    def _write(self, line: Any) -> None:
        try:
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except (AssertionError, OSError, ValueError):
            raise ProcessDied(f"{self.name} is not running") from None

    def _read(self, process: subprocess.Popen[str], lines: IO[str]) -> None:
        try:
            for line in lines:
                answer = json.loads(line)
                with self._changed:
                    self._answers[answer["number"]] = answer
                    self._changed.notify_all()
        except ValueError:
            # Cut off in the middle of a line, or closed by `_end`.
            pass
        process.wait()
        with self._changed:
            self._changed.notify_all()

    def acknowledged(self) -> dict[str, int]:
        """The highest number that was acknowledged to this node's loads for each key, in all its lives."""
        found = self._acknowledged
        if self.acknowledged_path.exists():
            with self.acknowledged_path.open("rb") as file:
                file.seek(self._acknowledged_to)
                data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            self._acknowledged_to += len(data)
            self.acknowledgements += data.count(b"\n")
            for line in data.splitlines():
                key, number = line.split()
                found[key.decode()] = max(found.get(key.decode(), 0), int(number))
        return dict(found)
