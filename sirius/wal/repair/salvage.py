"""Salvage: what a damaged segment still proves.

**Where frames begin.** A block does not say where it stands, so bytes inside somebody's body may look like one. A place
in the file counts as the beginning of a frame only if something vouches for it:

- the file header ends there, or a frame that stands in a proven place does;
- a mark stands there: it names its own offset, the file and the log;
- the index says so, and a mark or the manifest holds the checksum of the index up to there;
- blocks lead from there, in place and in sequence without a gap, up to a mark that names the last of them.

From such a place frames are read as long as they are whole. Behind damage the search goes on at the next such place.
The order of blocks in the file does not matter, since each says which sequence numbers it covers: of two that claim
the same number the one that begins earlier counts, and of two that begin together the longer one.

**What is left of a block.** When a block's header is whole (or the index stands in for it) and its payload is not,
every entry is tried by its own checksum. Where an entry's key and body are follows from the lengths of the entries
before it, or just as well from those behind it, counted from the end; one bad length therefore spoils nothing but
its own entry. Two good entries that are neighbours in the block prove that the numbers between them are holes. Whatever
lies between good entries that are not neighbours is **lost**: it may have held records, so it is reported and never
called a hole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from sirius.errors import CorruptFile, CorruptLog
from sirius.types import Seq
from sirius.wal.block import (
    ALIGN,
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    VERSION,
    Block,
    Entries,
    Header,
    Ints,
    header_fault,
    seal,
)
from sirius.wal.frames import (
    FILE_HEADER_BYTES,
    MARK_BYTES,
    blocks_behind,
    marks_behind,
    parse_mark,
)
from sirius.wal.index import INDEX_ENTRY_BYTES, Index, IndexRow, IndexTable
from sirius.wal.manifest import State
from sirius.wal.segment import Segment

Range = tuple[int, int]
_CHUNK_BYTES: Final = 1 << 16


# ---------------------------------------------------------------------- what is left of one block


def _entries_of(raw: bytes, count: int) -> Entries:
    """Return the entries of a block of which the end may be missing."""
    there = min(count, max(0, len(raw) - HEADER_BYTES) // ENTRY_BYTES)
    return np.frombuffer(raw, ENTRY, there, HEADER_BYTES) if there else np.zeros(0, ENTRY)


class _Remains:
    """The entries of one damaged block that their own checksums prove."""

    def __init__(self, raw: bytes, header: Header) -> None:
        self._raw = raw
        self._header = header
        self._entries = _entries_of(raw, header.records)
        self._places: dict[int, Range] = {}
        keys_at = HEADER_BYTES + header.records * ENTRY_BYTES
        bodies_at = keys_at + header.keys_len
        keys, bodies = (self._entries[name].astype(np.int64) for name in ("key_len", "body_len"))
        self._try(keys_at + _before(keys), bodies_at + _before(bodies))
        self._try(bodies_at - _from(keys), bodies_at + header.bodies_len - _from(bodies))

    def _try(self, keys_at: Ints, bodies_at: Ints) -> None:
        fits = (keys_at >= HEADER_BYTES) & (keys_at + self._entries["key_len"] <= len(self._raw))
        fits &= (bodies_at >= HEADER_BYTES) & (
            bodies_at + self._entries["body_len"] <= len(self._raw)
        )
        for row in np.flatnonzero(fits).tolist():
            place = (int(keys_at[row]), int(bodies_at[row]))
            if row not in self._places and self._matches(row, place):
                self._places[row] = place

    def _matches(self, row: int, place: Range) -> bool:
        header, at = self._header, HEADER_BYTES + row * ENTRY_BYTES
        crc = crc32c(self._raw[at + 4 : at + ENTRY_BYTES])
        crc = crc32c(self._body(row, place), crc32c(self._key(row, place), crc))
        after = header.records - 1 - row
        in_place = header.first + row <= self._seq(row) <= header.last - after
        return in_place and crc == int(self._entries["crc"][row])

    def _seq(self, row: int) -> int:
        return int(self._entries["seq"][row])

    def _key(self, row: int, place: Range) -> bytes:
        return self._raw[place[0] : place[0] + int(self._entries["key_len"][row])]

    def _body(self, row: int, place: Range) -> bytes:
        return self._raw[place[1] : place[1] + int(self._entries["body_len"][row])]

    def proven(self) -> tuple[Range, ...]:
        """Return the ranges of which it is known for every number whether it has an entry, and which."""
        first, last, rows = self._header.first, self._header.last, sorted(self._places)
        seqs = [self._seq(row) for row in rows]
        if any(later <= earlier for earlier, later in pairwise(seqs)):
            # Entries that changed places prove nothing about what is between them.
            return ()
        known = [(-1, first - 1), *zip(rows, seqs, strict=True), (self._header.records, last + 1)]
        ranges, start = [], first
        for (row, seq), (next_row, next_seq) in pairwise(known):
            if next_row != row + 1:
                ranges.append((start, seq))
                start = next_seq
        return tuple(span for span in (*ranges, (start, last)) if span[0] <= span[1])

    def block(self, first: int, last: int) -> Block:
        """Return the good entries of a proven range, as they were."""
        rows = [row for row in sorted(self._places) if first <= self._seq(row) <= last]
        keys = [self._key(row, self._places[row]) for row in rows]
        bodies = [self._body(row, self._places[row]) for row in rows]
        return seal(first, last, self._entries[np.array(rows, np.int64)], keys, bodies)


def _before(lengths: Ints) -> Ints:
    """Return for each entry how many bytes those in front of it take."""
    sums: Ints = np.cumsum(lengths) - lengths
    return sums


def _from(lengths: Ints) -> Ints:
    """Return for each entry how many bytes it and those behind it take."""
    sums: Ints = np.cumsum(lengths[::-1])[::-1]
    return sums


# ---------------------------------------------------------------------- what is left of a file


class _Part(NamedTuple):
    """A range that bytes of the file prove: whole frames, or good entries of the block that `ruin` describes."""

    first: int
    last: int
    at: int
    end: int
    ruin: Header | None = None


class _Scan:
    """Goes over the data file of one segment."""

    def __init__(self, segment: Segment, index: bytes) -> None:
        self._segment = segment
        walk = segment.walk_all()
        self._end, self._limits = walk.end, walk.limits
        self._rows = self._vouched(index)
        offsets, sizes = self._rows["offset"], self._rows["size"]
        self._bounds = np.unique(np.concatenate((offsets, offsets + sizes)))

    def _vouched(self, raw: bytes) -> IndexTable:
        """Return the rows of an index file up to the last one for which a mark or the manifest vouches."""
        table, crcs = Index.from_bytes(raw).table, [0]
        for at in range(0, len(table) * INDEX_ENTRY_BYTES, INDEX_ENTRY_BYTES):
            crcs.append(crc32c(raw[at : at + INDEX_ENTRY_BYTES], crcs[-1]))
        for count in range(len(table), 0, -1):
            if self._vouches(table[count - 1].item(), crcs[count]):
                return table[:count]
        return table[:0]

    def _vouches(self, row: IndexRow, crc: int) -> bool:
        info, last, end = self._segment.info, row[1], row[2] + row[3]
        if info.state != State.ACTIVE and (info.last, info.index_crc) == (last, crc):
            return True
        raw = self._segment.read(end, MARK_BYTES) if end < self._end else b""
        mark = parse_mark(raw, end, self._segment.header)
        return mark is not None and (mark.last, mark.index_crc) == (last, crc)

    def parts(self) -> Iterator[_Part]:
        """Yield all that is proven, in the order of the file."""
        at, first = FILE_HEADER_BYTES, int(self._segment.info.first)
        while at < self._end:
            walk = self._segment.walk(at, first)
            for _ in walk.chunks(_CHUNK_BYTES):
                pass
            if walk.next_first > first:
                yield _Part(first, walk.next_first - 1, at, walk.position)
            if walk.fault is None:
                return
            found, at, first = self._past(walk.position)
            yield from found

    def _past(self, at: int) -> tuple[list[_Part], int, int]:
        """Look at what is no whole frame in its place: what it proves, where to go on, what to expect there."""
        bound = self._next_bound(at)
        header = self._header_at(at)
        if header is not None:
            end = at + header.size
            return self._block(at, header, end), min(end, bound), header.last + 1
        row = self._row_at(at)
        if row is not None:
            return self._block(at, self._assumed(row), at + row[3]), bound, row[1] + 1
        return self._leading_up_to(at, bound), bound, -1

    def _next_bound(self, at: int) -> int:
        """Return the next place behind `at` where a frame is known to begin, or the end."""
        behind = self._bounds[np.searchsorted(self._bounds, np.uint64(at), side="right") :]
        stop = min(int(behind[0]), self._end) if len(behind) else self._end
        mark = next(marks_behind(self._segment.walk(at, 1, stop)), None)
        return mark.offset if mark else stop

    def _header_at(self, at: int) -> Header | None:
        raw = self._segment.read(at, HEADER_BYTES)
        if len(raw) < HEADER_BYTES:
            return None
        header = Header._make(HEADER.unpack(raw))
        return None if header_fault(header, raw, self._limits) else header

    def _row_at(self, at: int) -> IndexRow | None:
        position = int(np.searchsorted(self._rows["offset"], np.uint64(at)))
        if position == len(self._rows) or int(self._rows["offset"][position]) != at:
            return None
        row: IndexRow = self._rows[position].item()
        return row

    def _assumed(self, row: IndexRow) -> Header:
        """Return the header that a block must have had, by its index entry and its lengths."""
        first, last, at, size, count, ts_min, ts_max = row
        entries = _entries_of(self._segment.read(at, size), count)
        keys, bodies = (int(entries[name].sum(dtype=np.int64)) for name in ("key_len", "body_len"))
        return Header(MAGIC, 0, VERSION, 0, count, first, last, keys, bodies, 0, 0, ts_min, ts_max)

    def _block(self, at: int, header: Header, end: int) -> list[_Part]:
        raw = self._segment.read(at, end - at)
        if len(raw) == header.size and _is_whole(raw, header):
            return [_Part(header.first, header.last, at, end)]
        proven = _Remains(raw, header).proven()
        return [_Part(first, last, at, end, header) for first, last in proven]

    def _leading_up_to(self, at: int, bound: int) -> list[_Part]:
        """Return the blocks between `at` and a mark that stand and count without a gap up to it."""
        mark = parse_mark(self._segment.read(bound, MARK_BYTES), bound, self._segment.header)
        if mark is None:
            return []
        walk = self._segment.walk(at, self._segment.info.first, bound)
        end, last, parts = bound, mark.last, list[_Part]()
        for start, header in reversed(list(blocks_behind(walk))):
            if (start + header.size, header.last) == (end, last):
                parts.append(_Part(header.first, header.last, start, end))
                end, last = start, header.first - 1
        return parts[::-1]

    def last_known(self) -> int:
        """Return the highest number that a mark or the index speaks of."""
        marks = marks_behind(self._segment.walk(FILE_HEADER_BYTES - ALIGN, 1))
        known = max((mark.last for mark in marks), default=0)
        indexed = int(self._rows["last"][-1]) if len(self._rows) else 0
        return max(known, indexed, self._segment.info.first - 1)


def _is_whole(raw: bytes, header: Header) -> bool:
    # An assumed header is not what stands there; and the checksum of no payload at all is 0.
    stands = Header._make(HEADER.unpack_from(raw)) == header
    return stands and crc32c(memoryview(raw)[HEADER_BYTES:]) == header.payload_crc


# ---------------------------------------------------------------------- the result


@dataclass(frozen=True, slots=True)
class Salvage:
    """What is proven of the range `first` to `last`, and what is not. Reads the segment again when asked for blocks."""

    segment: Segment
    first: Seq
    last: Seq
    parts: tuple[_Part, ...]

    @property
    def lost(self) -> list[Range]:
        """The ranges of which nothing can be proven: they may have held records."""
        ends = [self.first - 1, *(part.last for part in self.parts)]
        starts = [*(part.first for part in self.parts), self.last + 1]
        return [(a + 1, b - 1) for a, b in zip(ends, starts, strict=True) if a + 1 < b]

    def blocks(self, *, holes: bool = False) -> Iterator[Block]:
        """Yield checked blocks in order, none of which covers a lost number.

        With `holes`, blocks without entries stand for the lost ranges, so that all follow each other: only for
        whoever was told of the loss and took it.
        """
        expected = int(self.first)
        for block in self._proven():
            if holes and expected < block.first:
                yield Block.hole(expected, block.first - 1)
            yield block
            expected = block.last + 1
        if holes and expected <= self.last:
            yield Block.hole(expected, self.last)

    def _proven(self) -> Iterator[Block]:
        for _, group in groupby(self.parts, lambda part: part.at):
            parts = list(group)
            if parts[0].ruin is None:
                for part in parts:
                    yield from self._whole_blocks(part)
            else:
                yield from self._entries(parts, parts[0].ruin)

    def _whole_blocks(self, part: _Part) -> Iterator[Block]:
        for chunk in self.segment.chunks_from(part.at, part.first, part.end):
            for at, header in chunk.spans:
                if header.first <= self.last:
                    block = self._parsed(chunk.buf[at : at + header.size], chunk.base + at)
                    yield block.cut(block.first, min(block.last, self.last))

    def _entries(self, parts: list[_Part], header: Header) -> Iterator[Block]:
        at, end = parts[0].at, parts[0].end
        remains = _Remains(self.segment.read(at, end - at), header)
        proven = remains.proven()
        for part in parts:
            if not any(first <= part.first and part.last <= last for first, last in proven):
                raise CorruptFile(self.segment.path, at, "the disk gives other bytes than before")
            yield self._parsed(remains.block(part.first, part.last).raw, at)

    def _parsed(self, raw: bytes, at: int) -> Block:
        try:
            return Block.parse(raw, self.segment.walk(at, 1).limits)
        except CorruptLog as error:
            raise CorruptFile(self.segment.path, at, str(error)) from None


def salvage(segment: Segment, upto: int | None = None, index: bytes = b"") -> Salvage:
    """Find all that a damaged segment still proves of its range, up to `upto`.

    Open it as a `Wreck` if its file header may be damaged. `index` is what its index file holds, be it right or wrong.
    Without `upto` the range ends where the manifest says, or for an active segment at the highest number known of.
    Reads the data file once; memory is that of one block, and a little for each place that is damaged.
    """
    scan = _Scan(segment, index)
    found = sorted(scan.parts(), key=lambda part: (part.first, -part.last))
    if upto is None and segment.info.state == State.ACTIVE:
        upto = max([scan.last_known(), *(part.last for part in found)])
    last = segment.info.last if upto is None else upto
    parts, expected = list[_Part](), int(segment.info.first)
    for part in found:
        if expected <= part.first <= last:
            parts.append(part._replace(last=min(part.last, last)))
            expected = part.last + 1
    return Salvage(segment, segment.info.first, Seq(last), tuple(parts))
