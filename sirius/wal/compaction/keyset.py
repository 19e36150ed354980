"""Sets of keys that fit into memory: 12 bytes a key, whatever its length.

Compaction has to know which keys it has seen. It keeps a 96-bit hash of each, of a strongly universal family
(multiply-shift over 32-bit words, Dietzfelbinger) with multipliers drawn anew from the operating system for every
pass: any two different keys get the same hash with probability 2⁻⁹⁶, no matter who chose the keys. With a thousand
million keys the chance that any two of them meet is below 10⁻¹¹.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sirius.wal.batch import Mask
from sirius.wal.block import Entries, Ints
from sirius.wal.record import CONTROL_FROM

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]

_WORD: Final = 4
_SHORT: Final = 64
_LANES: Final = 3
_UPPER: Final = np.uint64(0xFFFFFFFF00000000)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Hashes:
    """Hashes of many keys: 64 bits to sort by, and 32 more to be sure."""

    high: U64
    low: U32

    def __len__(self) -> int:
        return len(self.high)

    def take(self, which: Ints | Mask | slice) -> Hashes:
        return Hashes(self.high[which], self.low[which])

    @staticmethod
    def join(parts: list[Hashes]) -> Hashes:
        return Hashes(
            np.concatenate([part.high for part in parts]),
            np.concatenate([part.low for part in parts]),
        )


class KeyHasher:
    """Hashes keys. One hasher serves one pass: its secret is its own."""

    def __init__(self) -> None:
        count = _SHORT // _WORD + 2
        secret = os.urandom(count * _LANES * 8)
        self._factors = np.frombuffer(secret, np.uint64).reshape(count, _LANES)
        self._long_key = os.urandom(32)

    def hash(self, entries: Entries, keys: bytes) -> Hashes:
        """Hash many keys, which stand end to end in `keys`: the more at a time, the less each costs."""
        lengths = entries["key_len"].astype(np.int64)
        # Control entries live in a name space of their own.
        space = np.where(entries["op"] < CONTROL_FROM, 0, entries["op"]).astype(np.uint64)
        sums = self._sums(keys + bytes(_SHORT), lengths, space)
        high = (sums[:, 0] & _UPPER) | (sums[:, 1] >> _HALF)
        hashes = Hashes(high, (sums[:, 2] >> _HALF).astype(np.uint32))
        self._hash_long(hashes, keys, lengths, space)
        return hashes

    def _sums(self, blob: bytes, lengths: Ints, space: U64) -> U64:
        """Return three sums of products for each key: over its words, its length and its name space."""
        factors = self._factors
        words = _words(blob, lengths)
        sums: U64 = words @ factors[2 : 2 + words.shape[1]]
        sums += (lengths.astype(np.uint64) | (space << np.uint64(40)))[:, None] * factors[1]
        sums += factors[0]
        return sums

    def _hash_long(self, hashes: Hashes, blob: bytes, lengths: Ints, space: U64) -> None:
        """Long keys are few; each goes through a keyed hash of the standard library."""
        rows = np.flatnonzero(lengths > _SHORT).tolist()
        ends = np.cumsum(lengths) if rows else lengths
        for row in rows:
            key = blob[int(ends[row] - lengths[row]) : int(ends[row])]
            salt = int(space[row]).to_bytes(8)
            digest = blake2b(key, digest_size=12, key=self._long_key, salt=salt).digest()
            hashes.high[row] = int.from_bytes(digest[:8])
            hashes.low[row] = int.from_bytes(digest[8:])


def _words(blob: bytes, lengths: Ints) -> U64:
    """Return each key's first bytes as a row of 32-bit words, with zeroes behind its end."""
    width = min(_SHORT, int(lengths.max(initial=1)))
    width += -width % _WORD
    octets = np.frombuffer(blob, np.uint8)
    starts = np.cumsum(lengths) - lengths
    rows = np.lib.stride_tricks.sliding_window_view(octets, width)[starts]
    rows *= np.arange(width) < lengths[:, None]
    words: U64 = rows.view("<u4").astype(np.uint64)
    return words


class KeySet:
    """A set of hashes in sorted runs of geometrically growing size. Adding costs O(log n) a key, over time."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    @property
    def nbytes(self) -> int:
        return sum(run.high.nbytes + run.low.nbytes for run in self._runs)

    def find(self, hashes: Hashes) -> Mask:
        """Say which hashes are in the set. Quickest if they are sorted."""
        found = np.zeros(len(hashes), np.bool_)
        for run in self._runs:
            found |= _find_in(run, hashes)
        return found

    def add(self, hashes: Hashes) -> None:
        """Add hashes that are sorted by their upper part and not in the set."""
        if not len(hashes):
            return
        self._runs.append(hashes)
        while len(self._runs) > 1 and len(self._runs[-1]) * 4 > len(self._runs[-2]):
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_merge(older, newer))


def _find_in(run: Hashes, hashes: Hashes) -> Mask:
    at = np.searchsorted(run.high, hashes.high)
    near = np.minimum(at, len(run) - 1)
    same = run.high[near] == hashes.high
    found: Mask = same & (run.low[near] == hashes.low)
    # That does, unless two keys share their upper 64 bits.
    rows = np.flatnonzero(same & ~found)
    at = at[rows] + 1
    while len(rows):
        inside = at < len(run)
        rows, at = rows[inside], at[inside]
        same = run.high[at] == hashes.high[rows]
        rows, at = rows[same], at[same]
        equal = run.low[at] == hashes.low[rows]
        found[rows[equal]] = True
        rows, at = rows[~equal], at[~equal] + 1
    return found


def _merge(a: Hashes, b: Hashes) -> Hashes:
    high = np.concatenate((a.high, b.high))
    order = np.argsort(high, kind="stable")
    low = np.concatenate((a.low, b.low))
    return Hashes(high[order], low[order])


class Newest(NamedTuple):
    """The last row of each distinct hash, sorted by hash, and how many rows share it."""

    rows: Ints
    counts: Ints


def newest(hashes: Hashes) -> Newest:
    """Find the last row of each distinct hash, for rows in order of sequence. O(n log n), one sort."""
    order, same = _order(hashes)
    starts = np.flatnonzero(np.append(True, ~same)[: len(order)])
    ends = np.append(starts[1:], len(order)) if len(order) else starts
    return Newest(order[ends - 1], ends - starts)


def _order(hashes: Hashes) -> tuple[Ints, Mask]:
    """Sort rows by hash, then by row; say which rows have the same hash as the one before."""
    count = len(hashes)
    row_bits = np.uint64((1 << max(count - 1, 1).bit_length()) - 1)
    # One plain sort of hashes with the row in their lowest bits is six times as fast as an argsort.
    packed = (hashes.high & ~row_bits) | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & row_bits).astype(np.int64)
    alike = (packed[1:] & ~row_bits) == (packed[:-1] & ~row_bits)
    same = _same(hashes, order)
    if bool((alike != same).any()):
        # Two different keys share the bits that were left to sort by: sort by all of them.
        order = np.lexsort((hashes.low, hashes.high)).astype(np.int64)
        same = _same(hashes, order)
    return order, same


def _same(hashes: Hashes, order: Ints) -> Mask:
    high, low = hashes.high[order], hashes.low[order]
    same: Mask = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    return same
