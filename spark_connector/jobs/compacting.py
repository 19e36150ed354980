"""Compaction on Spark: tasks find out what is live, the driver copies it.

Of each key 38 bytes travel between tasks: its hash, and number, time, size and operation of its newest record. The
driver gets 8 bytes for each record that stays. It copies the records as they are, with the very code of `waltool
compact LOG OUT`, so the new log is the same to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sirius.types import Seq
from sirius.wal import CompactionPolicy
from sirius.wal.block import SEQ_MAX
from sirius.wal.compaction.keyset import Hashes, KeyHasher
from spark_connector.jobs.exchange import (
    ROWS_MAX,
    Parcel,
    Part,
    buckets_of,
    cut_up,
    first_round,
    parts_of,
    second_round,
)
from spark_connector.paths import local_path
from spark_connector.reading.pinned import pin
from waltool.compacting import Outcome
from waltool.newest import NewestTable, Rows, join, take
from waltool.progress import Progress
from waltool.renewal import Kept, Survey, into_new
from waltool.source import Source, open_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Chunk = tuple[Hashes, Rows, int]
"""The newest records of some keys, and how many records were read to find them."""


def compact(
    spark: SparkSession,
    log: str,
    out: str,
    *,
    drop_deletes: bool = False,
    drop_deletes_before_us: int | None = None,
) -> Outcome:
    """Write a new log with the newest record of each key: what `waltool compact LOG OUT` writes, to the byte.

    Deletes stay unless they may go, all of them or those older than a time: see `waltool compact --help`.
    """
    dropping = drop_deletes or drop_deletes_before_us is not None
    policy = CompactionPolicy(
        drop_deletes_before_us=drop_deletes_before_us,
        drop_deletes_upto=Seq(SEQ_MAX if dropping else 0),
    )
    with open_source(local_path(log)) as source:
        bar = Progress("compacting", 0, shown=False)
        target = local_path(out)
        return into_new(source, target, policy, bar, survey=surveying(spark))


def surveying(spark: SparkSession) -> Survey:
    """Return what finds out on Spark what is live, for `waltool.renewal.into_new`."""

    def survey(source: Source, policy: CompactionPolicy, *_: object) -> Kept:
        return kept_of(spark, source.path, source.last, policy)

    return survey


def kept_of(spark: SparkSession, path: str, last: int, policy: CompactionPolicy) -> Kept:
    """Find out what stays of a log up to a number."""
    parts = parts_of(spark, pin(path), 1, last, bodies=False)
    found = first_round(spark, parts, _Newest(KeyHasher(), buckets_of(spark)))
    return Kept.join(second_round(spark, found, _sorter(policy)).collect())


@dataclass(frozen=True)
class _Newest:
    """Finds the newest record of each key in a part. All tasks share the hasher, and so its secret."""

    hasher: KeyHasher
    buckets: int

    def __call__(self, part: Part) -> Iterator[Parcel]:
        table = NewestTable(self.hasher)
        for batch in part.batches():
            table.add(batch)
        hashes, rows = table.hashed()
        yield 0, (hashes.take(slice(0)), rows[:0], table.records)
        for bucket, which in cut_up(hashes.high, self.buckets):
            yield bucket, (hashes.take(which), take(rows, which), 0)


def _sorter(policy: CompactionPolicy) -> Callable[[Iterable[Parcel]], Iterable[Kept]]:
    def work(parcels: Iterable[Parcel]) -> Iterable[Kept]:
        chunks: list[Chunk] = [chunk for _, chunk in parcels]
        if not chunks:
            return ()
        kept = Kept.of(_newest(chunks), sum(chunk[2] for chunk in chunks), policy)
        return _in_pieces(kept)

    return work


def _newest(chunks: list[Chunk]) -> Rows:
    """Find the newest record of each key among those that parts have found."""
    hashes = Hashes.join([chunk[0] for chunk in chunks])
    rows = join([chunk[1] for chunk in chunks])
    # Chunks arrive in any order, and a table wants rows as the log has them.
    order = np.argsort(rows["seq"], kind="stable")
    table = NewestTable()
    table.add_hashed(hashes.take(order), take(rows, order))
    return table.rows()


def _in_pieces(kept: Kept) -> Iterator[Kept]:
    yield kept._replace(seqs=kept.seqs[:0])
    for at in range(0, len(kept.seqs), ROWS_MAX):
        yield Kept(0, kept.seqs[at : at + ROWS_MAX], 0, 0, 0)
