"""`sirius snapshot`"""

from __future__ import annotations

import time

import click

from sirius.cli.command import command as _command
from sirius.cli.copying import Copied, copy_log
from sirius.cli.output import Output
from sirius.cli.text import duration, plural, size


@_command(
    "sirius snapshot /var/lib/films /backup/films-2026-11-16",
    "sirius snapshot --json /var/lib/films /backup/today && waltool digest /backup/today",
)
@click.argument("source", metavar="SOURCE_DIR", type=click.Path())
@click.argument("target", metavar="TARGET_DIR", type=click.Path())
def command(out: Output, source: str, target: str) -> None:
    """Copy the log of a node, which may be running.

    The copy holds everything that was in the log when the copying began, and is checked byte by byte before it gets its
    name. It does not hold the node's votes: see `sirius bootstrap --help`. `waltool` reads it like any log.
    """
    began = time.monotonic()
    try:
        copied = copy_log(source, target, out.progress, lambda _: None)
    finally:
        out.clear_progress()
    show_copy(out, target, copied, time.monotonic() - began)


def show_copy(out: Output, target: str, copied: Copied, seconds: float, **more: object) -> None:
    """Say what a copy holds."""
    if out.as_json:
        facts = {"target": target, "last": copied.last, "segments": copied.segments}
        out.object({**facts, "bytes": copied.bytes, "records": copied.report.records, **more})
        return
    out.line(
        f"{target}: everything up to {copied.last:,}, {plural(copied.segments, 'segment')}, "
        f"{plural(copied.report.records, 'record')}, {size(copied.bytes)}, in {duration(seconds)}"
    )
