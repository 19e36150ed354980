"""Which records are the newest of their key: the question behind compaction, digests and diffs.

Segments are gone over from the newest to the oldest, each read once. What stays in memory from one to the next is the
set of keys seen, 12 bytes each; beside it stand the entries of one segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from sirius.wal.batch import Batch, Mask
from sirius.wal.block import ENTRY, Entries, Ints, joined
from sirius.wal.compaction.keyset import Hashes, KeyHasher, KeySet, newest

_HASH_ROWS: Final = 16_384
_HELD_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """What was learnt of a segment. `unique` are the hashes of its keys, sorted; the columns beside it say of each key
    which row is its newest here, how many rows it has here, and whether newer segments have it too."""

    entries: Entries
    unique: Hashes
    newest_row: Ints
    rows: Ints
    superseded: Mask

    @property
    def live(self) -> Mask:
        """Which rows are the newest of their key in the whole log."""
        live = np.zeros(len(self.entries), np.bool_)
        live[self.newest_row[~self.superseded]] = True
        return live


class NewestFirst:
    """Goes over segments, which must be given newest first."""

    def __init__(self) -> None:
        self.seen = KeySet()
        self._hasher = KeyHasher()

    def segment(
        self, batches: Iterator[Batch], on_entries: Callable[[Entries], None] = lambda _: None
    ) -> SegmentRows:
        """Look at the next older segment, given as its batches; `on_entries` is told of each portion read."""
        parts, hashes = (
            [np.zeros(0, ENTRY)],
            [Hashes(np.zeros(0, np.uint64), np.zeros(0, np.uint32))],
        )
        for group in _grouped(batches):
            entries = _joined([batch.entries for batch in group])
            keys = b"".join(batch.key_column.blob() for batch in group)
            hashes.append(self._hasher.hash(entries, keys))
            parts.append(entries)
            on_entries(entries)
        unique, newest_row, rows = newest(Hashes.join(hashes))
        superseded = self.seen.find(unique)
        self.seen.add(unique.take(~superseded))
        return SegmentRows(_joined(parts), unique, newest_row, rows, superseded)


def _grouped(batches: Iterator[Batch]) -> Iterator[list[Batch]]:
    """Put batches together until they have enough rows to be worth numpy's while, or hold too many bytes."""
    group: list[Batch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += len(batch)
        size += batch.body_column.nbytes
        if rows >= _HASH_ROWS or size >= _HELD_BYTES_MAX:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group


def _joined(parts: list[Entries]) -> Entries:
    return np.frombuffer(joined(parts), ENTRY)
