"""`sirius bootstrap`"""

from __future__ import annotations

import time

import click

from sirius.cli.command import command as _command
from sirius.cli.commands.snapshot import show_copy
from sirius.cli.copying import copy_log
from sirius.cli.output import Output
from sirius.wal import Log, LogConfig


@_command(
    "sirius snapshot /var/lib/films /backup/films && rsync -a /backup/films new:/backup/",
    "sirius bootstrap /backup/films /var/lib/films",
)
@click.argument("copy", metavar="COPY_DIR", type=click.Path())
@click.argument("data", metavar="DATA_DIR", type=click.Path())
def command(out: Output, copy: str, data: str) -> None:
    """Make the folder of a new node from a copy.

    A node that starts on an empty folder takes the whole log from the others, over the network. One that starts on a
    copy of any node's log takes only what is newer. COPY_DIR is what `sirius snapshot` wrote, or a node's own folder.

    The new folder is a log of its own, and the node on it a node of its own: it has a new id, and no votes. It follows
    its cluster. If the members name it, the cluster makes it a learner and then a voter, through the log. A node that
    lost its disk comes back the same way, under its old name. Its old votes do not come back, and must not: a node
    that forgot what it promised could help to decide again what was decided.

    The log belongs to the cluster it came from. To begin a new cluster with its data, start one on empty
    folders and send them: `waltool replay COPY_DIR http://…/storage`.
    """
    began = time.monotonic()
    try:
        copied = copy_log(copy, data, out.progress, _settle)
    finally:
        out.clear_progress()
    show_copy(out, data, copied, time.monotonic() - began)
    out.remark(
        "start it with its own name and the cluster's members: it follows, and votes once the members name it"
    )


def _settle(folder: str) -> None:
    """Open the copy once: it becomes a log of its own, and a torn end is cut off."""
    Log.open(folder, LogConfig(reserve_bytes=0)).close()
