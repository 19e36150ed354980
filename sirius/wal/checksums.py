"""Checksums of many entries at once, and of entries that get another sequence number.

An entry's checksum covers its fixed fields, its key and its body. A CRC is linear: flipping bits of a message flips the
checksum by something that depends on those bits and on how many bytes follow them, and on nothing else. So

- one call of `crc32c` over key and body gives the checksum of an entry whose fields are all zero, and what the fields
  change about it is looked up in tables, for all entries of a block together;
- an entry that gets its final sequence number keeps its key and body unread.

**Tables.** What a byte of value v at position p of the fields changes, seen at the end of the fields, is one entry of a
table of 256 for each p. The key and the body move it on by as many zero bytes as they have: a linear map, applied as
four look-ups for each bit that is set in their length, or four for a length that many entries of a block share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from sirius.wal.block import ENTRY_BYTES, Entries

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

_FIELDS: Final = ENTRY_BYTES - 4
"""How many bytes of an entry its checksum covers: all but itself."""
_BLANK: Final = crc32c(bytes(_FIELDS))
_ALL: Final = 0xFFFFFFFF
_SAMPLES: Final = 32
"""So many lengths of a block are looked at to find out whether some are frequent."""


def checksums(entries: Entries, rest: Iterable[bytes]) -> Words:
    """Return the checksum that each entry should carry; `rest` has the key and body of each, end to end."""
    blank = np.fromiter(map(crc32c, rest, repeat(_BLANK)), np.uint32, len(entries))
    return blank ^ _moved(entries, _bytes_of(entries), range(4, ENTRY_BYTES))


def renumber(entries: Entries, by: int) -> None:
    """Add to the sequence numbers of entries, and mend their checksums."""
    before = _bytes_of(entries).copy()
    entries["seq"] += np.uint64(by)
    changes = _bytes_of(entries) ^ before
    entries["crc"] ^= _moved(entries, changes, range(16, 24))


def _bytes_of(entries: Entries) -> Bytes:
    return entries.view(np.uint8).reshape(len(entries), ENTRY_BYTES)


def _moved(entries: Entries, changes: Bytes, positions: Sequence[int]) -> Words:
    """Return what changes of some bytes of the fields do to the checksums."""
    effect = np.zeros(len(entries), np.uint32)
    columns = np.ascontiguousarray(changes[:, positions[0] : positions[-1] + 1].T)
    # Most bytes are the same in a whole block: high bytes of lengths, flags, the time.
    varying = columns.min(axis=1, initial=255) != columns.max(axis=1, initial=0)
    for position, column, varies in zip(positions, columns, varying.tolist(), strict=True):
        effect ^= _table_of(position)[column if varies else column[:1]]
    lengths = entries["key_len"].astype(np.int64) + entries["body_len"]
    return _forward(effect, lengths)


def _forward(effect: Words, lengths: npt.NDArray[np.int64]) -> Words:
    """Move effects on by as many zero bytes each."""
    for length in _frequent(lengths):
        chosen = (lengths == length).nonzero()[0]
        effect[chosen] = _through(_jump(length), effect[chosen])
        lengths = np.where(lengths == length, 0, lengths)
    return _step_by_step(effect, lengths)


def _frequent(lengths: npt.NDArray[np.int64]) -> list[int]:
    """Return lengths that many entries have, as those of deletes or of records that are all alike."""
    samples = lengths[:: max(1, len(lengths) // _SAMPLES)].tolist()
    return [length for length, times in Counter(samples).items() if times * 8 > len(samples)]


def _step_by_step(effect: Words, lengths: npt.NDArray[np.int64]) -> Words:
    """Move effects on by a power of two at a time."""
    for bit in range(int(lengths.max(initial=0)).bit_length()):
        chosen = ((lengths >> bit) & 1).nonzero()[0]
        if len(chosen) == len(effect):
            effect = _through(_step(bit), effect)
        elif len(chosen):
            effect[chosen] = _through(_step(bit), effect[chosen])
    return effect


def _through(tables: Words, values: Words) -> Words:
    """Apply a linear map, given as a table for each byte of a word."""
    octets = values.view(np.uint8).reshape(len(values), 4)
    moved: Words = tables[0][octets[:, 0]]
    for at in range(1, 4):
        moved ^= tables[at][octets[:, at]]
    return moved


@lru_cache(1024)
def _jump(length: int) -> Words:
    """Return the map that moves an effect on by so many zero bytes, all at once."""
    basis = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
    return _tables(_step_by_step(basis, np.full(32, length, np.int64)).tolist())


@cache
def _step(bit: int) -> Words:
    """Return the map that moves an effect on by 2^bit zero bytes."""
    if bit == 0:
        return _tables([_moved_on(1 << at, 1) for at in range(32)])
    half = _step(bit - 1)
    basis = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
    return _tables(_through(half, _through(half, basis)).tolist())


def _tables(images: list[int]) -> Words:
    """Return a linear map as four tables of 256, from where it takes each bit."""
    tables = np.zeros((4, 256), np.uint32)
    for at, image in enumerate(images):
        table, bit = tables[at // 8], 1 << at % 8
        table[(np.arange(256) & bit) != 0] ^= np.uint32(image)
    return tables


def _moved_on(value: int, count: int) -> int:
    """Move one effect on by some zero bytes. The library inverts before and after; effects are not inverted."""
    return crc32c(bytes(count), value ^ _ALL) ^ _ALL


@cache
def _table_of(position: int) -> Words:
    """Return what each value of a byte of the fields changes, seen at the end of the fields."""
    behind = ENTRY_BYTES - position - 1
    zero = crc32c(bytes(1 + behind))
    return np.array([crc32c(bytes([v]) + bytes(behind)) ^ zero for v in range(256)], np.uint32)
