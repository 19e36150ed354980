"""The columns of a DataFrame that is written, checked; and what updates they make, many at a time.

`key` and `body` are needed. `op` is PUT where it is not given, `ts` the time of the job. `seq` gives the order and
nothing else: a new log is numbered densely. `segment` may be there, so that what was read can be written; it does not
count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sirius.errors import UsageError
from sirius.wal import Op
from sirius.wal.block import ENTRY_BYTES
from sirius.wal.record import DEFAULT_LIMITS, Limits
from spark_connector.schema import OPS, schema_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NEEDED: Final = ("key", "body")
Lengths = npt.NDArray[np.int64]
_CODES: Final = np.array(list(OPS), np.uint8)


def check_write_schema(schema: StructType) -> None:
    """Refuse a DataFrame whose columns make no updates, naming the column."""
    known = {field.name: field.dataType for field in schema_of()}
    for name in NEEDED:
        if name not in schema.names:
            raise UsageError(f"column {name!r} is missing: an update has a key and a body")
    for field in schema:
        if field.name not in known:
            raise UsageError(
                f"a log has no place for column {field.name!r}: select {', '.join(known)} alone"
            )
        wanted, given = known[field.name].simpleString(), field.dataType.simpleString()
        # Anything that counts gives an order.
        allowed = ("bigint", "int") if field.name == "seq" else (wanted,)
        if given not in allowed:
            raise UsageError(
                f"column {field.name!r} must be {wanted.upper()}, and is {given.upper()}: "
                f"cast it, as in col({field.name!r}).cast({wanted!r})"
            )


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of byte strings: all of them end to end, and where each ends."""

    blob: memoryview
    offsets: Lengths

    @classmethod
    def of(cls, array: Any) -> Texts:
        """Look at an Arrow array of strings or bytes, in which nothing is null, without copying it."""
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
        blob = memoryview(data or b"")[int(ends[0]) : int(ends[-1])]
        return cls(blob, ends.astype(np.int64) - int(ends[0]))

    @property
    def lengths(self) -> Lengths:
        return np.diff(self.offsets)

    def between(self, low: int, high: int) -> memoryview:
        """Return those from `low` to before `high`, end to end."""
        return self.blob[int(self.offsets[low]) : int(self.offsets[high])]

    def slices(self, low: int, high: int) -> Iterator[bytes]:
        """Return those from `low` to before `high`, one by one: read off a stream, at a third of what slicing costs."""
        stream = BytesIO(self.between(low, high))
        return map(stream.read, np.diff(self.offsets[low : high + 1]).tolist())


@dataclass(frozen=True, slots=True)
class Columns:
    """One Arrow batch, as columns of updates."""

    ops: npt.NDArray[np.uint8]
    ts: npt.NDArray[np.int64]
    keys: Texts
    bodies: Texts
    rows: Texts
    """Key and body of each, end to end: what a checksum goes over."""
    seq: npt.NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(self.ops)

    def cuts(self, records_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
        """Cut it into pieces that are not larger than this, unless one record is."""
        sizes = self.rows.offsets + ENTRY_BYTES * np.arange(len(self) + 1)
        low = 0
        while low < len(self):
            fitting = int(np.searchsorted(sizes, sizes[low] + bytes_max, "right")) - 1
            high = min(max(low + 1, fitting), low + records_max, len(self))
            yield low, high
            low = high


def columns_of(batch: Any, now_us: int, limits: Limits = DEFAULT_LIMITS) -> Columns:
    """Return the updates of an Arrow batch; raise `UsageError` with the column and row of one that is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in found.keys() & {"key", "op", "ts", "seq"}:
        if found[name].null_count:
            _refuse(found[name].is_null(), name, "is NULL")
    ops = _ops(found["op"]) if "op" in found else np.full(len(batch), Op.PUT, np.uint8)
    keys = found["key"].cast(pa.binary())
    bodies = found["body"].cast(pa.binary())
    is_delete = ops == Op.DELETE
    if bodies.null_count:
        _refuse(pc.and_(bodies.is_null(), pa.array(~is_delete)), "body", "is NULL in a PUT")
        bodies = bodies.fill_null(b"")
    rows = pc.binary_join_element_wise(keys, bodies, b"")
    columns = Columns(
        ops,
        _times(found["ts"]) if "ts" in found else np.full(len(batch), now_us, np.int64),
        Texts.of(keys),
        Texts.of(bodies),
        Texts.of(rows),
        found["seq"].cast(pa.int64()).to_numpy() if "seq" in found else None,
    )
    _check_lengths(columns, limits)
    return columns


def _times(column: Any) -> npt.NDArray[np.int64]:
    import pyarrow as pa

    micros: npt.NDArray[np.int64] = (
        column.cast(pa.timestamp("us", "UTC")).view(pa.int64()).to_numpy()
    )
    return micros


def _ops(column: Any) -> npt.NDArray[np.uint8]:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array(list(OPS.values()))
    # What a log itself calls them, mostly; others are looked at again.
    found = pc.index_in(column, names)
    if found.null_count:
        found = pc.index_in(pc.utf8_upper(column), names)
        _refuse(found.is_null(), "op", "is neither PUT nor DELETE")
    codes: npt.NDArray[np.uint8] = _CODES[found.to_numpy()]
    return codes


def _check_lengths(columns: Columns, limits: Limits) -> None:
    keys, bodies = columns.keys.lengths, columns.bodies.lengths
    _refuse(keys == 0, "key", "is empty")
    _refuse(keys > limits.key_bytes_max, "key", f"has more than {limits.key_bytes_max} bytes")
    _refuse(bodies > limits.body_bytes_max, "body", f"has more than {limits.body_bytes_max} bytes")
    _refuse((columns.ops == Op.DELETE) & (bodies > 0), "body", "is not empty in a DELETE")


def _refuse(wrong: Any, name: str, what: str) -> None:
    """Raise if something is wrong with a row of a column, naming the first one."""
    mask = np.asarray(wrong)
    if mask.any():
        raise UsageError(f"column {name!r} {what}, in row {int(mask.argmax()) + 1} of a batch")
