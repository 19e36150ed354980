"""`python -m spark_connector churn`"""

from __future__ import annotations

import click

from spark_connector.jobs.running import running
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.output import Output
from waltool.spark import master_option
from waltool.text import escape, number, size

_HEADS = ("updates", "bytes", "last", "key")


@_command("python -m spark_connector churn films", "… churn --top 100 --json films")
@click.option("--top", type=click.IntRange(1), default=10, help="How many keys; default: 10.")
@master_option
@log_argument
def command(out: Output, log: str, *, top: int, master: str | None) -> None:
    """Show the keys with the most updates.

    Counts PUTs and DELETEs that are in the log; where compaction has been, superseded ones are not. Keys with as many
    updates come in their own order. `waltool keys --all --count` counts all keys on one machine.
    """
    with running(master) as spark:
        from spark_connector import jobs

        rows = jobs.churn(spark, log, top).collect()
    if out.as_json:
        for row in rows:
            out.object(row.asDict())
        return
    shown = [
        (
            number(row.updates),
            size(row.bytes),
            number(row.seq),
            escape(row.key) + ("" if row.live else "  (deleted)"),
        )
        for row in rows
    ]
    out.table(_HEADS, shown, left="key")
