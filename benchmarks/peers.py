"""What we measure ourselves against: plain Python, and the bare disk."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from sirius.wal import LogReader

_ROW = struct.Struct("<IQqBHI")


class Offsets:
    """R, the limit of replay: key and body sliced at known offsets of a buffer in memory, a handler called for each."""

    def __init__(self, path: str) -> None:
        parts: list[bytes] = []
        self._rows: tuple[list[int], list[int], list[int]] = ([], [], [])
        at = 0
        with LogReader.open(path) as reader, reader.snapshot() as snapshot:
            for batch in snapshot.batches():
                for key, body in zip(batch.key_blobs(), batch.bodies(), strict=True):
                    parts += (key, body)
                    for column, end in zip(self._rows, (0, len(key), len(body)), strict=True):
                        at += end
                        column.append(at)
        self._buffer = b"".join(parts)

    def run(self, handler: Callable[[bytes, bytes], object]) -> None:
        buffer = self._buffer
        starts, middles, ends = self._rows
        for a, b, c in zip(starts, middles, ends, strict=True):
            handler(buffer[a:b], buffer[b:c])


def write_rows(path: str, target: Path) -> None:
    """Write a log's records one after the other into one file, as a simple log would."""
    with LogReader.open(path) as reader, reader.snapshot() as snapshot, target.open("wb") as file:
        for batch in snapshot.batches():
            for record in batch.records():
                key = record.key.encode()
                head = (0, record.seq, record.ts_us, int(record.op), len(key), len(record.body))
                file.write(_ROW.pack(*head) + key + record.body)


def compact_rows(source: Path, target: Path) -> int:
    """Compact such a file in plain Python: the last record of each key wins, order stays."""
    data = source.read_bytes()
    newest: dict[bytes, tuple[int, int]] = {}
    at, size = 0, _ROW.size
    while at < len(data):
        _, _, _, _, key_len, body_len = _ROW.unpack_from(data, at)
        end = at + size + key_len + body_len
        newest[data[at + size : at + size + key_len]] = (at, end)
        at = end
    with target.open("wb") as file:
        for low, high in sorted(newest.values()):
            file.write(data[low:high])
    return len(newest)


def raw_write(path: Path, blocks: list[bytes]) -> None:
    """Write blocks to a file, one call each."""
    with path.open("wb", buffering=0) as file:
        for block in blocks:
            file.write(block)
