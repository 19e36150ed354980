"""The frame around the commands: help, completion, errors, exit codes, colours, pipes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from waltool.cli import COMMANDS, run
from waltool.commands import info

LOOKING = "info stats head tail range grep keys verify completion".split()
Waltool = Callable[..., Any]


@pytest.mark.parametrize("name", LOOKING)
def test_help_says_what_it_does_what_it_reads_and_whether_it_changes_anything(
    name: str, waltool: Waltool
) -> None:
    result = waltool(f"{name} --help")
    paragraphs = result.out.split("\n\n")
    examples = result.out.partition("Examples:\n")[2].splitlines()
    assert result.code == 0
    assert " ".join(paragraphs[1].split()) == COMMANDS[name].help
    assert "reads " in paragraphs[2].lower()
    assert "changes nothing" in paragraphs[2].lower().replace("\n ", "")
    assert len(examples) >= 2
    assert all("waltool" in example for example in examples)


def test_without_a_command_the_help_goes_to_standard_error(waltool: Waltool) -> None:
    result = waltool("")
    assert (result.code, result.out) == (2, "")
    assert "Look at a log:" in result.err


def test_the_version_is_that_of_the_distribution(waltool: Waltool) -> None:
    from importlib.metadata import version

    assert waltool("--version").out == f"waltool, version {version('sirius-log')}\n"


def fresh_python(code: str, **environment: str) -> str:
    """Run code in an interpreter that has imported nothing yet; return what it printed."""
    command = [sys.executable, "-c", code]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


HEAVY = "import sys; print('numpy' in sys.modules, 'sirius.wal' in sys.modules)"


def test_help_does_not_wait_for_numpy() -> None:
    out = fresh_python(f"from waltool.cli import run; run(['--help']); {HEAVY}")
    assert out.endswith("\nFalse False\n")


def test_completion_knows_the_commands_and_does_not_wait_for_numpy() -> None:
    code = f"""
import atexit
atexit.register(lambda: exec({HEAVY!r}))
from waltool.cli import run
run([])
"""
    words = {"_WALTOOL_COMPLETE": "bash_complete", "COMP_WORDS": "waltool r", "COMP_CWORD": "1"}
    out = fresh_python(code, **words).splitlines()
    assert "plain,range" in out
    assert "plain,head" not in out
    assert out[-1] == "False False"


def test_completion_goes_on_inside_a_command() -> None:
    words = {"COMP_WORDS": "waltool tail --fo", "COMP_CWORD": "2"}
    out = fresh_python(
        "from waltool.cli import run; run([])", _WALTOOL_COMPLETE="bash_complete", **words
    )
    assert out == "plain,--follow\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_us_back(shell: str, waltool: Waltool) -> None:
    result = waltool(f"completion {shell}")
    assert result.code == 0
    assert f"_WALTOOL_COMPLETE={shell}_complete" in result.out


# ---------------------------------------------------------------------- errors


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Root may read everything, so be somebody else for a while."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield
        os.seteuid(0)
    else:
        yield


@pytest.mark.parametrize("command", ["info", "verify", "head", "stats"])
def test_a_log_that_may_not_be_read_is_one_line(
    command: str, corpus: Path, waltool: Waltool, request: pytest.FixtureRequest
) -> None:
    waltool(f"{command} films")  # so that nothing has to be imported as somebody else
    (corpus / "films" / "manifests").chmod(0)
    (corpus / "films").chmod(0)
    request.getfixturevalue("as_nobody")
    result = waltool(command, corpus / "films")
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "Permission denied" in result.err


def broken(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (OSError(errno.EIO, "Input/output error", "films/x"), 1, "films/x: Input/output error"),
        (FileNotFoundError(errno.ENOENT, "No such file", "y"), 2, "y: No such file"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            RuntimeError("what\x1b?"),
            1,
            r"internal error: RuntimeError: what\x1b? (--debug shows where)",
        ),
    ],
)
def test_every_failure_is_one_line(
    error: BaseException,
    code: int,
    line: str,
    corpus: Path,
    waltool: Waltool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(info, "describe", broken(error))
    result = waltool("info films")
    assert (result.code, result.out, result.err) == (code, "", f"waltool: {line}\n")


def test_debug_shows_where_an_error_came_from(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "describe", broken(RuntimeError("here")))
    with pytest.raises(RuntimeError, match="here"):
        run(["info", "--debug", "films"])


def test_a_closed_pipe_is_no_error(corpus: Path, build_log: Callable[..., None]) -> None:
    command = [sys.executable, "-m", "waltool", "grep", ".", "films"]
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_full_disk_under_the_output_is_an_error(corpus: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "waltool", "head", "films"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (result.returncode, result.stderr) == (1, b"waltool: No space left on device\n")


def test_a_terminal_that_knows_ascii_only_gets_escapes(corpus: Path) -> None:
    command = [sys.executable, "-m", "waltool", "keys", "strange"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, env=env, capture_output=True, check=True)
    assert rb"t\xedtulo/el-\xe1ngel" in result.stdout.splitlines()


# ---------------------------------------------------------------------- colours


@pytest.mark.parametrize(
    ("environment", "option", "terminal", "colored"),
    [
        ({}, "", True, True),
        ({}, "", False, False),
        ({}, "--color", False, True),
        ({}, "--no-color", True, False),
        ({"NO_COLOR": "1"}, "", True, False),
        ({"NO_COLOR": ""}, "", True, True),
        ({"NO_COLOR": "1"}, "--color", True, True),
        ({"TERM": "dumb"}, "", True, False),
        ({}, "--json", True, False),
    ],
)
def test_colours(
    environment: dict[str, str],
    option: str,
    terminal: bool,
    colored: bool,
    corpus: Path,
    waltool: Waltool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = waltool(f"head {option} films", terminal=terminal)
    assert ("\x1b[" in result.out) is colored


def test_no_command_lets_a_control_character_through(corpus: Path, waltool: Waltool) -> None:
    for command in ("head", "tail", "range 1 7", "grep .", "keys", "stats", "info"):
        for option in ("", "--json"):
            out = waltool(f"{command} {option} strange").out
            assert all(c.isprintable() or c == "\n" for c in out), command
