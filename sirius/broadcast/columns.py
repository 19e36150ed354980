"""Columns: one value an event, in numpy arrays, or pieces of one buffer with a column of lengths.

A column of equal values is a view of one value with a stride of 0: it looks like any other and takes no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
AnyColumn = npt.NDArray[Any]
_WIDTHS_MAX: Final = 16
_WIDTH_MAX: Final = 1 << 16


def constant(value: int, count: int, dtype: npt.DTypeLike) -> AnyColumn:
    """Return a column of one value."""
    return repeated(np.full(1, value, dtype), count)


def repeated(value: AnyColumn, count: int) -> AnyColumn:
    """Return a column of the one value that an array holds."""
    return np.ndarray((count,), value.dtype, value, 0, (0,))


def is_constant(column: AnyColumn) -> bool:
    """Say whether all values are equal. An empty column is not."""
    if not len(column):
        return False
    return column.strides == (0,) or bool((column == column[0]).all())


def starts(lengths: Lengths) -> Ints:
    """Return where each piece begins, if they stand end to end."""
    if len(lengths) and lengths.strides == (0,):
        return np.arange(len(lengths), dtype=np.int64) * int(lengths[0])
    ends = np.cumsum(lengths, dtype=np.int64)
    ends -= lengths
    return ends


def picked(column: AnyColumn, rows: Ints) -> AnyColumn:
    """Return some rows of a column. One value stays one value."""
    return column[: len(rows)] if column.strides == (0,) else column[rows]


def together(columns: Sequence[AnyColumn]) -> AnyColumn:
    """Return columns one behind the other. If each is one value, and all the same, that is all there is."""
    if all(column.strides == (0,) and column[0] == columns[0][0] for column in columns):
        return repeated(columns[0][:1], sum(map(len, columns)))
    return np.concatenate(columns)


def total(lengths: Lengths) -> int:
    return int(lengths.sum(dtype=np.int64))


def windows(buf: bytes | Bytes, width: int) -> AnyColumn:
    """Return a view of every piece of `width` bytes; of an opaque type, which moves as one piece."""
    return np.ndarray((len(buf) - width + 1,), f"V{width}", buf, 0, (1,))


def gather(buf: bytes | Bytes, begins: Ints, lengths: Lengths) -> bytes:
    """Put scattered pieces end to end: those of one width at one go, if there are few widths, else run by run."""
    if not lengths.any():
        return b""
    if is_constant(lengths):
        return windows(buf, int(lengths[0]))[begins].tobytes()
    widths = np.flatnonzero(np.bincount(lengths)) if int(lengths.max()) < _WIDTH_MAX else lengths
    if len(widths) <= _WIDTHS_MAX:
        return _gather_by_width(buf, begins, lengths, widths.tolist())
    ends = begins + lengths
    breaks = np.flatnonzero(begins[1:] != ends[:-1])
    firsts, stops = begins[np.append(0, breaks + 1)], ends[np.append(breaks, -1)]
    view = memoryview(buf)  # type: ignore[arg-type]
    return b"".join([view[a:b] for a, b in zip(firsts.tolist(), stops.tolist(), strict=True)])


def _gather_by_width(
    buf: bytes | Bytes, begins: Ints, lengths: Lengths, widths: list[int]
) -> bytes:
    out = np.empty(total(lengths), np.uint8)
    places = starts(lengths)
    for width in filter(None, widths):
        rows = np.flatnonzero(lengths == width)
        windows(out, width)[places[rows]] = windows(buf, width)[begins[rows]]
    return out.tobytes()


def pieces(buf: bytes, lengths: Lengths) -> list[bytes]:
    """Cut a buffer into its pieces."""
    begins = starts(lengths)
    return [buf[a:b] for a, b in zip(begins.tolist(), (begins + lengths).tolist(), strict=True)]


def lengths_of(parts: list[bytes]) -> Lengths:
    """Return the column of lengths of some pieces."""
    return np.fromiter(map(len, parts), np.uint32, len(parts))
