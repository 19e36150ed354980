"""Reading rows from files of other programs and making a log of them; see `waltool.exporting` for the formats.

A row has a `key` and may have everything else: `op` is put if it is missing, the time is now, session and serial are
0. `seq` is taken from the rows if the first one has it, and must increase: numbers that are left out become holes. A
body is `body` (text) or `body_base64`. Unknown fields are refused: better than to lose what somebody thought was kept.
"""

from __future__ import annotations

import binascii
import csv
import io
import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, NamedTuple

import click
import numpy as np

from sirius.errors import InvalidRecord
from sirius.wal import Block, Op, Update
from sirius.wal.block import ENTRY, assemble
from sirius.wal.compaction.plan import BLOCK_BYTES, BLOCK_RECORDS
from sirius.wal.record import DEFAULT_LIMITS, check_updates, key_bytes
from waltool.exporting import FIELDS, arrow
from waltool.params import OPERATIONS, moment

_SEQ_MAX: Final = (1 << 63) - 1
_EXAMPLE: Final = '{"key": "title/casablanca", "body": "text"}'
_PARQUET_ROWS: Final = 4096

Fields = dict[str, Any]
Numbered = Iterator[tuple[int, Fields | str]]
"""The number of each line or row, with its fields, or with what is wrong with it."""


class BadRow(Exception):
    """A row that cannot be taken. The message says what was expected."""


class Row(NamedTuple):
    """One record to be; numbers that are missing are None."""

    seq: int | None
    ts_us: int | None
    update: Update


# ---------------------------------------------------------------------- files


def rows_of(format_: str, stream: BinaryIO) -> Numbered:
    """Return the rows of a file."""
    return {"jsonl": _json_rows, "csv": _csv_rows, "parquet": _parquet_rows}[format_](stream)


def _json_rows(stream: BinaryIO) -> Numbered:
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield number, _json_fields(line)


def _json_fields(line: bytes) -> Fields | str:
    try:
        found = json.loads(line)
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"not JSON ({error.msg} at column {error.colno}); expected an object like {_EXAMPLE}"
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error}); expected an object like {_EXAMPLE}"
    if not isinstance(found, dict):
        return f"expected an object like {_EXAMPLE}, not {type(found).__name__}"
    return found


def _csv_rows(stream: BinaryIO) -> Numbered:
    # A body may be longer than what the module takes for a mistake.
    csv.field_size_limit(_CSV_FIELD_MAX)
    text = io.TextIOWrapper(stream, "utf-8", newline="")
    rows = csv.reader(text, strict=True)
    heads: list[str] | None = None
    line = 1
    try:
        for row in rows:
            if row and heads is None:
                heads = row
                if fault := _heads_fault(heads):
                    yield line, fault
                    return
            elif row and heads is not None:
                yield line, _csv_fields(heads, row)
            line = rows.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        yield line, f"not CSV in UTF-8: {error}"
    finally:
        text.detach()


_CSV_FIELD_MAX: Final = 1 << 28


def _heads_fault(heads: list[str]) -> str | None:
    unknown = [name for name in heads if name not in FIELDS]
    if unknown or "key" not in heads or len(set(heads)) < len(heads):
        return f"expected a line of names, each of {', '.join(FIELDS)}, with key among them"
    return None


def _csv_fields(heads: list[str], row: list[str]) -> Fields | str:
    if len(row) != len(heads):
        return f"expected {len(heads)} fields, found {len(row)}"
    fields: Fields = {name: text for name, text in zip(heads, row, strict=True) if text}
    for name in _NUMBERS:
        if name in fields:
            try:
                fields[name] = int(fields[name])
            except ValueError:
                return f"{name}: expected a whole number, not {fields[name]!r}"
    return fields


_NUMBERS: Final = ("seq", "ts_us", "session", "serial")


def _parquet_rows(stream: BinaryIO) -> Numbered:
    pyarrow = arrow()
    source = stream if stream.seekable() else io.BytesIO(stream.read())
    try:
        file = pyarrow.parquet.ParquetFile(source)
    except pyarrow.ArrowInvalid:
        yield 1, "expected a Parquet file"
        return
    number = 0
    for batch in file.iter_batches(_PARQUET_ROWS):
        for fields in _in_microseconds(pyarrow, batch).to_pylist():
            number += 1
            yield number, {name: value for name, value in fields.items() if value is not None}


def _in_microseconds(pyarrow: Any, batch: Any) -> Any:
    """Turn a column of times, of whatever unit, into `ts_us`. Finer ones are cut."""
    names = batch.schema.names
    if "time" not in names or not pyarrow.types.is_timestamp(batch.schema.field("time").type):
        return batch
    at = names.index("time")
    times = batch.column(at).cast(pyarrow.timestamp("us"), safe=False).cast(pyarrow.int64())
    others = [name for name in names if name not in ("time", "ts_us")]
    columns = [*(batch.column(names.index(name)) for name in others), times]
    return pyarrow.RecordBatch.from_arrays(columns, [*others, "ts_us"])


# ---------------------------------------------------------------------- rows


def parse(fields: Fields | str) -> Row:
    """Turn the fields of a row into a record to be, or raise `BadRow`."""
    if isinstance(fields, str):
        raise BadRow(fields)
    if unknown := [name for name in fields if name not in FIELDS]:
        raise BadRow(f"unknown field {unknown[0]!r}; expected {', '.join(FIELDS)}")
    given = {name: value for name, value in fields.items() if value is not None}
    op = _op(given.get("op", "put"))
    session, serial = (
        _number(given, name, 0, (1 << 64) - 1) or 0 for name in ("session", "serial")
    )
    try:
        update = Update(op, key_bytes(_text(given, "key", op)), _body(given), session, serial)
        check_updates([update], DEFAULT_LIMITS)
    except InvalidRecord as error:
        raise BadRow(str(error).removeprefix("entry 0 of 1: ")) from None
    return Row(_number(given, "seq", 1, _SEQ_MAX), _time(given), update)


def _op(name: Any) -> Op:
    if not isinstance(name, str) or name.lower() not in OPERATIONS:
        raise BadRow(f"op: expected {', '.join(OPERATIONS)}, not {name!r}")
    return Op(OPERATIONS[name.lower()])


def _text(fields: Fields, name: str, op: Op) -> str:
    text = fields.get(name, "" if op not in (Op.PUT, Op.DELETE) else None)
    if not isinstance(text, str):
        raise BadRow(f"{name}: expected text, not {text!r}" if text is not None else f"no {name}")
    return text


def _number(fields: Fields, name: str, low: int, high: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadRow(f"{name}: expected a whole number from {low} to {high}, not {value!r}")
    return value


def _time(fields: Fields) -> int | None:
    if "ts_us" in fields:
        return _number(fields, "ts_us", -(1 << 63), _SEQ_MAX)
    if "time" not in fields:
        return None
    text = str(fields["time"])
    try:
        # An age, which options take as well, makes no sense in a file.
        return moment(text if "-" in text else "")
    except click.BadParameter:
        raise BadRow(f"time: expected 2026-11-16T07:00:00Z, not {text!r}") from None


def _body(fields: Fields) -> bytes:
    plain, encoded = fields.get("body"), fields.get("body_base64")
    if plain is not None and encoded is not None:
        raise BadRow("expected body or body_base64, not both")
    if encoded is not None:
        try:
            return b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise BadRow("body_base64: expected base64") from None
    if isinstance(plain, str):
        try:
            return plain.encode()
        except UnicodeEncodeError as error:
            raise BadRow(f"body: cannot be written as UTF-8: {error.reason}") from None
    if plain is None or isinstance(plain, bytes):
        return plain or b""
    raise BadRow(f"body: expected text, not {type(plain).__name__}")


# ---------------------------------------------------------------------- blocks


@dataclass(slots=True)
class Builder:
    """Numbers records, and puts them into blocks that follow each other from 1 on."""

    now_us: Callable[[], int]
    last: int = 0
    records: int = 0
    _numbered: bool | None = None
    _first: int = 1
    _bytes: int = 0
    _rows: list[tuple[int, int, Update]] = field(default_factory=list)

    def add(self, row: Row) -> Iterator[Block]:
        """Take a row; yield a block when there is enough for one. Raise `BadRow` if its number cannot be."""
        seq = self._number(row.seq)
        ts_us = self.now_us() if row.ts_us is None else row.ts_us
        self._rows.append((seq, ts_us, row.update))
        self.last, self.records = seq, self.records + 1
        self._bytes += len(row.update.key) + len(row.update.body)
        if len(self._rows) >= BLOCK_RECORDS or self._bytes >= BLOCK_BYTES:
            yield self._block()

    def _number(self, seq: int | None) -> int:
        if self._numbered is None:
            self._numbered = seq is not None
        if self._numbered != (seq is not None):
            raise BadRow("seq: expected in all rows or in none")
        if seq is not None and seq <= self.last:
            raise BadRow(f"seq: expected more than {self.last}, not {seq}")
        return self.last + 1 if seq is None else seq

    def finish(self) -> Iterator[Block]:
        """Yield what is left."""
        if self._rows:
            yield self._block()

    def _block(self) -> Block:
        seqs, times, updates = zip(*self._rows, strict=True)
        ops, keys, bodies, sessions, serials = zip(*updates, strict=True)
        entries = np.zeros(len(seqs), ENTRY)
        columns = {"seq": seqs, "ts": times, "op": ops, "session": sessions, "serial": serials}
        for name, values in columns.items():
            entries[name] = np.array(values, ENTRY[name])
        block = assemble(self._first, self.last, entries, keys, bodies)
        self._first, self._bytes, self._rows = self.last + 1, 0, []
        return block
