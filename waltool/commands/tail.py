"""`waltool tail`"""

from __future__ import annotations

import time
from collections import deque

import click

from sirius.errors import UsageError
from sirius.wal import Batch
from waltool.command import command as _command
from waltool.command import log_argument, record_options
from waltool.filters import Filter, filter_options
from waltool.output import Output
from waltool.source import SiriusSource, Source, open_source

_GROWTH = 4


@_command("waltool tail films", "waltool tail -f --key '^title/' films")
@click.option(
    "-n", "count", type=click.IntRange(0), default=20, metavar="N", help="How many; default: 20."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with the records that arrive.")
@click.option(
    "--poll",
    "poll_s",
    type=click.FloatRange(0.001),
    default=0.2,
    metavar="SECONDS",
    help="With -f: how often to look; default: 0.2.",
)
@filter_options()
@record_options
@log_argument
def command(out: Output, log: str, count: int, follow: bool, poll_s: float, wanted: Filter) -> None:
    """Show the last records of a log, and those that arrive.

    Reads from the end backwards, so a large log costs no more than a small one; filters make it read on until enough
    records were found. With -f it goes on until Ctrl-C, or until --last, across rotation and compaction. Changes
    nothing.
    """
    with open_source(log) as source:
        if follow and not isinstance(source, SiriusSource):
            what = "in one file" if source.kind == "single" else "of another program"
            raise UsageError(f"{log} cannot be followed: it is a log {what}")
        out.seq_width = len(str(source.last))
        for batch in last_batches(source, wanted, count):
            out.records(batch)
        if follow and isinstance(source, SiriusSource):
            _follow(out, source, wanted, poll_s)


def last_batches(source: Source, wanted: Filter, count: int) -> deque[Batch]:
    """Return the last `count` records that are wanted, from pieces of the log that grow backwards."""
    first, upper = wanted.bounds(source)
    found: deque[Batch] = deque()
    missing, piece = count, count if source.seekable else upper
    while missing > 0 and first <= upper:
        lower = max(first, upper - piece + 1)
        newest = _newest(source, wanted, lower, upper, missing)
        found.extendleft(reversed(newest))
        missing -= sum(map(len, newest))
        upper, piece = lower - 1, piece * _GROWTH
    return found


def _newest(source: Source, wanted: Filter, first: int, last: int, count: int) -> deque[Batch]:
    """Return the last `count` wanted records of a range, or as many as there are."""
    kept: deque[Batch] = deque()
    total = 0
    for batch in map(wanted.apply, source.batches(first, last)):
        if not len(batch):
            continue
        kept.append(batch)
        total += len(batch)
        while total - len(kept[0]) >= count:
            total -= len(kept.popleft())
    if total > count:
        oldest = kept.popleft()
        kept.appendleft(oldest.between(int(oldest.seq[total - count]), oldest.last))
    return kept


def _follow(out: Output, source: SiriusSource, wanted: Filter, poll_s: float) -> None:
    def wait() -> bool:
        out.flush()
        time.sleep(poll_s)
        return True

    out.flush()
    first = max(source.last + 1, wanted.first or 1)
    for batch in source.follow(first, wait, wanted.last):
        out.records(wanted.apply(batch))
