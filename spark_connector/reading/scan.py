"""The scan: pieces of a log in, Arrow record batches out.

Everything that reads a log for Spark goes through here: batch reads, streams and jobs. On the driver, `pin` gives a
fixed view of a log and `pieces_of` what there is to read of it (`spark_connector.reading.pinned`); in a task,
`Scan.read(piece)` yields the batches. A `Scan` can be pickled, and so can a piece.

>>> log = pin("films")
>>> scan = Scan(schema_of(("seq", "key")), first=100, last=log.last)
>>> for piece in pieces_of(log, scan):
...     for batch in scan.read(piece):
...         ...
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from sirius.errors import CorruptFile, CorruptLog
from sirius.types import SegmentId
from sirius.wal.batch import Mask
from sirius.wal.block import SEQ_MAX, Block, Ints
from sirius.wal.record import CONTROL_FROM
from sirius.wal.sources import AncestorSource
from spark_connector.reading.files import Damaged, DataFile
from spark_connector.reading.pieces import Piece, Run
from spark_connector.reading.predicate import Predicate
from spark_connector.reading.rows import Numbers, Rows, Shape, Span, gathered, grouped
from spark_connector.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("sirius.spark")
_RECORDS_MAX: Final = 32_768
_NARROW_RECORDS_MAX: Final = 131_072

_NUMBERS: Final = frozenset({"seq", "ts", "op", "segment"})

_R = TypeVar("_R", Rows, Numbers)
_Join = Callable[[Run, Iterable[list[Span]]], Iterator[_R]]
"""Makes rows of the blocks of a run, of which it gets some at a time."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A range that was left out because it is damaged."""

    path: str
    offset: int
    reason: str
    first: int
    last: int

    @classmethod
    def of(cls, error: CorruptFile, first: int, last: int) -> LeftOut:
        return cls(error.path, error.offset, error.reason, first, last)

    def __str__(self) -> str:
        return (
            f"{self.path}: left out {self.first} to {self.last}, damaged at byte {self.offset}: "
            f"{self.reason}"
        )


@dataclass(slots=True)
class Reading:
    """What was read: filled in while batches are taken."""

    segments: set[int] = field(default_factory=set)
    nbytes: int = 0
    rows: int = 0
    left_out: list[LeftOut] = field(default_factory=list)


@dataclass(slots=True)
class _Held:
    """Blocks up to damage, and then the damage: what was read in front of it is not lost."""

    chunks: Iterator[list[Span]]
    error: CorruptFile | None = None

    def __iter__(self) -> Iterator[list[Span]]:
        try:
            yield from self.chunks
        except CorruptFile as error:
            self.error = error


@dataclass(frozen=True, slots=True)
class Scan:
    """Which rows and columns to read. Control entries never show."""

    schema: StructType
    first: int = 1
    last: int = SEQ_MAX
    predicate: Predicate = field(default_factory=Predicate)
    verify: bool = True
    skip_corrupt: bool = False
    batch_records: int | None = None
    """How many rows a batch has at most; None: what suits the columns."""

    @property
    def records_max(self) -> int:
        """Rows go by many, those of numbers alone by most: what a batch costs Spark, whatever is in it, would show.

        Large bodies make it fewer: no batch with keys or bodies spans two of the chunks that a file is read in, of
        some MiB each, and none of numbers many of them.
        """
        if self.batch_records is not None:
            return self.batch_records
        return _NARROW_RECORDS_MAX if self._columns <= _NUMBERS else _RECORDS_MAX

    @property
    def _columns(self) -> set[str]:
        """The columns that have to be looked at."""
        return set(self.schema.names) | self.predicate.columns

    def read(self, piece: Piece, reading: Reading | None = None) -> Iterator[Any]:
        """Yield the rows of a piece as Arrow record batches; `reading` is told what was read."""
        reading = reading or Reading()
        shape = Shape(arrow_schema(self.schema), self.records_max)
        for run, rows in self._rows_to_send(piece, reading):
            picked = self._picked(rows, piece, run)
            for batch in shape.batches(rows, picked, piece.segment):
                reading.rows += batch.num_rows
                yield batch

    def narrowed(self, first: int, last: int) -> Scan:
        """Return the same scan of a part of its range."""
        return replace(self, first=max(first, self.first), last=min(last, self.last))

    def read_blocks(self, blocks: Iterable[Block]) -> Iterator[Any]:
        """Yield the rows of blocks that a node sent: none of the segments here holds them, so theirs is 0."""
        shape = Shape(arrow_schema(self.schema), self.records_max)
        spans = ((block.raw, 0, block.header) for block in blocks)
        for rows in map(Rows.of_blocks, grouped(spans, self.records_max)):
            masks = [self._in_range(rows), self._updates(rows), self.predicate.mask(rows, 0)]
            yield from shape.batches(rows, _all_of(masks), 0)

    def rows(self, piece: Piece, reading: Reading) -> Iterator[tuple[Run, Rows]]:
        """Yield the rows of a piece as they stand in the log: nothing is picked yet, not even the range."""
        if piece.ancestor:
            return self._told(piece, reading, self._ancestor_rows(piece, reading))
        return self._told(piece, reading, self._block_rows(piece, reading, self._joined))

    def _rows_to_send(
        self, piece: Piece, reading: Reading
    ) -> Iterator[tuple[Run, Rows]] | Iterator[tuple[Run, Numbers]]:
        """Yield the same, with no more of them than is looked at where that is numbers alone."""
        if piece.ancestor or not self._columns <= _NUMBERS:
            return self.rows(piece, reading)
        return self._told(piece, reading, self._block_rows(piece, reading, self._gathered))

    @staticmethod
    def _told(
        piece: Piece, reading: Reading, found: Iterator[tuple[Run, _R]]
    ) -> Iterator[tuple[Run, _R]]:
        reading.segments.add(piece.segment)
        try:
            yield from found
        except CorruptFile:
            raise
        except CorruptLog as error:
            raise CorruptFile(piece.path, piece.runs[0].start, str(error)) from None

    def _joined(self, _: Run, chunks: Iterable[list[Span]]) -> Iterator[Rows]:
        for spans in chunks:
            yield from map(Rows.of_blocks, grouped(spans, self.records_max))

    def _gathered(self, run: Run, chunks: Iterable[list[Span]]) -> Iterator[Numbers]:
        wanted = {"op", *self._columns} - {"segment"}
        if run.live is not None or run.first < self.first or run.last > self.last:
            wanted.add("seq")
        return gathered(chunks, sorted(wanted), self.records_max)

    def _block_rows(
        self, piece: Piece, reading: Reading, join: _Join[_R]
    ) -> Iterator[tuple[Run, _R]]:
        file = DataFile(piece, verify=self.verify, bodies="body" in self.schema.names)
        try:
            for run in piece.runs:
                yield from ((run, rows) for rows in self._run_rows(file, run, reading, join))
        finally:
            reading.nbytes += file.nbytes_read
            file.close()

    def _run_rows(
        self, file: DataFile, run: Run, reading: Reading, join: _Join[_R]
    ) -> Iterator[_R]:
        part: Run | None = run
        while part is not None:
            held = _Held(file.chunks(part))
            yield from join(part, held)
            if held.error is None:
                return
            if not self.skip_corrupt or not isinstance(held.error, Damaged):
                # By its public name, which is what a user reads at the end of Spark's message.
                raise CorruptFile(held.error.path, held.error.offset, held.error.reason)
            part = held.error.rest()
            last = part.first - 1 if part else run.last
            self.leave_out(LeftOut.of(held.error, held.error.first, last), reading)

    def _ancestor_rows(self, piece: Piece, reading: Reading) -> Iterator[tuple[Run, Rows]]:
        source = AncestorSource(piece.log, verify=self.verify)
        segment = next(
            each for each in source.reader.segments() if each.segment_id == SegmentId(piece.segment)
        )
        run, behind = piece.runs[0], piece.first
        try:
            for batch in source.segment_batches(segment):
                behind = batch.last + 1
                yield run, Rows.of_batch(batch)
        except CorruptFile as error:
            if not self.skip_corrupt:
                raise
            # Entries of the ancestor have no frame of their own: behind damage nothing can be found again.
            self.leave_out(LeftOut.of(error, behind, run.last), reading)
        reading.nbytes += run.nbytes

    @staticmethod
    def leave_out(left_out: LeftOut, reading: Reading) -> None:
        """Report a damaged range, if there is anything in it."""
        if left_out.first <= left_out.last:
            _log.warning("%s", left_out)
            reading.left_out.append(left_out)

    def _picked(self, rows: Rows | Numbers, piece: Piece, run: Run) -> Ints | None:
        """Return which rows are wanted; None if all are."""
        masks = [self._in_range(rows), self._updates(rows)]
        if run.live is not None:
            masks.append(run.live.mask(rows.numbers("seq")))
        masks.append(self.predicate.mask(rows, piece.segment))
        return _all_of(masks)

    def _in_range(self, rows: Rows | Numbers) -> Mask | None:
        if self.first <= rows.first and rows.last <= self.last:
            return None
        seq = rows.numbers("seq")
        mask: Mask = (seq >= self.first) & (seq <= self.last)
        return mask

    @staticmethod
    def _updates(rows: Rows | Numbers) -> Mask | None:
        ops = rows.ops
        return ops < CONTROL_FROM if int(ops.max(initial=0)) >= CONTROL_FROM else None


def _all_of(masks: Sequence[Mask | None]) -> Ints | None:
    """Return which rows all masks pick; None if that is all rows."""
    there = [mask for mask in masks if mask is not None]
    if not there:
        return None
    mask = np.logical_and.reduce(there)
    return None if bool(mask.all()) else np.flatnonzero(mask)
