"""`sirius sim`: a group of its own, whose commands are in `sirius.cli.simulations`."""

from __future__ import annotations

from typing import Final

import click

from sirius.console.commands import Commands, Row, write_examples

_PAPERS: Final = "Papers"

SIMULATIONS: Final = {
    "sprinkler": Row(
        "sprinkler", _PAPERS, "Reliable broadcast across regions: Figures 5b, 6, 7, 9 and 10."
    ),
}


class _Simulations(Commands):
    """Those above."""

    table = SIMULATIONS
    package = "sirius.cli.simulations"

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write_examples(formatter, ("sirius sim sprinkler 7", "sirius sim sprinkler --help"))


@click.group(cls=_Simulations, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Redraw the figures of a paper with the code of this package.

    The machines are those that run on a network; only the network, the clock and the load are simulated.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)
