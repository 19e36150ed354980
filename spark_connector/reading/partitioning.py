"""Partitions: how the pieces of a log are shared out to tasks.

A task costs some 20 ms whatever it reads, so a small log becomes about as many partitions as there are cores, several
segments to each. A large one becomes a multiple of that, none much larger than `PARTITION_BYTES_MAX`. All get the
same number of bytes: where the line falls inside a segment, the segment is cut between two blocks, which its index
says where to find; where it falls near a segment's end, it is moved there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from spark_connector.reading.pieces import Piece, Run
from spark_connector.reading.pinned import Stretch

PARTITION_BYTES_MAX: Final = 256 << 20
PARTITION_BYTES_MIN: Final = 1 << 20
_NEAR: Final = 0.1
"""A line that falls this near to the end of a run, as a part of a partition, is moved there."""

Choice = tuple[Stretch, Piece]


def cores() -> int:
    """How many tasks run at once, as far as the driver can tell: as many as it has cores."""
    return len(os.sched_getaffinity(0))


def share_out(chosen: Sequence[Choice], parallel: int) -> list[list[Piece]]:
    """Share pieces out to partitions of like size, in order."""
    total = sum(piece.nbytes for _, piece in chosen)
    count = _count(total, parallel)
    parts = list(_parts(chosen, total / count))
    grouped = groupby(parts, lambda part: min(int(part.middle * count / total), count - 1))
    return [_pieces(list(group)) for _, group in grouped]


def _count(total: int, parallel: int) -> int:
    small = max(1, min(parallel, total // PARTITION_BYTES_MIN))
    if total <= small * PARTITION_BYTES_MAX:
        return small
    waves = -(-total // (PARTITION_BYTES_MAX * parallel))
    return waves * parallel


@dataclass(frozen=True, slots=True)
class _Part:
    stretch: Stretch
    run: Run
    middle: float
    """Where its middle lies, in bytes of all that is read."""


def _parts(chosen: Sequence[Choice], target: float) -> Iterator[_Part]:
    at = 0
    for stretch, piece in chosen:
        for run in piece.runs:
            for part in stretch.cut(run, lines) if (lines := _lines(run, at, target)) else [run]:
                yield _Part(stretch, part, at + part.nbytes / 2)
                at += part.nbytes


def _lines(run: Run, at: int, target: float) -> list[int]:
    """Return the offsets in the file at which a run, which begins at byte `at` of everything, should be cut."""
    near = _NEAR * target
    numbers = range(int((at + near) // target) + 1, int((at + run.nbytes) // target) + 1)
    inner = [number * target - at for number in numbers]
    return [run.start + int(line) for line in inner if near < line < run.nbytes - near]


def _pieces(parts: Sequence[_Part]) -> list[Piece]:
    """Put the runs of one segment together again."""
    grouped = groupby(parts, lambda part: id(part.stretch))
    runs = [list(group) for _, group in grouped]
    return [group[0].stretch.piece([part.run for part in group]) for group in runs]
