"""Queries that are killed with -9 and started again, over a log that is written, rotated and compacted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sirius.testing.processes import ProcessCluster
from sirius.transport.client import Client
from sirius.wal import CompactionPolicy, Log, LogConfig, Op
from sirius.wal.batch import Batch
from tests.spark.killing import run_job, running_job
from tests.spark.readlogs import put

pytestmark = pytest.mark.deep

SMALL = LogConfig(reserve_bytes=0, segment_bytes_max=32 * 1024)
AHEAD = 6_000
STREAM = """
from functools import partial
from pyspark.errors import StreamingQueryException
path, checkpoint, target, once = sys.argv[2:]
limit = 10_000 if once else 400
changes = spark.readStream.format("sirius").option("maxRecordsPerTrigger", limit).load(path)
writer = changes.writeStream.option("checkpointLocation", checkpoint)
if once:
    writer = writer.trigger(availableNow=True)
if target.startswith("/"):
    start = partial(writer.format("parquet").start, target)
else:
    start = writer.format("sirius").option("endpoint", target).start
while True:
    try:
        start().awaitTermination()
        break
    except StreamingQueryException as failed:
        if "failed to connect back" not in str(failed):
            raise
"""
"""Spark gives its Python ten seconds to start, which is not enough on a machine that is busy enough."""


class Writer(threading.Thread):
    """Appends, rotates and compacts; every fifth record is of the same key, and superseded soon.

    It stays a little ahead of who reads, so that it is at work for as long as that takes.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.written = 0
        """How many keys that are never superseded."""
        self.seen = 0
        self.stopped = threading.Event()
        self._log = Log.open(str(path), SMALL)

    def run(self) -> None:
        with self._log as log:
            while not self.stopped.wait(0.02):
                if self.written < self.seen + AHEAD:
                    self._write(log)

    def _write(self, log: Log) -> None:
        keys = [f"once/{self.written + number}" for number in range(40)]
        log.write([put(key, key.encode()) for key in keys] + [put("hot", b"x")] * 10)
        log.flush()
        self.written += len(keys)
        if self.written % 2000 == 0:
            log.rotate()
            log.compact(CompactionPolicy(dead_fraction_min=0))
            log.retire()


@contextmanager
def at_work(path: Path) -> Iterator[Writer]:
    writer = Writer(path)
    writer.start()
    try:
        yield writer
    finally:
        writer.stopped.set()
        writer.join()


def kill_and_restart(tmp_path: Path, target: str, seen: Callable[[], int]) -> int:
    """Run a query that is killed twice while it is at work, then to its end; return how many keys there are."""
    arguments = (tmp_path / "log", tmp_path / "checkpoint", target)
    with at_work(tmp_path / "log") as writer:

        def reached(wanted: int) -> bool:
            writer.seen = seen()
            return writer.seen >= wanted

        for _ in range(2):
            with running_job(STREAM, tmp_path / "spark", *arguments, "") as job:
                job.until(partial(reached, seen() + 1000))
                job.kill()
    run_job(STREAM, tmp_path / "spark", *arguments, "once")
    return writer.written


def test_a_table_has_every_record_once(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"

    def rows() -> int:
        done = list(table.glob("_spark_metadata/[0-9]*"))
        return spark.read.parquet(str(table)).count() if done else 0

    keys = kill_and_restart(tmp_path, str(table), rows)
    found = spark.read.parquet(str(table)).select("seq", "key", "body").collect()
    assert max(Counter(row.seq for row in found).values()) == 1
    once = {row.key: bytes(row.body) for row in found if row.key != "hot"}
    assert once == {f"once/{number}": b"once/%d" % number for number in range(keys)}


def test_a_cluster_gets_every_record_once(spark: SparkSession, tmp_path: Path) -> None:
    with ProcessCluster.temporary(1, durability="os") as cluster:
        cluster.start()
        cluster.wait_until_ready()
        node = cluster.nodes[0].name

        def keys() -> list[str]:
            with Client([node]) as client:
                batches = (Batch.of(block) for block in client.tail())
                records = [record for batch in batches for record in batch.records()]
            return [each.key for each in records if each.op == Op.PUT and each.key != "hot"]

        count = kill_and_restart(tmp_path, node, lambda: len(keys()))
        wanted = [f"once/{number}" for number in range(count)]
        cluster.until(lambda: len(keys()) >= count, "all in the log")
        assert sorted(keys()) == sorted(wanted)
