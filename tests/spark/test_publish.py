"""DataFrames and streams to a live cluster, by real Spark jobs: whatever is run again takes effect once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sirius.testing.processes import ProcessCluster
from sirius.transport.client import Client
from sirius.wal import Op
from sirius.wal.batch import Batch
from tests.cluster.test_tls_cluster import TlsCluster
from tests.spark.killing import running_job

COLUMNS = "CAST(concat('body ', id) AS BINARY) AS body"


def endpoint(cluster: ProcessCluster) -> str:
    return cluster.nodes[0].name


def published(cluster: ProcessCluster, prefix: str) -> list[str]:
    """Return the keys with a prefix in the order of the log, once all that is decided is in it and on disk."""
    node = cluster.nodes[0]
    decided = node.call("status")["decided"]
    cluster.until(lambda: node.call("status")["durable"] >= decided, f"{decided} on disk")
    return keys(cluster, prefix)


def keys(cluster: ProcessCluster, prefix: str) -> list[str]:
    """Return the keys with a prefix that are in the log by now."""
    with Client([endpoint(cluster)]) as client:
        batches = (Batch.of(block) for block in client.tail())
        records = [record for batch in batches for record in batch.records()]
    return [each.key for each in records if each.op == Op.PUT and each.key.startswith(prefix)]


def rows(spark: SparkSession, prefix: str, count: int, partitions: int) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr(
        f"concat('{prefix}/', id) AS key", COLUMNS
    )


def publish(df: DataFrame, cluster: ProcessCluster, **options: str) -> None:
    writer = df.write.format("sirius").mode("append").option("endpoint", endpoint(cluster))
    writer.options(**options).save()


def test_a_dataframe_is_published_in_the_order_of_each_partition(
    spark: SparkSession, cluster: ProcessCluster
) -> None:
    publish(rows(spark, "plain", 6_000, 2), cluster)
    found = published(cluster, "plain/")
    for half in range(2):
        mine = range(3_000 * half, 3_000 * (half + 1))
        assert [key for key in found if int(key.split("/")[1]) in mine] == [
            f"plain/{number}" for number in mine
        ]
    assert len(found) == 6_000


def test_a_job_that_broke_down_and_is_run_again_takes_effect_once(
    spark: SparkSession, cluster: ProcessCluster
) -> None:
    good = rows(spark, "again", 20_000, 2)
    bad = good.withColumn("key", F.expr("IF(key = 'again/19000', '', key)"))
    with pytest.raises(PySparkException, match=r"partition 1: at least \d+ records are") as error:
        publish(bad, cluster, txnId="load-1")
    assert "again with txnId='load-1'" in str(error.value)
    publish(good, cluster, txnId="load-1")
    publish(good, cluster, txnId="load-1")
    found = published(cluster, "again/")
    assert sorted(found) == sorted(f"again/{number}" for number in range(20_000))


def test_a_cluster_that_must_not_be_talked_to_is_reported(spark: SparkSession) -> None:
    writer = rows(spark, "nowhere", 10, 1).write.format("sirius").mode("append")
    with pytest.raises(PySparkException, match="without TLS connects to its own machine alone"):
        writer.option("endpoint", "films1.invalid:7400").save()


def read_files(spark: SparkSession, folder: Path) -> DataFrame:
    source = spark.readStream.schema("key STRING, body STRING").json(str(folder))
    return source.select("key", F.col("body").cast("binary").alias("body"))


def add_file(folder: Path, name: str, numbers: range) -> None:
    lines = [json.dumps({"key": f"stream/{number}", "body": "x"}) for number in numbers]
    (folder / f"{name}.json").write_text("\n".join(lines))


def run_stream(
    spark: SparkSession, cluster: ProcessCluster, source: Path, checkpoint: Path
) -> None:
    writer = read_files(spark, source).writeStream.format("sirius")
    writer = writer.option("endpoint", endpoint(cluster)).option(
        "checkpointLocation", str(checkpoint)
    )
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(600)
    assert query.exception() is None


def test_a_micro_batch_that_spark_replays_takes_effect_once(
    spark: SparkSession, cluster: ProcessCluster, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    add_file(source, "one", range(500))
    run_stream(spark, cluster, source, checkpoint)
    add_file(source, "two", range(500, 800))
    run_stream(spark, cluster, source, checkpoint)
    # As if Spark had been killed when the batch was in the cluster, and not yet in the checkpoint.
    for done in (checkpoint / "commits").glob("*1*"):
        done.unlink()
    assert not (checkpoint / "commits" / "1").exists()
    add_file(source, "three", range(800, 900))
    run_stream(spark, cluster, source, checkpoint)
    assert (checkpoint / "commits" / "2").exists()
    found = published(cluster, "stream/")
    assert found == [f"stream/{number}" for number in range(900)]


JOB = """
rows = spark.range(0, 200_000, 1, 4).selectExpr("concat('killed/', id) AS key", sys.argv[3])
writer = rows.write.format("sirius").mode("append").option("endpoint", sys.argv[2])
writer.option("txnId", "killed").save()
"""


@pytest.mark.deep
def test_a_job_that_is_killed_and_run_again_takes_effect_once(
    spark: SparkSession, cluster: ProcessCluster, tmp_path: Path
) -> None:
    with running_job(JOB, tmp_path, endpoint(cluster), COLUMNS) as job:
        job.until(lambda: "killed/5000" in keys(cluster, "killed/"))
        job.kill()
    publish(rows(spark, "killed", 200_000, 4), cluster, txnId="killed")
    found = published(cluster, "killed/")
    assert sorted(found) == sorted(f"killed/{number}" for number in range(200_000))


# ---------------------------------------------------------------------- with certificates


def certificates(cluster: TlsCluster, name: str) -> dict[str, str]:
    files = cluster.authority.issue(name)
    paths = {"tlsCa": files.authority, "tlsCert": files.certificate, "tlsKey": files.key}
    return {option: str(path) for option, path in paths.items()}


def test_a_cluster_that_asks_for_certificates(
    spark: SparkSession, guarded: TlsCluster, tmp_path: Path
) -> None:
    shown = certificates(guarded, "ops-loader")
    publish(rows(spark, "tls", 500, 2), guarded, **shown)
    stream = spark.readStream.format("sirius").option("keyPrefix", "tls/")
    stream = stream.options(endpoint=endpoint(guarded), **shown)
    writer = stream.load().writeStream.format("parquet").trigger(availableNow=True)
    checkpoint = str(tmp_path / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).start(str(tmp_path / "table"))
    assert query.awaitTermination(600)
    assert spark.read.parquet(str(tmp_path / "table")).count() == 500


def test_who_may_not_write_is_told_so(spark: SparkSession, guarded: TlsCluster) -> None:
    with pytest.raises(PySparkException, match=r"partition 0: at least 0 records.*Publish is for"):
        publish(rows(spark, "tls", 10, 1), guarded, **certificates(guarded, "stranger"))
