"""Sets of keys that fit into memory: 12 bytes a key, whatever its length.

Compaction has to know which keys it has seen. It keeps a 96-bit hash of each, of a strongly universal family
(multiply-shift over 32-bit words, Dietzfelbinger) with multipliers drawn anew from the operating system for every
pass: any two different keys get the same hash with probability 2⁻⁹⁶, no matter who chose the keys. With a thousand
million keys the chance that any two of them meet is below 10⁻¹¹.

The set is kept sorted by the first 64 bits. Keys that share those but not the rest (a chance of 10⁻⁶ with ten million
keys) are not told apart but reported as `clash`; whoever asks treats them as if nothing were known, which for
compaction means to keep the record. So nothing is ever lost for less than 96 equal bits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sirius.wal.batch import Batch, Mask
from sirius.wal.block import Ints
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
    """Hashes the keys of batches. One hasher serves one pass: its secret is its own."""

    def __init__(self) -> None:
        count = _SHORT // _WORD + 2
        secret = os.urandom(count * _LANES * 8)
        self._factors = np.frombuffer(secret, np.uint64).reshape(count, _LANES)
        self._long_key = os.urandom(32)

    def hash(self, batches: Sequence[Batch]) -> Hashes:
        """Hash every key of some batches, together: the more rows, the less each costs."""
        entries = [batch.entries[["key_len", "op"]] for batch in batches]
        lengths = np.concatenate([part["key_len"] for part in entries]).astype(np.int64)
        op = np.concatenate([part["op"] for part in entries])
        # Control entries live in a name space of their own.
        space = np.where(op < CONTROL_FROM, 0, op).astype(np.uint64)
        blob = b"".join((*(batch.key_column.blob() for batch in batches), bytes(_SHORT)))
        sums = self._sums(blob, lengths, space)
        high = (sums[:, 0] & _UPPER) | (sums[:, 1] >> _HALF)
        hashes = Hashes(high, (sums[:, 2] >> _HALF).astype(np.uint32))
        self._hash_long(hashes, blob, lengths, space)
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
        ends = np.cumsum(lengths)
        for row in np.flatnonzero(lengths > _SHORT).tolist():
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

    def find(self, hashes: Hashes) -> tuple[Mask, Mask]:
        """Say which hashes are in the set, and which clash with one in it. Quickest if they are sorted."""
        found, clash = np.zeros(len(hashes), np.bool_), np.zeros(len(hashes), np.bool_)
        for run in self._runs:
            at = np.searchsorted(run.high, hashes.high)
            at[at == len(run)] = 0
            same = run.high[at] == hashes.high
            equal = run.low[at] == hashes.low
            found |= same & equal
            clash |= same & ~equal
        return found, clash & ~found

    def add(self, hashes: Hashes) -> None:
        """Add hashes that are sorted by their high part, differ in it, and neither clash with the set nor are in it."""
        if not len(hashes):
            return
        self._runs.append(hashes)
        while len(self._runs) > 1 and len(self._runs[-1]) * 2 > len(self._runs[-2]):
            newer, older = self._runs.pop(), self._runs.pop()
            self._runs.append(_merge(older, newer))


def _merge(a: Hashes, b: Hashes) -> Hashes:
    high = np.concatenate((a.high, b.high))
    order = np.argsort(high, kind="stable")
    low = np.concatenate((a.low, b.low))
    return Hashes(high[order], low[order])


class Newest(NamedTuple):
    """The last row of each distinct hash, sorted by hash, how many rows share it, and which rows clash with each other.

    No row of a clash is among the first.
    """

    rows: Ints
    counts: Ints
    clashing: Mask


def newest(hashes: Hashes) -> Newest:
    """Find the last row of each distinct hash, for rows in order of sequence. O(n log n), one sort."""
    count = len(hashes)
    row_bits = np.uint64((1 << max(count - 1, 1).bit_length()) - 1)
    # One plain sort of hashes with the row in their lowest bits: six times as fast as an argsort.
    packed = (hashes.high & ~row_bits) | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & row_bits).astype(np.int64)
    same = (packed[1:] & ~row_bits) == (packed[:-1] & ~row_bits)
    picked = hashes.take(order)
    differs = same & ((picked.high[1:] != picked.high[:-1]) | (picked.low[1:] != picked.low[:-1]))
    last_of_group = np.append(~same, True)[:count]
    clashing = np.zeros(count, np.bool_)
    if bool(differs.any()):
        groups = np.cumsum(np.append(False, ~same))
        bad = np.isin(groups, groups[1:][differs])
        clashing[order[bad]] = True
        last_of_group &= ~bad
    ends = np.flatnonzero(last_of_group)
    starts = np.flatnonzero(np.append(True, ~same)[:count])
    sizes = np.diff(np.append(starts, count))
    return Newest(order[ends], sizes[np.searchsorted(starts, ends, side="right") - 1], clashing)
