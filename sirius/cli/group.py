"""The group of commands. A command is imported when it is called, so that `sirius --help` answers at once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from sirius import __version__
from sirius.cli.failures import complain, guarded

RUN: Final = "Run"
LOOK: Final = "Look at a cluster, and change it"
COPY: Final = "Copy a log"
OTHER: Final = "Other"


class Row(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    module: str
    section: str
    help: str


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
    "completion": Row("completion", OTHER, "Print the completion script of a shell."),
}


class Commands(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        command: click.Command = import_module(f"sirius.cli.commands.{row.module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section in dict.fromkeys(row.section for row in COMMANDS.values()):
            rows = [(name, row.help) for name, row in COMMANDS.items() if row.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Examples"):
            for example in ("sirius demo", "sirius serve --data films", "sirius serve --help"):
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name].help) for name in names]
        return items or super().shell_complete(ctx, incomplete)


@click.group(cls=Commands, invoke_without_command=True)
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
    return guarded(lambda: _run(arguments), debug="--debug" in arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        code = cli.main(list(arguments), prog_name="sirius", standalone_mode=False)
    except click.ClickException as error:
        complain(_one_line(error))
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
