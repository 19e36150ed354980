"""Wide batches: the blocks of a chunk decoded as one, for passes that see every record of a log but no single one.

numpy takes as long to begin with a thousand rows as to go over them. So a pass that has much to do for each batch gains
by larger ones, if joining blocks is cheap: here it is one copy of their entries, and a running sum of lengths. Keys and
bodies stay where they were read: such a pass leaves most of them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sirius.errors import CorruptFile, CorruptLog
from sirius.wal.batch import Batch, Column, Lengths
from sirius.wal.block import ENTRY, ENTRY_BYTES, HEADER_BYTES, Header, Ints
from sirius.wal.snapshot import Snapshot

Spans = Sequence[tuple[int, Header]]


def wide_batches(snapshot: Snapshot, first: int, last: int) -> Iterator[Batch]:
    """Yield what `Snapshot.batches` does, a chunk at a time."""
    for segment, chunk in snapshot._chunks(first, last):
        try:
            batch = joined_spans(chunk.buf, chunk.spans)
        except CorruptLog as error:
            raise CorruptFile(segment.path, chunk.base, str(error)) from None
        yield batch.between(first, last)


def joined_spans(buf: bytes, spans: Spans) -> Batch:
    """Put verified blocks that follow each other into one batch, given where each begins."""
    entries, keys, bodies, rows = [], [], [], 0
    view = memoryview(buf)
    for at, header in spans:
        keys_at = at + HEADER_BYTES + header.records * ENTRY_BYTES
        bodies_at = keys_at + header.keys_len
        entries.append(view[at + HEADER_BYTES : keys_at])
        rows += header.records
        keys.append((rows, keys_at, header.keys_len))
        bodies.append((rows, bodies_at, header.bodies_len))
    table = np.frombuffer(b"".join(entries), ENTRY)
    return Batch(
        spans[0][1].first,
        spans[-1][1].last,
        table,
        _column(buf, table["key_len"], keys),
        _column(buf, table["body_len"], bodies),
    )


def _column(buf: bytes, lengths: Lengths, blocks: Sequence[tuple[int, int, int]]) -> Column:
    """Return a column whose pieces stand end to end in each block, given the row behind the block's last, where its
    first piece begins and how long all are. In each the lengths must add up: the sum of all would not tell."""
    starts: Ints = np.empty(len(lengths) + 1, np.int64)
    starts[0] = 0
    np.cumsum(lengths, out=starts[1:])
    low = before = 0
    for high, begin, total in blocks:
        end = int(starts[high])
        if end - before != total:
            raise CorruptLog(f"the lengths in a block add up to {end - before}, not {total}")
        starts[low:high] += begin - before
        low, before = high, end
    return Column(buf, lengths, 0, 0, starts[:-1])
