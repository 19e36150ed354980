"""What all commands have in common: options, help with examples, errors and exit codes.

A command is a function that gets an `Output` and its parameters, and returns an exit code or None for 0::

    @command("waltool info films", "waltool info --json films | jq .last")
    @log_argument
    def command(out: Output, log: str) -> int | None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from sirius.console.commands import ExampleCommand
from waltool.failures import PROGRAM
from waltool.output import Output

Function = Callable[..., int | None]

log_argument = click.argument("log", type=click.Path())


def command(*examples: str) -> Callable[[Function], click.Command]:
    """Make a function a command; its docstring becomes the help."""

    def decorate(function: Function) -> click.Command:
        def callback(**parameters: Any) -> int:
            names = ("as_json", "color", "quiet", "debug", "full", "width")
            as_json, color, quiet, debug, full, width = (parameters.pop(n, None) for n in names)
            out = Output(
                as_json=as_json, color=color, quiet=quiet, full=bool(full), width_wanted=width
            )
            program = replace(PROGRAM, name=_program_name())
            return program.guarded(lambda: _finish(out, function(out, **parameters)), debug=debug)

        callback.__doc__ = function.__doc__
        made = click.command(cls=ExampleCommand)(_common(callback))
        # Those of the command come first, in the help and where both take a place.
        made.params = [*reversed(getattr(function, "__click_params__", [])), *made.params]
        made.examples = examples
        return made

    return decorate


def _program_name() -> str:
    """What was called: the connector for Spark has some of these commands as well."""
    return click.get_current_context().find_root().info_name or PROGRAM.name


def _finish(out: Output, code: int | None) -> int:
    out.flush()
    return code or 0


def _common(function: Callable[..., int]) -> Callable[..., int]:
    options = (
        click.option("--json", "as_json", is_flag=True, help="Write JSON: an object a line."),
        click.option("--color/--no-color", default=None, help="Colours; default: on a terminal."),
        click.option("-q", "--quiet", is_flag=True, help="No progress bar and no remarks."),
        click.option("--debug", is_flag=True, help="Show where an error came from."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def record_options(function: Function) -> Function:
    """Options of the commands that show records."""
    function = click.option(
        "--width",
        type=click.IntRange(20),
        metavar="COLUMNS",
        help="Cut lines to this width; default: the terminal's, and none in a pipe.",
    )(function)
    return click.option("--full", is_flag=True, help="Show bodies in full.")(function)
