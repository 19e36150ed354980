"""The command line: the table of commands, loaded when they are called, and how errors end.

To add a command, write a module in `waltool/commands/` whose `command` is made by `waltool.command.command`, and give
it a row here. The help of the whole and completion read the table alone, so they do not wait for numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from sirius.console.commands import Commands, Row
from waltool.failures import PROGRAM

LOOK: Final = "Look at a log"
CHANGE: Final = "Change a log"
COPY: Final = "Copy a log"
OTHER: Final = "Other"


COMMANDS: Final = {
    "info": Row("info", LOOK, "Show what a log is made of."),
    "stats": Row("stats", LOOK, "Count records, keys and bytes, and what compaction would save."),
    "head": Row("head", LOOK, "Show the first records of a log."),
    "tail": Row("tail", LOOK, "Show the last records of a log, and those that arrive."),
    "range": Row("range", LOOK, "Show the records of a range of sequence numbers."),
    "grep": Row("grep", LOOK, "Show the records whose key or body matches a regular expression."),
    "keys": Row("keys", LOOK, "List the distinct keys of a log."),
    "verify": Row("verify", LOOK, "Check every byte of a log."),
    "diff": Row("diff", LOOK, "Show the keys in which two logs differ."),
    "digest": Row(
        "digest", LOOK, "Sum up a log's state in one number, to compare it with another."
    ),
    "init": Row("init", CHANGE, "Make an empty log."),
    "compact": Row("compact", CHANGE, "Keep the newest record of each key only."),
    "truncate": Row("truncate", CHANGE, "Remove everything behind a sequence number."),
    "repair": Row("repair", CHANGE, "Mend a damaged log as far as its bytes allow."),
    "convert": Row("convert", COPY, "Write a log in another format."),
    "export": Row("export", COPY, "Write records as JSON lines, CSV or Parquet."),
    "import": Row("import_log", COPY, "Make a log of JSON lines, CSV or Parquet."),
    "replay": Row("replay", COPY, "Send records to a web service, as PUT and DELETE."),
    "completion": Row("completion", OTHER, "Print the completion script of a shell."),
}


class WalCommands(Commands):
    """Those above."""

    table = COMMANDS
    package = "waltool.commands"


@click.group(cls=WalCommands, invoke_without_command=True)
@click.version_option(package_name="sirius-log", prog_name="waltool")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Look after a log on disk: ours, and those of the Scala Sirius.

    LOG is the folder of a log, or a log in one file. A log may be read while a process writes to it.

    Exit codes: 0 clean, 1 something was found wrong, 2 wrong usage. Every command has --json and --help.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    return PROGRAM.run(cli, arguments)
