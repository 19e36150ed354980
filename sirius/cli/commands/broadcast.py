"""`sirius broadcast`: a group of its own."""

from __future__ import annotations

from typing import Final

import click

from sirius.console.commands import Commands, Row, write_examples

RUN: Final = "Run"
USE: Final = "Use"

COMMANDS: Final = {
    "proxy": Row("proxy", RUN, "Run the proxy of a region."),
    "publish": Row("publish", USE, "Publish events, by their keys."),
    "tail": Row("tail", USE, "Show the events of a stream as they come."),
    "status": Row("status", USE, "Show what proxies are doing."),
}


class BroadcastCommands(Commands):
    """Those above."""

    table = COMMANDS
    package = "sirius.cli.broadcast"

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        examples = (
            "sirius broadcast proxy --listen 127.0.0.1:7500 --stream films",
            "sirius broadcast tail films --proxy 127.0.0.1:7500",
            "sirius broadcast publish films title/casablanca --proxy 127.0.0.1:7500",
        )
        write_examples(formatter, examples)


@click.group(cls=BroadcastCommands, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Tell every cache of every region what changed.

    A proxy for each region passes events on to the others and to its clients. Applications use
    `sirius.broadcast.connect`; these commands run proxies, and look at what they carry.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)
