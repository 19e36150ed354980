"""Writing: a DataFrame becomes a log, or goes to a cluster; a stream goes to a cluster.

`save` is the short way to a log from a DataFrame whose column `seq` says in which order it is to be:

>>> from spark_connector.writing import save
>>> save(df, "films")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sirius.errors import UsageError
from spark_connector.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


def writer_of(options: Options, schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """Return what writes a batch: to a cluster if there is an endpoint, to a log's folder otherwise."""
    from spark_connector.writing.columns import check_write_schema

    check_write_schema(schema)
    if options.endpoint:
        from spark_connector.writing.publishing import Publisher

        _refuse_both(options, overwrite=overwrite)
        return Publisher(options)
    from spark_connector.writing.log_writer import LogWriter

    return LogWriter(options, overwrite=overwrite)


def stream_writer_of(
    options: Options, schema: StructType, *, overwrite: bool, checkpoint: str | None
) -> DataSourceStreamWriter:
    """Return what writes the micro-batches of a stream to a cluster."""
    from spark_connector.writing.columns import check_write_schema
    from spark_connector.writing.publishing import StreamPublisher

    check_write_schema(schema)
    if not options.endpoint:
        raise UsageError(
            'a stream is published to a cluster, with option("endpoint", "host:7400,…"): a log\'s folder is written '
            "whole, by a batch"
        )
    _refuse_both(options, overwrite=overwrite)
    name = options.txn_id or checkpoint
    if not name:
        raise UsageError(
            "a stream needs txnId or checkpointLocation: by it a micro-batch that is sent again is known"
        )
    return StreamPublisher(options, name, by_seq="seq" in schema.names)


def _refuse_both(options: Options, *, overwrite: bool) -> None:
    if options.paths:
        raise UsageError("endpoint publishes to a cluster, a path writes a log: give one of them")
    if overwrite:
        raise UsageError('what a cluster holds cannot be overwritten: use mode("append")')


def save(df: DataFrame, path: str, *, mode: str = "append", partitions: int | None = None) -> None:
    """Write a DataFrame as a new log, in the order of its column `seq`; without one as it comes."""
    if "seq" in df.columns:
        count = partitions or int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions")))
        df = df.repartitionByRange(count, "seq").sortWithinPartitions("seq")
    df.write.format("sirius").mode(mode).save(path)
