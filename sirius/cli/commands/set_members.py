"""`sirius set-members`"""

from __future__ import annotations

import os

import click

from sirius.cli.command import command as _command
from sirius.cli.output import Output
from sirius.config import write_members
from sirius.errors import UsageError


@_command(
    "sirius set-members members.toml films1.example:7400 films2.example:7400 films3.example:7400",
    "sirius set-members --nobody members.toml",
)
@click.option("--nobody", is_flag=True, help="No names: every node that reads it becomes passive.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("names", metavar="NAME...", nargs=-1)
def command(out: Output, file: str, names: tuple[str, ...], nobody: bool) -> None:
    """Write a member file: who is to vote.

    The file is replaced in one step, so that a node never reads half of it. Nodes that have it as `members_file` see
    the change within seconds, and change the voters through the log, one step after the other. All nodes of a cluster
    want the same file.
    """
    if nobody == bool(names):
        raise click.UsageError("expected names, or --nobody", click.get_current_context())
    if not os.path.isdir(folder := os.path.dirname(file) or "."):
        raise UsageError(f"{folder}: there is no such folder")
    written = write_members(file, names).names
    if out.as_json:
        out.object({"file": file, "members": list(written)})
    else:
        out.line(f"{file}: {', '.join(written) or 'nobody'}")
