"""Logs to read, and the reader as Spark would call it, without Spark. Not a test itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter

from sirius.wal import Durability, Log, LogConfig, LogReader, Op, Update, encode
from sirius.wal.record import CONTROL_FROM
from spark_connector.options import Options
from spark_connector.reading.reader import LogReaderForSpark, PushingReader
from spark_connector.schema import OPS, schema_of

T0_US = 1_700_000_000_000_000
"""The time of a log's first block; every block is a second later than the one before."""

Row = tuple[Any, ...]


def put(key: str, body: bytes = b"") -> Update:
    return Update(Op.PUT, key.encode(), body)


def delete(key: str) -> Update:
    return Update(Op.DELETE, key.encode())


def open_log(path: Path, **settings: Any) -> Log:
    config = LogConfig(durability=Durability.OS, reserve_bytes=0, background=False, **settings)
    return Log.open(str(path), config)


def write(log: Log, updates: Sequence[Update], time_us: int) -> None:
    """Append a block whose records all have this time."""
    log.append(encode(log.next_seq, updates, time_us))


def make(path: Path, blocks: Iterable[Sequence[Update]], *, rotate_after: int = 0) -> Path:
    """Write a log, a block for each list; a segment ends after so many blocks."""
    with open_log(path) as log:
        for number, block in enumerate(blocks, 1):
            write(log, block, T0_US + (number - 1) * 1_000_000)
            if rotate_after and number % rotate_after == 0:
                log.rotate()
    return path


def numbered(blocks: int, each: int, *, keys: int = 7, body: int = 20) -> list[list[Update]]:
    """Updates of a few keys, every fifth a delete."""
    numbers = iter(range(blocks * each))

    def update(number: int) -> Update:
        key = f"key{number % keys}"
        return delete(key) if number % 5 == 4 else put(key, b"%06d" % number * (body // 6))

    return [[update(next(numbers)) for _ in range(each)] for _ in range(blocks)]


def reader_for(
    *paths: Path | str, filters: Sequence[Filter] = (), columns: str = "", **options: str
) -> LogReaderForSpark:
    """Make the reader of a load, with filters pushed as Spark does."""
    given = {name.lower(): text for name, text in options.items()}
    parsed = Options.of(given)
    parsed = Options(**{**_fields(parsed), "paths": tuple(map(str, paths))})
    reader = PushingReader(parsed, schema_of(columns.split(",")) if columns else schema_of())
    left = list(reader.pushFilters(list(filters)))
    assert not left, f"not taken: {left}"
    return reader


def _fields(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in Options.__dataclass_fields__}


def batches(reader: LogReaderForSpark) -> list[pa.RecordBatch]:
    return [batch for partition in reader.partitions() for batch in reader.read(partition)]


def rows(reader: LogReaderForSpark) -> list[Row]:
    """What Spark gets, as tuples; times in microseconds."""
    return [row for batch in batches(reader) for row in rows_in(batch)]


def rows_in(batch: pa.RecordBatch) -> list[Row]:
    columns = [
        column.cast(pa.int64()) if name == "ts" else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def read(*paths: Path | str, **options: Any) -> list[Row]:
    return rows(reader_for(*paths, **options))


def expected(path: Path) -> list[Row]:
    """The same by `sirius.wal`, record by record."""
    with LogReader.open(str(path)) as log, log.snapshot() as snapshot:
        found = []
        for info in snapshot.segments:
            for batch in snapshot.segment_batches(info):
                found += [
                    (
                        record.seq,
                        record.ts_us,
                        OPS[record.op],
                        record.key,
                        None if record.op == Op.DELETE else record.body,
                        int(info.id),
                    )
                    for record in batch.records()
                    if record.op < CONTROL_FROM
                ]
        return found


def data_file(path: Path, segment: int) -> Path:
    return path / "segments" / f"{segment:08d}" / "data"


def flip(path: Path, offset: int) -> None:
    """Damage one byte of a file."""
    with open(path, "r+b") as file:
        octet = os.pread(file.fileno(), 1, offset)
        os.pwrite(file.fileno(), bytes([octet[0] ^ 0xFF]), offset)
