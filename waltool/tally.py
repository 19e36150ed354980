"""Counting what is in a log, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sirius.wal import Batch, Op
from sirius.wal.block import ENTRY_BYTES, Ints
from waltool.keytable import Columns, Distinct, Keys, KeyTable, group

_SPREAD_MAX: Final = 1 << 16
_HOUR_US: Final = 3_600_000_000
PERCENTILES: Final = (50, 90, 99)


@dataclass(slots=True)
class Histogram:
    """How often each value occurs."""

    values: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, values: npt.NDArray[Any]) -> None:
        """Count more values."""
        if len(values):
            self._add(*_count(values))

    def _add(self, fresh: Ints, counts: Ints) -> None:
        if not bool(np.isin(fresh, self.values).all()):
            merged = np.union1d(self.values, fresh)
            grown = np.zeros(len(merged), np.int64)
            grown[np.searchsorted(merged, self.values)] = self.counts
            self.values, self.counts = merged, grown
        self.counts[np.searchsorted(self.values, fresh)] += counts

    def percentile(self, percent: int) -> int:
        """Return the smallest value that so many percent of all values do not exceed."""
        ends = np.cumsum(self.counts)
        wanted = -(-int(ends[-1]) * percent // 100)
        return int(self.values[np.searchsorted(ends, wanted)])

    def summary(self) -> dict[str, float | int | None]:
        """Return the least and the largest value, the mean, and percentiles."""
        names = ["min", *(f"p{percent}" for percent in PERCENTILES), "max", "mean"]
        if not len(self.values):
            return dict.fromkeys(names)
        middle = [self.percentile(percent) for percent in PERCENTILES]
        total = int((self.values * self.counts).sum())
        mean = round(total / int(self.counts.sum()), 1)
        ends = (int(self.values[0]), int(self.values[-1]))
        return dict(zip(names, [ends[0], *middle, ends[1], mean], strict=True))


def _count(values: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Count values; where they lie close together no sort is needed."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.array([low]), np.array([len(values)])
    if high - low >= _SPREAD_MAX:
        found, counts = np.unique(values, return_counts=True)
        return found.astype(np.int64), counts
    counts = np.bincount((values - low).astype(np.int64))
    found = np.flatnonzero(counts)
    return found + low, counts[found]


def _hours(ts: Ints) -> Ints:
    """Return the hour of each time. A division takes long, and records that stand together are mostly of one hour."""
    first, last = int(ts.min()) // _HOUR_US, int(ts.max()) // _HOUR_US
    return np.full(len(ts), first) if first == last else ts // _HOUR_US


class Tally:
    """Sums over the records of a log."""

    def __init__(self) -> None:
        self.records = np.zeros(256, np.int64)
        self.bytes = np.zeros(256, np.int64)
        self.key_bytes = Histogram()
        self.body_bytes = Histogram()
        self.hours = Histogram()
        self._keys = KeyTable(self._count)

    def add(self, batch: Batch) -> None:
        """Take in the records of a batch, which comes behind those before."""
        self._keys.add(batch)

    def finish(self) -> Distinct:
        """Bring the sums up to date; return the distinct keys."""
        return self._keys.distinct()

    def _count(self, columns: Columns) -> None:
        key_len, body_len, _, ts, op = columns
        sizes = key_len.astype(np.int64) + body_len + ENTRY_BYTES
        self.records += np.bincount(op, minlength=256)
        self.bytes += np.bincount(op, sizes, 256).astype(np.int64)
        self.key_bytes.add(key_len[op <= Op.DELETE])
        self.body_bytes.add(body_len[op == Op.PUT])
        self.hours.add(_hours(ts))


@dataclass(frozen=True, slots=True)
class Prefix:
    """What the keys with a common beginning amount to. None: keys without the separator."""

    prefix: str | None
    keys: int
    live: int
    records: int
    bytes: int


def top_prefixes(distinct: Distinct, separator: str, count: int) -> list[Prefix]:
    """Return the prefixes, up to and with the first separator, that have the most records."""
    if not len(distinct):
        return []
    prefixes = prefixes_of(distinct.keys, separator.encode())
    order, last_of_group = group(prefixes, prefixes.hashes())
    ends = np.flatnonzero(last_of_group)
    begins = np.append(0, ends[:-1] + 1)
    live = (distinct.op == Op.PUT).astype(np.int64)
    columns: Sequence[Ints] = (
        ends - begins + 1,
        *(
            np.add.reduceat(column[order], begins)
            for column in (live, distinct.updates, distinct.total_size)
        ),
    )
    names = prefixes.take(order[ends]).pieces()
    rows = zip(names, *(column.tolist() for column in columns), strict=True)
    found = [Prefix(name.decode() if name else None, *sums) for name, *sums in rows]
    return sorted(found, key=lambda row: (-row.records, row.prefix or ""))[:count]


def prefixes_of(keys: Keys, separator: bytes) -> Keys:
    """Return the part of each key up to its first separator; nothing where it has none."""
    octets = keys.blob
    hit = octets[: len(octets) - len(separator) + 1] == separator[0]
    for at, octet in enumerate(separator[1:], 1):
        hit &= octets[at : at + len(hit)] == octet
    # The buffer ends in zeroes, so behind the last hit there is always room for one that is none.
    places = np.append(np.flatnonzero(hit), len(octets))
    ends = places[np.searchsorted(places, keys.starts)] + len(separator)
    lengths = np.where(ends <= keys.starts + keys.lengths, ends - keys.starts, 0)
    return Keys(keys.blob, keys.starts, lengths)
