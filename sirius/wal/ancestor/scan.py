"""Going over the data files of the ancestor's logs: checked entries, and what a damaged end is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from sirius.errors import (
    CorruptFile,
)
from sirius.wal.ancestor.fnv import fnv1a_rows
from sirius.wal.ancestor.format import (
    DELETE,
    ENTRY,
    ENTRY_OP_AT,
    FIXED_BYTES,
    FRAME_BYTES,
    LEN,
    LEN_MAX,
    PUT,
    WINDOW_BYTES,
    AncestorColumns,
    Ints,
)
from sirius.wal.fs import File, FileSystem


class TornTail(CorruptFile):
    """The file ends within an entry."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Checked entries. `data` was read at `base` in the file, `offsets` count from there."""

    base: int
    data: bytes
    offsets: Ints
    head: npt.NDArray[Any]

    def columns(self, rows: slice) -> AncestorColumns:
        """Return some of the entries as columns of their own."""
        head = self.head[rows]
        key_at = self.offsets[rows] + ENTRY.itemsize
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


def in_batches(windows: Iterator[Window], records: int) -> Iterator[AncestorColumns]:
    for window in windows:
        for first in range(0, len(window.offsets), records):
            yield window.columns(slice(first, first + records))


Fault = tuple[str, npt.NDArray[np.bool_]]


def first_fault(*faults: Fault) -> tuple[int, str]:
    """Return the first row with a fault and the reason; the number of rows and "" if none has."""
    faulty = np.logical_or.reduce([rows for _, rows in faults])
    if not faulty.any():
        return len(faulty), ""
    row = int(faulty.argmax())
    return row, next(reason for reason, rows in faults if rows[row])


class Scanner:
    """One pass over the data files of a log, which remembers the last sequence number."""

    def __init__(
        self, fs: FileSystem, verify: bool, key_bytes_max: int, body_bytes_max: int
    ) -> None:
        self._fs = fs
        self._verify = verify
        self._key_bytes_max = key_bytes_max
        self._body_bytes_max = body_bytes_max
        self._len_max = min(FIXED_BYTES + key_bytes_max + body_bytes_max, LEN_MAX)
        self._last_seq = 0

    def windows(self, path: str) -> Iterator[Window]:
        """Yield the entries of a file, all checked, a part of the file at a time."""
        with closing(self._fs.open(path, "r")) as file:
            at, size = 0, file.size()
            while at < size:
                window = self._parse(at, self._read(file, path, at, size - at))
                bad, reason = first_fault(*self._faults(window))
                if bad:
                    self._last_seq = int(window.head["seq"][bad - 1])
                    yield Window(at, window.data, window.offsets[:bad], window.head[:bad])
                if reason:
                    raise CorruptFile(path, at + int(window.offsets[bad]), reason)
                at += int(window.offsets[-1]) + FRAME_BYTES + int(window.head["len"][-1])

    def _read(self, file: File, path: str, at: int, left: int) -> bytes:
        """Read a part of the file that holds at least the whole entry at its beginning.

        A length is believed only if the limits allow it and the file is long enough for it.
        """
        part = _read_exactly(file, path, at, min(left, WINDOW_BYTES))
        length = LEN.unpack_from(part)[0] if left >= LEN.size else self._len_max
        needed = FRAME_BYTES + length
        if self._allows(length) and needed <= left:
            return part if needed <= len(part) else _read_exactly(file, path, at, needed)
        if self._is_torn(file, at, left):
            raise TornTail(path, at, f"a torn tail of {left} bytes")
        raise CorruptFile(path, at, f"an entry of length {length} where {left} bytes are left")

    def _allows(self, length: int) -> bool:
        return FIXED_BYTES <= length <= self._len_max

    def _parse(self, base: int, data: bytes) -> Window:
        """Find the whole entries in `data`."""
        offsets, at, end = [], 0, len(data)
        length_at, len_max = LEN.unpack_from, self._len_max
        while at + ENTRY.itemsize <= end:
            (length,) = length_at(data, at)
            following = at + FRAME_BYTES + length
            if not FIXED_BYTES <= length <= len_max or following > end:
                break
            offsets.append(at)
            at = following
        rows = np.array(offsets, np.int64)
        return Window(base, data, rows, _heads(data, rows))

    def _faults(self, window: Window) -> list[Fault]:
        head = window.head
        seq_before = np.concatenate([[self._last_seq], head["seq"][:-1]])
        faults = self._field_faults(head, seq_before)
        if not self._verify:
            return faults
        lengths = head["len"].astype(np.int64)
        found = fnv1a_rows(window.data, window.offsets + FRAME_BYTES, lengths)
        return [("a checksum that does not match", head["checksum"] != found), *faults]

    def _field_faults(self, head: npt.NDArray[Any], seq_before: Ints | int) -> list[Fault]:
        op, key_len = head["op"], head["key_len"].astype(np.int64)
        body_len = head["body_len"].astype(np.int64)
        return [
            ("neither PUT nor DELETE", (op != PUT) & (op != DELETE)),
            ("a key length out of bounds", (key_len < 0) | (key_len > self._key_bytes_max)),
            ("a body length out of bounds", (body_len < 0) | (body_len > self._body_bytes_max)),
            ("lengths that do not add up", head["len"] != FIXED_BYTES + key_len + body_len),
            ("a DELETE with a body", (op == DELETE) & (body_len != 0)),
            ("a sequence number that is not above the one before", head["seq"] <= seq_before),
        ]

    def _is_torn(self, file: File, at: int, left: int) -> bool:
        """Say whether the end of a file, where no whole entry is, is merely torn."""
        head = file.read(at, ENTRY.itemsize)
        if len(head) < LEN.size:
            return True
        if not self._allows(LEN.unpack_from(head)[0]):
            return _is_zero(file, at, left)
        if len(head) < ENTRY.itemsize:
            return True
        # Its length is allowed and more than is left, so the tail is small enough to read at once.
        return self._is_beginning(file.read(at, left))

    def _is_beginning(self, tail: bytes) -> bool:
        """Say whether `tail` begins an entry that it does not end, and holds no entry besides.

        No checksum is asked for: fields that agree are reason enough not to drop what is there.
        """
        found = [match.start() for match in re.finditer(rb"\0\0\0[\1\2]", tail)]
        begins = np.array(found, np.int64) - ENTRY_OP_AT
        begins = begins[(begins >= 0) & (begins <= len(tail) - ENTRY.itemsize)]
        head = _heads(tail, begins)
        faults = self._field_faults(head, self._last_seq)
        sound = ~np.logical_or.reduce([rows for _, rows in faults])
        ends = begins + FRAME_BYTES + head["len"]
        return 0 in begins[sound] and bool((ends[sound] > len(tail)).all())


def _heads(data: bytes, offsets: Ints) -> npt.NDArray[Any]:
    """Return the fixed fields of the entries at `offsets`."""
    rows = sliding_window_view(np.frombuffer(data, np.uint8), ENTRY.itemsize)[offsets]
    return rows.view(ENTRY)[:, 0]


def _read_exactly(file: File, path: str, at: int, length: int) -> bytes:
    data = file.read(at, length)
    if len(data) < length:
        raise CorruptFile(path, at + len(data), "the file became shorter while it was read")
    return data


def _is_zero(file: File, at: int, left: int) -> bool:
    """Say whether a file ends in nothing but zeros: room that was given, but never written."""
    parts = ((at + done, min(left - done, WINDOW_BYTES)) for done in range(0, left, WINDOW_BYTES))
    return all(file.read(*part).count(0) == part[1] for part in parts)
