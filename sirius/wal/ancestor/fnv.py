"""FNV-1a, 64 bits wide, over many rows at once.

One step of the hash takes a byte::

    hash = (hash ^ byte) * 0x100000001b3   modulo 2**64

Each step needs the one before, so a row cannot be cut into parts that are hashed side by side. Two
ways round that:

- *Many rows*: step j of all rows together, a column of bytes at a time. Rows are sorted by length,
  longest first, so the rows that still have a byte at position j are always the first ones. Columns
  are fetched in blocks of 64 positions: nothing as large as rows × longest row is ever allocated.

- *A long row*, when too few rows are left to fill a column: the xor touches the lowest eight bits
  alone, so it adds `(low ^ byte) - low` to the hash, where `low` is the hash modulo 256. Once every
  `low` is known, the rest is a sum of those differences times powers of the prime. And `low`
  follows from itself: bit k of `x * prime` is bit k of `x` xor something that only the lower bits
  of `x` decide (the prime is odd), so bit k of all `low`s is a running xor once the lower bits are
  there. Eight running xors and one sum replace a loop over the bytes, at a fifth of its cost.
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

OFFSET_BASIS: Final = 0xCBF29CE484222325
PRIME: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1

_BLOCK: Final = 64
"""Byte positions fetched at once."""

_ROWS_MAX: Final = 4096
"""Rows hashed together: their hashes and one column stay in the processor's cache."""

_ROWS_MIN: Final = 32
"""With fewer rows than this, the calls cost more than they save."""

_LONG: Final = 1024
"""From this length on, the eight running xors beat the plain loop."""

_PART: Final = 1 << 16
"""A long row is taken in parts of this length, to bound what is allocated."""


def fnv1a(data: bytes, state: int = OFFSET_BASIS) -> int:
    """Return the hash of `data`, byte by byte. Slow and plain: the others must agree with it."""
    for byte in data:
        state = ((state ^ byte) * PRIME) & _MASK
    return state


def fnv1a_rows(
    data: bytes | bytearray, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return the hash of every row `data[start : start + length]`.

    Takes time in the number of bytes. Allocates a copy of `data` and a few megabytes.
    """
    hashes = np.full(len(starts), OFFSET_BASIS, np.uint64)
    padded = np.zeros(len(data) + _BLOCK, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    longest_first = np.argsort(-lengths, kind="stable")
    for first in range(0, len(starts), _ROWS_MAX):
        rows = longest_first[first : first + _ROWS_MAX]
        hashes[rows] = _hash_sorted(padded, starts[rows], lengths[rows])
    return hashes


def _hash_sorted(
    padded: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Hash rows that are sorted by length, the longest first."""
    hashes = np.full(len(starts), OFFSET_BASIS, np.uint64)
    common = int(lengths[_ROWS_MIN - 1]) if len(lengths) >= _ROWS_MIN else 0
    _hash_columns(padded, starts, lengths, common, hashes)
    for row in np.flatnonzero(lengths > common):
        rest = padded[starts[row] + common : starts[row] + lengths[row]].tobytes()
        hashes[row] = _hash_on(rest, int(hashes[row]))
    return hashes


def _hash_columns(
    padded: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    common: int,
    hashes: npt.NDArray[np.uint64],
) -> None:
    """Take the hashes over the first `common` positions of the rows that reach that far."""
    windows = sliding_window_view(padded, _BLOCK)
    prime = np.uint64(PRIME)
    for first in range(0, common, _BLOCK):
        positions = np.arange(first, min(first + _BLOCK, common))
        reaching = np.searchsorted(-lengths, -positions, side="left").tolist()
        columns = windows[starts[: reaching[0]] + first].T.astype(np.uint64, order="C")
        for column, rows in zip(columns, reaching, strict=False):
            live = hashes[:rows]
            np.bitwise_xor(live, column[:rows], out=live)
            np.multiply(live, prime, out=live)


def _hash_on(data: bytes, state: int) -> int:
    """Take a hash further over `data`."""
    if len(data) < _LONG:
        return fnv1a(data, state)
    for first in range(0, len(data), _PART):
        state = _hash_part(data[first : first + _PART], state)
    return state


def _hash_part(data: bytes, state: int) -> int:
    """Take a hash further over at most `_PART` bytes, as the module's docstring explains."""
    taken = np.frombuffer(data, np.uint8)
    mixed = np.zeros(len(data), np.uint8)  # low ^ byte, at every position, as far as it is known
    low = np.empty(len(data), np.uint8)
    for bit in (1 << k for k in range(8)):
        flips = (taken ^ (mixed * np.uint8(PRIME & 0xFF))) & np.uint8(bit)
        low[0] = state & bit
        low[1:] = np.bitwise_xor.accumulate(flips)[:-1] ^ low[0]
        mixed |= (low ^ taken) & np.uint8(bit)
    added = mixed.astype(np.int64) - (mixed ^ taken)
    powers = _powers()[len(data) - 1 :: -1]
    total = int(np.dot(added.view(np.uint64), powers))
    return (state * pow(PRIME, len(data), 1 << 64) + total) & _MASK


@functools.cache
def _powers() -> npt.NDArray[np.uint64]:
    """Return the prime to the power of 1, 2, ... `_PART`, modulo 2**64."""
    return np.multiply.accumulate(np.full(_PART, PRIME, np.uint64))
