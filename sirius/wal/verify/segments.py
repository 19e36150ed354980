"""Checking every byte of one segment: its frames, the columns of its blocks, its index, and what the manifest says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from crc32c import crc32c

from sirius.errors import CorruptLog
from sirius.wal.batch import Batch, Mask
from sirius.wal.block import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    Header,
    checksums,
    header_fault,
    keys_fault,
    sequence_fault,
)
from sirius.wal.frames import FILE_HEADER_BYTES, Chunk, End, Walk, blocks_behind, diagnose
from sirius.wal.index import INDEX_ENTRY, INDEX_ENTRY_BYTES, IndexRow, row_of
from sirius.wal.manifest import State
from sirius.wal.record import CONTROL_FROM, Op
from sirius.wal.segment import DATA, INDEX, Segment
from sirius.wal.verify.findings import Notes, Severity, span

_NAMED_MAX: Final = 5


class SegmentCheck:
    """One pass over one segment."""

    def __init__(self, segment: Segment, notes: Notes) -> None:
        self._segment = segment
        self._notes = notes
        self._info = segment.info
        self._active = segment.info.state == State.ACTIVE
        self._bytes_before = notes.bytes_done
        self._rows: list[IndexRow] = []
        self._damaged = False

    def run(self, index: bytes | None) -> None:
        """Check the segment, whose index file is `index`. Raises `OSError` only."""
        walk = self._walk_all()
        self._notes.move_to(self._bytes_before + walk.end)
        self._notes.report.bytes += walk.end + len(index or b"")
        if not self._active and not self._damaged:
            self._compare(walk)
        if not self._damaged:
            self._check_index(index)

    def _error(self, offset: int | None, what: str) -> None:
        self._damaged = True
        self._notes.error(self._segment.path, offset, what)

    # ------------------------------------------------------------------ data

    def _walk_all(self) -> Walk:
        """Go through the file; behind damage, go on with the next frame that makes sense."""
        end = None if self._active else self._info.bytes
        walk = self._segment.walk(FILE_HEADER_BYTES, self._info.first, end)
        while True:
            for chunk in walk.chunks():
                self._chunk(chunk)
            if walk.fault is None or self._is_torn(walk):
                return walk
            behind = self._behind(walk)
            if behind is None:
                return walk
            walk = behind

    def _chunk(self, chunk: Chunk) -> None:
        report = self._notes.report
        self._rows += [row_of(header, chunk.base + at) for at, header in chunk.spans]
        for at, what in block_faults(chunk, self._notes.deep):
            self._error(chunk.base + at, what)
        report.blocks += len(chunk.spans)
        report.records += sum(header.records for _, header in chunk.spans)
        at, header = chunk.spans[-1]
        self._notes.move_to(self._bytes_before + chunk.base + at + header.size)

    def _is_torn(self, walk: Walk) -> bool:
        """Say whether a fault is merely the unfinished end of the active segment."""
        if not self._active or diagnose(walk) != End.TORN:
            return False
        size = walk.end - walk.position
        if self._notes.live:
            what = f"{size} bytes of a write that is going on"
            self._notes.find(Severity.NOTE, self._segment.path, walk.position, what)
        else:
            what = (
                f"a torn tail of {size} bytes ({walk.fault}): never acknowledged, and cut off when "
                "the log is next opened for writing"
            )
            self._notes.find(Severity.WARNING, self._segment.path, walk.position, what)
        return True

    def _behind(self, walk: Walk) -> Walk | None:
        """Report a fault; return a walk that goes on behind it, or None if nothing does."""
        whole = self._damaged_block(walk)
        if whole is not None:
            at, first = walk.position + whole.size, whole.last + 1
        else:
            nothing = (walk.end, self._last_known(walk) + 1)
            found = ((at, int(header.first)) for at, header in blocks_behind(walk))
            at, first = next(found, nothing)
        what = str(walk.fault)
        if first > walk.next_first:
            what += f"; {span(walk.next_first, first - 1)} cannot be read"
        self._error(walk.position, what + self._bad_entries(walk, whole))
        if at >= walk.end:
            return None
        behind = self._segment.walk(at, first, walk.end)
        behind.mark = walk.mark
        return behind

    def _last_known(self, walk: Walk) -> int:
        return walk.next_first - 1 if self._active else max(self._info.last, walk.next_first - 1)

    def _damaged_block(self, walk: Walk) -> Header | None:
        """Return the header at a fault if only what follows it is damaged."""
        raw = self._segment.read(walk.position, HEADER_BYTES)
        if len(raw) < HEADER_BYTES:
            return None
        header = Header._make(HEADER.unpack(raw))
        fits = walk.position + header.size <= walk.end and header.first == walk.next_first
        return header if fits and header_fault(header, raw, self._notes.limits) is None else None

    def _bad_entries(self, walk: Walk, header: Header | None) -> str:
        """Say which entries of a damaged block fail their own checksum, if its columns can be read."""
        if header is None:
            return ""
        raw = self._segment.read(walk.position, header.size)
        try:
            bad = failing(Batch.of_span(raw, 0, header))
        except CorruptLog:
            return ""
        return f"; damaged of these: {_named(bad)}" if bad else ""

    # ------------------------------------------------------------------ manifest and index

    def _compare(self, walk: Walk) -> None:
        """Compare what a sealed segment holds with what the manifest says of it."""
        info = self._info
        extra = self._segment.walk_all().end - info.bytes
        if extra > 0:
            what = f"{extra} bytes behind the end that the manifest names"
            self._notes.find(Severity.WARNING, self._segment.path, info.bytes, what)
        held = {
            "bytes": (walk.position, info.bytes),
            "last sequence number": (walk.next_first - 1, info.last),
            "blocks": (len(self._rows), info.blocks),
            "records": (sum(row[4] for row in self._rows), info.records),
        }
        for name, (found, said) in held.items():
            if found != said:
                self._error(None, f"{name}: the file has {found}, the manifest says {said}")

    def _check_index(self, raw: bytes | None) -> None:
        path = f"{self._segment.path.removesuffix(DATA)}{INDEX}"
        expected = np.array(self._rows, INDEX_ENTRY).tobytes()
        if self._active:
            self._check_active_index(path, raw or b"", expected)
        elif raw is None:
            self._notes.error(path, None, "missing; every reader builds it anew in memory")
        elif raw != expected:
            what = "the index does not match the data; every reader builds it anew in memory"
            self._notes.error(path, _first_difference(raw, expected), what)
        elif crc32c(raw) != self._info.index_crc:
            self._notes.error(path, None, "its checksum is not the one that the manifest holds")

    def _check_active_index(self, path: str, raw: bytes, expected: bytes) -> None:
        """The index of the active segment lags behind, and a crash may leave anything in it."""
        whole = raw[: len(raw) - len(raw) % INDEX_ENTRY_BYTES]
        if not expected.startswith(whole) and not self._notes.live:
            what = "the index does not match the data; opening the log for writing makes it anew"
            at = _first_difference(whole, expected)
            self._notes.find(Severity.WARNING, path, at, what)


def _first_difference(raw: bytes, expected: bytes) -> int:
    """Return where the first index entry begins that differs."""
    step, length = INDEX_ENTRY_BYTES, min(len(raw), len(expected))
    for at in range(0, length, step):
        if raw[at : at + step] != expected[at : at + step]:
            return at
    return length


def block_faults(chunk: Chunk, deep: bool) -> Iterator[tuple[int, str]]:
    """Yield where checksums are right and the columns of a block do not fit together. `deep` checks entries too.

    All blocks of a chunk are looked at together, and one by one only if something is wrong.
    """
    if not _all_sound(chunk, deep):
        for at, header in chunk.spans:
            if fault := _block_fault(chunk.buf, at, header, deep):
                yield at, fault


def _all_sound(chunk: Chunk, deep: bool) -> bool:
    try:
        batch = Batch.of_spans(chunk.buf, chunk.spans)
    except CorruptLog:
        return False
    headers = [header for _, header in chunk.spans]
    block = np.repeat(np.arange(len(headers)), [header.records for header in headers])
    first, last, ts_min, ts_max = np.array(
        [(header.first, header.last, header.ts_min, header.ts_max) for header in headers], np.int64
    ).T
    seq, ts = batch.seq.astype(np.int64), batch.entries["ts"]
    in_place = (first[block] <= seq) & (seq <= last[block])
    in_time = (ts_min[block] <= ts) & (ts <= ts_max[block])
    return (
        bool(in_place.all() and in_time.all() and (seq[1:] > seq[:-1]).all())
        and not bool(_wrong_fields(batch).any())
        and all(_keys_fault(chunk.buf, at, header) is None for at, header in chunk.spans)
        and not (deep and failing(batch))
    )


def _block_fault(buf: bytes, at: int, header: Header, deep: bool) -> str | None:
    batch = Batch.of_span(buf, at, header)
    seq, ts = batch.seq, batch.entries["ts"]
    try:
        batch.key_column.blob()
        batch.body_column.blob()
    except CorruptLog as error:
        return str(error)
    fault = sequence_fault(seq, header.first, header.last) or _keys_fault(buf, at, header)
    if fault is not None:
        return fault
    if bool(((ts < header.ts_min) | (ts > header.ts_max)).any()):
        return "the times of the entries are not those of the block's header"
    wrong, bad = _wrong_fields(batch), failing(batch) if deep else []
    if wrong.any():
        return f"entry {seq[wrong.argmax()]} has an operation, a key or a body that cannot be"
    return f"entries fail their own checksum: {_named(bad)}" if bad else None


def _keys_fault(buf: bytes, at: int, header: Header) -> str | None:
    begin = at + HEADER_BYTES + header.records * ENTRY_BYTES
    keys = buf[begin : begin + header.keys_len]
    if keys.isascii():
        return None
    return keys_fault(keys, np.frombuffer(buf, ENTRY, header.records, at + HEADER_BYTES)["key_len"])


def _wrong_fields(batch: Batch) -> Mask:
    """Say which entries could not have been written by any version that we know."""
    op, entries = batch.op, batch.entries
    unknown = (op < min(Op)) | (op > max(Op)) | (entries["flags"] != 0) | (entries["reserved"] != 0)
    no_key = (op < CONTROL_FROM) & (entries["key_len"] == 0)
    wrong: Mask = unknown | no_key | ((op == Op.DELETE) & (entries["body_len"] > 0))
    return wrong


def failing(batch: Batch) -> list[int]:
    """Return the sequence numbers of the entries that fail their own checksum."""
    expected = checksums(batch.entries, batch.key_blobs(), batch.bodies())
    found = np.fromiter(expected, np.uint32, len(batch))
    bad: list[int] = batch.seq[found != batch.entries["crc"]].tolist()
    return bad


def _named(seqs: list[int]) -> str:
    return ", ".join(map(str, seqs[:_NAMED_MAX])) + (" …" if len(seqs) > _NAMED_MAX else "")
