"""`waltool init`"""

from __future__ import annotations

import os

import click

from sirius.errors import UsageError
from sirius.wal import Log
from waltool.command import command as _command
from waltool.output import Output
from waltool.target import CONFIG
from waltool.text import escape
from waltool.transfer import KINDS, Kind, Target, write


@_command("waltool init films", "waltool init --format ancestor-segmented old-films")
@click.argument("path", metavar="DIR", type=click.Path())
@click.option(
    "--format", "kind", type=click.Choice(KINDS), default="sirius", help="Default: sirius."
)
def command(out: Output, path: str, kind: Kind) -> None:
    """Make an empty log.

    DIR must not be there yet, or be an empty folder. With --format single it is the name of a file.
    """
    path = path.rstrip("/") or "/"
    if os.path.isdir(path) and os.listdir(path):
        raise UsageError(f"{path} is not empty")
    if os.path.isdir(path) and kind == "sirius":
        # The folder itself may matter to somebody: a mount, or its rights.
        Log.open(path, CONFIG).close()
    else:
        if kind != "single" and os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        write(Target(path, kind), iter(()))
    if out.as_json:
        out.object({"path": path, "kind": kind})
    else:
        out.line(f"{escape(path)}: an empty log, {kind}")
