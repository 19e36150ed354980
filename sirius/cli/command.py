"""What all commands have in common: options, help with examples, errors and exit codes.

A command is a function that gets an `Output` and its parameters, and returns an exit code or None for 0::

    @command("sirius status 127.0.0.1:7401", "sirius status --json 127.0.0.1:7401 | jq .leader")
    @click.argument("address")
    def command(out: Output, address: str) -> int | None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sirius.cli.failures import guarded
from sirius.cli.output import Output
from sirius.console.commands import ExampleCommand

Function = Callable[..., int | None]


def command(*examples: str) -> Callable[[Function], click.Command]:
    """Make a function a command; its docstring becomes the help."""

    def decorate(function: Function) -> click.Command:
        def callback(**parameters: Any) -> int:
            names = ("as_json", "color", "quiet", "debug")
            as_json, color, quiet, debug = (parameters.pop(name) for name in names)
            out = Output(as_json=as_json, color=color, quiet=quiet)
            return guarded(lambda: _finish(out, function(out, **parameters)), debug=debug)

        callback.__doc__ = function.__doc__
        made = click.command(cls=ExampleCommand)(_common(callback))
        # Those of the command come first, in the help and where both take a place.
        made.params = [*reversed(getattr(function, "__click_params__", [])), *made.params]
        made.examples = examples
        return made

    return decorate


def _finish(out: Output, code: int | None) -> int:
    out.flush()
    return code or 0


def _common(function: Callable[..., int]) -> Callable[..., int]:
    options = (
        click.option("--json", "as_json", is_flag=True, help="Write JSON: an object a line."),
        click.option("--color/--no-color", default=None, help="Colours; default: on a terminal."),
        click.option("-q", "--quiet", is_flag=True, help="No progress and no remarks."),
        click.option("--debug", is_flag=True, help="Show where an error came from."),
    )
    for option in reversed(options):
        function = option(function)
    return function
