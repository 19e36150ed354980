"""The group of commands. A command is imported when it is called, so that `sirius --help` answers at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import click

from sirius import __version__
from sirius.cli.failures import PROGRAM
from sirius.console.commands import Commands, Row, write_examples

RUN: Final = "Run"
LOOK: Final = "Look at a cluster, and change it"
COPY: Final = "Copy a log"
TELL: Final = "Tell caches what changed"
SIMULATE: Final = "Simulate"
OTHER: Final = "Other"


COMMANDS: Final = {
    "serve": Row(
        "serve", RUN, "Run a node with the reference application: keys and values over HTTP."
    ),
    "demo": Row("demo", RUN, "Show a cluster at work, and what it does when its leader is killed."),
    "bench": Row("bench", RUN, "Measure how many updates a second there can be."),
    "status": Row("status", LOOK, "Show what nodes are doing."),
    "members": Row("members", LOOK, "Show who votes, who leads and who is to vote."),
    "set-members": Row("set_members", LOOK, "Write a member file: who is to vote."),
    "transfer-leadership": Row("transfer_leadership", LOOK, "Have another node lead."),
    "snapshot": Row("snapshot", COPY, "Copy the log of a node, which may be running."),
    "bootstrap": Row("bootstrap", COPY, "Make the folder of a new node from a copy."),
    "broadcast": Row("broadcast", TELL, "Tell every cache of every region what changed."),
    "sim": Row("sim", SIMULATE, "Redraw the figures of a paper with the code of this package."),
    "completion": Row("completion", OTHER, "Print the completion script of a shell."),
}


class SiriusCommands(Commands):
    """Those above."""

    table = COMMANDS
    package = "sirius.cli.commands"

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        examples = ("sirius demo", "sirius serve --data films", "sirius serve --help")
        write_examples(formatter, examples)


@click.group(cls=SiriusCommands, invoke_without_command=True)
@click.version_option(__version__, prog_name="sirius")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A reference dataset in the memory of every application server, kept by one replicated log.

    A node lives inside an application: `from sirius import Sirius`. This command runs one that speaks HTTP, and looks
    after nodes. What is in a log on disk, `waltool` shows.

    Exit codes: 0 clean, 1 something was found wrong, 2 wrong usage. Every command has --json and --help.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    # What the library logs is for `serve`; the other commands say what there is to say themselves.
    logging.getLogger("sirius").addHandler(logging.NullHandler())
    return PROGRAM.run(cli, arguments)
