"""Which record is the newest of its key, for logs that can only be read forwards.

`sirius.wal.compaction.liveness` answers the same question for segments that are read from the newest to the oldest;
here one pass from the front does, at some 40 bytes a distinct key. Keys are told apart by the same 96-bit hashes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from sirius.wal import Batch, Op
from sirius.wal.batch import Mask
from sirius.wal.block import ENTRY_BYTES, Entries, Ints
from sirius.wal.compaction.keyset import Hashes, KeyHasher, newest

ROW: Final = np.dtype(
    [("seq", "<i8"), ("ts", "<i8"), ("size", "<i8"), ("op", "u1"), ("older", "?")]
)
"""The newest record of a key. `size` is what it takes in a block; `older` says whether the log has an older one."""

Rows = npt.NDArray[np.void]

_ROWS_MIN: Final = 1 << 18


class NewestTable:
    """Takes in batches in order of sequence; keeps a row a key. Control entries count as one key an operation."""

    def __init__(self) -> None:
        self._hasher = KeyHasher()
        self._hashes = [Hashes(np.zeros(0, np.uint64), np.zeros(0, np.uint32))]
        self._rows: list[Rows] = [np.zeros(0, ROW)]
        self._fresh = 0
        self._settled = 0
        self.records = 0

    def add(self, batch: Batch) -> None:
        """Take in the records of a batch."""
        if not len(batch):
            return
        self._hashes.append(self._hasher.hash(batch.entries, batch.key_column.blob()))
        self._rows.append(_rows_of(batch.entries))
        self.records += len(batch)
        self._fresh += len(batch)
        # What is settled is sorted again each time, so that has to become rarer as it grows.
        if self._fresh > max(_ROWS_MIN, self._settled):
            self._settle()

    def _settle(self) -> None:
        hashes, rows = Hashes.join(self._hashes), np.concatenate(self._rows)
        found = newest(hashes)
        rows["older"][found.rows[found.counts > 1]] = True
        # In order of sequence again, as `newest` wants it.
        order = np.sort(found.rows)
        self._hashes, self._rows = [hashes.take(order)], [rows[order]]
        self._fresh, self._settled = 0, len(order)

    def rows(self) -> Rows:
        """Return the newest record of every key, in order of sequence."""
        self._settle()
        return self._rows[0]


def newest_of(batches: Iterable[Batch]) -> NewestTable:
    """Go through batches."""
    table = NewestTable()
    for batch in batches:
        table.add(batch)
    return table


def _rows_of(entries: Entries) -> Rows:
    rows = np.zeros(len(entries), ROW)
    for name in ("seq", "ts", "op"):
        rows[name] = entries[name]
    rows["size"] = entries["key_len"].astype(np.int64) + entries["body_len"] + ENTRY_BYTES
    return rows


def live(rows: Rows) -> Rows:
    """Leave out what no reader needs: no-ops."""
    kept: Rows = rows[rows["op"] != Op.NOOP]
    return kept


def among(seqs: Ints, batch: Batch) -> Mask:
    """Say which records of a batch have one of the numbers, which are sorted."""
    if not len(seqs):
        return np.zeros(len(batch), np.bool_)
    wanted = batch.seq.astype(np.int64)
    at = np.minimum(np.searchsorted(seqs, wanted), len(seqs) - 1)
    found: Mask = seqs[at] == wanted
    return found
