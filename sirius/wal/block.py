"""Blocks: the encoded unit that moves.

A block is a run of decided entries, encoded once and never again: the same bytes go to acceptors, into journals and
logs, to followers and to Spark. All integers are little-endian. A block is a multiple of 8 bytes long::

    block     header (64) | entries (48 each) | keys, end to end | bodies, end to end | zeroes up to a multiple of 8

    header     0  magic "SBLK"            24  last covered     u64      entry   0  checksum   u32
               4  header checksum u32     32  bytes of keys    u32              4  key bytes  u32
               8  version 1       u16     36  bytes of bodies  u32              8  body bytes u32
              10  flags (0)       u16     40  payload checksum u32             12  operation  u8
              12  entries         u32     44  reserved (0)     u32             13  flags (0)  u8
              16  first covered   u64     48  oldest time, µs  i64             14  reserved   u16
                                          56  newest time, µs  i64             16  sequence   u64
                                                                               24  time, µs   i64
                                                                               32  session    u64
                                                                               40  serial     u64

Checksums are CRC-32C. The header's covers bytes 8 to 64 of the header, which holds the payload's; that one covers all
that follows the header, so verifying a block is two calls however many entries it has. An entry's checksum covers
bytes 4 to 48 of the entry, then its key, then its body: it stays with the entry for life, also when compaction puts
the entry into another block, and finds the one bad entry in a damaged block.

A block *covers* the sequence numbers `first` to `last` completely. Those without an entry are **holes**: known to be
right not to be there. So blocks chain without a gap (each begins where the one before ended), and what is missing
can never be mistaken for what was compacted away.

Keys stand together and bodies stand together, with lengths in a column: numpy and Arrow see both as variable-length
columns without a loop, and compaction, `grep` and key scans do not touch bodies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from sirius.errors import CorruptLog, InvalidRecord
from sirius.types import Seq
from sirius.wal.record import DEFAULT_LIMITS, Limits, Op, Update, check_updates

MAGIC: Final = b"SBLK"
VERSION: Final = 1
HEADER: Final = struct.Struct("<4sIHHIQQIIIIqq")
HEADER_BYTES: Final = HEADER.size
ENTRY: Final = np.dtype(
    [
        ("crc", "<u4"),
        ("key_len", "<u4"),
        ("body_len", "<u4"),
        ("op", "u1"),
        ("flags", "u1"),
        ("reserved", "<u2"),
        ("seq", "<u8"),
        ("ts", "<i8"),
        ("session", "<u8"),
        ("serial", "<u8"),
    ]
)
ENTRY_BYTES: Final = ENTRY.itemsize
_KINDS: Final = np.dtype({"names": ["kind"], "formats": ["<u4"], "offsets": [12], "itemsize": 48})
"""Operation, flags and reserved bytes of an entry at a glance: with nothing unknown set it is the operation."""
_OP_MAX: Final = max(Op)
ALIGN: Final = 8
SEQ_MAX: Final = 2**63 - 1
"""The highest sequence number: columns of signed integers hold it, here and in Arrow and Spark."""

Entries = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]


class Header(NamedTuple):
    """A block's header, field by field, as `HEADER` unpacks it."""

    magic: bytes
    header_crc: int
    version: int
    flags: int
    records: int
    first: int
    last: int
    keys_len: int
    bodies_len: int
    payload_crc: int
    reserved: int
    ts_min: int
    ts_max: int

    @property
    def size(self) -> int:
        """The whole block's length in bytes."""
        payload = self.records * ENTRY_BYTES + self.keys_len + self.bodies_len
        return HEADER_BYTES + payload + -payload % ALIGN


def header_fault(header: Header, raw: bytes | memoryview, limits: Limits) -> str | None:
    """Say what is wrong with a header whose bytes begin `raw`, before its lengths are believed."""
    if header.magic != MAGIC:
        return "no block begins here"
    if crc32c(raw[8:HEADER_BYTES]) != header.header_crc:
        return "the block header's checksum does not match"
    if header.version != VERSION or header.flags or header.reserved:
        return (
            f"block format {header.version} with flags {header.flags} is not known to this version"
        )
    if not 1 <= header.first <= header.last <= SEQ_MAX:
        return f"the block says that it covers {header.first} to {header.last}"
    if header.records > header.last - header.first + 1:
        return f"the block says {header.records} entries for {header.first} to {header.last}"
    if header.size > limits.block_bytes_max:
        return f"the block says {header.size} bytes, the limit is {limits.block_bytes_max}"
    return None


@dataclass(frozen=True)
class Block:
    """One encoded block. `raw` holds exactly its bytes."""

    raw: bytes
    header: Header

    @classmethod
    def parse(cls, raw: bytes, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Take a block from outside: every length and number and the checksums of the whole are checked.

        The entries' own checksums are not: whoever looks one entry up, and `waltool verify`, goes by them.
        """
        if len(raw) < HEADER_BYTES:
            raise CorruptLog(f"a block has at least {HEADER_BYTES} bytes, not {len(raw)}")
        header = Header._make(HEADER.unpack_from(raw))
        fault = header_fault(header, raw, limits)
        if not fault and header.size != len(raw):
            fault = f"the block says {header.size} bytes and has {len(raw)}"
        if not fault and crc32c(memoryview(raw)[HEADER_BYTES:]) != header.payload_crc:
            fault = "the block's payload checksum does not match"
        block = cls(raw, header)
        if fault := fault or block.structure_fault():
            raise CorruptLog(fault)
        return block

    @classmethod
    def trusted(cls, raw: bytes) -> Self:
        """Take a block whose checksums were verified on the way."""
        return cls(raw, Header._make(HEADER.unpack_from(raw)))

    @classmethod
    def hole(cls, first: int, last: int) -> Self:
        """Return a block that covers a range with no entry at all."""
        return cls.trusted(seal(first, last, np.zeros(0, ENTRY), (), ()).raw)

    @property
    def first(self) -> Seq:
        return Seq(self.header.first)

    @property
    def last(self) -> Seq:
        return Seq(self.header.last)

    @property
    def count(self) -> int:
        return self.header.records

    def __len__(self) -> int:
        return len(self.raw)

    @cached_property
    def entries(self) -> Entries:
        """The fixed part of every entry, as a view of the bytes."""
        return np.frombuffer(self.raw, ENTRY, self.header.records, HEADER_BYTES)

    @property
    def keys_at(self) -> int:
        """Where the keys begin."""
        return HEADER_BYTES + self.header.records * ENTRY_BYTES

    @property
    def bodies_at(self) -> int:
        """Where the bodies begin."""
        return self.keys_at + self.header.keys_len

    def cut(self, first: int, last: int) -> Block:
        """Return the part that covers `first` to `last`, which must lie inside."""
        if (first, last) == (self.first, self.last):
            return self
        seq = self.entries["seq"]
        low, high = (int(at) for at in np.searchsorted(seq, np.array([first, last + 1], "u8")))
        key_ends, body_ends = self._ends()
        keys = memoryview(self.raw)[self.keys_at + key_ends[low] : self.keys_at + key_ends[high]]
        bodies = memoryview(self.raw)[
            self.bodies_at + body_ends[low] : self.bodies_at + body_ends[high]
        ]
        return seal(first, last, self.entries[low:high], (keys,), (bodies,))

    def _ends(self) -> tuple[list[int], list[int]]:
        lengths = self.entries
        return (
            [0, *np.cumsum(lengths["key_len"], dtype=np.int64).tolist()],
            [0, *np.cumsum(lengths["body_len"], dtype=np.int64).tolist()],
        )

    def structure_fault(self) -> str | None:
        """Check what a checksum cannot: that the columns fit together."""
        entries, header = self.entries, self.header
        if int(entries["key_len"].sum(dtype=np.int64)) != header.keys_len:
            return "the lengths of the keys do not add up"
        if int(entries["body_len"].sum(dtype=np.int64)) != header.bodies_len:
            return "the lengths of the bodies do not add up"
        keys = self.raw[self.keys_at : self.bodies_at]
        return (
            sequence_fault(entries["seq"], header.first, header.last)
            or keys_fault(keys, entries["key_len"])
            or entries_fault(entries, header)
        )


def keys_fault(keys: bytes, lengths: npt.NDArray[np.uint32]) -> str | None:
    """Say whether a key is not UTF-8, looking at all of them at once."""
    if keys.isascii():
        return None
    try:
        keys.decode()
    except UnicodeDecodeError as error:
        return f"a key is not UTF-8: {error.reason}"
    # The whole is UTF-8, so each key is unless a cut went through the middle of a character.
    starts = np.cumsum(lengths, dtype=np.int64)[:-1]
    starts = starts[starts < len(keys)]
    octets = np.frombuffer(keys, np.uint8)[starts]
    return "a key is not UTF-8: it begins inside a character" if _inside(octets) else None


def entries_fault(entries: Entries, header: Header) -> str | None:
    """Say whether an entry has an unknown operation or flag, or a time that the header does not own up to."""
    if not len(entries):
        return None
    kinds, ts = entries.view(_KINDS)["kind"], entries["ts"]
    if int(kinds.min()) < Op.PUT or int(kinds.max()) > _OP_MAX:
        return "an entry has an operation or flags that are not known to this version"
    if (int(ts.min()), int(ts.max())) != (header.ts_min, header.ts_max):
        return f"times from {ts.min()} to {ts.max()} are not those of the block's header"
    return None


def _inside(octets: npt.NDArray[np.uint8]) -> bool:
    return bool(((octets & 0xC0) == 0x80).any())


def sequence_fault(seq: npt.NDArray[np.uint64], first: int, last: int) -> str | None:
    """Say whether sequence numbers leave their range or fail to increase."""
    if not len(seq):
        return None
    if int(seq[0]) < first or int(seq[-1]) > last or bool((seq[1:] <= seq[:-1]).any()):
        return f"sequence numbers do not increase within {first} to {last}"
    return None


def encode(
    first: int, updates: Sequence[Update], ts_us: int, limits: Limits = DEFAULT_LIMITS
) -> Block:
    """Give `updates` the sequence numbers from `first` on and encode them as one block.

    This is the only place where an update becomes bytes. O(n), about 0.7 µs an entry in batches of a thousand.
    """
    if not updates:
        raise InvalidRecord("a block needs at least one entry")
    check_updates(updates, limits)
    if not 1 <= first <= SEQ_MAX - len(updates) + 1:
        raise InvalidRecord(f"{len(updates)} entries from {first} on leave 1 to {SEQ_MAX}")
    if not -(2**63) <= ts_us < 2**63:
        raise InvalidRecord(f"the time {ts_us} is not a number of 64 bits")
    ops, keys, bodies, sessions, serials = zip(*updates, strict=True)
    entries = np.zeros(len(updates), ENTRY)
    entries["op"] = ops
    entries["seq"] = np.arange(first, first + len(updates), dtype=np.uint64)
    entries["ts"] = ts_us
    entries["session"] = sessions
    entries["serial"] = serials
    return assemble(first, first + len(updates) - 1, entries, keys, bodies, limits)


def assemble(
    first: int,
    last: int,
    entries: Entries,
    keys: Sequence[bytes],
    bodies: Sequence[bytes],
    limits: Limits = DEFAULT_LIMITS,
) -> Block:
    """Encode entries whose numbers and times are set; lengths and checksums are filled in here."""
    count = len(entries)
    entries["key_len"] = np.fromiter(map(len, keys), np.uint32, count)
    entries["body_len"] = np.fromiter(map(len, bodies), np.uint32, count)
    size = HEADER_BYTES + count * ENTRY_BYTES + sum(map(len, keys)) + sum(map(len, bodies))
    size += -size % ALIGN
    if size > limits.block_bytes_max:
        raise InvalidRecord(f"the block has {size} bytes, the limit is {limits.block_bytes_max}")
    if fault := sequence_fault(entries["seq"], first, last):
        raise InvalidRecord(fault)
    blob = b"".join(keys)
    if fault := keys_fault(blob, entries["key_len"]):
        raise InvalidRecord(f"entry {_not_utf8(keys)} of {count}: {fault}")
    entries["crc"] = np.fromiter(checksums(entries, keys, bodies), np.uint32, count)
    return seal(first, last, entries, (blob,), (b"".join(bodies),))


def _not_utf8(keys: Sequence[bytes]) -> int:
    return next(at for at, key in enumerate(keys) if key.decode(errors="ignore").encode() != key)


def checksums(entries: Entries, keys: Iterable[bytes], bodies: Iterable[bytes]) -> Iterable[int]:
    """Return the checksum that each entry should carry."""
    raw = joined((entries,))
    heads = [raw[at + 4 : at + ENTRY_BYTES] for at in range(0, len(raw), ENTRY_BYTES)]
    return map(crc32c, bodies, map(crc32c, keys, map(crc32c, heads)))


def seal(
    first: int,
    last: int,
    entries: Entries,
    keys: Sequence[bytes | memoryview],
    bodies: Sequence[bytes | memoryview],
) -> Block:
    """Make a block of entries that already carry their checksums, untouched. Keys and bodies best come in few parts."""
    keys_len = int(entries["key_len"].sum(dtype=np.int64))
    bodies_len = int(entries["body_len"].sum(dtype=np.int64))
    padding = bytes(-(keys_len + bodies_len) % ALIGN)
    payload = (joined((entries,)), *keys, *bodies, padding)
    payload_crc = reduce(lambda crc, part: crc32c(part, crc), payload, 0)
    ts = entries["ts"] if len(entries) else np.zeros(1, np.int64)
    fields = (VERSION, 0, len(entries), first, last, keys_len, bodies_len, payload_crc, 0)
    tail = HEADER.pack(MAGIC, 0, *fields, int(ts.min()), int(ts.max()))[8:]
    return Block.trusted(b"".join((MAGIC, crc32c(tail).to_bytes(4, "little"), tail, *payload)))


def joined(parts: Sequence[Entries]) -> bytes:
    """Return the bytes of entries, end to end. As buffers: numpy's own ways go field by field, thirty times as slow."""
    return b"".join([part.data for part in parts])
