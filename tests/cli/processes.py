"""`sirius …` as a process, whose output is read with a deadline."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

DEADLINE_S = 120.0


class Process:
    """One process. Ended with the `with` block, whatever happens in it."""

    def __init__(self, *arguments: str) -> None:
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `__exit__`)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "sirius", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._err,
            text=True,
        )

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
        for pipe in (self.popen.stdin, self.popen.stdout, self._err):
            assert pipe is not None
            pipe.close()

    def line(self) -> str:
        """The next line of standard output. The process is killed if it does not come."""
        assert self.popen.stdout is not None
        watch = threading.Timer(DEADLINE_S, self.popen.kill)
        watch.start()
        try:
            return self.popen.stdout.readline()
        finally:
            watch.cancel()

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        """Send a signal, if one is given, and wait for the end; return code, output and complaints."""
        if number is not None:
            self.popen.send_signal(number)
        out, _ = self.popen.communicate(timeout=DEADLINE_S)
        self._err.seek(0)
        return self.popen.returncode, out, self._err.read()

    def interrupt(self) -> tuple[int, str, str]:
        return self.end(signal.SIGINT)


class Serving(Process):
    """`sirius serve`, listening."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("serve", "--json", "--http", "127.0.0.1:0", *arguments)
        line = self.line()
        if not line:
            with self:
                raise AssertionError(self.end())
        self.announced: dict[str, Any] = json.loads(line)
        self.http: str = self.announced["http"]

    def await_ready(self) -> None:
        until(lambda: self.ask("GET", "/readyz")[0] == 200, "ready")

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body; status 0: no answer."""
        request = urllib.request.Request(f"{self.http}{path}", body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError:
            return 0, b""


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, f"never {what}"
        time.sleep(0.02)
