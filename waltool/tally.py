"""Counting what is in a log, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sirius.wal import Batch, Op
from sirius.wal.block import ENTRY_BYTES, Ints
from waltool.keytable import PREFIX_MAX, Columns, Distinct, Keys, KeyTable, Lengths, group

_SPREAD_MAX: Final = 1 << 16
_PEELED_MIN: Final = 16
"""A prefix gets a pass of its own while at least one key in so many has it."""
_HOUR_US: Final = 3_600_000_000
PERCENTILES: Final = (50, 90, 99)


class Histogram:
    """How often each value occurs."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, values: npt.NDArray[Any]) -> None:
        """Count more values."""
        if len(values):
            for value, count in _count(values):
                self._counts[value] = self._counts.get(value, 0) + count

    def merge(self, other: Histogram) -> None:
        """Count what another histogram has counted, too."""
        for value, count in other._counts.items():
            self._counts[value] = self._counts.get(value, 0) + count

    @property
    def values(self) -> Ints:
        """The values that occur, in order."""
        return np.array(sorted(self._counts), np.int64)

    @property
    def counts(self) -> Ints:
        """How often each of `values` occurs."""
        return np.array([count for _, count in sorted(self._counts.items())], np.int64)

    def summary(self) -> dict[str, float | int | None]:
        """Return the least and the largest value, the mean, and percentiles: the smallest value that so many percent
        of all do not exceed."""
        names = ["min", *(f"p{percent}" for percent in PERCENTILES), "max", "mean"]
        if not self._counts:
            return dict.fromkeys(names)
        values, ends = self.values, np.cumsum(self.counts)
        total = int(ends[-1])
        wanted = [-(-total * percent // 100) for percent in PERCENTILES]
        middle = values[np.searchsorted(ends, wanted)].tolist()
        mean = round(int((values * self.counts).sum()) / total, 1)
        found = [int(values[0]), *middle, int(values[-1]), mean]
        return dict(zip(names, found, strict=True))


def _count(values: npt.NDArray[Any]) -> Iterable[tuple[int, int]]:
    """Count values; where they lie close together no sort is needed."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return ((low, len(values)),)
    if high - low >= _SPREAD_MAX:
        found, counts = np.unique(values, return_counts=True)
    else:
        counts = np.bincount((values - low).astype(np.int64))
        found = np.flatnonzero(counts)
        counts = counts[found]
        found += low
    return zip(found.tolist(), counts.tolist(), strict=True)


def _hours(ts: Ints) -> Ints:
    """Return the hour of each time. A division takes long, and records that stand together are mostly of one hour."""
    first, last = int(ts.min()) // _HOUR_US, int(ts.max()) // _HOUR_US
    return np.full(len(ts), first) if first == last else ts // _HOUR_US


class Sums:
    """What can be added up record by record, and part by part where many count at once."""

    def __init__(self) -> None:
        self.records = np.zeros(256, np.int64)
        self.bytes = np.zeros(256, np.int64)
        self.key_bytes = Histogram()
        self.body_bytes = Histogram()
        self.hours = Histogram()

    def merge(self, other: Sums) -> None:
        """Take in what was counted elsewhere."""
        self.records += other.records
        self.bytes += other.bytes
        self.key_bytes.merge(other.key_bytes)
        self.body_bytes.merge(other.body_bytes)
        self.hours.merge(other.hours)

    def count(self, columns: Columns) -> None:
        key_len, body_len, _, ts, op = columns
        self.hours.add(_hours(ts))
        low, high = int(op.min()), int(op.max())
        if low == high:
            self._count_op(low, key_len, body_len)
            return
        for code in range(low, high + 1):
            rows = np.flatnonzero(op == code)
            if len(rows):
                self._count_op(code, key_len[rows], body_len[rows])

    def _count_op(self, op: int, key_len: Lengths, body_len: Lengths) -> None:
        self.records[op] += len(key_len)
        lengths = int(key_len.sum(dtype=np.int64)) + int(body_len.sum(dtype=np.int64))
        self.bytes[op] += lengths + len(key_len) * ENTRY_BYTES
        if op <= Op.DELETE:
            self.key_bytes.add(key_len)
        if op == Op.PUT:
            self.body_bytes.add(body_len)


class Tally:
    """Sums over the records of a log, and its distinct keys."""

    def __init__(self) -> None:
        self.sums = Sums()
        self._keys = KeyTable(self.sums.count)

    def add(self, batch: Batch) -> None:
        """Take in the records of a batch, which comes behind those before."""
        self._keys.add(batch)

    def finish(self) -> Distinct:
        """Bring the sums up to date; return the distinct keys."""
        return self._keys.distinct()


class KeySums(NamedTuple):
    """What distinct keys amount to: how many there are, how many of them live, their records and bytes, and the bytes
    of the newest record of each."""

    distinct: int = 0
    live: int = 0
    records: int = 0
    bytes: int = 0
    newest_bytes: int = 0

    @classmethod
    def of(cls, distinct: Distinct) -> KeySums:
        return cls(
            len(distinct),
            int(np.count_nonzero(distinct.op == Op.PUT)),
            int(distinct.updates.sum()),
            int(distinct.total_size.sum()),
            int(distinct.size.sum()),
        )


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
    found, rest = _peel(distinct, separator.encode())
    if len(rest):
        found += _grouped(rest, separator.encode())
    return sorted(found, key=lambda row: (-row.records, row.prefix or ""))[:count]


def _peel(distinct: Distinct, separator: bytes) -> tuple[list[Prefix], Distinct]:
    """Sum up prefixes that very many keys share, each in a pass of its own; return the other keys too.

    Which prefixes those are is guessed from the first key that is left, over and over: most logs have few."""
    found: list[Prefix] = []
    while len(distinct):
        head, separated, _ = distinct.keys.take(slice(1)).joined().partition(separator)
        prefix = head + separated
        if not separated or len(prefix) > PREFIX_MAX:
            break
        has = distinct.keys.startswith(prefix)
        keys = int(np.count_nonzero(has))
        if keys * _PEELED_MIN < len(distinct):
            break
        every = keys == len(distinct)
        part = distinct if every else distinct.take(has)
        live = int(np.count_nonzero(part.op == Op.PUT))
        sums = (int(part.updates.sum()), int(part.total_size.sum()))
        found.append(Prefix(prefix.decode(), keys, live, *sums))
        distinct = distinct.take(~has)
    return found, distinct


def _grouped(distinct: Distinct, separator: bytes) -> list[Prefix]:
    """Sum up any number of prefixes, by a sort."""
    prefixes = prefixes_of(distinct.keys, separator)
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
    return [Prefix(name.decode() if name else None, *sums) for name, *sums in rows]


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
