"""`waltool range`"""

from __future__ import annotations

from dataclasses import replace

import click

from sirius.errors import UsageError
from waltool.command import command as _command
from waltool.command import log_argument, record_options
from waltool.filters import Filter, filter_options
from waltool.output import Output
from waltool.params import sequence_number
from waltool.progress import progress
from waltool.source import open_source


@_command("waltool range 1000 2000 films", "waltool range 1 500 --key '^title/' --json films")
@click.argument("first", type=sequence_number)
@click.argument("last", type=sequence_number)
@filter_options("since", "until", "op", "key", "control")
@record_options
@log_argument
def command(out: Output, first: int, last: int, log: str, wanted: Filter) -> None:
    """Show the records of a range of sequence numbers.

    Reads the records from FIRST to LAST, both included, or to the end of the log. Numbers without a record (holes) are
    passed over. Changes nothing.
    """
    if first > last:
        raise UsageError(f"{first} to {last} is no range: the first number is behind the last")
    with open_source(log) as source:
        if first > source.last:
            out.remark(f"{log} ends at {source.last}")
        out.seq_width = len(str(min(last, source.last)))
        chosen = replace(wanted, first=first, last=min(last, max(source.last, first)))
        begin, end = chosen.bounds(source)
        with progress(out, "reading", end - begin + 1, beside_records=True) as bar:
            for batch in bar.over(chosen.batches(source), begin):
                out.records(batch)
