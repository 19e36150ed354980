"""Writing logs as the ancestor would have written them."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from types import TracebackType
from typing import Final, Literal, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sirius.errors import (
    InvalidRecord,
    LogClosed,
    LogFailed,
    OutOfOrder,
    UsageError,
)
from sirius.types import SegmentId
from sirius.wal.ancestor.fnv import fnv1a_rows
from sirius.wal.ancestor.format import (
    DELETE,
    ENTRY,
    FIXED_BYTES,
    FLAGS,
    FRAME_BYTES,
    INDEX,
    LEN,
    LEN_MAX,
    MARKER,
    PUT,
    AncestorColumns,
    Ints,
    Layout,
    index_checksums,
    pair,
)
from sirius.wal.fs import FileSystem, remove_tree

_WRITE_RECORDS: Final = 4096


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
        if (_lengths(columns.keys) + body_len > LEN_MAX - FIXED_BYTES).any():
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
        folder, data_path, index_path = pair(self._layout, self._root, str(segment_id))
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
        index = np.zeros(len(offsets), INDEX)
        index["seq"] = columns.seq[rows]
        index["offset"] = self._bytes + offsets
        index["checksum"] = index_checksums(index)
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
    head = np.zeros(len(keys), ENTRY)
    head["seq"] = columns.seq[rows]
    head["ts_ms"] = columns.ts_ms[rows]
    head["op"] = columns.op[rows]
    head["key_len"] = _lengths(keys)
    head["body_len"] = _lengths(bodies)
    lengths = FIXED_BYTES + _lengths(keys) + _lengths(bodies)
    head["len"] = lengths
    ends = np.cumsum(lengths + FRAME_BYTES)
    offsets = ends - lengths - FRAME_BYTES
    heads = head.view(f"V{ENTRY.itemsize}").tolist()
    data = bytearray(b"".join(chain.from_iterable(zip(heads, keys, bodies, strict=True))))
    checksums = fnv1a_rows(data, offsets + FRAME_BYTES, lengths).astype(">u8")
    places = sliding_window_view(np.frombuffer(data, np.uint8), 8, writeable=True)
    places[offsets + LEN.size] = checksums.view(np.uint8).reshape(-1, 8)
    return data, offsets


def _lengths(parts: Sequence[bytes]) -> Ints:
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _create_empty(fs: FileSystem, path: str) -> None:
    with closing(fs.open(path, "x")) as file:
        file.sync()
