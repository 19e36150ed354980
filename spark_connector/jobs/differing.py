"""Where two logs differ, found out on Spark.

Tasks send, for the newest record of each key of their part, the key, the number and a hash of the body; bodies stay
where they are. Every part is read twice: which records are the newest is known only at its end, and hashing the bodies
of those alone costs less than hashing all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from sirius.wal import Op
from sirius.wal.batch import Mask
from sirius.wal.block import Ints
from sirius.wal.compaction.keyset import Hashes, KeyHasher
from spark_connector.jobs.exchange import (
    Parcel,
    Part,
    buckets_of,
    cut_up,
    first_round,
    parts_of,
    second_round,
)
from spark_connector.reading.pinned import pin
from waltool.keytable import Keys
from waltool.newest import NewestTable, Rows, among

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DIFFERENCES: Final = "key STRING, side STRING, a_seq BIGINT, b_seq BIGINT"
_DIGEST_BYTES: Final = 16

Row = tuple[str, str, int | None, int | None]
Digests = npt.NDArray[np.uint64]
"""Two words for each."""


def diff(spark: SparkSession, a: str, b: str) -> DataFrame:
    """Return the keys in which the states of two logs differ, sorted by key: what `waltool diff` shows.

    `side` is `a` or `b` for a key that only one has, `both` for one that has another value in each; `a_seq` and `b_seq`
    are the numbers of the values. The logs are fixed as they are now.
    """
    hasher, parts = KeyHasher(), [parts_of(spark, pin(log), bodies=False) for log in (a, b)]
    every = [replace(part, number=n) for n, part in enumerate(parts[0] + parts[1])]
    work = _Values(hasher, buckets_of(spark), first_of_b=len(parts[0]))
    rows = second_round(spark, first_round(spark, every, work), _compared)
    return spark.createDataFrame(rows, DIFFERENCES, verifySchema=False).orderBy("key")


@dataclass(frozen=True)
class _Found:
    """Newest records of some keys, in order of sequence. A DELETE has a digest that means nothing."""

    hashes: Hashes
    rows: Rows
    keys: Keys
    digests: Digests

    def take(self, which: Ints | Mask) -> _Found:
        keys = self.keys.take(which)
        own = Keys.of((keys.joined(),), keys.lengths)
        return _Found(self.hashes.take(which), self.rows[which], own, self.digests[which])

    @staticmethod
    def join(parts: list[_Found]) -> _Found:
        lengths = np.concatenate([part.keys.lengths for part in parts])
        return _Found(
            Hashes.join([part.hashes for part in parts]),
            np.concatenate([part.rows for part in parts]),
            Keys.of([part.keys.joined() for part in parts], lengths),
            np.concatenate([part.digests for part in parts]),
        )


@dataclass(frozen=True)
class _Values:
    """Finds the newest value of each key in a part of either log; those of B have the higher numbers."""

    hasher: KeyHasher
    buckets: int
    first_of_b: int

    def __call__(self, part: Part) -> Iterator[Parcel]:
        table = NewestTable(self.hasher)
        for batch in part.batches():
            table.add(batch.updates())
        hashes, rows = table.hashed()
        found = _Found(hashes, rows, *_values(part.with_bodies(), rows["seq"].copy()))
        for bucket, which in cut_up(hashes.high, self.buckets):
            yield bucket, (part.number >= self.first_of_b, found.take(which))


def _values(part: Part, seqs: Ints) -> tuple[Keys, Digests]:
    """Return the keys of some records, and the hashes of their bodies."""
    blobs, lengths, digests = [b""], [np.zeros(0, np.int64)], [b""]
    digest = partial(blake2b, digest_size=_DIGEST_BYTES)
    for batch in part.batches():
        newest = batch.where(among(seqs, batch))
        blobs.append(newest.key_column.blob())
        lengths.append(newest.entries["key_len"].astype(np.int64))
        digests += [digest(body).digest() for body in newest.bodies()]
    words = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
    return Keys.of(blobs, np.concatenate(lengths)), words


def _compared(parcels: Iterable[Parcel]) -> Iterator[Row]:
    """Compare all that was found of a bucket. Keys are told apart by their 96-bit hashes, as everywhere."""
    sides: tuple[list[_Found], list[_Found]] = ([], [])
    for _, (is_b, found) in parcels:
        sides[is_b].append(found)
    live = [_live(found) for found in sides if found]
    if not live:
        return
    every = _Found.join(live)
    count_a = len(live[0].rows) if sides[0] else 0
    yield from _differences(every, np.arange(len(every.rows)) >= count_a)


def _live(parts: list[_Found]) -> _Found:
    """Return the values that one log has in the end."""
    found = _Found.join(parts)
    found = found.take(np.argsort(found.rows["seq"], kind="stable"))
    table = NewestTable()
    table.add_hashed(found.hashes, found.rows)
    newest = table.rows()
    wanted = newest["seq"][newest["op"] == Op.PUT]
    return found.take(np.isin(found.rows["seq"], wanted))


def _differences(found: _Found, is_b: Mask) -> Iterator[Row]:
    order = np.lexsort((is_b, found.hashes.low, found.hashes.high))
    hashes, digests = found.hashes.take(order), found.digests[order]
    paired: Mask = np.append(
        (hashes.high[1:] == hashes.high[:-1]) & (hashes.low[1:] == hashes.low[:-1]), False
    )
    same: Mask = paired & np.append((digests[1:] == digests[:-1]).all(axis=1), False)
    # The second of a pair shows with the first, if at all.
    shown = ~(same | np.append(False, paired[:-1]))
    yield from _rows(found, order, shown, paired, is_b)


def _rows(found: _Found, order: Ints, shown: Mask, paired: Mask, is_b: Mask) -> Iterator[Row]:
    seqs = found.rows["seq"][order]
    columns = (seqs, np.append(seqs[1:], 0), paired, is_b[order])
    keys = found.keys.take(order[shown]).pieces()
    for key, seq, next_seq, both, only_b in zip(
        keys, *(column[shown].tolist() for column in columns), strict=True
    ):
        if both:
            yield key.decode(), "both", seq, next_seq
        else:
            yield (key.decode(), "b", None, seq) if only_b else (key.decode(), "a", seq, None)
