"""The logs of Comcast's Sirius 2.5 (Scala), which many of our users have today.

All integers are big-endian and signed. An entry of a data file::

    0       4            12        20          28       32        36         40
    ┌───────┬────────────┬─────────┬───────────┬────────┬─────────┬──────────┬─────┬──────┐
    │ len   │ checksum   │ seq     │ ts_ms     │ op     │ key_len │ body_len │ key │ body │
    │ i32   │ i64        │ i64     │ i64       │ i32    │ i32     │ i32      │     │      │
    └───────┴────────────┴─────────┴───────────┴────────┴─────────┴──────────┴─────┴──────┘
                         └── len counts this, the checksum (FNV-1a, 64 bits) covers it ───┘

    op       1 PUT, 2 DELETE (whose body is empty)
    len      28 + key_len + body_len
    key      UTF-8, unless the ancestor ran with another default charset; not checked here

An entry of an index file, one for each entry of the data file, in the same order::

    0            8         16          24
    ┌────────────┬─────────┬───────────┐
    │ checksum   │ seq     │ offset    │   offset: where the data entry begins
    │ i64        │ i64     │ i64       │
    └────────────┴─────────┴───────────┘
    The checksum (FNV-1a, 64 bits) covers all 24 bytes, with zeros in its own place.

Two layouts of a folder::

    segmented                            legacy
    SEGMENTED-1.0          empty         1.data
    1/data  1/index                      1.index
    1/keys-collected       empty flag
    1/internally-compacted empty flag
    2/data  2/index  …

The numbers of segments have gaps where two were merged, sequence numbers where entries were
compacted away; both only ever grow. The ancestor begins a segment as soon as the one before is
full, so the last segment of a log may well be empty.

What a crash leaves behind. `N.compacting` and `M-N.merged` are copies that were being made: they
are not read. `N.temp` is the original of a segment while its copy takes its place: it is not read
either, unless the crash came just then and there is no `N`: then `N.temp` *is* the segment.

The ancestor never syncs, so its last data file may end within an entry. That is a *torn tail*: the
first bytes of an entry, or nothing but zeros, with no entry after them. Everything else that does
not check out is damage.
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from sirius.errors import (
    CorruptFile,
    InvalidRecord,
    LogClosed,
    LogFailed,
    NotALog,
    OutOfOrder,
    UsageError,
)
from sirius.types import ByteOffset, SegmentId
from sirius.wal._fnv import fnv1a_rows
from sirius.wal.fs import File, FileSystem, remove_tree

Layout = Literal["segmented", "legacy"]
Ints = npt.NDArray[np.int64]

PUT: Final = 1
DELETE: Final = 2
MARKER: Final = "SEGMENTED-1.0"
FLAGS: Final = ("keys-collected", "internally-compacted")

_LEFTOVERS: Final = (".compacting", ".merged", ".temp")
_ENTRY: Final = np.dtype(
    [
        ("len", ">i4"),
        ("checksum", ">u8"),
        ("seq", ">i8"),
        ("ts_ms", ">i8"),
        ("op", ">i4"),
        ("key_len", ">i4"),
        ("body_len", ">i4"),
    ]
)
_INDEX: Final = np.dtype([("checksum", ">u8"), ("seq", ">i8"), ("offset", ">i8")])
_ENTRY_OP_AT: Final = 28
_LEN: Final = struct.Struct(">i")
_FRAME_BYTES: Final = 12
_FIXED_BYTES: Final = _ENTRY.itemsize - _FRAME_BYTES
_LEN_MAX: Final = 2**31 - 1
_WINDOW_BYTES: Final = 4 * 1024 * 1024
_WRITE_RECORDS: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class AncestorColumns:
    """Entries in order of sequence number, one column a field. `op` is `PUT` or `DELETE`."""

    seq: Ints
    ts_ms: Ints
    op: npt.NDArray[np.uint8]
    keys: list[bytes]
    bodies: list[bytes]

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(frozen=True, slots=True)
class AncestorSegment:
    """A pair of files. `path` is the folder that holds them."""

    segment_id: SegmentId
    path: str
    data_path: str
    index_path: str
    flags: tuple[str, ...]
    index_entries: int


def detect(fs: FileSystem, path: str) -> Layout | None:
    """Say which of the ancestor's layouts a folder has. The marker counts before a legacy file."""
    if fs.exists(f"{path}/{MARKER}"):
        return "segmented"
    return "legacy" if fs.exists(f"{path}/1.data") else None


def _pair(layout: Layout, root: str, name: str) -> tuple[str, str, str]:
    """Return the folder, the data file and the index file of a segment."""
    if layout == "legacy":
        return root, f"{root}/{name}.data", f"{root}/{name}.index"
    return f"{root}/{name}", f"{root}/{name}/data", f"{root}/{name}/index"


class AncestorReader:
    """Reads a log of the ancestor. The folder is listed once, when the reader is made.

    Not thread-safe, and blocks on the disk. Read a log at rest: one that the ancestor still writes
    to may seem to have a torn tail.

    `leftovers` are the paths of what a crash left and nobody reads. `torn_tail` is where the last
    pass found the log cut off: the pass ends there with `allow_torn`, and raises without it.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        verify: bool = True,
        allow_torn: bool = False,
        key_bytes_max: int,
        body_bytes_max: int,
    ) -> None:
        layout = detect(fs, path)
        if layout is None:
            raise NotALog(f"{path}: neither {MARKER} nor 1.data is there")
        self.layout: Final[Layout] = layout
        self.torn_tail: tuple[str, ByteOffset] | None = None
        self._fs = fs
        self._path = path
        self._allow_torn = allow_torn
        self._new_scanner = partial(_Scanner, fs, verify, key_bytes_max, body_bytes_max)
        names = fs.listdir(path)
        segments = {1: "1"} if layout == "legacy" else self._segment_names(names)
        self._segments = tuple(self._segment(*item) for item in sorted(segments.items()))
        self.leftovers: Final = tuple(
            f"{path}/{name}"
            for name in names
            if name.endswith(_LEFTOVERS) and name not in segments.values()
        )

    def _segment_names(self, names: Sequence[str]) -> dict[int, str]:
        folders = [name for name in names if self._fs.isdir(f"{self._path}/{name}")]
        found = {int(name): name for name in folders if name.isdecimal()}
        for name in folders:
            stem = name.removesuffix(".temp")
            if stem != name and stem.isdecimal():
                found.setdefault(int(stem), name)
        return found

    def _segment(self, number: int, name: str) -> AncestorSegment:
        folder, data_path, index_path = _pair(self.layout, self._path, name)
        flags = tuple(flag for flag in FLAGS if self._fs.exists(f"{folder}/{flag}"))
        entries = self._size(index_path) // _INDEX.itemsize
        return AncestorSegment(SegmentId(number), folder, data_path, index_path, flags, entries)

    def _size(self, path: str) -> int:
        """Return a file's size. One that is missing is empty, as it is for the ancestor."""
        if not self._fs.exists(path):
            return 0
        with closing(self._fs.open(path, "r")) as file:
            return file.size()

    def segments(self) -> tuple[AncestorSegment, ...]:
        """Return the segments in order. A legacy log is one segment."""
        return self._segments

    def batches(self, records: int = 4096) -> Iterator[AncestorColumns]:
        """Yield all entries, at most `records` and a few MiB (or one entry) at a time.

        Entries ahead of damage are yielded before `CorruptFile` is raised.
        """
        for _, batches in self.by_segment(records):
            yield from batches

    def by_segment(
        self, records: int = 4096
    ) -> Iterator[tuple[AncestorSegment, Iterator[AncestorColumns]]]:
        """Yield every segment with its batches; take those before you ask for the next segment."""
        if records < 1:
            raise UsageError(f"a batch has at least 1 record, not {records}")
        scanner = self._begin_pass()
        for segment in self._segments:
            yield segment, _batches(self._windows(scanner, segment), records)

    def check_index(self) -> None:
        """Raise `CorruptFile` unless every index matches its data, entry by entry."""
        scanner = self._begin_pass()
        for segment in self._segments:
            count = 0
            for window in self._windows(scanner, segment):
                self._check_index(segment, count, window)
                count += len(window.offsets)
            end = count * _INDEX.itemsize
            if self._size(segment.index_path) > end:
                raise CorruptFile(segment.index_path, end, "more entries than the data file has")

    def _check_index(self, segment: AncestorSegment, count: int, window: _Window) -> None:
        """Compare the index from entry number `count` on with the entries of a window."""
        at, raw = count * _INDEX.itemsize, b""
        if self._fs.exists(segment.index_path):
            with closing(self._fs.open(segment.index_path, "r")) as file:
                raw = file.read(at, len(window.offsets) * _INDEX.itemsize)
        index = np.frombuffer(raw, _INDEX, len(raw) // _INDEX.itemsize)
        head, offsets = window.head[: len(index)], window.offsets[: len(index)]
        bad, reason = _first_fault(
            ("a checksum that does not match", index["checksum"] != _index_checksums(index)),
            ("not the data's sequence number", index["seq"] != head["seq"]),
            ("not the data's offset", index["offset"] != window.base + offsets),
        )
        if bad < len(window.offsets):
            reason = reason or f"no entry for sequence number {window.head['seq'][bad]}"
            raise CorruptFile(segment.index_path, at + bad * _INDEX.itemsize, reason)

    def _begin_pass(self) -> _Scanner:
        self.torn_tail = None
        return self._new_scanner()

    def _windows(self, scanner: _Scanner, segment: AncestorSegment) -> Iterator[_Window]:
        path = segment.data_path
        if not self._fs.exists(path):
            if segment.index_entries:
                raise CorruptFile(path, 0, "the file is missing, its index is not")
            return
        try:
            yield from scanner.windows(path)
        except _TornTail as torn:
            if segment is not self._segments[-1]:
                raise
            self.torn_tail = (path, ByteOffset(torn.offset))
            if not self._allow_torn:
                raise


class _TornTail(CorruptFile):
    """The file ends within an entry."""


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """Checked entries. `data` was read at `base` in the file, `offsets` count from there."""

    base: int
    data: bytes
    offsets: Ints
    head: npt.NDArray[Any]

    def columns(self, rows: slice) -> AncestorColumns:
        """Return some of the entries as columns of their own."""
        head = self.head[rows]
        key_at = self.offsets[rows] + _ENTRY.itemsize
        body_at = key_at + head["key_len"]
        return AncestorColumns(
            seq=head["seq"].astype(np.int64),
            ts_ms=head["ts_ms"].astype(np.int64),
            op=head["op"].astype(np.uint8),
            keys=self._cut(key_at, body_at),
            bodies=self._cut(body_at, body_at + head["body_len"]),
        )

    def _cut(self, begin: Ints, end: Ints) -> list[bytes]:
        data = self.data
        return [data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]


def _batches(windows: Iterator[_Window], records: int) -> Iterator[AncestorColumns]:
    for window in windows:
        for first in range(0, len(window.offsets), records):
            yield window.columns(slice(first, first + records))


Fault = tuple[str, npt.NDArray[np.bool_]]


def _first_fault(*faults: Fault) -> tuple[int, str]:
    """Return the first row with a fault and the reason; the number of rows and "" if none has."""
    faulty = np.logical_or.reduce([rows for _, rows in faults])
    if not faulty.any():
        return len(faulty), ""
    row = int(faulty.argmax())
    return row, next(reason for reason, rows in faults if rows[row])


class _Scanner:
    """One pass over the data files of a log, which remembers the last sequence number."""

    def __init__(
        self, fs: FileSystem, verify: bool, key_bytes_max: int, body_bytes_max: int
    ) -> None:
        self._fs = fs
        self._verify = verify
        self._key_bytes_max = key_bytes_max
        self._body_bytes_max = body_bytes_max
        self._len_max = min(_FIXED_BYTES + key_bytes_max + body_bytes_max, _LEN_MAX)
        self._last_seq = 0

    def windows(self, path: str) -> Iterator[_Window]:
        """Yield the entries of a file, all checked, a part of the file at a time."""
        with closing(self._fs.open(path, "r")) as file:
            at, size = 0, file.size()
            while at < size:
                window = self._parse(at, self._read(file, path, at, size - at))
                bad, reason = _first_fault(*self._faults(window))
                if bad:
                    self._last_seq = int(window.head["seq"][bad - 1])
                    yield _Window(at, window.data, window.offsets[:bad], window.head[:bad])
                if reason:
                    raise CorruptFile(path, at + int(window.offsets[bad]), reason)
                at += int(window.offsets[-1]) + _FRAME_BYTES + int(window.head["len"][-1])

    def _read(self, file: File, path: str, at: int, left: int) -> bytes:
        """Read a part of the file that holds at least the whole entry at its beginning.

        A length is believed only if the limits allow it and the file is long enough for it.
        """
        part = _read_exactly(file, path, at, min(left, _WINDOW_BYTES))
        length = _LEN.unpack_from(part)[0] if left >= _LEN.size else self._len_max
        needed = _FRAME_BYTES + length
        if self._allows(length) and needed <= left:
            return part if needed <= len(part) else _read_exactly(file, path, at, needed)
        if self._is_torn(file, at, left):
            raise _TornTail(path, at, f"a torn tail of {left} bytes")
        raise CorruptFile(path, at, f"an entry of length {length} where {left} bytes are left")

    def _allows(self, length: int) -> bool:
        return _FIXED_BYTES <= length <= self._len_max

    def _parse(self, base: int, data: bytes) -> _Window:
        """Find the whole entries in `data`."""
        offsets, at, end = [], 0, len(data)
        length_at, len_max = _LEN.unpack_from, self._len_max
        while at + _ENTRY.itemsize <= end:
            (length,) = length_at(data, at)
            following = at + _FRAME_BYTES + length
            if not _FIXED_BYTES <= length <= len_max or following > end:
                break
            offsets.append(at)
            at = following
        rows = np.array(offsets, np.int64)
        return _Window(base, data, rows, _heads(data, rows))

    def _faults(self, window: _Window) -> list[Fault]:
        head = window.head
        seq_before = np.concatenate([[self._last_seq], head["seq"][:-1]])
        faults = self._field_faults(head, seq_before)
        if not self._verify:
            return faults
        lengths = head["len"].astype(np.int64)
        found = fnv1a_rows(window.data, window.offsets + _FRAME_BYTES, lengths)
        return [("a checksum that does not match", head["checksum"] != found), *faults]

    def _field_faults(self, head: npt.NDArray[Any], seq_before: Ints | int) -> list[Fault]:
        op, key_len = head["op"], head["key_len"].astype(np.int64)
        body_len = head["body_len"].astype(np.int64)
        return [
            ("neither PUT nor DELETE", (op != PUT) & (op != DELETE)),
            ("a key length out of bounds", (key_len < 0) | (key_len > self._key_bytes_max)),
            ("a body length out of bounds", (body_len < 0) | (body_len > self._body_bytes_max)),
            ("lengths that do not add up", head["len"] != _FIXED_BYTES + key_len + body_len),
            ("a DELETE with a body", (op == DELETE) & (body_len != 0)),
            ("a sequence number that is not above the one before", head["seq"] <= seq_before),
        ]

    def _is_torn(self, file: File, at: int, left: int) -> bool:
        """Say whether the end of a file, where no whole entry is, is merely torn."""
        head = file.read(at, _ENTRY.itemsize)
        if len(head) < _LEN.size:
            return True
        if not self._allows(_LEN.unpack_from(head)[0]):
            return _is_zero(file, at, left)
        if len(head) < _ENTRY.itemsize:
            return True
        # Its length is allowed and more than is left, so the tail is small enough to read at once.
        return self._is_beginning(file.read(at, left))

    def _is_beginning(self, tail: bytes) -> bool:
        """Say whether `tail` begins an entry that it does not end, and holds no entry besides.

        No checksum is asked for: fields that agree are reason enough not to drop what is there.
        """
        found = [match.start() for match in re.finditer(rb"\0\0\0[\1\2]", tail)]
        begins = np.array(found, np.int64) - _ENTRY_OP_AT
        begins = begins[(begins >= 0) & (begins <= len(tail) - _ENTRY.itemsize)]
        head = _heads(tail, begins)
        faults = self._field_faults(head, self._last_seq)
        sound = ~np.logical_or.reduce([rows for _, rows in faults])
        ends = begins + _FRAME_BYTES + head["len"]
        return 0 in begins[sound] and bool((ends[sound] > len(tail)).all())


def _heads(data: bytes, offsets: Ints) -> npt.NDArray[Any]:
    """Return the fixed fields of the entries at `offsets`."""
    rows = sliding_window_view(np.frombuffer(data, np.uint8), _ENTRY.itemsize)[offsets]
    return rows.view(_ENTRY)[:, 0]


def _read_exactly(file: File, path: str, at: int, length: int) -> bytes:
    data = file.read(at, length)
    if len(data) < length:
        raise CorruptFile(path, at + len(data), "the file became shorter while it was read")
    return data


def _is_zero(file: File, at: int, left: int) -> bool:
    """Say whether a file ends in nothing but zeros: room that was given, but never written."""
    parts = ((at + done, min(left - done, _WINDOW_BYTES)) for done in range(0, left, _WINDOW_BYTES))
    return all(file.read(*part).count(0) == part[1] for part in parts)


def _index_checksums(index: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return what the checksums of index entries should be."""
    blank = index.copy()
    blank["checksum"] = 0
    starts = np.arange(len(index), dtype=np.int64) * _INDEX.itemsize
    return fnv1a_rows(blank.tobytes(), starts, np.full(len(index), _INDEX.itemsize))


class AncestorWriter:
    """Writes a log as the ancestor would have written it, byte for byte.

    Everything is written below `<path>.writing`, which gets its name in `close()`, once all of it
    is on disk: a log is there as a whole or not at all. Both names have to be free. Memory holds a
    copy of at most 4096 entries. Not thread-safe, and blocks on the disk; after an `OSError` only
    `abort()` is left. As a context manager it closes at the end, and aborts on an exception.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        *,
        layout: Layout = "segmented",
        events_per_segment: int = 1_000_000,
    ) -> None:
        if events_per_segment < 1:
            raise UsageError(f"a segment has room for at least 1 event, not {events_per_segment}")
        self._fs = fs
        self._path = path.rstrip("/")
        self._root = f"{self._path}.writing"
        self._layout: Final[Layout] = layout
        self._room = events_per_segment if layout == "segmented" else None
        self._segment: _SegmentFiles | None = None
        self._segment_id = SegmentId(0)
        self._last_seq = 0
        self._state: Literal["open", "failed", "closed"] = "open"
        self._refuse_target()
        if fs.exists(self._root):
            raise UsageError(f"{self._root} is there already: another writer's, or left by a crash")
        fs.mkdir(self._root)
        try:
            if layout == "segmented":
                _create_empty(fs, f"{self._root}/{MARKER}")
        except BaseException:
            self.abort()
            raise

    def append(self, columns: AncestorColumns) -> None:
        """Write entries after those that are there. Columns with a fault are refused as a whole."""
        self._check_open()
        self._check(columns)
        self._state = "failed"
        at = 0
        while at < len(columns):
            segment = self._segment_with_room()
            room = _WRITE_RECORDS if self._room is None else self._room - segment.entries
            end = min(at + room, at + _WRITE_RECORDS, len(columns))
            segment.append(columns, slice(at, end))
            at = end
        if at:
            self._last_seq = int(columns.seq[-1])
        self._state = "open"

    def new_segment(self, flags: Sequence[str] = (), segment_id: int | None = None) -> None:
        """Begin a segment. From the first call on, segments begin here alone, however long."""
        self._check_open()
        number = self._segment_id + 1 if segment_id is None else segment_id
        if self._layout == "legacy":
            raise UsageError("a legacy log has one segment")
        if number <= self._segment_id:
            raise UsageError(f"segment {number} cannot come after segment {self._segment_id}")
        if unknown := set(flags) - set(FLAGS):
            raise UsageError(f"no such flags: {', '.join(sorted(unknown))}")
        self._room = None
        self._state = "failed"
        self._begin(SegmentId(number), flags)
        self._state = "open"

    def close(self) -> None:
        """Put the log in its place, on disk. Does nothing after `close()` or `abort()`."""
        if self._state == "closed":
            return
        try:
            self._check_open()
            self._segment_with_room().finish()
            self._fs.sync_dir(self._root)
            self._refuse_target()
            self._fs.replace(self._root, self._path)
            self._fs.sync_dir(posixpath.dirname(self._path) or ".")
        except BaseException:
            self.abort()
            raise
        self._state = "closed"

    def abort(self) -> None:
        """Remove what was written. Does nothing after `close()`."""
        if self._state == "closed":
            return
        self._state = "closed"
        if self._segment is not None:
            self._segment.release()
        remove_tree(self._fs, self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def _check_open(self) -> None:
        if self._state == "closed":
            raise LogClosed(f"{self._path}: the writer was closed")
        if self._state == "failed":
            raise LogFailed(f"{self._path}: a write failed before")

    def _refuse_target(self) -> None:
        if self._fs.exists(self._path):
            raise UsageError(f"{self._path} is there already")

    def _check(self, columns: AncestorColumns) -> None:
        lengths = {len(columns.ts_ms), len(columns.op), len(columns.keys), len(columns.bodies)}
        if lengths != {len(columns)}:
            raise InvalidRecord(f"columns of different lengths: {len(columns)} and {lengths}")
        seq_before = np.concatenate([[self._last_seq], columns.seq[:-1]])
        if (columns.seq <= seq_before).any():
            raise OutOfOrder(f"sequence numbers must grow, and be above {self._last_seq}")
        is_delete, body_len = columns.op == DELETE, _lengths(columns.bodies)
        if not (is_delete | (columns.op == PUT)).all():
            raise InvalidRecord("an operation that is neither PUT nor DELETE")
        if (body_len[is_delete] != 0).any():
            raise InvalidRecord("a DELETE with a body")
        if (_lengths(columns.keys) + body_len > _LEN_MAX - _FIXED_BYTES).any():
            raise InvalidRecord("a key and body of more than 2 GiB")

    def _segment_with_room(self) -> _SegmentFiles:
        """Return the segment that the next entry belongs to, which may have to be begun."""
        segment = self._segment
        if segment is None or (self._room is not None and segment.entries >= self._room):
            return self._begin(SegmentId(self._segment_id + 1), ())
        return segment

    def _begin(self, segment_id: SegmentId, flags: Sequence[str]) -> _SegmentFiles:
        if self._segment is not None:
            self._segment.finish()
        folder, data_path, index_path = _pair(self._layout, self._root, str(segment_id))
        if self._layout == "segmented":
            self._fs.mkdir(folder)
        for flag in flags:
            _create_empty(self._fs, f"{folder}/{flag}")
        self._segment_id = segment_id
        self._segment = _SegmentFiles(self._fs, folder, data_path, index_path)
        return self._segment


class _SegmentFiles:
    """The segment that is being written."""

    def __init__(self, fs: FileSystem, folder: str, data_path: str, index_path: str) -> None:
        self.entries = 0
        self._fs = fs
        self._folder = folder
        self._bytes = 0
        self._data = fs.open(data_path, "x")
        self._index = fs.open(index_path, "x")

    def append(self, columns: AncestorColumns, rows: slice) -> None:
        data, offsets = _encode(columns, rows)
        index = np.zeros(len(offsets), _INDEX)
        index["seq"] = columns.seq[rows]
        index["offset"] = self._bytes + offsets
        index["checksum"] = _index_checksums(index)
        self._data.append([data])
        self._index.append([index.tobytes()])
        self._bytes += len(data)
        self.entries += len(offsets)

    def finish(self) -> None:
        """Bring the segment to disk and close its files."""
        self._data.sync()
        self._index.sync()
        self.release()
        self._fs.sync_dir(self._folder)

    def release(self) -> None:
        self._data.close()
        self._index.close()


def _encode(columns: AncestorColumns, rows: slice) -> tuple[bytearray, Ints]:
    """Return entries as bytes, and where each of them begins."""
    keys, bodies = columns.keys[rows], columns.bodies[rows]
    head = np.zeros(len(keys), _ENTRY)
    head["seq"] = columns.seq[rows]
    head["ts_ms"] = columns.ts_ms[rows]
    head["op"] = columns.op[rows]
    head["key_len"] = _lengths(keys)
    head["body_len"] = _lengths(bodies)
    lengths = _FIXED_BYTES + _lengths(keys) + _lengths(bodies)
    head["len"] = lengths
    ends = np.cumsum(lengths + _FRAME_BYTES)
    offsets = ends - lengths - _FRAME_BYTES
    heads = head.view(f"V{_ENTRY.itemsize}").tolist()
    data = bytearray(b"".join(chain.from_iterable(zip(heads, keys, bodies, strict=True))))
    checksums = fnv1a_rows(data, offsets + _FRAME_BYTES, lengths).astype(">u8")
    places = sliding_window_view(np.frombuffer(data, np.uint8), 8, writeable=True)
    places[offsets + _LEN.size] = checksums.view(np.uint8).reshape(-1, 8)
    return data, offsets


def _lengths(parts: Sequence[bytes]) -> Ints:
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _create_empty(fs: FileSystem, path: str) -> None:
    with closing(fs.open(path, "x")) as file:
        file.sync()
