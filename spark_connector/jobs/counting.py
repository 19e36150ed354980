"""Counting what is in a log on Spark: statistics, and the keys that change most.

Keys themselves travel between tasks here, since prefixes and the busiest keys have to be shown; each once a part, with
sums over its records.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sirius.wal import Op
from spark_connector.jobs.exchange import (
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
from waltool.filters import Filter
from waltool.keytable import Distinct, join
from waltool.source import open_source
from waltool.summary import Counted
from waltool.tally import KeySums, Prefix, Sums, Tally, top_prefixes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]

_SUMS: Final = -1
"""The bucket of what is not about keys."""
_TOTALS, _KEYS, _PREFIX = "totals", "keys", "prefix"
_SUMMED: Final = ("keys", "live", "records", "bytes", "newest_bytes")
_COUNTS: Final = ", ".join(
    ("kind STRING", "prefix STRING", *(f"{name} BIGINT" for name in _SUMMED), "totals BINARY")
)
_CHURN: Final = "key STRING, updates BIGINT, bytes BIGINT, seq BIGINT, live BOOLEAN"


def stats(
    spark: SparkSession,
    log: str,
    *,
    separator: str = "/",
    top: int = 10,
    per: str = "auto",
    wanted: Filter | None = None,
) -> dict[str, Any]:
    """Count records, keys and bytes: return the object that `waltool stats --json` prints."""
    return counted(spark, log, separator, top, wanted or Filter()).summary(log, per)


def counted(spark: SparkSession, log: str, separator: str, top: int, wanted: Filter) -> Counted:
    """Count what a filter leaves of a log."""
    wanted = replace(wanted, control=True)
    first, last = _bounds(log, wanted)
    parts = parts_of(spark, pin(log), first, last, bodies=False)
    found = first_round(spark, parts, _Tallied(wanted, buckets_of(spark)))
    counts = second_round(spark, found, _prefixes(separator))
    rows = _summed(spark.createDataFrame(counts, _COUNTS, verifySchema=False), top)
    prefixes = [Prefix(row.prefix, *_fields(row)[:-1]) for row in rows if row.kind == _PREFIX]
    keys = next((KeySums(*_fields(row)) for row in rows if row.kind == _KEYS), KeySums())
    sums, records = _totals([row.totals for row in rows if row.kind == _TOTALS])
    return Counted(first, last, max(last - first + 1, 0) - records, sums, keys, prefixes)


def churn(spark: SparkSession, log: str, top: int = 10) -> DataFrame:
    """Return the keys with the most updates: how many, of how many bytes, the last of them, and whether it lives.

    The log is fixed as it is now. Keys with as many updates come in their own order.
    """
    parts = parts_of(spark, pin(log), bodies=False)
    found = first_round(spark, parts, _Tallied(Filter(), buckets_of(spark)))
    rows = second_round(spark, found, _busiest(top))
    busiest = spark.createDataFrame(rows, _CHURN, verifySchema=False)
    return busiest.orderBy(busiest.updates.desc(), busiest.key).limit(top)


def _bounds(log: str, wanted: Filter) -> tuple[int, int]:
    with open_source(local_path(log)) as source:
        return wanted.bounds(source)


# ---------------------------------------------------------------------- in tasks


@dataclass(frozen=True)
class _Tallied:
    """Counts a part."""

    wanted: Filter
    buckets: int

    def __call__(self, part: Part) -> Iterator[Parcel]:
        tally, records = Tally(), 0
        for batch in part.batches():
            records += len(batch)
            tally.add(self.wanted.apply(batch))
        distinct = tally.finish()
        yield _SUMS, (tally.sums, records)
        for bucket, which in cut_up(distinct.hashes, self.buckets):
            # With the keys in a buffer of their own, for all of it travels.
            yield bucket, join([distinct.take(which)])


def _met(parcels: Iterable[Parcel]) -> tuple[list[tuple[Sums, int]], Distinct | None]:
    """Put together what tasks have found: sums, and the keys of some buckets."""
    sums: list[tuple[Sums, int]] = []
    keys: list[Distinct] = []
    for bucket, found in parcels:
        if bucket == _SUMS:
            sums.append(found)
        else:
            keys.append(found)
    if not keys:
        return sums, None
    together = join(keys)
    # In the order of the log, so that the last of equal keys is the newest.
    return sums, together.take(np.argsort(together.seq, kind="stable")).merged()


def _prefixes(separator: str) -> Callable[[Iterable[Parcel]], Iterable[Row]]:
    def work(parcels: Iterable[Parcel]) -> Iterable[Row]:
        sums, distinct = _met(parcels)
        if sums:
            yield _TOTALS, None, 0, 0, 0, 0, 0, pickle.dumps(_added(sums))
        if distinct is not None:
            yield _KEYS, None, *KeySums.of(distinct), None
            for each in top_prefixes(distinct, separator, sys.maxsize):
                counts = (each.keys, each.live, each.records, each.bytes)
                yield _PREFIX, each.prefix, *counts, 0, None

    return work


def _busiest(top: int) -> Callable[[Iterable[Parcel]], Iterable[Row]]:
    def work(parcels: Iterable[Parcel]) -> Iterable[Row]:
        _, distinct = _met(parcels)
        if distinct is None:
            return
        pieces = distinct.keys.pieces()
        updates = distinct.updates.tolist()
        order = sorted(range(len(pieces)), key=lambda row: (-updates[row], pieces[row]))[:top]
        yield from (_churned(distinct, row, pieces[row]) for row in order)

    return work


def _churned(distinct: Distinct, row: int, key: bytes) -> Row:
    counts = (int(column[row]) for column in (distinct.updates, distinct.total_size, distinct.seq))
    return (key.decode(), *counts, bool(distinct.op[row] == Op.PUT))


# ---------------------------------------------------------------------- on the driver


def _totals(dumped: list[bytes]) -> tuple[Sums, int]:
    return _added([pickle.loads(bytes(each)) for each in dumped])


def _added(parts: list[tuple[Sums, int]]) -> tuple[Sums, int]:
    total, records = Sums(), 0
    for sums, count in parts:
        total.merge(sums)
        records += count
    return total, records


def _summed(counts: DataFrame, top: int) -> list[Any]:
    """Add up what tasks counted, and keep as many prefixes as are wanted.

    All in one query: a second one would read the log again."""
    from pyspark.sql import functions as sql

    summed = counts.groupBy("kind", "prefix").agg(
        *(sql.sum(name).alias(name) for name in _SUMMED),
        sql.first("totals", ignorenulls=True).alias("totals"),
    )
    is_prefix = (summed.kind == _PREFIX).cast("int")
    order = (is_prefix, summed.records.desc(), sql.coalesce(summed.prefix, sql.lit("")))
    return summed.orderBy(*order).limit(top + 2).collect()


def _fields(row: Any) -> tuple[int, int, int, int, int]:
    return row["keys"], row.live, row.records, row.bytes, row.newest_bytes
