"""Distinct keys, and what became of each: exact, without a Python loop over records.

Keys are hashed, sorted by hash, and compared byte by byte with their neighbours; the hash only brings equal keys
together and never decides that two keys are equal. A dict would do the same at a third of the speed, since every new
key costs it a cache miss and an object.

Records are counted and hashed in portions that fit into the processor's cache. Memory is that of the distinct keys and
of a bounded number of rows not yet merged with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sirius.wal import Batch
from sirius.wal.batch import Mask
from sirius.wal.block import ENTRY_BYTES, Ints
from sirius.wal.record import CONTROL_FROM

Words = npt.NDArray[np.uint64]
Octets = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.uint32]

_WINDOW: Final = 32
PREFIX_MAX: Final = _WINDOW
_WORD: Final = 8
_ROWS_MAX: Final = 1 << 20
_PORTION: Final = 1 << 14
_PORTION_BYTES: Final = 1 << 20
_ROW_BYTES: Final = 5 * 8 + 1
_KEPT_BYTES: Final = 31 << 20
_KEY_BYTES_MAX: Final = 64 << 20
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)
# The first n bytes of a little-endian word.
_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(_WORD + 1)], np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Byte strings in one buffer, which has `_WINDOW` zeroes to spare behind the last of them."""

    blob: Octets
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, blobs: Sequence[bytes], lengths: Ints) -> Keys:
        """Take strings that stand end to end in `blobs`."""
        blob = np.frombuffer(b"".join((*blobs, bytes(_WINDOW))), np.uint8)
        return cls(blob, np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, which: Ints | Mask | slice) -> Keys:
        return Keys(self.blob, self.starts[which], self.lengths[which])

    def pieces(self) -> list[bytes]:
        """Return every key."""
        return list(map(bytes, self._views()))

    def joined(self) -> bytes:
        """Return all keys end to end."""
        return b"".join(self._views())

    def _views(self) -> list[memoryview]:
        blob, ends = self.blob.data, (self.starts + self.lengths).tolist()
        return [blob[a:b] for a, b in zip(self.starts.tolist(), ends, strict=True)]

    def windows(self, at: int) -> Words:
        """Return `_WINDOW` bytes of each key from `at` on, as words, with zeroes behind its end."""
        left = np.clip(self.lengths - at, 0, _WINDOW)
        width = max(int(left.max(initial=0)), 1)
        width += -width % _WORD
        # Rows of an opaque type move as one piece each: twice as fast as rows of octets.
        places = np.ndarray((len(self.blob) - width + 1,), f"V{width}", self.blob, 0, (1,))
        # A key that ended before `at` gives a window of zeroes; any place will do for it.
        rows = places[self.starts + np.where(left > 0, at, 0) if at else self.starts]
        words: Words = rows.view("<u8").reshape(len(self), width // _WORD)
        if int(left.min(initial=width)) < width:
            words &= _MASKS[np.clip(left[:, None] - np.arange(0, width, _WORD), 0, _WORD)]
        return words

    def startswith(self, prefix: bytes) -> Mask:
        """Say which keys begin with so many bytes, `PREFIX_MAX` at most."""
        width = len(prefix)
        wanted = np.frombuffer(prefix + bytes(-width % _WORD), "<u8")
        has: Mask = self.lengths >= width
        if not bool(has.any()):
            return has
        for word, own in zip(wanted, self._heads(width).T, strict=True):
            has &= own == word
        return has

    def _heads(self, width: int) -> Words:
        """Return the first bytes of each key."""
        return Keys(self.blob, self.starts, np.minimum(self.lengths, width)).windows(0)

    def hashes(self) -> Words:
        """Return 64 bits for each key: equal for equal keys, whatever stands beside them, and mostly not for others."""
        found = self.lengths.astype(np.uint64)
        for at in range(0, int(self.lengths.max(initial=0)), _WINDOW):
            alive = slice(None) if at == 0 else np.flatnonzero(self.lengths > at)
            for position, word in enumerate(self.take(alive).windows(at).T, at // _WORD):
                # A word of zeroes, which may also stand behind the key's end, adds nothing.
                mixed = word * _MULTIPLIER
                mixed ^= mixed >> _SHIFT
                mixed *= np.uint64(pow(int(_MULTIPLIER), position + 1, 1 << 64))
                found[alive] += mixed
        found ^= found >> _SHIFT
        found *= _MULTIPLIER
        return found

    def same_as_next(self, candidates: Mask) -> Mask:
        """Say for which keys the next one is equal; only `candidates` are looked at."""
        same: Mask = candidates & (self.lengths[1:] == self.lengths[:-1])
        for at in range(0, int(self.lengths.max(initial=0)), _WINDOW):
            if at == 0:
                for word in self.windows(0).T:
                    same &= word[1:] == word[:-1]
                continue
            rows = np.flatnonzero(same & (self.lengths[:-1] > at))
            equal = self.take(rows).windows(at) == self.take(rows + 1).windows(at)
            same[rows] = equal.all(axis=1)
        return same


def group(keys: Keys, hashes: Words) -> tuple[Ints, Mask]:
    """Return an order of rows that brings equal keys together, oldest first, and where each group ends."""
    order, same = _sorted_by_hash(hashes)
    equal = _equal(keys, order, same)
    if bool((same & ~equal).any()):
        order = _untangle(keys.take(order), order, same, same & ~equal)
        equal = _equal(keys, order, same)
    return order, np.append(~equal, True)[: len(order)]


def _equal(keys: Keys, order: Ints, same: Mask) -> Mask:
    """Say which keys equal the next in the order, where hashes do. A key whose hash is its own is not even fetched."""
    rows = np.flatnonzero(np.append(same, False) | np.append(False, same))
    firsts = rows[:-1]
    equal: Mask = np.zeros(len(same), np.bool_)
    equal[firsts] = keys.take(order[rows]).same_as_next(same[firsts])
    return equal


def _sorted_by_hash(hashes: Words) -> tuple[Ints, Mask]:
    """Order rows by hash; say which have the same as the next. One plain sort of hash and row is
    several times as fast as an argsort."""
    count = len(hashes)
    row_bits = np.uint64((1 << max(count - 1, 1).bit_length()) - 1)
    packed = (hashes & ~row_bits) | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & row_bits).astype(np.int64)
    packed &= ~row_bits
    return order, packed[1:] == packed[:-1]


def _untangle(ordered: Keys, order: Ints, same: Mask, differs: Mask) -> Ints:
    """Bring equal keys together where different ones share a hash."""
    order = order.copy()
    runs = np.cumsum(np.append(False, ~same))
    for run in np.unique(runs[1:][differs]).tolist():
        low, high = np.searchsorted(runs, [run, run + 1]).tolist()
        pieces = ordered.take(np.arange(low, high)).pieces()
        by_key = sorted(range(high - low), key=pieces.__getitem__)
        order[low:high] = order[low:high][by_key]
    return order


@dataclass(frozen=True, slots=True, eq=False)
class Distinct:
    """One row a distinct key: its newest record, and sums over all of them."""

    keys: Keys
    hashes: Words
    seq: npt.NDArray[np.uint64]
    ts: Ints
    op: npt.NDArray[np.uint8]
    size: Ints
    """Bytes of the newest record, apart from its share of a block's header."""
    updates: Ints
    total_size: Ints

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, which: Ints | Mask) -> Distinct:
        return Distinct(
            self.keys.take(which),
            self.hashes[which],
            self.seq[which],
            self.ts[which],
            self.op[which],
            self.size[which],
            self.updates[which],
            self.total_size[which],
        )

    def merged(self, *, one_each: bool = False) -> Distinct:
        """Turn rows in order of sequence into one row a key, in the order of each key's newest record.

        `one_each` says that every row is one record, so that they need not be added up.
        """
        if not len(self):
            return self
        order, last_of_group = group(self.keys, self.hashes)
        ends = np.flatnonzero(last_of_group)
        begins = np.append(0, ends[:-1] + 1)
        newest = order[ends]
        updates = ends - begins + 1
        if not one_each:
            updates = np.add.reduceat(self.updates[order], begins)
        total_size = np.add.reduceat(self.total_size[order], begins)
        return self._only(newest, updates, total_size)

    def _only(self, newest: Ints, updates: Ints, total_size: Ints) -> Distinct:
        """Keep some rows, with new sums for them, in the order of the rows: without a sort."""
        is_kept = np.zeros(len(self), np.bool_)
        is_kept[newest] = True
        by_row = np.empty(len(self), np.int64)
        rows = np.flatnonzero(is_kept)
        sums = []
        for values in (updates, total_size):
            by_row[newest] = values
            sums.append(by_row[rows])
        return Distinct(
            self.keys.take(rows),
            self.hashes[rows],
            self.seq[rows],
            self.ts[rows],
            self.op[rows],
            self.size[rows],
            *sums,
        )


class Columns(NamedTuple):
    """Some fields of many records, of control entries too."""

    key_len: Lengths
    body_len: Lengths
    seq: npt.NDArray[np.uint64]
    ts: Ints
    op: npt.NDArray[np.uint8]


def _keep_memory() -> None:
    """Have freed memory kept for the next array. The C library returns pieces to the system at once unless it has seen
    one as large being freed, up to 32 MiB; and new memory costs more than what is done in it."""
    np.empty(_KEPT_BYTES, np.uint8)


class Arena:
    """Room for rows and their keys, in one piece that is used again.

    It becomes memory as far as it is filled, and what is in it is neither copied nor joined before it is grouped.
    """

    def __init__(self, rows: int, key_bytes: int) -> None:
        # Not `empty`, for which numpy asks for huge pages: they cost more to get than they save.
        memory = np.zeros(rows * _ROW_BYTES + key_bytes + _WINDOW, np.uint8)
        words = memory[: rows * 5 * _WORD].view(np.int64).reshape(5, rows)
        self._seq, self._hashes = words[0].view(np.uint64), words[1].view(np.uint64)
        self._ts, self._sizes, self._lengths = words[2:]
        self._op = memory[rows * 5 * _WORD : rows * _ROW_BYTES]
        self._keys = memory[rows * _ROW_BYTES :]
        self.rows = 0
        self.key_bytes = 0

    def fits(self, rows: int, key_bytes: int) -> bool:
        """Say whether there is room for more."""
        rows, key_bytes = self.rows + rows, self.key_bytes + key_bytes
        return rows <= len(self._op) and key_bytes <= len(self._keys) - _WINDOW

    def add(self, columns: Columns, keys: bytes, hashes: Words) -> None:
        """Take in rows, for which there must be room."""
        rows = slice(self.rows, self.rows + len(hashes))
        self._seq[rows], self._ts[rows], self._op[rows] = columns.seq, columns.ts, columns.op
        self._hashes[rows], self._lengths[rows] = hashes, columns.key_len
        np.add(self._lengths[rows], columns.body_len, out=self._sizes[rows])
        self._sizes[rows] += ENTRY_BYTES
        self.rows = rows.stop
        end = self.key_bytes + len(keys)
        self._keys[self.key_bytes : end] = np.frombuffer(keys, np.uint8)
        self._keys[end : end + _WINDOW] = 0
        self.key_bytes = end

    def clear(self) -> None:
        """Make room for other rows, once nobody looks at these."""
        self.rows = self.key_bytes = 0

    def updates(self) -> Distinct:
        """Return the rows without control entries. They stay where they are."""
        rows = slice(self.rows)
        lengths, sizes, op = self._lengths[rows], self._sizes[rows], self._op[rows]
        keys = Keys(self._keys[: self.key_bytes + _WINDOW], np.cumsum(lengths) - lengths, lengths)
        columns = (self._seq[rows], self._ts[rows], op, sizes, sizes, sizes)
        every = Distinct(keys, self._hashes[rows], *columns)
        is_update = op < CONTROL_FROM
        return every if bool(is_update.all()) else every.take(is_update)


class KeyTable:
    """Gathers the distinct keys of the updates in batches that come in order of sequence.

    `on_columns` gets the columns of all records, many batches at a time.
    """

    def __init__(
        self,
        on_columns: Callable[[Columns], None] = lambda _: None,
        *,
        rows_max: int = _ROWS_MAX,
        key_bytes_max: int = _KEY_BYTES_MAX,
    ) -> None:
        _keep_memory()
        self._on_columns = on_columns
        self._rows_max = min(rows_max, _ROWS_MAX)
        self._key_bytes_max = min(key_bytes_max, _KEY_BYTES_MAX)
        self._parts: list[Distinct] = []
        self._arena = Arena(self._rows_max, self._key_bytes_max)
        self._fresh: list[tuple[npt.NDArray[Any], ...]] = []
        self._blobs: list[bytes] = []
        self._fresh_rows = 0
        self._fresh_bytes = 0

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        if not len(batch):
            return
        entries = batch.entries
        self._fresh.append(tuple(entries[name].copy() for name in Columns._fields))
        self._blobs.append(batch.key_column.blob())
        self._fresh_rows += len(entries)
        self._fresh_bytes += len(self._blobs[-1])
        if self._fresh_rows >= min(_PORTION, self._rows_max) or (
            self._fresh_bytes >= min(_PORTION_BYTES, self._key_bytes_max)
        ):
            self._digest()

    def _digest(self) -> None:
        """Count and hash what came lately, while it is in the processor's cache, and put it by."""
        if not self._fresh:
            return
        columns = Columns(*(np.concatenate(pieces) for pieces in zip(*self._fresh, strict=True)))
        self._on_columns(columns)
        keys = b"".join(self._blobs)
        hashes = Keys.of((keys,), columns.key_len.astype(np.int64)).hashes()
        self._fresh, self._blobs, self._fresh_rows, self._fresh_bytes = [], [], 0, 0
        if not self._arena.fits(len(hashes), len(keys)):
            self._make_room(len(hashes), len(keys))
        self._arena.add(columns, keys, hashes)

    def _make_room(self, rows: int, key_bytes: int) -> None:
        """Turn what was put by into a part. Parts grow geometrically, so a row is merged O(log n) times."""
        if self._arena.rows:
            self._parts.append(join([self._arena.updates().merged(one_each=True)]))
            self._arena.clear()
        while len(self._parts) > 1 and 2 * len(self._parts[-1]) > len(self._parts[-2]):
            newer, older = self._parts.pop(), self._parts.pop()
            self._parts.append(join([older, newer]).merged())
        if not self._arena.fits(rows, key_bytes):
            self._arena = Arena(max(rows, self._rows_max), max(key_bytes, self._key_bytes_max))

    def distinct(self) -> Distinct:
        """Return what was gathered so far, in the order of each key's newest record."""
        self._digest()
        if self._arena.rows:
            self._parts.append(self._arena.updates().merged(one_each=True))
            self._arena = Arena(self._rows_max, self._key_bytes_max)
        if len(self._parts) > 1:
            self._parts = [join(self._parts).merged()]
        return self._parts[0] if self._parts else _NOTHING


def join(parts: Sequence[Distinct]) -> Distinct:
    """Put rows behind each other; the keys move into a buffer that holds nothing else."""
    blobs = [part.keys.joined() for part in parts]
    lengths = np.concatenate([part.keys.lengths for part in parts])
    names = ("hashes", "seq", "ts", "op", "size", "updates", "total_size")
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
    return Distinct(Keys.of(blobs, lengths), *columns)


_NONE: Final = np.zeros(0, np.int64)
_NO_WORDS: Final = np.zeros(0, np.uint64)
_NOTHING: Final = Distinct(
    Keys.of((), _NONE), _NO_WORDS, _NO_WORDS, _NONE, _NONE.astype(np.uint8), _NONE, _NONE, _NONE
)
