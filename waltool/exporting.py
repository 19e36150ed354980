"""Records as files of other programs: JSON lines, CSV, Parquet.

=======  ===========================================================================================
jsonl    an object a line, as every command writes with --json
csv      a header and a row a record, with the same fields; what is not UTF-8 stands in `body_base64`
parquet  columns seq, time (µs, UTC), op, key, body (bytes), session, serial
=======  ===========================================================================================

`waltool.importing` reads them back.
"""

from __future__ import annotations

import csv
import io
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, Protocol

from sirius.errors import UsageError
from sirius.wal import Batch, Record
from waltool.output import json_line, op_name, records_of
from waltool.text import iso

FORMATS: Final = ("jsonl", "csv", "parquet")
FIELDS: Final = ("seq", "time", "ts_us", "op", "key", "body", "body_base64", "session", "serial")
_SUFFIXES: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def format_of(name: str, wanted: str | None) -> str:
    """Return the format that is wanted, or the one that a file's name suggests. "-" is a pipe."""
    if wanted is not None:
        return wanted
    suffix = os.path.splitext(name)[1].lower()
    if name != "-" and suffix not in _SUFFIXES:
        raise UsageError(f"{name}: its name says no format; give --format {', '.join(FORMATS)}")
    return "jsonl" if name == "-" else _SUFFIXES[suffix]


def arrow() -> Any:
    """Import pyarrow, which is not among the things that everybody has."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed: pip install 'sirius-log[parquet]'"
        ) from None
    return pyarrow


class Writer(Protocol):
    """Writes records to a stream, which the caller closes."""

    def write(self, batch: Batch) -> None: ...
    def finish(self) -> None: ...


class JsonLines:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, batch: Batch) -> None:
        self._stream.write("".join(map(json_line, records_of(batch))).encode())

    def finish(self) -> None:
        """Nothing is left to write."""


class Csv:
    """All text is quoted: where it is not, the module would leave a lone carriage return bare, and misread it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._stream.write(",".join(FIELDS).encode() + b"\n")

    def write(self, batch: Batch) -> None:
        text = io.StringIO(newline="")
        rows = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        rows.writerows(map(_csv_row, records_of(batch)))
        self._stream.write(text.getvalue().encode())

    def finish(self) -> None:
        """Nothing is left to write."""


def _csv_row(record: Record) -> tuple[str | int, ...]:
    try:
        bodies = record.body.decode(), ""
    except UnicodeDecodeError:
        bodies = "", b64encode(record.body).decode()
    times = iso(record.ts_us, "microseconds"), record.ts_us
    op, numbers = op_name(record.op), (record.session, record.serial)
    return (record.seq, *times, op, record.key, *bodies, *numbers)


class Parquet:
    """Gathers a good number of rows for each row group."""

    ROWS: Final = 65_536
    BYTES: Final = 64 << 20

    def __init__(self, stream: BinaryIO) -> None:
        self._arrow = arrow()
        self._schema = _schema(self._arrow)
        self._writer = self._arrow.parquet.ParquetWriter(stream, self._schema)
        self._tables: list[Any] = []
        self._rows = self._bytes = 0

    def write(self, batch: Batch) -> None:
        table = self._table(batch)
        self._tables.append(table)
        self._rows += len(batch)
        self._bytes += table.nbytes
        if self._rows >= self.ROWS or self._bytes >= self.BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.concat_tables(self._tables).combine_chunks())
        self._tables, self._rows, self._bytes = [], 0, 0

    def _table(self, batch: Batch) -> Any:
        entries = batch.entries
        columns: list[Any] = [
            entries["seq"].astype("i8"),
            self._arrow.array(entries["ts"]).cast(self._schema.field("time").type),
            [op_name(op) for op in entries["op"].tolist()],
            batch.keys(),
            batch.bodies(),
            entries["session"].copy(),
            entries["serial"].copy(),
        ]
        return self._arrow.table(columns, schema=self._schema)

    def finish(self) -> None:
        try:
            self._write_group()
            self._writer.close()
        finally:
            # Else it would try again when it is collected, with the stream long gone.
            self._writer.is_open = False


def _schema(arrow_: Any) -> Any:
    return arrow_.schema(
        [
            ("seq", arrow_.int64()),
            ("time", arrow_.timestamp("us", "UTC")),
            ("op", arrow_.string()),
            ("key", arrow_.string()),
            ("body", arrow_.binary()),
            ("session", arrow_.uint64()),
            ("serial", arrow_.uint64()),
        ]
    )


@contextmanager
def writing(format_: str, stream: BinaryIO) -> Iterator[Writer]:
    """Yield what writes a format; it finishes in any case, while the stream is still there."""
    writer = _WRITERS[format_](stream)
    try:
        yield writer
    finally:
        writer.finish()


_WRITERS: Final[dict[str, Callable[[BinaryIO], Writer]]] = {
    "jsonl": JsonLines,
    "csv": Csv,
    "parquet": Parquet,
}
