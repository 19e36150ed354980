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
# The first n bytes of a little-endian word.
_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(_WORD + 1)], np.uint64)


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
        first, second, third = self._sums(keys, lengths, space)
        hashes = Hashes((first & _UPPER) | (second >> _HALF), (third >> _HALF).astype(np.uint32))
        self._hash_long(hashes, keys, lengths, space)
        return hashes

    def _sums(self, blob: bytes, lengths: Ints, space: U64) -> U64:
        """Return three rows of sums of products: over each key's words, its length and its name space."""
        factors = self._factors[:, :, None]
        words = _words(blob, lengths)
        sums: U64 = np.einsum("wk,wl->lk", words, self._factors[2 : 2 + len(words)])
        sums += factors[1] * (lengths.astype(np.uint64) | (space << np.uint64(40)))
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
    """Return the 32-bit words of each key's first bytes, with zeroes behind its end: a row a word, a column a key."""
    width = min(_SHORT, int(lengths.max(initial=1)))
    width += -width % _WORD
    padded = blob + bytes(width)
    # Windows of an opaque type move as one piece each: seven times as fast as octet by octet.
    windows = np.ndarray((len(blob) + 1,), f"V{width}", padded, 0, (1,))
    rows = windows[np.cumsum(lengths) - lengths].view("<u4").reshape(len(lengths), width // _WORD)
    words: U64 = rows.T.astype(np.uint64, order="C")
    if int(lengths.min(initial=width)) < width:
        words &= _MASKS[np.clip(lengths - np.arange(0, width, _WORD)[:, None], 0, _WORD)]
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
    """Merge sorted runs. This is where a pass needs most memory, so no array lives longer than it must."""
    high = np.concatenate((a.high, b.high))
    order = np.argsort(high, kind="stable")
    high = high[order]
    return Hashes(high, np.concatenate((a.low, b.low))[order])


class Newest(NamedTuple):
    """Distinct hashes, sorted; the last row of each, and how many rows share it."""

    hashes: Hashes
    rows: Ints
    counts: Ints


def newest(hashes: Hashes) -> Newest:
    """Find the last row of each distinct hash, for rows in order of sequence. O(n log n), one sort."""
    order, ordered, same = _sorted(hashes)
    ends = np.flatnonzero(np.append(~same, True)[: len(order)])
    return Newest(ordered.take(ends), order[ends], np.diff(ends, prepend=-1))


def _sorted(hashes: Hashes) -> tuple[Ints, Hashes, Mask]:
    """Sort rows by hash, then by row; return the order, the hashes in it, and which are the same as the next."""
    count = len(hashes)
    row_bits = np.uint64((1 << max(count - 1, 1).bit_length()) - 1)
    # One plain sort of hashes with the row in their lowest bits is six times as fast as an argsort.
    packed = (hashes.high & ~row_bits) | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & row_bits).astype(np.int64)
    packed &= ~row_bits
    ordered = hashes.take(order)
    same = _same_as_next(ordered)
    if bool(((packed[1:] == packed[:-1]) != same).any()):
        # Two different keys share the bits that were left to sort by: sort by all of them.
        order = np.lexsort((hashes.low, hashes.high)).astype(np.int64)
        ordered = hashes.take(order)
        same = _same_as_next(ordered)
    return order, ordered, same


def _same_as_next(hashes: Hashes) -> Mask:
    high, low = hashes.high, hashes.low
    same: Mask = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    return same
