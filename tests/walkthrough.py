"""A page that a reader can type along, and a test can run: files, commands, and what they say. Not a test itself.

A block "toml NAME" is a file that lies beside the page. In a block "console" every line that begins with `$` is a
command, and what follows is its output: `…` stands for anything within a line, and alone for any lines. Blanks count as
one. A command that ends in `&` goes on in the background. The others are tried again until they say what the page says,
as a reader would do who was too quick.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

DEADLINE_S = 120.0
_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CURL = """#!{python}
import sys, urllib.error, urllib.request
words = [word for word in sys.argv[1:] if word != "--silent"]
options = dict(zip(words[:-1:2], words[1:-1:2]))
data = options.get("--data")
request = urllib.request.Request(words[-1], data.encode() if data else None, method=options.get("--request"))
try:
    print(urllib.request.urlopen(request, timeout=60).read().decode(), end="")
except urllib.error.HTTPError as error:
    print(error.read().decode(), end="")
"""


class Step(NamedTuple):
    """A command and what it says."""

    command: str
    says: str


class Page:
    """The blocks of a page."""

    def __init__(self, text: str) -> None:
        blocks = self.blocks = _BLOCK.findall(text)
        self.files = {name: content for kind, name, content in blocks if kind == "toml"}
        consoles = [content for kind, _, content in blocks if kind == "console"]
        self.steps = [step for content in consoles for step in steps_of(content)]
        self.unknown = {kind for kind, _, _ in blocks} - {"toml", "console"}


def steps_of(content: str) -> list[Step]:
    """Return the commands of a block, each with what it says."""
    parts = re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]
    return [Step(*part.split("\n", 1)) for part in parts]


def is_said(expected: str, found: str) -> bool:
    """Compare what a page shows with what was said."""
    lines = [" ".join(line.split()) for line in expected.splitlines()]
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in lines
    )
    said = "".join(f"{' '.join(line.split())}\n" for line in found.splitlines())
    return re.fullmatch(pattern, said) is not None


class Shell:
    """Runs the commands of a page in a folder. Whatever it starts, it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        tools = folder / ".tools"
        tools.mkdir()
        # Not every machine has it, and the page needs little of it.
        (tools / "curl").write_text(_CURL.format(python=sys.executable))
        for name in ("sirius", "waltool"):
            (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {name} "$@"\n')
        for tool in tools.iterdir():
            tool.chmod(0o755)
        path = os.pathsep.join([str(tools), os.environ["PATH"]])
        home = str(Path(__file__).resolve().parent.parent)
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": home}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def do(self, step: Step) -> None:
        """Carry a step out, and see that it says what it should."""
        look = self._begin(step.command) if step.command.endswith("&") else None
        if look and not step.says:
            return
        deadline = time.monotonic() + DEADLINE_S
        while not is_said(step.says, found := look() if look else self._run(step.command)):
            assert time.monotonic() < deadline, f"$ {step.command}\n{step.says}\nwas:\n{found}"
            time.sleep(0.1)

    def stop(self) -> list[int]:
        """End in order what runs in the background; return the exit codes."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        return [process.wait(DEADLINE_S) for process in self._running]

    def _begin(self, command: str) -> Callable[[], str]:
        path = self._folder / f".out-{len(self._running)}"
        with open(path, "wb") as out:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command.removesuffix('&')}"],
                cwd=self._folder,
                env=self._environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self._running.append(process)
        return path.read_text

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return done.stdout
