"""The ancestor's logs as the tests make and read them. Not a test itself.

`entry` and `index_entry` are the brute-force twins of the writer: one record, `struct`, and the
plain hash. The log that the hex below spells out ties the twins to the format.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from sirius.errors import CorruptFile
from sirius.wal.ancestor import (
    DELETE,
    MARKER,
    PUT,
    AncestorColumns,
    AncestorReader,
    AncestorWriter,
    Layout,
)
from sirius.wal.ancestor.fnv import fnv1a
from sirius.wal.fs import File, OpenMode, OsFileSystem

FS = OsFileSystem()
LAYOUTS: tuple[Layout, ...] = ("segmented", "legacy")


class Event(NamedTuple):
    seq: int
    ts_ms: int
    op: int
    key: bytes
    body: bytes


EVENTS = [
    Event(1, 1_700_000_000_000, PUT, b"title/casablanca", b'{"year": 1942}'),
    Event(2, 1_700_000_000_001, DELETE, "título/ça".encode(), b""),
    Event(9, 1_600_000_000_000, PUT, b"", b""),
    Event(2**40, -1, PUT, b"k", bytes(range(256)) * 2),
]

# Sequence number 1, at 2 ms, PUT "a" = "b"; sequence number 4, at 3 ms, DELETE "é".
HEX_DATA = """
0000001e bcae1f3a6f8db398 0000000000000001 0000000000000002 00000001 00000001 00000001 61 62
0000001e 92197cbf7b6821f0 0000000000000004 0000000000000003 00000002 00000002 00000000 c3a9
"""
HEX_INDEX = """
ee67ea796ba12cf2 0000000000000001 0000000000000000
3428d060add01e8b 0000000000000004 000000000000002a
"""


def entry(event: Event, **other: int) -> bytes:
    """An entry as the ancestor writes it, or with other lengths than it should have."""
    key_len, body_len = other.get("key_len", len(event.key)), other.get("body_len", len(event.body))
    data = struct.pack(">qqiii", event.seq, event.ts_ms, event.op, key_len, body_len)
    data += event.key + event.body
    return struct.pack(">iQ", other.get("length", len(data)), fnv1a(data)) + data


def index_entry(seq: int, offset: int) -> bytes:
    places = struct.pack(">qq", seq, offset)
    return struct.pack(">Q", fnv1a(bytes(8) + places)) + places


def data_of(events: Iterable[Event]) -> bytes:
    return b"".join(entry(event) for event in events)


def index_of(events: Iterable[Event]) -> bytes:
    index, offset = b"", 0
    for event in events:
        index += index_entry(event.seq, offset)
        offset += len(entry(event))
    return index


def columns_of(events: Iterable[Event]) -> AncestorColumns:
    rows = list(events)
    return AncestorColumns(
        seq=np.array([row.seq for row in rows], np.int64),
        ts_ms=np.array([row.ts_ms for row in rows], np.int64),
        op=np.array([row.op for row in rows], np.uint8),
        keys=[row.key for row in rows],
        bodies=[row.body for row in rows],
    )


def events_in(columns: AncestorColumns) -> list[Event]:
    fields = (columns.seq.tolist(), columns.ts_ms.tolist(), columns.op.tolist())
    return [Event(*row) for row in zip(*fields, columns.keys, columns.bodies, strict=True)]


def reader_of(
    path: Path,
    fs: OsFileSystem = FS,
    *,
    verify: bool = True,
    allow_torn: bool = False,
    key_bytes_max: int = 1000,
    body_bytes_max: int = 100_000,
) -> AncestorReader:
    return AncestorReader(
        fs,
        str(path),
        verify=verify,
        allow_torn=allow_torn,
        key_bytes_max=key_bytes_max,
        body_bytes_max=body_bytes_max,
    )


def read(reader: AncestorReader, records: int = 4096) -> list[Event]:
    return [event for batch in reader.batches(records) for event in events_in(batch)]


def read_until_error(reader: AncestorReader) -> tuple[list[Event], CorruptFile]:
    """What comes before the error, and the error."""
    events: list[Event] = []
    with pytest.raises(CorruptFile) as caught:  # noqa: PT012 - what came before counts too
        for batch in reader.batches():
            events += events_in(batch)
    return events, caught.value


def write(
    path: Path, events: Iterable[Event], layout: Layout = "segmented", per_segment: int = 1_000_000
) -> Path:
    with AncestorWriter(FS, str(path), layout=layout, events_per_segment=per_segment) as writer:
        writer.append(columns_of(events))
    return path


def put_files(path: Path, *segments: bytes | None, legacy: bool = False) -> Path:
    """Lay out a log from the bytes of its data files, without an index."""
    path.mkdir()
    if legacy:
        (path / "1.data").write_bytes(segments[0] or b"")
        return path
    (path / MARKER).touch()
    for number, data in enumerate(segments, 1):
        (path / str(number)).mkdir()
        if data is not None:
            (path / str(number) / "data").write_bytes(data)
    return path


def tree(path: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes; folders with None."""
    return {
        str(item.relative_to(path)): None if item.is_dir() else item.read_bytes()
        for item in sorted(path.rglob("*"))
    }


def copy_log(source: Path, target: Path, layout: Layout = "segmented") -> None:
    """Copy a log as a converter would: with its segments, their numbers and flags."""
    with AncestorWriter(FS, str(target), layout=layout) as writer:
        for segment, batches in reader_of(source).by_segment():
            if layout == "segmented":
                writer.new_segment(segment.flags, segment.segment_id)
            for batch in batches:
                writer.append(batch)


class WatchedFs(OsFileSystem):
    """Notes the length of every read, and lets the test change what a file does."""

    def __init__(self, *, room: int | None = None, lost: int = 0) -> None:
        self.reads: list[int] = []
        self.room = room
        self.lost = lost

    def open(self, path: str, mode: OpenMode) -> File:
        return WatchedFile(super().open(path, mode), self)


class WatchedFile:
    def __init__(self, file: File, fs: WatchedFs) -> None:
        self._file = file
        self._fs = fs
        self.sync, self.forget, self.close = file.sync, file.forget, file.close
        self.truncate, self.allocate = file.truncate, file.allocate

    def read(self, offset: int, length: int) -> bytes:
        self._fs.reads.append(length)
        return self._file.read(offset, length)

    def size(self) -> int:
        return self._file.size() + self._fs.lost

    def append(self, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        data = b"".join(buffers)
        if self._fs.room is not None and len(data) > self._fs.room:
            self._file.append([data[: self._fs.room]])
            raise OSError(errno.ENOSPC, "no room")
        self._file.append([data])


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    gaps = draw(st.lists(st.integers(1, 2**32), max_size=12))
    seqs = np.cumsum(np.array(gaps, np.int64)).tolist()
    return [Event(seq, *draw(rests)) for seq in seqs]


times = st.integers(-(2**63), 2**63 - 1)
keys = st.text(max_size=30).map(str.encode)
rests = st.one_of(
    st.tuples(times, st.just(PUT), keys, st.binary(max_size=200)),
    st.tuples(times, st.just(DELETE), keys, st.just(b"")),
)
