"""Logs written by real Spark jobs: order, round trips, failures, and jobs that are killed."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sirius.testing.logs import write_log
from sirius.wal import LogReader, Op, OsFileSystem, Update
from spark_connector.writing import save
from tests.spark.killing import running_job
from tests.spark.test_write_units import bodies, names, records


def updates(spark: SparkSession, count: int, partitions: int = 4) -> DataFrame:
    """Rows whose order is that of their numbers, in more than one partition."""
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("key/"), F.col("id").cast("string")).alias("key"),
        F.concat(F.lit("body "), F.col("id").cast("string")).cast("binary").alias("body"),
    )


def test_a_dataframe_becomes_a_log(spark: SparkSession, tmp_path: Path) -> None:
    updates(spark, 20_000).write.format("sirius").mode("append").save(str(tmp_path / "log"))
    assert bodies(tmp_path / "log") == list(range(20_000))
    assert names(tmp_path) == ["log"]


def test_rows_in_any_order_are_saved_in_that_of_their_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    shuffled = updates(spark, 5_000).withColumn("seq", F.expr("CAST(substr(key, 5) AS BIGINT) * 3"))
    shuffled = shuffled.repartition(3, "key")
    save(shuffled, str(tmp_path / "log"), partitions=3)
    assert bodies(tmp_path / "log") == list(range(5_000))
    with pytest.raises(PySparkException, match="column 'seq'"):
        shuffled.write.format("sirius").mode("overwrite").save(str(tmp_path / "log"))
    assert bodies(tmp_path / "log") == list(range(5_000)), "the job that failed changed nothing"
    assert names(tmp_path) == ["log"]


def test_a_log_that_was_read_and_written_has_the_same_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = [
        [Update(Op.PUT, b"a", b"1"), Update(Op.PUT, "ü".encode(), b"")],
        [Update(Op.DELETE, b"a"), Update(Op.PUT, b"b", b"\x00" * 100_000)],
    ]
    write_log(OsFileSystem(), str(tmp_path / "old"), history)
    save(spark.read.format("sirius").load(str(tmp_path / "old")), str(tmp_path / "new"))
    assert records(tmp_path / "new") == records(tmp_path / "old")


def test_large_bodies_and_keys_that_are_as_long_as_they_may_be(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(0, 100, 1, 1).selectExpr(
        "repeat('é', 16384) AS key", "CAST(concat(repeat('x', 1048576), ' ', id) AS BINARY) AS body"
    )
    rows.write.format("sirius").mode("append").save(str(tmp_path / "log"))
    assert bodies(tmp_path / "log") == list(range(100))
    read = spark.read.format("sirius").load(str(tmp_path / "log"))
    found = read.selectExpr("length(key) AS key", "length(body) AS body").distinct().collect()
    assert sorted(tuple(row) for row in found) == [(16384, 1048578), (16384, 1048579)]


def test_a_task_that_fails_names_the_column_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    bad = updates(spark, 100).withColumn("key", F.expr("IF(key = 'key/77', '', key)"))
    with pytest.raises(PySparkException, match="column 'key' is empty"):
        bad.write.format("sirius").mode("append").save(str(tmp_path / "log"))
    assert names(tmp_path) == []


def test_a_schema_that_makes_no_updates_is_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="column 'body' must be BINARY, and is STRING"):
        spark.sql("SELECT 'a' AS key, 'b' AS body").write.format("sirius").mode("append").save(
            str(tmp_path / "log")
        )
    assert names(tmp_path) == []


def test_of_two_jobs_that_write_one_log_only_one_gets_through(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, begun, go = tmp_path / "logs" / "log", str(tmp_path / "begun"), str(tmp_path / "go")
    path.parent.mkdir()

    @F.udf(returnType="binary", useArrow=False)
    def held(body: bytes) -> bytes:
        with open(begun, "w"):
            pass
        while not os.path.exists(go):
            time.sleep(0.01)
        return body

    slow = updates(spark, 10, 1).withColumn("body", held("body"))
    fast = updates(spark, 20, 1)

    def write_slowly() -> None:
        # Without rows; it makes the session that of this thread, by which Spark looks the source up.
        spark.createDataFrame([], "id INT")
        slow.write.format("sirius").mode("overwrite").save(str(path))

    with ThreadPoolExecutor(1) as pool:
        try:
            job = pool.submit(write_slowly)
            while not os.path.exists(begun):
                assert not job.done(), job.exception()
                time.sleep(0.01)
            fast.write.format("sirius").mode("overwrite").save(str(path))
        finally:
            Path(go).touch()
        with pytest.raises(PySparkException, match="Another job wrote this log in the meantime"):
            job.result()
    assert bodies(path) == list(range(20))
    assert names(path.parent) == ["log"]


SOAK = bool(os.environ.get("SIRIUS_SOAK"))
JOB = """
rows = spark.range(0, 200_000, 1, 50).select(
    F.concat(F.lit("k"), F.col("id").cast("string")).alias("key"),
    F.concat(F.lit("body "), F.col("id").cast("string"), F.lit(" " * 500)).cast("binary").alias("body"))
rows.write.format("sirius").mode("overwrite").save(sys.argv[2])
"""


def staged(path: Path) -> int:
    """How many parts jobs have written that are not in a log."""
    return len(list(path.parent.glob(".log.sirius-*/parts/*/*/data")))


def last_of(path: Path) -> int:
    """The last number in a log that somebody may replace at this moment."""
    with LogReader.open(str(path)) as reader:
        return reader.last


@pytest.mark.deep
@pytest.mark.parametrize("parts", [1, 49, 50] if SOAK else [1, 50])
def test_a_job_that_is_killed_is_never_seen_and_the_next_one_cleans_up(
    spark: SparkSession, tmp_path: Path, parts: int
) -> None:
    """Killed when the first part is there, shortly before the end, and when the driver is about to commit."""
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    updates(spark, 3).write.format("sirius").mode("append").save(str(path))
    with running_job(JOB, tmp_path / "spark", path) as job:
        # With all parts there it commits in a moment, and may do so between two looks.
        job.until(lambda: staged(path) >= parts or last_of(path) != 3)
        job.kill()
    if bodies(path) != [0, 1, 2]:
        # It was done when it was killed: then all of it is there.
        assert parts > 1
        assert bodies(path) == list(range(200_000))
    updates(spark, 5).write.format("sirius").mode("overwrite").save(str(path))
    assert bodies(path) == [0, 1, 2, 3, 4]
    assert names(path.parent) == ["log"]
