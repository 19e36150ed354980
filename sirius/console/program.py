"""How a command fails: one line on standard error, and the exit code that the error owns.

====================================  ====================================================
an error of ours                      the code it carries: 1 found wrong, 2 wrong usage
a file that cannot be found or opened 2
any other failure of the system       1
a closed pipe, as in `| head`         0, without a word: the reader has what he wanted
Ctrl-C                                130
====================================  ====================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import click

from sirius.errors import SiriusError

INTERRUPTED: Final = 130
_USAGE: Final = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
)


@dataclass(frozen=True)
class Program:
    """A command by its name."""

    name: str
    shown: Callable[[str], str]
    """Makes a message fit for a terminal."""

    def complain(self, message: str) -> None:
        """Say what is wrong, on standard error."""
        print(f"{self.name}: {self.shown(message)}", file=sys.stderr, flush=True)

    def guarded(self, work: Callable[[], int], *, debug: bool = False) -> int:
        """Do some work; turn every way to fail into a line and an exit code, unless `debug`."""
        try:
            return work()
        except BrokenPipeError:
            _drop_output()
            return 0
        except (KeyboardInterrupt, click.Abort):
            self.complain("interrupted")
            return INTERRUPTED
        except click.ClickException:
            raise
        except Exception as error:
            if debug:
                raise
            self.complain(_message(error))
            return _exit_code(error)

    def run(self, cli: click.Command, arguments: Sequence[str]) -> int:
        """Run one command line; return its exit code."""
        return self.guarded(lambda: self._run(cli, arguments), debug="--debug" in arguments)

    def _run(self, cli: click.Command, arguments: Sequence[str]) -> int:
        try:
            code = cli.main(list(arguments), prog_name=self.name, standalone_mode=False)
        except click.ClickException as error:
            self.complain(_one_line(error))
            return error.exit_code
        sys.stdout.flush()
        return int(code or 0)


def _one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption):
        # In words of our own, since those of click change from version to version.
        message = f"No such option {error.option_name}"
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message}; try '{ctx.command_path} --help'" if ctx else message


def _message(error: Exception) -> str:
    if isinstance(error, SiriusError):
        return str(error)
    if isinstance(error, OSError):
        place = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    return f"internal error: {type(error).__name__}: {error} (--debug shows where)"


def _exit_code(error: Exception) -> int:
    if isinstance(error, SiriusError):
        return error.exit_code
    return 2 if isinstance(error, _USAGE) else 1


def _drop_output() -> None:
    """Send what is still in the buffer nowhere, so that the interpreter does not complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
