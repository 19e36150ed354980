"""Logs as tables, for those who would rather call a function than set options."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def state(spark: SparkSession, log: str, as_of: int | datetime | None = None) -> DataFrame:
    """Return the newest value of every key, now, at a sequence number or at a time, while history is there."""
    reader = spark.read.format("sirius").option("view", "state")
    if as_of is not None:
        moment = as_of.isoformat() if isinstance(as_of, datetime) else str(as_of)
        reader = reader.option("asOf", moment)
    return reader.load(log)


def import_frame(df: DataFrame, out: str) -> None:
    """Write a DataFrame as a new log, in the order of its column `seq`, or as it comes: see `writing.save`."""
    from spark_connector.writing import save

    save(df, out)
