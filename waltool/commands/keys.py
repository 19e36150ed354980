"""`waltool keys`"""

from __future__ import annotations

import click
import numpy as np

from sirius.wal import Op
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.filters import Filter, filter_options
from waltool.keytable import Distinct, KeyTable
from waltool.output import Output, time_fields
from waltool.progress import progress
from waltool.source import Source, open_source
from waltool.text import escape


@_command("waltool keys films", "waltool keys --by seq --count --key '^title/' films")
@click.option("--all", "with_deleted", is_flag=True, help="Deleted keys too.")
@click.option("--count", is_flag=True, help="Show the number of records of each key.")
@click.option(
    "--by",
    type=click.Choice(["key", "seq"]),
    default="key",
    help="Order: by key, or by the last record of each; default: key.",
)
@filter_options("first", "last", "since", "until", "key")
@log_argument
def command(
    out: Output, log: str, *, with_deleted: bool, count: bool, by: str, wanted: Filter
) -> None:
    """List the distinct keys of a log.

    Reads all records, or those that the options leave, and lists the keys that are live at the end of them: --last 500
    shows the keys as they were at 500. Memory grows with the number of keys. Changes nothing.
    """
    with open_source(log) as source:
        distinct = gather(out, source, wanted)
    if not with_deleted:
        distinct = distinct.take(distinct.op == Op.PUT)
    show = _objects if out.as_json else _counted if count else _plain
    show(out, _ordered(distinct, by))


def gather(out: Output, source: Source, wanted: Filter) -> Distinct:
    """Return the distinct keys of the wanted updates."""
    table = KeyTable()
    first, last = wanted.bounds(source)
    with progress(out, "reading", last - first + 1) as bar:
        for batch in bar.over(wanted.batches(source), first):
            table.add(batch)
    return table.distinct()


def _ordered(distinct: Distinct, by: str) -> Distinct:
    if by == "seq":
        return distinct
    pieces = distinct.keys.pieces()
    return distinct.take(np.array(sorted(range(len(pieces)), key=pieces.__getitem__), np.int64))


def _texts(distinct: Distinct) -> list[str]:
    return [piece.decode() for piece in distinct.keys.pieces()]


def _marked(distinct: Distinct) -> list[str]:
    """Return keys as people see them; a deleted one is marked."""
    texts = [escape(key) for key in _texts(distinct)]
    for row in np.flatnonzero(distinct.op != Op.PUT).tolist():
        texts[row] += "  (deleted)"
    return texts


def _plain(out: Output, distinct: Distinct) -> None:
    out.lines(_marked(distinct))


def _counted(out: Output, distinct: Distinct) -> None:
    width = len(str(distinct.updates.max(initial=0)))
    counts = distinct.updates.tolist()
    marked = _marked(distinct)
    out.lines([f"{n:>{width}}  {key}" for n, key in zip(counts, marked, strict=True)])


def _objects(out: Output, distinct: Distinct) -> None:
    columns = (distinct.seq, distinct.ts, distinct.op == Op.PUT, distinct.updates)
    rows = zip(_texts(distinct), *(column.tolist() for column in columns), strict=True)
    for key, seq, ts_us, live, updates in rows:
        out.object({"key": key, "live": live, "seq": seq, **time_fields(ts_us), "updates": updates})
