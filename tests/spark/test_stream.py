"""Streams on a real Spark session: every record exactly once, whatever ends the query in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sirius.testing.logs import updates
from sirius.testing.processes import ProcessCluster
from sirius.transport.client import Client
from sirius.wal import CompactionPolicy, Log, LogConfig, LogReader, Op, Record, Update

SMALL = LogConfig(reserve_bytes=0, segment_bytes_max=64 * 1024)
Row = tuple[int, str, str, bytes | None]


def append(path: Path, count: int, seed: int = 0) -> None:
    with Log.open(str(path), SMALL) as log:
        for at in range(0, count, 100):
            log.write(updates(min(100, count - at), keys=count, seed=seed + at))
        log.flush()


def row_of(record: Record) -> Row:
    body = record.body if record.op.name == "PUT" else None
    return record.seq, record.op.name, record.key, body


def rows_of_log(path: Path) -> list[Row]:
    with LogReader.open(str(path)) as reader, reader.snapshot() as snapshot:
        return [
            row_of(record) for batch in snapshot.batches() for record in batch.updates().records()
        ]


def stream(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.readStream.format("sirius").options(**options).load(str(path))


def run_to_the_end(frame: DataFrame, table: Path, checkpoint: Path) -> int:
    """Take what is there now into a Parquet table, and return in how many batches."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(table))
    query.awaitTermination()
    return len([progress for progress in query.recentProgress if progress.numInputRows])


def rows_of_table(spark: SparkSession, table: Path) -> list[Row]:
    rows = spark.read.parquet(str(table)).orderBy("seq").collect()
    return [(row.seq, row.op, row.key, row.body and bytes(row.body)) for row in rows]


def as_in_table(rows: list[Row]) -> list[Row]:
    return [(seq, op, key, body or (b"" if op == "PUT" else None)) for seq, op, key, body in rows]


def test_restarts_rotation_and_compaction_lose_nothing_and_repeat_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, table, checkpoint = tmp_path / "log", tmp_path / "table", tmp_path / "checkpoint"
    append(log, 3000)
    seen = rows_of_log(log)
    frame = stream(spark, log, maxRecordsPerTrigger=700)
    assert run_to_the_end(frame, table, checkpoint) == 5
    with Log.open(str(log), SMALL) as writer:
        writer.rotate()
        writer.compact(CompactionPolicy(dead_fraction_min=0))
    append(log, 1500, seed=7)
    seen += [row for row in rows_of_log(log) if row[0] > seen[-1][0]]
    run_to_the_end(stream(spark, log), table, checkpoint)
    assert rows_of_table(spark, table) == as_in_table(seen)


class Stop(Exception):
    """What ends a query in the middle."""


def test_a_batch_that_failed_half_way_is_the_same_range_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, checkpoint = tmp_path / "log", tmp_path / "checkpoint"
    append(log, 900)
    taken: dict[int, list[int]] = {}
    failing = True

    def take(frame: DataFrame, batch: int) -> None:
        seqs = sorted(row.seq for row in frame.select("seq").collect())
        assert batch not in taken or taken[batch] == seqs
        taken[batch] = seqs
        if failing and batch == 1:
            raise Stop("between the sink's write and the commit")

    def start() -> Any:
        frame = stream(spark, log, maxRecordsPerTrigger=200)
        writer = frame.writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="between the sink's write"):
        start().awaitTermination()
    assert set(taken) == {0, 1}
    append(log, 300, seed=3)
    failing = False
    start().awaitTermination()
    together = [seq for batch in sorted(taken) for seq in taken[batch]]
    assert together == [row[0] for row in rows_of_log(log)]


def publish(cluster: ProcessCluster, prefix: str) -> None:
    """Write 300 keys, and wait until every living node has them."""
    leader = cluster.leader()
    with Client([leader.name]) as client:
        client.publish([Update(Op.PUT, f"{prefix}/{n}".encode(), b"x") for n in range(300)])
    cluster.settle()


def test_a_stream_of_a_cluster_goes_on_at_another_node(spark: SparkSession, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    with ProcessCluster.temporary(3) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        endpoint = ",".join(node.name for node in cluster.nodes)

        def take_what_is_there() -> None:
            frame = spark.readStream.format("sirius").option("endpoint", endpoint).load()
            run_to_the_end(frame, table, checkpoint)

        publish(cluster, "a")
        take_what_is_there()
        cluster.nodes[0].kill()
        publish(cluster, "b")
        take_what_is_there()
    rows = rows_of_table(spark, table)
    assert sorted(row[2] for row in rows) == sorted(f"{a}/{n}" for a in "ab" for n in range(300))
