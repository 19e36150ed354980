"""`sirius demo`"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from sirius.cli.command import command as _command
from sirius.cli.demo.cluster import Cluster
from sirius.cli.demo.films import key_of
from sirius.cli.demo.interrupt import Interrupt
from sirius.cli.demo.screen import Screen
from sirius.cli.demo.story import Story
from sirius.cli.output import Output


@_command("sirius demo", "sirius demo --once", "sirius demo --nodes 5 --followers 2 --seconds 20")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=8.0,
    help="How long reading and writing goes on; default: 8.",
)
@click.option(
    "--once", is_flag=True, help="End when it is over, instead of leaving the cluster running."
)
@click.option("--nodes", type=click.IntRange(1, 9), default=3, help="How many vote; default: 3.")
@click.option(
    "--followers", type=click.IntRange(0, 9), default=1, help="How many follow; default: 1."
)
@click.option(
    "--films", "film_count", type=click.IntRange(10, 1_000_000), default=5000, help="Default: 5000."
)
def command(
    out: Output, seconds: float, once: bool, nodes: int, followers: int, film_count: int
) -> int:
    """Show a cluster at work, and what it does when its leader is killed.

    Starts nodes as processes of this machine, publishes a film guide, reads and writes it over HTTP, kills the leader
    with SIGKILL, starts it again, and compares what everybody has. The data are in a temporary folder. Afterwards the
    cluster stays until Ctrl-C, for you to try; with --once all of it ends. Exits with 1 if something was not as it
    should be.
    """
    interrupt = Interrupt()
    interrupt.watch()
    screen = Screen(out)
    with (
        tempfile.TemporaryDirectory(prefix="sirius-demo-") as folder,
        Cluster(Path(folder), nodes, followers) as cluster,
    ):
        story = Story(cluster, screen, interrupt, film_count, seconds)
        well = story.run()
        if not once:
            try:
                _introduce(screen, cluster, film_count)
                story.follow()
            except KeyboardInterrupt:
                screen.event("ending all processes")
    return 0 if well else 1


def _introduce(screen: Screen, cluster: Cluster, film_count: int) -> None:
    """Say how to try the cluster by hand."""
    first, last = cluster.nodes[0], cluster.nodes[-1]
    for node in cluster.nodes:
        screen.event(f"{node.label:<12} {node.http}  {node.name}", http=node.http, name=node.name)
    screen.event("the cluster stays until Ctrl-C. In another terminal:")
    for line in (
        f"  curl {last.http}/storage/{key_of(film_count // 2)}",
        f"  curl -X PUT -d '{{}}' {first.http}/storage/film/mine && curl -i {last.http}/storage/film/mine",
        f"  curl '{last.http}/keys?prefix=film/&limit=5'",
        f"  sirius status {' '.join(node.name for node in cluster.nodes)}",
        f"  sirius transfer-leadership {first.name}",
    ):
        screen.event(line)
