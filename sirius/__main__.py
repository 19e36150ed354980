"""The command `sirius`. Its commands arrive with the node; `waltool` looks after a log on disk."""

from __future__ import annotations

import click

from sirius import __version__


@click.group()
@click.version_option(__version__, prog_name="sirius")
def main() -> None:
    """Sirius: a reference dataset in the memory of every application server."""


if __name__ == "__main__":
    main(prog_name="sirius")
