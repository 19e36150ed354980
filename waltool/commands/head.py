"""`waltool head`"""

from __future__ import annotations

import click

from waltool.command import command as _command
from waltool.command import log_argument, record_options
from waltool.filters import Filter, filter_options
from waltool.output import Output
from waltool.source import open_source


@_command("waltool head films", "waltool head -n 3 --op delete --since 2026-11-01 films")
@click.option(
    "-n", "count", type=click.IntRange(0), default=20, metavar="N", help="How many; default: 20."
)
@filter_options()
@record_options
@log_argument
def command(out: Output, log: str, count: int, wanted: Filter) -> None:
    """Show the first records of a log.

    Reads the log from its beginning (or from --first on) until it has enough. Changes nothing.
    """
    with open_source(log) as source:
        out.seq_width = len(str(source.last))
        for batch in wanted.batches(source):
            if count <= 0:
                return
            shown = batch
            if len(batch) > count:
                shown = batch.between(batch.first, int(batch.seq[count - 1]))
            out.records(shown)
            count -= len(shown)
