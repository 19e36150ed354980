"""The state that a log stands for: the newest value of every key.

`live_batches` yields it, `state_digest` sums it up so that two logs can be compared cheaply, `diff` says where they
differ. None of this changes under compaction, rotation or merging, nor with the numbers, times or order of the
updates that led there: only keys and values count.

**The digest.** Every live key adds the first 16 bytes of BLAKE2b over (length of the key as u32, key, body), taken as a
little-endian number, to the sum of its range, modulo 2¹²⁸. Ranges split the keys by the upper bits of their CRC-32C,
so that they are of like size whatever the keys look like, and two logs agree on them without talking. Comparing two
logs costs the exchange of one digest, then of the ranges that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final, Protocol

from crc32c import crc32c

from sirius.errors import UsageError
from sirius.types import Seq
from sirius.wal.batch import Batch
from sirius.wal.compaction.liveness import NewestFirst
from sirius.wal.manifest import SegmentInfo
from sirius.wal.record import Op

DEFAULT_RANGES: Final = 256
_MODULUS: Final = 1 << 128

Progress = Callable[[int], None]


class Segmented(Protocol):
    """What a state is read from: a `Snapshot`, or another log that comes in segments. Each is read more than once."""

    @property
    def segments(self) -> Sequence[SegmentInfo]: ...
    def segment_batches(self, info: SegmentInfo) -> Iterator[Batch]: ...


def live_batches(snapshot: Segmented, progress: Progress = lambda _: None) -> Iterator[Batch]:
    """Yield the newest PUT of every key that exists, newest segment first.

    Reads each segment twice and keeps 12 bytes a distinct key. `progress` gets the records looked at.
    """
    scan = NewestFirst()
    for info in reversed(snapshot.segments):
        rows = scan.segment(snapshot.segment_batches(info))
        live = rows.live & (rows.entries["op"] == Op.PUT)
        at = 0
        for batch in snapshot.segment_batches(info):
            yield batch.where(live[at : at + len(batch)])
            at += len(batch)
            progress(len(batch))


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """Sum over the keys of one range."""

    keys: int = 0
    value: int = 0


_NOTHING: Final = RangeDigest()
"""Shared: of many ranges most have no key."""


@dataclass(frozen=True, slots=True)
class StateDigest:
    """Sums over the live keys, range by range, and over all of them."""

    ranges: tuple[RangeDigest, ...]

    @property
    def total(self) -> RangeDigest:
        return RangeDigest(
            sum(part.keys for part in self.ranges),
            sum(part.value for part in self.ranges) % _MODULUS,
        )

    @property
    def hex(self) -> str:
        """The digest of the whole state, for people and scripts."""
        return f"{self.total.value:032x}"

    def differing(self, other: StateDigest) -> list[int]:
        """Return the numbers of the ranges in which two states differ."""
        pairs = zip(self.ranges, other.ranges, strict=True)
        return [
            number
            for number, (mine, theirs) in enumerate(pairs)
            if mine is not theirs and mine != theirs
        ]


def state_digest(
    snapshot: Segmented,
    ranges: int = DEFAULT_RANGES,
    *,
    prefix: str = "",
    progress: Progress = lambda _: None,
) -> StateDigest:
    """Sum up the state, or the part of it whose keys begin with `prefix`. `ranges` is a power of two up to 65,536."""
    if ranges not in {1 << bits for bits in range(17)}:
        raise UsageError(f"the number of ranges is a power of two up to 65536, not {ranges}")
    shift, wanted = 32 - (ranges.bit_length() - 1), prefix.encode()
    keys, values = [0] * ranges, [0] * ranges
    for batch in live_batches(snapshot, progress):
        for key, body in zip(batch.key_blobs(), batch.bodies(), strict=True):
            if key.startswith(wanted):
                number = crc32c(key) >> shift
                keys[number] += 1
                values[number] += _element(key, body)
    return StateDigest(
        tuple(
            RangeDigest(n, value % _MODULUS) if n else _NOTHING
            for n, value in zip(keys, values, strict=True)
        )
    )


def _element(key: bytes, body: bytes) -> int:
    hashed = blake2b(len(key).to_bytes(4, "little"), digest_size=16)
    hashed.update(key)
    hashed.update(body)
    return int.from_bytes(hashed.digest(), "little")


class Side(StrEnum):
    """How two states differ in a key."""

    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that only one of two states has, or that has another value in each."""

    key: str
    side: Side
    left_seq: Seq | None
    right_seq: Seq | None


def diff(
    left: Segmented, right: Segmented, *, progress: Progress = lambda _: None
) -> Iterator[Difference]:
    """Yield the keys in which two states differ, sorted by key.

    Compares digests first, so that memory goes by the number of keys in the ranges that differ: two like logs cost
    nothing but the reading.
    """
    ranges = 1 << 16
    mine, theirs = (state_digest(side, ranges, progress=progress) for side in (left, right))
    wanted = frozenset(mine.differing(theirs))
    if wanted:
        yield from _compare(_values(left, wanted), _values(right, wanted))


_Values = dict[bytes, tuple[bytes, int]]


def _values(snapshot: Segmented, wanted: frozenset[int]) -> _Values:
    """Return hash and sequence number of every live value whose key lies in one of the ranges."""
    values: _Values = {}
    for batch in live_batches(snapshot):
        rows = zip(batch.key_blobs(), batch.bodies(), batch.seq.tolist(), strict=True)
        for key, body, seq in rows:
            if crc32c(key) >> 16 in wanted:
                values[key] = (blake2b(body, digest_size=16).digest(), seq)
    return values


def _compare(left: _Values, right: _Values) -> Iterator[Difference]:
    for key in sorted(left.keys() | right.keys()):
        mine, theirs = left.get(key), right.get(key)
        if mine is None or theirs is None or mine[0] != theirs[0]:
            side = Side.RIGHT if mine is None else Side.LEFT if theirs is None else Side.BOTH
            yield Difference(
                key.decode(),
                side,
                Seq(mine[1]) if mine else None,
                Seq(theirs[1]) if theirs else None,
            )
