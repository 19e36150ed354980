"""Batches: many entries, decoded as columns.

A batch looks into a buffer that holds one or more verified blocks. Nothing is copied until somebody asks for keys or
bodies; filters are masks over columns. One batch may span many small blocks, so that a log of lone writes is read as
fast as one of full blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Self

import numpy as np
import numpy.typing as npt

from sirius.errors import CorruptLog
from sirius.types import Seq
from sirius.wal.block import ENTRY, ENTRY_BYTES, HEADER_BYTES, Block, Entries, Header, Ints, seal
from sirius.wal.record import CONTROL_FROM, Op, Record

Mask = npt.NDArray[np.bool_]
_OPS = {int(op): op for op in Op}


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries in order of sequence, covering `first` to `last` completely.

    `entries` has the columns of a block's entries (see `sirius.wal.block`); `key_at` and `body_at` say where in `buf`
    each key and body begins.
    """

    buf: bytes
    first: Seq
    last: Seq
    entries: Entries
    key_at: Ints
    body_at: Ints

    @classmethod
    def of(cls, block: Block) -> Self:
        """Decode one block."""
        return cls.of_spans(block.raw, [(0, block.header)])

    @classmethod
    def of_spans(cls, buf: bytes, spans: Sequence[tuple[int, Header]]) -> Self:
        """Decode verified blocks that follow each other, given where each begins in `buf`."""
        first, last = Seq(spans[0][1].first), Seq(spans[-1][1].last)
        if len(spans) == 1:
            return cls(buf, first, last, *_columns_of_one(buf, *spans[0]))
        return cls(buf, first, last, *_columns_of_many(buf, spans))

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def seq(self) -> npt.NDArray[np.uint64]:
        column: npt.NDArray[np.uint64] = self.entries["seq"]
        return column

    @property
    def op(self) -> npt.NDArray[np.uint8]:
        column: npt.NDArray[np.uint8] = self.entries["op"]
        return column

    @property
    def holes(self) -> int:
        """How many sequence numbers of the range have no entry."""
        return self.last - self.first + 1 - len(self.entries)

    def key_blobs(self) -> list[bytes]:
        """Return every key as it stands in the log."""
        return _pieces(self.buf, self.key_at, self.entries["key_len"])

    def bodies(self) -> list[bytes]:
        """Return every body."""
        return _pieces(self.buf, self.body_at, self.entries["body_len"])

    def keys(self) -> list[str]:
        """Return every key. One decoding for all of them where they stand together and are ASCII."""
        lengths = self.entries["key_len"]
        run = _run(self.key_at, lengths)
        if run is not None and (blob := self.buf[run]).isascii():
            return list(map(StringIO(blob.decode(), newline="").read, lengths.tolist()))
        return [key.decode() for key in self.key_blobs()]

    def records(self) -> Iterator[Record]:
        """Go through the entries one by one; control entries are among them."""
        entries = self.entries
        return map(
            Record,
            entries["seq"].tolist(),
            entries["ts"].tolist(),
            map(_OPS.__getitem__, entries["op"].tolist()),
            self.keys(),
            self.bodies(),
            entries["session"].tolist(),
            entries["serial"].tolist(),
        )

    def where(self, mask: Mask) -> Batch:
        """Keep the entries that `mask` picks; the others become holes."""
        if bool(mask.all()):
            return self
        return Batch(
            self.buf,
            self.first,
            self.last,
            self.entries[mask],
            self.key_at[mask],
            self.body_at[mask],
        )

    def updates(self) -> Batch:
        """Keep what a handler sees: no control entries."""
        return self.where(self.op < CONTROL_FROM)

    def between(self, first: int, last: int) -> Batch:
        """Narrow the covered range."""
        if first <= self.first and self.last <= last:
            return self
        low, high = (int(at) for at in np.searchsorted(self.seq, np.array([first, last + 1], "u8")))
        return Batch(
            self.buf,
            Seq(max(first, self.first)),
            Seq(min(last, self.last)),
            self.entries[low:high],
            self.key_at[low:high],
            self.body_at[low:high],
        )

    def block(self) -> Block:
        """Put the entries into one block of their own, checksums untouched."""
        return seal(self.first, self.last, self.entries, self.key_blobs(), self.bodies())


def _run(at: Ints, lengths: npt.NDArray[np.uint32]) -> slice | None:
    """Return where pieces stand in a buffer if they stand end to end."""
    if not len(at):
        return None
    low, high = int(at[0]), int(at[-1]) + int(lengths[-1])
    return slice(low, high) if high - low == int(lengths.sum(dtype=np.int64)) else None


def _pieces(buf: bytes, at: Ints, lengths: npt.NDArray[np.uint32]) -> list[bytes]:
    """Cut pieces out of a buffer. Reading them off a stream is twice as fast as slicing."""
    run = _run(at, lengths)
    if run is not None:
        return list(map(BytesIO(buf[run]).read, lengths.tolist()))
    return [buf[a:b] for a, b in zip(at.tolist(), (at + lengths).tolist(), strict=True)]


def _columns_of_one(buf: bytes, at: int, header: Header) -> tuple[Entries, Ints, Ints]:
    entries = np.frombuffer(buf, ENTRY, header.records, at + HEADER_BYTES)
    keys_at = at + HEADER_BYTES + header.records * ENTRY_BYTES
    key_at = _starts(entries["key_len"], keys_at, header.keys_len)
    body_at = _starts(entries["body_len"], keys_at + header.keys_len, header.bodies_len)
    return entries, key_at, body_at


def _starts(lengths: npt.NDArray[np.uint32], at: int, total: int) -> Ints:
    ends = np.cumsum(lengths, dtype=np.int64)
    if total != (int(ends[-1]) if len(ends) else 0):
        raise CorruptLog("the lengths in a block do not add up")
    ends += at
    starts: Ints = ends - lengths
    return starts


def _columns_of_many(buf: bytes, spans: Sequence[tuple[int, Header]]) -> tuple[Entries, Ints, Ints]:
    """Gather the columns of many blocks at once: no Python loop over entries or blocks."""
    at = np.array([span[0] for span in spans], np.int64)
    fields = np.array([(h.records, h.keys_len, h.bodies_len) for _, h in spans], np.int64)
    counts, keys_len = fields[:, 0], fields[:, 1]
    row_block = np.repeat(np.arange(len(spans)), counts)
    block_row = np.cumsum(counts) - counts
    row_in_block = np.arange(len(row_block)) - block_row[row_block]
    entries = _gather(buf, (at + HEADER_BYTES)[row_block] + row_in_block * ENTRY_BYTES)
    keys_at = at + HEADER_BYTES + counts * ENTRY_BYTES
    key_at = _starts_in(entries["key_len"], row_block, block_row, counts, keys_at, fields[:, 1])
    body_at = _starts_in(
        entries["body_len"], row_block, block_row, counts, keys_at + keys_len, fields[:, 2]
    )
    return entries, key_at, body_at


def _gather(buf: bytes, at: Ints) -> Entries:
    if not len(at):
        return np.zeros(0, ENTRY)
    octets = np.frombuffer(buf, np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(octets, ENTRY_BYTES)
    rows: Entries = np.ascontiguousarray(windows[at]).view(ENTRY).reshape(-1)
    return rows


def _starts_in(
    lengths: npt.NDArray[np.uint32],
    row_block: Ints,
    block_row: Ints,
    counts: Ints,
    at: Ints,
    totals: Ints,
) -> Ints:
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
    before = ends[block_row]
    if bool((ends[block_row + counts] - before != totals).any()):
        raise CorruptLog("the lengths in a block do not add up")
    starts: Ints = ends[:-1] + (at - before)[row_block]
    return starts
