"""Which record is the newest of its key, for logs that can only be read forwards.

`sirius.wal.compaction.liveness` answers the same question for segments that are read from the newest to the oldest;
here one pass from the front does, at some 40 bytes a distinct key. Keys are told apart by the same 96-bit hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from sirius.wal import Batch, Op
from sirius.wal.batch import Mask
from sirius.wal.block import ENTRY, ENTRY_BYTES, Entries, Ints, joined
from sirius.wal.compaction.keyset import Hashes, KeyHasher, newest

ROW: Final = np.dtype(
    [("seq", "<i8"), ("ts", "<i8"), ("size", "<i8"), ("op", "u1"), ("older", "?")]
)
"""The newest record of a key. `size` is what it takes in a block; `older` says whether the log has an older one."""

Rows = npt.NDArray[np.void]

_OPAQUE: Final = np.dtype(f"V{ROW.itemsize}")
_ROWS_MIN: Final = 1 << 20
"""How many rows come together at least before they are sorted: 40 MB."""
_PORTION: Final = 1 << 14
"""How many keys are hashed together: numpy costs as much for a thousand as for some thousands."""
_PORTION_BYTES: Final = 1 << 22
"""Or how many bytes of keys, where these are long."""


class NewestTable:
    """Takes in batches in order of sequence; keeps a row a key. Control entries count as one key an operation.

    Tables of parts of a log can be put together if they share their hasher.
    """

    def __init__(self, hasher: KeyHasher | None = None) -> None:
        self._hasher = hasher or KeyHasher()
        self._hashes = [Hashes(np.zeros(0, np.uint64), np.zeros(0, np.uint32))]
        self._rows: list[Rows] = [np.zeros(0, ROW)]
        self._entries: list[bytes] = []
        self._keys: list[bytes] = []
        self._unhashed = 0
        self._unhashed_bytes = 0
        self._fresh = 0
        self._settled = 0
        self.records = 0

    def add(self, batch: Batch) -> None:
        """Take in the records of a batch. Copies: the buffer that it looks into may be used again."""
        self._entries.append(joined((batch.entries,)))
        self._keys.append(batch.key_column.blob())
        self.records += len(batch)
        self._unhashed += len(batch)
        self._unhashed_bytes += len(self._keys[-1])
        if self._unhashed >= _PORTION or self._unhashed_bytes >= _PORTION_BYTES:
            self._hash()

    def _hash(self) -> None:
        """Hash what came lately."""
        entries, keys = np.frombuffer(b"".join(self._entries), ENTRY), b"".join(self._keys)
        self._entries, self._keys, self._unhashed, self._unhashed_bytes = [], [], 0, 0
        if len(entries):
            self._put_by(self._hasher.hash(entries, keys), _rows_of(entries))

    def add_hashed(self, hashes: Hashes, rows: Rows) -> None:
        """Take in rows whose keys were hashed before."""
        self._hash()
        self.records += len(rows)
        self._put_by(hashes, rows)

    def _put_by(self, hashes: Hashes, rows: Rows) -> None:
        self._hashes.append(hashes)
        self._rows.append(rows)
        self._fresh += len(rows)
        # What is settled is sorted again each time, so that has to become rarer as it grows.
        if self._fresh > max(_ROWS_MIN, self._settled):
            self._settle()

    def _settle(self) -> None:
        if not self._fresh:
            return
        hashes, rows = Hashes.join(self._hashes), join(self._rows)
        found = newest(hashes)
        # In order of sequence again, as `newest` wants it: a mark a row does for a sort.
        times = np.zeros(len(rows), np.int8)
        times[found.rows] = np.minimum(found.counts, 2)
        order = np.flatnonzero(times)
        kept = take(rows, order)
        kept["older"] |= times[order] > 1
        self._hashes, self._rows = [hashes.take(order)], [kept]
        self._fresh, self._settled = 0, len(order)

    def rows(self) -> Rows:
        """Return the newest record of every key, in order of sequence."""
        return self.hashed()[1]

    def hashed(self) -> tuple[Hashes, Rows]:
        """Return the same with the hashes of the keys."""
        self._hash()
        self._settle()
        return self._hashes[0], self._rows[0]


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


def take(rows: Rows, which: Ints) -> Rows:
    """Pick rows. As opaque ones: numpy would copy them field by field, which takes several times as long."""
    return rows.view(_OPAQUE)[which].view(ROW)


def join(parts: Sequence[Rows]) -> Rows:
    """Put rows behind each other, likewise."""
    return np.concatenate([part.view(_OPAQUE) for part in parts]).view(ROW)


def live(rows: Rows) -> Rows:
    """Leave out what no reader needs: no-ops."""
    is_noop = rows["op"] == Op.NOOP
    return take(rows, np.flatnonzero(~is_noop)) if bool(is_noop.any()) else rows


def among(seqs: Ints, batch: Batch) -> Mask:
    """Say which records of a batch have one of the numbers, which are sorted."""
    low, high = np.searchsorted(seqs, (batch.first, batch.last + 1)).tolist()
    inside, mask = seqs[low:high], np.zeros(len(batch), np.bool_)
    at = inside - batch.first
    if batch.holes:
        own = batch.seq.view(np.int64)
        at = np.searchsorted(own, inside)
        at = at[own[np.minimum(at, len(own) - 1)] == inside] if len(own) else at[:0]
    mask[at] = True
    return mask
