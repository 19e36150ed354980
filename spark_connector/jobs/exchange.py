"""How a job runs: tasks read parts of a log, and what they found out about a key meets in one place.

A first round of tasks reads, each its part of the log, and boils it down to columns with one row for each key of the
part. These are cut up by a hash of the key into *buckets*, and travel in few large values, *parcels*, never as a row
for each record. In a second round all that was found of a bucket is put together. Both rounds are numpy at work, with
the code that `waltool` uses on one machine.

Rounds are RDDs and no DataFrames: Spark's way from a DataFrame to Arrow batches and back wants pandas, which nothing
else here needs. A session of Spark Connect has no RDDs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sirius.wal import Batch
from sirius.wal.block import Ints
from sirius.wal.compaction.keyset import U64
from spark_connector.reading.partitioning import share_out
from spark_connector.reading.pieces import Piece
from spark_connector.reading.pinned import Pinned, pieces_of
from spark_connector.reading.scan import Reading, Scan
from spark_connector.schema import schema_of

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

ROWS_MAX: Final = 1 << 18
"""A parcel has no more rows than this: Spark takes values below 2 GiB, and one in flight has to fit into memory."""
_BATCH_RECORDS: Final = 1 << 14

Parcel = tuple[int, Any]
"""A bucket, and something that was found for it."""


@dataclass(frozen=True)
class Part:
    """What one task reads of a log."""

    number: int
    scan: Scan
    pieces: tuple[Piece, ...]

    def batches(self) -> Iterator[Batch]:
        """Yield the entries, control entries and all, in order."""
        bodies = "body" in self.scan.schema.names
        for piece in self.pieces:
            for _, rows in self.scan.rows(piece, Reading()):
                yield rows.batch(bodies=bodies).between(self.scan.first, self.scan.last)

    def with_bodies(self) -> Part:
        """Return the same with bodies, for a second look: everything was verified at the first."""
        return replace(self, scan=replace(self.scan, schema=_schema(bodies=True), verify=False))


def _schema(*, bodies: bool) -> Any:
    return schema_of(("seq", "key", "body") if bodies else ("seq", "key"))


def parts_of(
    spark: SparkSession, log: Pinned, first: int = 1, last: int | None = None, *, bodies: bool
) -> list[Part]:
    """Share a log out, or a range of it: to as many tasks as run at once, or a multiple of that if it is large."""
    last = log.last if last is None else last
    log.require_readable(first, last)
    scan = Scan(_schema(bodies=bodies), first, last, batch_records=_BATCH_RECORDS)
    stretches = {stretch.segment: stretch for stretch in log.stretches}
    chosen = [(stretches[piece.segment], piece) for piece in pieces_of(log, scan)]
    shared = share_out(chosen, spark.sparkContext.defaultParallelism) if chosen else []
    return [Part(number, scan, tuple(pieces)) for number, pieces in enumerate(shared)]


def buckets_of(spark: SparkSession) -> int:
    """Return into how many buckets keys are to be cut up: one for each task of the second round."""
    return int(str(spark.conf.get("spark.sql.shuffle.partitions")))


def cut_up(hashes: U64, buckets: int) -> Iterator[tuple[int, Ints]]:
    """Yield for each bucket which rows belong to it, in order, some at a time."""
    bucket = ((hashes >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32)
    if buckets <= 1 << 16:
        # Numbers of 16 bits are sorted by counting.
        bucket = bucket.astype(np.uint16)
    order = np.argsort(bucket, kind="stable")
    edges = np.searchsorted(bucket[order], np.arange(buckets + 1)).tolist()
    for number in range(buckets):
        for low in range(edges[number], edges[number + 1], ROWS_MAX):
            yield number, order[low : min(low + ROWS_MAX, edges[number + 1])]


def first_round(
    spark: SparkSession, parts: list[Part], work: Callable[[Part], Iterable[Any]]
) -> RDD[Any]:
    """Have tasks work on parts, a task each; what they yield is what the RDD holds."""
    return spark.sparkContext.parallelize(parts, max(len(parts), 1)).flatMap(work)


def second_round(
    spark: SparkSession, parcels: RDD[Any], work: Callable[[Iterable[Parcel]], Iterable[Any]]
) -> RDD[Any]:
    """Bring all parcels of a bucket to one task; `work` gets all parcels of a task."""
    return parcels.partitionBy(buckets_of(spark), int).mapPartitions(work)
