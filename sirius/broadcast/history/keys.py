"""Which earlier event has this key? A hash table of numpy arrays, asked for a whole batch at once.

**Hashes.** Two sums of a strongly universal family (multiply-shift over 32-bit words, Dietzfelbinger), with
multipliers drawn from a `random.Random` that is passed in. All 64 bits of the first are there to find by, the upper
half of the second to be sure: that two given keys share both has a probability of 2⁻⁶⁴ at most. Should they share
the first alone, an event stays that could be collected; nothing worse.

**The table** has open addressing. All keys of a batch look at their slots at the same time. Who finds its hash, or
an empty slot and has written its hash there, is done; the others go one slot further, all together. A few rounds
do, whatever the size of the batch. Equal keys walk side by side and end in one slot, where the last row wins: so
one pass finds both what a batch supersedes and what is superseded inside it. Nothing is removed: a table is made
anew when its history is packed.
"""

from __future__ import annotations

import random
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sirius.broadcast.columns import Ints, Lengths, Mask, is_constant, repeated, starts, windows

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]

_WORD: Final = 4
_SHORT: Final = 64
_HALF: Final = np.uint64(32)
_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(_WORD + 1)], np.uint64)
"""The first n bytes of a little-endian word."""
_SLOTS_MIN: Final = 1024
_FEW_BITS: Final = 16
NOBODY: Final = -1


class Hashes(NamedTuple):
    """64 bits to find by, never 0, and 32 to be sure."""

    find: U64
    check: U32


class KeyHasher:
    """Hashes topics and keys."""

    def __init__(self, rng: random.Random) -> None:
        count = _SHORT // _WORD + 3
        self._factors = [(_draw(rng), _draw(rng)) for _ in range(count)]
        self._secret = rng.randbytes(32)

    def hash(self, keys: bytes, lengths: Lengths, topic_hashes: U64) -> Hashes:
        """Hash keys that stand end to end, each with what its topic adds."""
        (first, second), *factors = self._factors
        find = np.full(len(lengths), first)
        check = np.full(len(lengths), second)
        numbers = [_as_u64(lengths), topic_hashes, *_words(keys, lengths)]
        for number, (one, other) in zip(numbers, factors, strict=False):
            # A column of one value takes no pass of its own.
            each = number[:1] if number.strides == (0,) else number
            find += each * one
            check += each * other
        hashes = Hashes(find, (check >> _HALF).astype(np.uint32))
        self._hash_long(hashes, keys, lengths, topic_hashes)
        np.maximum(find, np.uint64(1), out=find)
        return hashes

    def hash_topic(self, topic: str) -> int:
        """Return 32 bits for a topic."""
        return int.from_bytes(blake2b(topic.encode(), digest_size=4, key=self._secret).digest())

    def _hash_long(self, hashes: Hashes, keys: bytes, lengths: Lengths, topics: U64) -> None:
        """Long keys are few; each goes through a hash of the standard library."""
        rows = np.flatnonzero(lengths > _SHORT).tolist()
        begins = starts(lengths) if rows else lengths
        for row in rows:
            begin = int(begins[row])
            key = keys[begin : begin + int(lengths[row])]
            salt = int(topics[row]).to_bytes(8)
            digest = blake2b(key, digest_size=12, key=self._secret, salt=salt).digest()
            hashes.find[row] = int.from_bytes(digest[:8])
            hashes.check[row] = int.from_bytes(digest[8:])


def _draw(rng: random.Random) -> np.uint64:
    return np.uint64(rng.getrandbits(64))


def _as_u64(lengths: Lengths) -> U64:
    if lengths.strides == (0,):
        return repeated(lengths[:1].astype(np.uint64), len(lengths))
    return lengths.astype(np.uint64)


def _words(keys: bytes, lengths: Lengths) -> list[U64]:
    """Return the 32-bit words of each key's first bytes, with zeroes behind its end."""
    longest = int(lengths.max(initial=0))
    width = min(_SHORT, longest + -longest % _WORD)
    padded = keys + bytes(width)
    if longest <= _SHORT and is_constant(lengths):
        found = [_column(padded, at, longest, len(lengths)) for at in range(0, width, _WORD)]
        if found:
            found[-1] &= _MASKS[longest - (width - _WORD)]
        return found
    return _scattered_words(padded, lengths, width)


def _column(padded: bytes, at: int, stride: int, count: int) -> U64:
    """Return one word of each key, where keys have one width."""
    return np.ndarray((count,), "<u4", padded, at, (stride,)).astype(np.uint64)


def _scattered_words(padded: bytes, lengths: Lengths, width: int) -> list[U64]:
    if not width:
        return []
    rows = windows(padded, width)[starts(lengths)].view("<u4").reshape(len(lengths), -1)
    left = lengths.astype(np.int64)
    return [
        rows[:, word].astype(np.uint64) & _MASKS[np.clip(left - word * _WORD, 0, _WORD)]
        for word in range(width // _WORD)
    ]


def newest(hashes: Hashes) -> Mask:
    """Leave out most of those that a later one of the same key follows, quickly.

    A table that fits into a processor's cache has the last of those that share a slot. Keys that come often win their
    slots; who lost to another key stays, and is looked at again.
    """
    find, check = hashes
    slots = (find >> np.uint64(64 - _FEW_BITS)).view(np.int64)
    rows = np.arange(len(find))
    last = np.empty(1 << _FEW_BITS, np.int64)
    last[slots] = rows
    winners = last[slots]
    keep: Mask = winners == rows
    keep |= find[winners] != find
    keep |= check[winners] != check
    return keep


class Replaced(NamedTuple):
    """For each row: the row that the index had before, or `NOBODY`, and the row that it has now."""

    before: Ints
    now: Ints


class KeyIndex:
    """The last row of each key. 16 bytes a slot, and at most half of the slots are in use."""

    def __init__(self) -> None:
        self._hashes: U64 = np.empty(0, np.uint64)
        self._rows: Ints = np.empty(0, np.int64)
        self.reset(0)

    def reset(self, expected: int) -> None:
        """Forget everything, and make room for so many keys."""
        slots = max(_SLOTS_MIN, 1 << (2 * expected).bit_length())
        if not slots <= len(self._hashes) <= 2 * slots:
            self._hashes = np.empty(slots, np.uint64)
            self._rows = np.empty(slots, np.int64)
        self._hashes.fill(0)
        self._rows.fill(NOBODY)
        self._used = 0

    @property
    def nbytes(self) -> int:
        return self._hashes.nbytes + self._rows.nbytes

    def replace(self, hashes: U64, rows: Ints) -> Replaced:
        """Remember rising rows, of which the last of each hash counts."""
        if 2 * (self._used + len(hashes)) > len(self._hashes):
            self._grow(len(hashes))
        slots = self._find(hashes)
        before = self._rows[slots]
        self._rows[slots] = rows
        now = self._rows[slots]
        self._used += int(((now == rows) & (before == NOBODY)).sum())
        return Replaced(before, now)

    def _grow(self, more: int) -> None:
        used = np.flatnonzero(self._hashes)
        hashes, rows = self._hashes[used], self._rows[used]
        self.reset(self._used + more)
        self.replace(hashes, rows)

    def _find(self, hashes: U64) -> Ints:
        """Return the slot of each hash, taken if it was not there."""
        table, mask = self._hashes, len(self._hashes) - 1
        slots: Ints = (hashes >> np.uint64(64 - mask.bit_length())).view(np.int64)
        waiting = np.flatnonzero(table[slots] != hashes)
        while len(waiting):
            at, wanted = slots[waiting], hashes[waiting]
            is_empty: Mask = table[at] == 0
            table[at[is_empty]] = wanted[is_empty]
            waiting = waiting[table[at] != wanted]
            slots[waiting] = (slots[waiting] + 1) & mask
        return slots
