"""Batches: many entries, decoded as columns.

A batch looks into a buffer that holds one or more verified blocks. Nothing is copied until somebody asks for keys or
bodies; filters are masks over columns. One batch may span many small blocks, so that a log of lone writes is read as
fast as one of full blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO, StringIO

import numpy as np
import numpy.typing as npt

from sirius.errors import CorruptLog
from sirius.types import Seq
from sirius.wal.block import ENTRY, ENTRY_BYTES, HEADER_BYTES, Block, Entries, Header, Ints, seal
from sirius.wal.record import CONTROL_FROM, Op, Record

Mask = npt.NDArray[np.bool_]
Lengths = npt.NDArray[np.uint32]
_OPAQUE = np.dtype(f"V{ENTRY_BYTES}")
_OPS = {int(op): op for op in Op}


class Column:
    """Pieces of a buffer, one an entry: the keys or the bodies.

    A dense column is what a block holds: pieces end to end from `base` on, `total` bytes in all. Any other column
    knows where each piece begins.
    """

    __slots__ = ("_base", "_dense", "_starts", "_total", "buf", "lengths")

    def __init__(
        self, buf: bytes, lengths: Lengths, base: int, total: int, starts: Ints | None = None
    ) -> None:
        self.buf = buf
        self.lengths = lengths
        self._base = base
        self._total = total
        self._starts = starts
        self._dense = starts is None

    @property
    def starts(self) -> Ints:
        """Where each piece begins in the buffer."""
        if self._starts is None:
            self._starts = self._ends() - self.lengths
        return self._starts

    def _ends(self) -> Ints:
        """Where each piece of a dense column ends."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        self._check(int(ends[-1]) if len(ends) else 0)
        ends += self._base
        return ends

    def _check(self, total: int) -> None:
        """Compare with the block's total. Where a stream stands would not do: it stops at its end."""
        if total != self._total:
            raise CorruptLog(f"the lengths in a block add up to {total}, not {self._total}")

    @property
    def nbytes(self) -> int:
        """How long all pieces are together."""
        return self._total if self._dense else int(self.lengths.sum(dtype=np.int64))

    def _fixed_width(self) -> int | None:
        """Return how long every piece of a dense column is if all are equally long; else see that lengths add up."""
        count = len(self.lengths)
        width = self._total // count if count else 0
        if width * count == self._total and bool((self.lengths == width).all()):
            return width
        self._check(int(self.lengths.sum(dtype=np.int64)))
        return None

    def pieces(self) -> list[bytes]:
        """Return every piece. A stream is twice as fast as slicing, an array of one width four times."""
        if not self._dense:
            starts, ends, buf = self.starts, self.starts + self.lengths, self.buf
            return [buf[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        width = self._fixed_width()
        if width == 0:
            return [b""] * len(self.lengths)
        if width is not None:
            rows = np.frombuffer(self.buf, f"V{width}", len(self.lengths), self._base)
            pieces: list[bytes] = rows.tolist()
            return pieces
        stream = BytesIO(self.buf)
        stream.seek(self._base)
        return list(map(stream.read, self.lengths.tolist()))

    def blob(self) -> bytes:
        """Return all pieces end to end."""
        if self._dense:
            self._check(int(self.lengths.sum(dtype=np.int64)))
            return self.buf[self._base : self._base + self._total]
        return self._gathered()

    def _gathered(self) -> bytes:
        """Put scattered pieces end to end: in one go where they have one width, else run by run."""
        # Pieces of nothing, as the bodies of deletes are, add nothing.
        filled = np.flatnonzero(self.lengths)
        if not len(filled):
            return b""
        starts, lengths = self.starts[filled], self.lengths[filled]
        width = int(lengths[0])
        if bool((lengths == width).all()):
            # Rows of an opaque type move as one piece each.
            places = np.ndarray((len(self.buf) - width + 1,), f"V{width}", self.buf, 0, (1,))
            return places[starts].tobytes()
        ends = starts + lengths
        breaks = np.flatnonzero(starts[1:] != ends[:-1])
        begins, stops = starts[np.append(0, breaks + 1)], ends[np.append(breaks, -1)]
        buf = self.buf
        return b"".join([buf[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True)])

    def texts(self) -> list[str]:
        """Return every piece as text; one decoding does for a dense column of ASCII."""
        if self._dense:
            blob = self.buf[self._base : self._base + self._total]
            if blob.isascii():
                if (width := self._fixed_width()) and b"\0" not in blob:
                    return _fixed_texts(blob, width)
                stream = StringIO(blob.decode(), newline="")
                return list(map(stream.read, self.lengths.tolist()))
        return [piece.decode() for piece in self.pieces()]

    def pick(self, which: Ints | slice, lengths: Lengths) -> Column:
        """Keep some of the pieces, given their lengths."""
        if self._starts is None:
            return Column(self.buf, lengths, 0, 0, self._ends()[which] - lengths)
        return Column(self.buf, lengths, 0, 0, self._starts[which])


def _fixed_texts(blob: bytes, width: int) -> list[str]:
    """Cut ASCII without zeroes into texts of one width: a column of zeroes beside them makes it one split."""
    octets = np.frombuffer(blob, np.uint8).reshape(-1, width)
    rows = np.zeros((len(octets), width + 1), np.uint8)
    rows[:, :width] = octets
    return rows.tobytes()[:-1].decode().split("\0")


class Batch:
    """Entries in order of sequence, covering `first` to `last` completely.

    `entries` has the columns of a block's entries (see `sirius.wal.block`). Not changed once made.
    """

    __slots__ = ("body_column", "entries", "first", "key_column", "last")

    def __init__(
        self, first: int, last: int, entries: Entries, keys: Column, bodies: Column
    ) -> None:
        self.first = Seq(first)
        self.last = Seq(last)
        self.entries = entries
        self.key_column = keys
        self.body_column = bodies

    @classmethod
    def of(cls, block: Block) -> Batch:
        """Decode one block."""
        return cls.of_span(block.raw, 0, block.header)

    @classmethod
    def hole(cls, first: int, last: int) -> Batch:
        """Return a batch that covers a range with no entry at all."""
        return cls.of(Block.hole(first, last))

    @classmethod
    def of_span(cls, buf: bytes, at: int, header: Header) -> Batch:
        """Decode a verified block that begins at `at`."""
        entries = np.frombuffer(buf, ENTRY, header.records, at + HEADER_BYTES)
        keys_at = at + HEADER_BYTES + header.records * ENTRY_BYTES
        bodies_at = keys_at + header.keys_len
        keys = Column(buf, entries["key_len"], keys_at, header.keys_len)
        bodies = Column(buf, entries["body_len"], bodies_at, header.bodies_len)
        return cls(header.first, header.last, entries, keys, bodies)

    @classmethod
    def of_spans(cls, buf: bytes, spans: Sequence[tuple[int, Header]]) -> Batch:
        """Decode verified blocks that follow each other, given where each begins: all at once."""
        rows = _Rows(buf, spans)
        keys = Column(buf, rows.entries["key_len"], 0, 0, rows.key_starts())
        bodies = Column(buf, rows.entries["body_len"], 0, 0, rows.body_starts())
        return cls(spans[0][1].first, spans[-1][1].last, rows.entries, keys, bodies)

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

    def keys(self) -> list[str]:
        """Return every key."""
        return self.key_column.texts()

    def key_blobs(self) -> list[bytes]:
        """Return every key as it stands in the log."""
        return self.key_column.pieces()

    def bodies(self) -> list[bytes]:
        """Return every body."""
        return self.body_column.pieces()

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
        return self._pick(np.flatnonzero(mask), self.first, self.last)

    def updates(self) -> Batch:
        """Keep what a handler sees: no control entries."""
        return self.where(self.op < CONTROL_FROM)

    def between(self, first: int, last: int) -> Batch:
        """Narrow the covered range."""
        if first <= self.first and self.last <= last:
            return self
        low, high = np.searchsorted(self.seq, np.array([first, last + 1], np.uint64)).tolist()
        return self._pick(slice(low, high), max(first, self.first), min(last, self.last))

    def _pick(self, which: Ints | slice, first: int, last: int) -> Batch:
        # As opaque rows: numpy would copy them field by field.
        entries = self.entries.view(_OPAQUE)[which].view(ENTRY)
        keys = self.key_column.pick(which, entries["key_len"])
        bodies = self.body_column.pick(which, entries["body_len"])
        return Batch(first, last, entries, keys, bodies)

    def block(self) -> Block:
        """Put the entries into one block of their own, checksums untouched."""
        keys, bodies = self.key_column.blob(), self.body_column.blob()
        return seal(self.first, self.last, self.entries, (keys,), (bodies,))


class _Rows:
    """The entries of many blocks, gathered without a Python loop over them."""

    def __init__(self, buf: bytes, spans: Sequence[tuple[int, Header]]) -> None:
        at = np.array([span[0] for span in spans], np.int64)
        fields = [(h.records, h.keys_len, h.bodies_len) for _, h in spans]
        self._counts, self._keys_len, self._bodies_len = np.array(fields, np.int64).T
        self._keys_at = at + HEADER_BYTES + self._counts * ENTRY_BYTES
        self._block_of = np.repeat(np.arange(len(spans)), self._counts)
        self._first_row = np.cumsum(self._counts) - self._counts
        row_in_block = np.arange(len(self._block_of)) - self._first_row[self._block_of]
        entries_at = (at + HEADER_BYTES)[self._block_of] + row_in_block * ENTRY_BYTES
        self.entries = _gather(buf, entries_at)

    def key_starts(self) -> Ints:
        return self._starts(self.entries["key_len"], self._keys_at, self._keys_len)

    def body_starts(self) -> Ints:
        bodies_at = self._keys_at + self._keys_len
        return self._starts(self.entries["body_len"], bodies_at, self._bodies_len)

    def _starts(self, lengths: Lengths, at: Ints, totals: Ints) -> Ints:
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
        before = ends[self._first_row]
        if bool((ends[self._first_row + self._counts] - before != totals).any()):
            raise CorruptLog("the lengths in a block do not add up")
        starts: Ints = ends[:-1] + (at - before)[self._block_of]
        return starts


def _gather(buf: bytes, at: Ints) -> Entries:
    if not len(at):
        return np.zeros(0, ENTRY)
    places = np.ndarray((len(buf) - ENTRY_BYTES + 1,), _OPAQUE, buf, 0, (1,))
    rows: Entries = places[at].view(ENTRY)
    return rows
