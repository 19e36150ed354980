"""The commands of the connector: four of `waltool`, done by Spark, and three that only Spark has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from sirius.console.commands import Commands, Row
from sirius.console.program import Program
from waltool.cli import COMMANDS as WALTOOL
from waltool.cli import WalCommands
from waltool.text import escape

_PROGRAM: Final = Program("python -m spark_connector", escape)
_ON_SPARK: Final = ("compact", "diff", "export", "stats")
_BOTH: Final = "As waltool does it, and with its results"
_ALONE: Final = "On Spark alone"


COMMANDS: Final = {
    **{name: Row(WALTOOL[name].module, _BOTH, WALTOOL[name].help) for name in _ON_SPARK},
    "churn": Row("churn", _ALONE, "Show the keys with the most updates."),
    "state": Row("state", _ALONE, "Write the newest value of every key as Parquet."),
    "import": Row("import_table", _ALONE, "Make a log of anything that Spark can read."),
}


class SparkCommands(Commands):
    """Those of the table; those of `waltool` are in its own package."""

    table = COMMANDS
    package = "spark_connector.commands"

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _ON_SPARK:
            return WalCommands().get_command(ctx, cmd_name)
        return super().get_command(ctx, cmd_name)


@click.group(cls=SparkCommands, invoke_without_command=True)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Bulk work on logs, for logs that one machine takes too long for.

    Without --master it runs on all cores of this machine; `spark-submit` brings its own. All machines see the paths.

    Exit codes: 0 clean, 1 something was found wrong, 2 wrong usage. Every command has --json and --help.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    first, *others = arguments or [""]
    if first in _ON_SPARK:
        return _PROGRAM.run(cli, [first, "--engine", "spark", *others])
    return _PROGRAM.run(cli, arguments)
