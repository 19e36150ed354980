"""A way to run command lines in this process, and nodes as processes of their own."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from sirius.cli.group import run as run_sirius


@dataclass(frozen=True)
class Result:
    """What a command line wrote and how it ended."""

    code: int
    out: str
    err: str


class Stream(io.TextIOWrapper):
    """A stream that may pretend to be a terminal."""

    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode()


@contextmanager
def streams(terminal: bool) -> Iterator[tuple[Stream, Stream]]:
    before = sys.stdout, sys.stderr
    replaced = Stream(terminal), Stream(terminal)
    sys.stdout, sys.stderr = replaced
    try:
        yield replaced
    finally:
        sys.stdout, sys.stderr = before


@pytest.fixture
def sirius(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command line: `sirius("status --json a:1")` or `sirius("snapshot", path, path)`."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def call(*words: str | os.PathLike[str], terminal: bool = False) -> Result:
        line = (
            shlex.split(str(words[0])) if len(words) == 1 else [os.fspath(word) for word in words]
        )
        with streams(terminal) as (out, err):
            code = run_sirius(line)
        return Result(code, out.text(), err.text())

    return call
