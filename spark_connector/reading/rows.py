"""Rows of a log as columns, and how they become Arrow record batches.

A block holds its keys end to end and its bodies end to end, so an Arrow column of either is a running sum of lengths
over bytes that are there already. Several blocks are joined into one batch of a good size, which is a copy for each
block and none for each row. Nothing is built that nobody asked for.

Rows of numbers alone are copied column by column (`Numbers`), past the ends of the chunks that a file is read in: a
batch costs Spark and its worker some tenths of a millisecond whatever is in it, and four MiB of a log may be few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sirius.errors import CorruptLog, InvariantViolation
from sirius.wal import Batch, Op
from sirius.wal.batch import Column
from sirius.wal.block import ENTRY, ENTRY_BYTES, HEADER_BYTES, Entries, Header, Ints, joined
from spark_connector.schema import OPS

_GROUP_BYTES_MAX: Final = 8 << 20
_WAIT_BYTES: Final = 32 << 20
"""How much of a log is read at most for one batch of numbers: who wants ten rows should not wait for gigabytes."""
_EIGHT_NAMES: Final = pa.array(
    [
        "".join(OPS[Op.DELETE if bits >> at & 1 else Op.PUT] for at in range(8))
        for bits in range(256)
    ],
    pa.string(),
)
"""The names of eight operations in a row, by a bit for each, the lowest first: 1 for a DELETE."""
_TIME: Final = pa.timestamp("us", tz="UTC")

Span = tuple[bytes, int, Header]
"""A block: the buffer that holds it, where it begins there, and its header."""


class Rows:
    """Entries in order of sequence, with what is asked for of them. All of them lie within `first` to `last`."""

    def __init__(
        self,
        first: int,
        last: int,
        entries: Sequence[Entries],
        keys: Callable[[], bytes],
        bodies: Callable[[], bytes],
    ) -> None:
        self.first = first
        self.last = last
        self._parts = entries
        self._keys = keys
        self._bodies = bodies

    @classmethod
    def of_blocks(cls, spans: Sequence[Span]) -> Rows:
        """Join blocks that follow each other."""
        return cls(
            spans[0][2].first,
            spans[-1][2].last,
            [_entries_of(*span) for span in spans],
            lambda: _joined([_keys_of(*span) for span in spans]),
            lambda: _joined([_bodies_of(*span) for span in spans]),
        )

    @classmethod
    def of_batch(cls, batch: Batch) -> Rows:
        """Take rows that were decoded elsewhere."""
        blobs = batch.key_column.blob, batch.body_column.blob
        return cls(batch.first, batch.last, [batch.entries], *blobs)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @cached_property
    def entries(self) -> Entries:
        """All that is fixed about each entry: 48 bytes, most of which a query of few columns can do without."""
        return np.frombuffer(joined(self._parts), ENTRY)

    @cached_property
    def ops(self) -> npt.NDArray[np.uint8]:
        """The operations alone."""
        found: npt.NDArray[np.uint8] = np.concatenate([part["op"] for part in self._parts])
        return found

    def numbers(self, name: str) -> Ints:
        """One of the columns `seq` and `ts`."""
        found: Ints = self.entries[name].view(np.int64)
        return found

    @cached_property
    def key_blob(self) -> bytes:
        """All keys, end to end."""
        return self._keys()

    @cached_property
    def keys(self) -> Any:
        """The keys, as an Arrow array."""
        return _strings(pa.string(), self.entries["key_len"], self.key_blob, None)

    def batch(self, *, bodies: bool) -> Batch:
        """Return the rows as the log's own tools take them, control entries and all; without `bodies` those are not
        to be looked at."""
        entries, keys = self.entries, self.key_blob
        blob = self._bodies() if bodies else b""
        total = len(blob) if bodies else int(entries["body_len"].sum(dtype=np.int64))
        seq = entries["seq"]
        first, last = (int(seq[0]), int(seq[-1])) if len(seq) else (1, 1)
        return Batch(
            first,
            last,
            entries,
            Column(keys, entries["key_len"], 0, len(keys)),
            Column(blob, entries["body_len"], 0, total),
        )

    def bodies(self) -> Any:
        """The bodies, as an Arrow array: NULL for a DELETE."""
        is_put = self.ops == Op.PUT
        valid = None if bool(is_put.all()) else is_put
        return _strings(pa.binary(), self.entries["body_len"], self._bodies(), valid)


class Numbers:
    """Rows of blocks that follow each other, of which nothing but numbers is wanted. Filled block by block."""

    def __init__(self, columns: Iterable[str], records: int) -> None:
        self._columns = {name: np.empty(records, ENTRY[name]) for name in columns}
        self._room = records
        self._count = 0
        self.nbytes = 0
        self.first = self.last = 0

    def __len__(self) -> int:
        return self._count

    def takes(self, header: Header) -> bool:
        """Say whether there is room for a block. One that has been waited for long enough has none, however empty."""
        return (
            self._count + header.records <= self._room and self.nbytes + header.size <= _WAIT_BYTES
        )

    def add(self, buf: bytes, at: int, header: Header) -> None:
        """Copy the columns of a block."""
        entries, low = _entries_of(buf, at, header), self._count
        self._count = high = low + header.records
        for name, column in self._columns.items():
            column[low:high] = entries[name]
        self.first = self.first or header.first
        self.last = header.last
        self.nbytes += header.size

    @property
    def ops(self) -> npt.NDArray[np.uint8]:
        """The operations."""
        found: npt.NDArray[np.uint8] = self._columns["op"][: self._count]
        return found

    def numbers(self, name: str) -> Ints:
        """One of the columns `seq` and `ts`."""
        found: Ints = self._columns[name][: self._count].view(np.int64)
        return found

    @property
    def keys(self) -> Any:
        """Not there: who wants keys reads `Rows`."""
        raise InvariantViolation("keys were asked for of rows that are numbers alone")

    def bodies(self) -> Any:
        """Not there either."""
        raise InvariantViolation("bodies were asked for of rows that are numbers alone")


def gathered(
    chunks: Iterable[Sequence[Span]], columns: Sequence[str], records: int
) -> Iterator[Numbers]:
    """Copy columns out of blocks, some of which are there at a time, up to so many records or bytes of the log."""
    rows = Numbers(columns, 0)
    for spans in chunks:
        for span in spans:
            header = span[2]
            if not rows.takes(header):
                if len(rows):
                    yield rows
                rows = Numbers(columns, max(records, header.records))
            rows.add(*span)
    if len(rows):
        yield rows


def _keys_at(at: int, header: Header) -> int:
    return at + HEADER_BYTES + header.records * ENTRY_BYTES


def _entries_of(buf: bytes, at: int, header: Header) -> Entries:
    return np.frombuffer(buf, ENTRY, header.records, at + HEADER_BYTES)


def _keys_of(buf: bytes, at: int, header: Header) -> memoryview:
    begin = _keys_at(at, header)
    return memoryview(buf)[begin : begin + header.keys_len]


def _bodies_of(buf: bytes, at: int, header: Header) -> memoryview:
    begin = _keys_at(at, header) + header.keys_len
    return memoryview(buf)[begin : begin + header.bodies_len]


def _joined(parts: Sequence[memoryview]) -> bytes:
    # A copy also of a single part: the buffer is read into again.
    return b"".join(parts)


def _strings(kind: Any, lengths: Any, blob: bytes, valid: Any) -> Any:
    """Return an Arrow array over pieces that stand end to end."""
    count = len(lengths)
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    if int(ends[-1]) != len(blob):
        raise CorruptLog(f"the lengths in a block add up to {ends[-1]}, not {len(blob)}")
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(blob)]
    return pa.Array.from_buffers(kind, count, buffers)


def op_names(ops: npt.NDArray[np.uint8]) -> Any:
    """Return the names of operations as an Arrow array: eight are taken at a time, a third of the work."""
    if len(ops) and not Op.PUT <= int(ops.min()) <= int(ops.max()) <= Op.DELETE:
        raise CorruptLog(f"an operation is neither PUT nor DELETE: {ops.min()} to {ops.max()}")
    eights = np.packbits(ops == Op.DELETE, bitorder="little")
    ends = np.zeros(len(ops) + 1, np.int32)
    np.cumsum(ops, dtype=np.int32, out=ends[1:])
    # PUT is 1 and has three letters, DELETE is 2 and has six.
    ends *= len(OPS[Op.PUT])
    buffers = [None, pa.py_buffer(ends), _EIGHT_NAMES.take(pa.array(eights)).buffers()[2]]
    return pa.Array.from_buffers(pa.string(), len(ops), buffers)


def grouped(spans: Iterable[Span], records: int) -> Iterator[list[Span]]:
    """Put blocks together up to so many records, or some MiB; a larger block stands alone."""
    group: list[Span] = []
    rows = size = 0
    for span in spans:
        header = span[2]
        if group and (rows + header.records > records or size + header.size > _GROUP_BYTES_MAX):
            yield group
            group, rows, size = [], 0, 0
        group.append(span)
        rows += header.records
        size += header.size
    if group:
        yield group


@dataclass(frozen=True, slots=True)
class Shape:
    """What batches look like: Arrow's schema, to the letter of what Spark wants."""

    schema: Any
    records_max: int

    def batches(self, rows: Rows | Numbers, picked: Ints | None, segment: int) -> Iterator[Any]:
        """Yield record batches of the picked rows, of all if that is None."""
        if picked is not None and not len(picked):
            return
        batch = self._batch(rows, picked, segment)
        for at in range(0, batch.num_rows, self.records_max):
            yield batch.slice(at, self.records_max)

    def _batch(self, rows: Rows | Numbers, picked: Ints | None, segment: int) -> Any:
        columns = [self._column(name, rows, picked, segment) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @staticmethod
    def _column(name: str, rows: Rows | Numbers, picked: Ints | None, segment: int) -> Any:
        match name:
            case "segment":
                count = len(rows) if picked is None else len(picked)
                return pa.array(np.full(count, segment, np.int32))
            case "op":
                ops = rows.ops if picked is None else rows.ops[picked]
                return op_names(ops)
            case "seq" | "ts":
                numbers = rows.numbers(name)
                if picked is not None:
                    numbers = numbers[picked]
                return _numbers(name, np.ascontiguousarray(numbers))
        pieces = rows.keys if name == "key" else rows.bodies()
        return pieces if picked is None else pieces.take(pa.array(picked))


def _numbers(name: str, values: Ints) -> Any:
    kind = _TIME if name == "ts" else pa.int64()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
