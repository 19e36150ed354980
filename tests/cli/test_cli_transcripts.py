"""What commands print, pinned. The form is that of the transcripts of waltool.

Lines that begin with `$ sirius` are run in an empty folder, and what follows is what they must print. Standard error
has `2> ` before each line, an exit code that is not 0 comes last, in brackets, escape characters are shown as ␛. `TTY`
in front of a command gives it a terminal. `pytest tests/cli --rewrite` writes what the commands print now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sirius.cli.group import COMMANDS, cli

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))

BAD_BROADCAST = """\
name = "127.0.0.1:7500"
datta = "films"
durability = "paper"

[streams]
films = 7

[proxy]
advertise_s = "soon"
window_bytes = "8 parsecs"

[region]
fan_out = 4
"""


def play(script: str, sirius: Callable[..., Any]) -> str:
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith("#"):
            lines += ["", line] if lines else [line]
        elif line.startswith("$ "):
            lines += [] if not lines or lines[-1].startswith("#") else [""]
            lines += [line, *shown(line.removeprefix("$ "), sirius)]
    return "\n".join(lines) + "\n"


def shown(command: str, sirius: Callable[..., Any]) -> list[str]:
    terminal = command.startswith("TTY ")
    result = sirius(command.removeprefix("TTY ").removeprefix("sirius"), terminal=terminal)
    lines: list[str] = result.out.replace("\x1b", "␛").splitlines()
    lines += [f"2> {line}" for line in result.err.replace("\x1b", "␛").splitlines()]
    return lines + ([f"[exit {result.code}]"] if result.code else [])


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(
    path: Path,
    sirius: Callable[..., Any],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("not a log")
    (tmp_path / "bad.toml").write_text('nmae = "x"\ndurability = "paper"\n')
    (tmp_path / "alone.toml").write_text('data = "films"\n')
    (tmp_path / "broadcast.toml").write_text(
        'name = "127.0.0.1:1"\nproxies = ["127.0.0.1:1"]\n[streams]\nfilms = "127.0.0.1:1"\n'
    )
    (tmp_path / "bad-broadcast.toml").write_text(BAD_BROADCAST)
    (tmp_path / "strangers.toml").write_text(
        'name = "127.0.0.1:1"\nproxies = ["127.0.0.1:1"]\n[streams]\nfilms = "127.0.0.1:2"\n'
    )
    script = path.read_text(encoding="utf-8")
    played = play(script, sirius)
    if request.config.getoption("--rewrite"):
        path.write_text(played, encoding="utf-8")
    assert played == path.read_text(encoding="utf-8")


def test_every_command_has_its_help_in_a_transcript() -> None:
    script = (Path(__file__).parent / "testdata" / "help.txt").read_text(encoding="utf-8")
    assert all(f"$ sirius {name} --help\n" in script for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_loaded_and_says_what_the_list_says(name: str) -> None:
    command = cli.get_command(cli.make_context("sirius", ["completion", "bash"]), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name].help


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(sirius: Callable[..., Any], shell: str) -> None:
    result = sirius(f"completion {shell}")
    assert result.code == 0
    assert "_SIRIUS_COMPLETE" in result.out


def test_an_internal_error_is_one_line_unless_it_is_wanted(
    sirius: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("sirius.cli.commands.set_members.write_members", broken)
    result = sirius("set-members m.toml a:1")
    assert (result.code, result.out) == (1, "")
    assert result.err == "sirius: internal error: ValueError: a bug (--debug shows where)\n"
    with pytest.raises(ValueError, match="a bug"):
        sirius("set-members --debug m.toml a:1")
