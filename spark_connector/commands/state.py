"""`python -m spark_connector state`"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from spark_connector.jobs.running import running
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.output import Output
from waltool.params import moment, sequence_number
from waltool.spark import master_option
from waltool.text import escape, plural


def _as_of(text: str) -> int | datetime:
    """Read a sequence number, a time or an age."""
    if text.replace(",", "").replace("_", "").isdecimal():
        return sequence_number(text)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment(text))


@_command(
    "python -m spark_connector state films now.parquet",
    "… state --as-of 2026-11-16T12:00:00Z films noon.parquet",
    "… state --as-of 1_000_000 films million.parquet",
)
@click.option(
    "--as-of",
    type=_as_of,
    metavar="MOMENT",
    help="A sequence number, a time in ISO 8601 (UTC unless it names a zone), or an age: 30m, 2h, 7d; default: now.",
)
@master_option
@log_argument
@click.argument("target", metavar="OUT", type=click.Path())
def command(
    out: Output, log: str, target: str, *, as_of: int | datetime | None, master: str | None
) -> None:
    """Write the newest value of every key as Parquet: now, or as it was at a moment.

    OUT is a new folder; its columns are seq, ts, op, key, body and segment. A state that compaction took something from
    is refused, with the moments that are whole.
    """
    with running(master) as spark:
        from spark_connector import jobs

        records = jobs.export_state(spark, log, target, as_of)
    if out.as_json:
        out.object({"target": target, "records": records})
    else:
        out.line(f"{escape(target)}: {plural(records, 'key')}")
