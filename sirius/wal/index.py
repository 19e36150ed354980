"""The index of a segment: where each block stands.

An array of fixed-length entries, one a block, in order (little-endian, 48 bytes)::

     0  first covered  u64      24  bytes       u32      32  oldest time, µs  i64
     8  last covered   u64      28  entries     u32      40  newest time, µs  i64
    16  offset         u64

It is a hint that can always be rebuilt from the data file. For a sealed segment the manifest holds the checksum of
the whole index file; one that does not match is built anew. For the active segment the file lags behind; the mark that
stands in the data where the index ends holds its checksum.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_left
from typing import Final

import numpy as np
import numpy.typing as npt

from sirius.wal.block import Header

INDEX_ENTRY: Final = np.dtype(
    [
        ("first", "<u8"),
        ("last", "<u8"),
        ("offset", "<u8"),
        ("size", "<u4"),
        ("count", "<u4"),
        ("ts_min", "<i8"),
        ("ts_max", "<i8"),
    ]
)
INDEX_ENTRY_BYTES: Final = INDEX_ENTRY.itemsize
_FRESH_MAX: Final = 1024

_ROW: Final = struct.Struct("<QQQIIqq")

IndexRow = tuple[int, int, int, int, int, int, int]
IndexTable = npt.NDArray[np.void]


def row_of(header: Header, offset: int) -> IndexRow:
    """Return the index entry of a block that stands at `offset`."""
    return (
        header.first,
        header.last,
        offset,
        header.size,
        header.records,
        header.ts_min,
        header.ts_max,
    )


def encode_row(row: IndexRow) -> bytes:
    """Return a row as it stands in an index file."""
    return _ROW.pack(*row)


class Index:
    """Finds blocks by sequence number, in O(log n). One thread appends while others read."""

    def __init__(self, table: IndexTable | None = None) -> None:
        self._table: IndexTable = np.zeros(0, INDEX_ENTRY) if table is None else table
        self._lasts = np.ascontiguousarray(self._table["last"])
        self._fresh: list[IndexRow] = []
        self._lock = threading.Lock()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Index:
        """Read an index file; a partial entry at the end is left out."""
        return cls(np.frombuffer(raw, INDEX_ENTRY, len(raw) // INDEX_ENTRY_BYTES))

    def append(self, row: IndexRow) -> None:
        """Add a block at the end."""
        with self._lock:
            self._fresh.append(row)
            # Rows move into the array in ever larger portions, so that the copying stays O(1) a row.
            if len(self._fresh) >= max(_FRESH_MAX, len(self._table) // 4):
                self._settle()

    def _settle(self) -> None:
        if self._fresh:
            self._table = np.concatenate((self._table, np.array(self._fresh, INDEX_ENTRY)))
            self._lasts = np.ascontiguousarray(self._table["last"])
            self._fresh = []

    @property
    def table(self) -> IndexTable:
        """All entries as one array."""
        with self._lock:
            self._settle()
            return self._table

    def __len__(self) -> int:
        with self._lock:
            return len(self._table) + len(self._fresh)

    def row(self, position: int) -> IndexRow:
        """Return one entry."""
        with self._lock:
            settled = len(self._table)
            if position < settled:
                row: IndexRow = self._table[position].item()
                return row
            return self._fresh[position - settled]

    def position(self, seq: int) -> int:
        """Return the position of the block that covers `seq`, or the length if it lies behind."""
        with self._lock:
            settled = len(self._table)
            if settled and seq <= int(self._lasts[-1]):
                return int(self._lasts.searchsorted(np.uint64(seq)))
            return settled + bisect_left(self._fresh, seq, key=lambda row: row[1])
