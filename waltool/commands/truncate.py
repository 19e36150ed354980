"""`waltool truncate`"""

from __future__ import annotations

import os
import sys

import click

from sirius.errors import UsageError
from sirius.wal import Log, LogConfig
from sirius.wal.store import JOURNAL
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.output import Output
from waltool.params import sequence_number
from waltool.source import SiriusSource, kind_of
from waltool.text import escape, plural

_CONFIG = LogConfig(background=False, reserve_bytes=0)


def _seq_or_nothing(text: str | int) -> int:
    return 0 if str(text) == "0" else sequence_number(text)


@_command("waltool truncate --after 1200 films", "waltool truncate --after 1200 --yes --json films")
@click.option(
    "--after",
    "seq",
    type=_seq_or_nothing,
    metavar="SEQ",
    required=True,
    help="The last sequence number that stays; 0 removes all.",
)
@click.option("--yes", is_flag=True, help="Do it without asking.")
@log_argument
def command(out: Output, log: str, seq: int, yes: bool) -> None:
    """Remove everything behind a sequence number.

    This is dangerous: the records are gone, and their numbers will be given to others. A member of a cluster, or
    a log that anybody follows, must never be truncated by hand, since nobody else would notice; a log with the journal
    of a member is refused. What compaction removed does not come back: keys whose newer value is cut off may be missing
    altogether.

    The log must not be open for writing. A crash leaves the old log or the new one. Files that are no longer needed are
    removed by the log's next compaction.
    """
    if kind_of(log) != "sirius":
        raise UsageError(f"{log} is not the folder of a Sirius log; convert it first")
    if os.path.isdir(f"{log}/{JOURNAL}"):
        raise UsageError(f"{log} has the journal of a cluster's member, and must not be truncated")
    if not yes:
        _ask(log, seq)
    with Log.open(log, _CONFIG) as opened:
        gone = opened.truncate_after(seq)
        last = opened.next_seq - 1
    _show(out, log, last, gone)


def _ask(log: str, seq: int) -> None:
    with SiriusSource(log) as source:
        last = source.last
    if seq >= last:
        return
    what = f"{log}: {plural(last - seq, 'sequence number')}, {seq + 1:,} to {last:,}"
    if not sys.stdin.isatty():
        raise UsageError(f"{what}, would be removed for good; --yes does it")
    if not click.confirm(f"{escape(what)}: remove them for good?", err=True):
        raise UsageError(f"{log}: nothing was removed")


def _show(out: Output, log: str, last: int, gone: int) -> None:
    if out.as_json:
        out.object({"log": log, "last": last, "removed": gone})
    elif gone:
        removed = plural(gone, "sequence number")
        out.line(f"{escape(log)}: removed {removed}; it ends with {last:,} now")
    else:
        out.line(f"{escape(log)}: nothing to remove; it ends with {last:,}")
