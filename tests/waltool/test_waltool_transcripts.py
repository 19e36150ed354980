"""Every command's output, pinned.

A transcript is a script: lines that begin with `$ waltool` are run one after the other in a folder with the logs of
`corpus`, and what follows is what they must print. Standard error has `2> ` before each line, an exit code that is not
0 comes last, in brackets, and escape characters are shown as ␛. `TTY` in front of a command gives it a terminal of
80 columns. Lines that begin with `#` are comments. `pytest tests/waltool --rewrite` writes what the commands print now;
read the difference before you believe it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


def play(script: str, waltool: Callable[..., Any]) -> str:
    """Run the commands of a transcript; return it with their output."""
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith("#"):
            lines += ["", line] if lines else [line]
        elif line.startswith("$ "):
            lines += [] if lines and lines[-1].startswith("#") else [""] if lines else []
            lines += [line, *shown(line.removeprefix("$ "), waltool)]
    return "\n".join(lines) + "\n"


def shown(command: str, waltool: Callable[..., Any]) -> list[str]:
    terminal = command.startswith("TTY ")
    result = waltool(command.removeprefix("TTY ").removeprefix("waltool"), terminal=terminal)
    lines: list[str] = result.out.replace("\x1b", "␛").splitlines()
    lines += [f"2> {line}" for line in result.err.replace("\x1b", "␛").splitlines()]
    return lines + ([f"[exit {result.code}]"] if result.code else [])


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(
    path: Path, corpus: Path, waltool: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    script = path.read_text(encoding="utf-8")
    played = play(script, waltool)
    if request.config.getoption("--rewrite"):
        path.write_text(played, encoding="utf-8")
    assert played == path.read_text(encoding="utf-8")


def test_every_command_that_looks_at_a_log_has_a_transcript() -> None:
    commands = set("info stats head tail range grep keys verify".split())
    assert commands <= {path.stem for path in TRANSCRIPTS}
