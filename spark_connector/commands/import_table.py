"""`python -m spark_connector import`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from spark_connector.jobs.running import running
from spark_connector.paths import local_path
from spark_connector.reading.pinned import pin
from waltool.command import command as _command
from waltool.output import Output
from waltool.spark import master_option
from waltool.text import escape, plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FROM_TEXT: Final = {"body": "binary", "ts": "timestamp"}


@_command(
    "python -m spark_connector import films.parquet films",
    "… import --format json s3a://bucket/films films",
)
@click.argument("table", type=str)
@click.argument("target", metavar="OUT", type=click.Path())
@click.option(
    "--format", "format_", default="parquet", help="What Spark calls it; default: parquet."
)
@master_option
def command(out: Output, table: str, target: str, *, format_: str, master: str | None) -> None:
    """Make a log of anything that Spark can read.

    Columns are those of `df.write.format("sirius")`: key and body, and if they are there op, ts and seq, which gives
    the order; the log is numbered from 1 on without a gap. A table that `waltool export` wrote is taken as it is: time
    is ts, and session and serial, which mean something in their cluster alone, are left out. A body that is a text, as
    in JSON and CSV, is its bytes in UTF-8; a ts that is one is read as a time. OUT must not be there yet.
    """
    with running(master) as spark:
        from spark_connector import jobs

        jobs.import_frame(_as_updates(spark.read.format(format_).load(table)), target)
    records = pin(local_path(target)).last
    if out.as_json:
        out.object({"target": target, "records": records})
    else:
        out.line(f"{escape(target)}: {plural(records, 'record')}")


def _as_updates(df: DataFrame) -> DataFrame:
    """Return the columns of a table under the names that a log has, and texts as what they stand for."""
    if "time" in df.columns and "ts" not in df.columns:
        df = df.withColumnRenamed("time", "ts")
    texts = {name for name, kind in df.dtypes if kind == "string"}
    for name in texts & _FROM_TEXT.keys():
        df = df.withColumn(name, df[name].cast(_FROM_TEXT[name]))
    return df.drop("session", "serial")
