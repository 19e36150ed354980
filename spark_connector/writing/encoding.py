"""Columns of updates to blocks of the log, thousands at a time."""

from __future__ import annotations

import numpy as np

from sirius.wal.block import ENTRY, Block, seal
from sirius.wal.checksums import checksums
from spark_connector.writing.columns import Columns


def encode(columns: Columns, low: int, high: int, first: int) -> Block:
    """Return the block of some rows, numbered from `first` on."""
    count = high - low
    entries = np.zeros(count, ENTRY)
    entries["key_len"] = columns.keys.lengths[low:high]
    entries["body_len"] = columns.bodies.lengths[low:high]
    entries["op"] = columns.ops[low:high]
    entries["seq"] = np.arange(first, first + count, dtype=np.uint64)
    entries["ts"] = columns.ts[low:high]
    entries["crc"] = checksums(entries, columns.rows.slices(low, high))
    keys, bodies = columns.keys.between(low, high), columns.bodies.between(low, high)
    return seal(first, first + count - 1, entries, (keys,), (bodies,))
