"""Names, types and layouts of the ancestor's logs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sirius.types import SegmentId
from sirius.wal.ancestor.fnv import fnv1a_rows
from sirius.wal.fs import FileSystem

Layout = Literal["segmented", "legacy"]
Ints = npt.NDArray[np.int64]
PUT: Final = 1
DELETE: Final = 2
MARKER: Final = "SEGMENTED-1.0"
FLAGS: Final = ("keys-collected", "internally-compacted")
LEFTOVERS: Final = (".compacting", ".merged", ".temp")
ENTRY: Final = np.dtype(
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
INDEX: Final = np.dtype([("checksum", ">u8"), ("seq", ">i8"), ("offset", ">i8")])
ENTRY_OP_AT: Final = 28
LEN: Final = struct.Struct(">i")
FRAME_BYTES: Final = 12
FIXED_BYTES: Final = ENTRY.itemsize - FRAME_BYTES
LEN_MAX: Final = 2**31 - 1
WINDOW_BYTES: Final = 4 * 1024 * 1024


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


def pair(layout: Layout, root: str, name: str) -> tuple[str, str, str]:
    """Return the folder, the data file and the index file of a segment."""
    if layout == "legacy":
        return root, f"{root}/{name}.data", f"{root}/{name}.index"
    return f"{root}/{name}", f"{root}/{name}/data", f"{root}/{name}/index"


def index_checksums(index: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return what the checksums of index entries should be."""
    blank = index.copy()
    blank["checksum"] = 0
    starts = np.arange(len(index), dtype=np.int64) * INDEX.itemsize
    return fnv1a_rows(blank.tobytes(), starts, np.full(len(index), INDEX.itemsize))
