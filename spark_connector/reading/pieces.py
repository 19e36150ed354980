"""Pieces of a log: what a task gets to read.

A piece names a data file and the byte ranges to read of it. It is small, can be pickled, and means the same bytes for
as long as the file is there: a sealed segment never changes, and of the active one nothing behind the end of the
range is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sirius.wal.batch import Mask
from sirius.wal.block import Ints
from sirius.wal.index import IndexTable

GAP_BYTES_MAX: Final = 1 << 16
"""Blocks that nobody wants are read along if they are no more than this: one read costs less than two."""


@dataclass(frozen=True, slots=True)
class Live:
    """Some of the sequence numbers from `first` on: a bit for each number, or the numbers, whichever is less."""

    first: int
    bits: bytes | None
    seqs: Any = None

    @classmethod
    def of(cls, seqs: Ints, first: int, last: int) -> Live:
        """Note sorted numbers, which lie within `first` to `last`."""
        covered = last - first + 1
        if covered > 64 * len(seqs):
            return cls(first, None, seqs)
        bits = np.zeros(covered, np.bool_)
        bits[seqs - first] = True
        return cls(first, np.packbits(bits).tobytes())

    def mask(self, seqs: Ints) -> Mask:
        """Say which of these numbers are among them."""
        if self.bits is None:
            return np.isin(seqs, self.seqs)
        at = seqs - self.first
        bits = np.frombuffer(self.bits, np.uint8)
        inside = (at >= 0) & (at < 8 * len(bits))
        at = np.where(inside, at, 0)
        mask: Mask = ((bits[at >> 3] >> (7 - (at & 7))) & 1).astype(np.bool_) & inside
        return mask


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks that follow each other in a file, covering `first` to `last`; with `live`, only some of their rows."""

    start: int
    end: int
    first: int
    last: int
    blocks: int
    live: Live | None = None

    @property
    def nbytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Piece:
    """Runs of one data file. `first` is what the file's header must say; an ancestor's segment is one run."""

    log: str
    path: str
    segment: int
    first: int
    runs: tuple[Run, ...]
    ancestor: bool = False

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)


def runs_of(table: IndexTable, wanted: Mask) -> list[Run]:
    """Return the runs that the wanted blocks make, small gaps between them filled."""
    at = np.flatnonzero(wanted)
    if not len(at):
        return []
    begins, ends = table["offset"].astype(np.int64), _ends(table)
    breaks = np.flatnonzero(begins[at[1:]] - ends[at[:-1]] > GAP_BYTES_MAX)
    lows, highs = at[np.append(0, breaks + 1)], at[np.append(breaks, len(at) - 1)]
    return [run_of(table, low, high) for low, high in zip(lows, highs, strict=True)]


def run_of(table: IndexTable, low: int, high: int) -> Run:
    """Return the run from one block of an index to another."""
    start, first = int(table["offset"][low]), int(table["first"][low])
    end = end_of(table, high)
    return Run(start, end, first, int(table["last"][high]), int(high - low) + 1)


def end_of(table: IndexTable, row: int) -> int:
    """Return where a block ends."""
    return int(table["offset"][row]) + int(table["size"][row])


def _ends(table: IndexTable) -> Ints:
    ends: Ints = table["offset"].astype(np.int64) + table["size"]
    return ends


def cut(run: Run, table: IndexTable, at: Sequence[int]) -> list[Run]:
    """Cut a run at the blocks nearest to some offsets. What is live goes along with every part."""
    offsets = table["offset"].astype(np.int64)
    low, high = np.searchsorted(offsets, [run.start, run.end]).tolist()
    places = np.unique(np.clip(np.searchsorted(offsets, at), low, high)).tolist()
    edges = [low, *(place for place in places if low < place < high), high]
    parts = [run_of(table, a, b - 1) for a, b in pairwise(edges)]
    return [_with_live(part, run.live) for part in parts]


def _with_live(run: Run, live: Live | None) -> Run:
    if live is not None:
        covered = np.arange(run.first, run.last + 1) if live.seqs is None else live.seqs
        inside = covered[(covered >= run.first) & (covered <= run.last)]
        live = Live.of(inside[live.mask(inside)], run.first, run.last)
    return Run(run.start, run.end, run.first, run.last, run.blocks, live)
