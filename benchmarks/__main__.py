"""`make bench [ONLY=part] [JSON=1]`: print the figures of one part or of all; exit 1 if one is short of its bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module

import click

from benchmarks.figures import Figure, show

PARTS = {
    "wal": "benchmarks.wal",
    "paxos": "benchmarks.paxos",
    "node": "benchmarks.node",
    "broadcast": "benchmarks.broadcast",
    "spark": "benchmarks.spark",
}
PLANNED = ("speed", "order")


def figures_of(part: str) -> Iterator[Figure]:
    run: Callable[[], Iterator[Figure]] = import_module(PARTS[part]).figures
    yield from run()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", metavar="PART", help=f"One of: {', '.join((*PARTS, *PLANNED))}.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def main(only: str | None, as_json: bool) -> None:
    """Print benchmark figures, as ratios measured in the same run."""
    if only in PLANNED:
        raise click.ClickException(f"there is nothing to measure for {only!r} yet")
    if only is not None and only not in PARTS:
        raise click.UsageError(f"unknown part {only!r}: take one of {', '.join(PARTS)}")
    good = True
    for part in [only] if only else PARTS:
        good = show(figures_of(part), as_json=as_json) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
