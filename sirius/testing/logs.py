"""Small logs to try things on, and ways to damage them.

A `Damage` is a value: printed, it says how to do it again. It knows bytes only, so that it works on a real file as
well as on one of a `MemoryFileSystem`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sirius.testing.filesystem import MemoryFileSystem
from sirius.wal.config import LogConfig
from sirius.wal.fs import FileSystem
from sirius.wal.log import Log
from sirius.wal.record import Op, Record, Update

SECTOR_BYTES: Final = 512
SMALL_LOG: Final = LogConfig(reserve_bytes=0, background=False)
"""A log without a reserve on disk and without a thread: what is appended is written by `flush` alone."""


def updates(count: int, *, keys: int, seed: int = 0) -> list[Update]:
    """Return puts and deletes of `keys` different keys, the same for the same seed."""
    rng = random.Random(seed)
    return [_update(rng, f"key/{rng.randrange(keys)}".encode()) for _ in range(count)]


def _update(rng: random.Random, key: bytes) -> Update:
    if rng.random() < 0.2:
        return Update(Op.DELETE, key)
    return Update(Op.PUT, key, rng.randbytes(rng.randrange(24)), rng.getrandbits(64), 1)


def write_log(
    fs: FileSystem,
    path: str,
    groups: Iterable[Sequence[Update]],
    config: LogConfig = SMALL_LOG,
) -> list[Record]:
    """Append groups of updates to the log in folder `path`, a block and a sync each; return all that it holds."""
    ticks = iter(range(1_000_000, 2_000_000))
    with Log.open(path, config, fs=fs, now_us=lambda: next(ticks)) as log:
        for group in groups:
            log.write(group)
            log.flush()
        return list(log.records())


class Kind(StrEnum):
    """What happens to a file."""

    FLIP = "flip"
    FILL = "fill"
    CUT = "cut"
    SWAP = "swap"
    COPY = "copy"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that happens to a file's bytes.

    FLIP inverts the bits of `value` at `at`. FILL sets `length` bytes at `at` to `value`. CUT leaves `at` bytes. SWAP
    exchanges `length` bytes at `at` with those at `other`. COPY puts `length` bytes at `at` over those at `other`, as a
    misdirected write does. APPEND puts `length` bytes behind the end, drawn with `value` as the seed.
    """

    kind: Kind
    at: int = 0
    length: int = 1
    other: int = 0
    value: int = 0

    def apply(self, raw: bytes) -> bytes:
        """Return the bytes after the damage; they may be the same."""
        here, there = raw[self.at : self.at + self.length], raw[self.other :][: self.length]
        match self.kind:
            case Kind.FLIP:
                return _over(raw, self.at, bytes(octet ^ self.value for octet in here))
            case Kind.FILL:
                return _over(raw, self.at, bytes([self.value]) * len(here))
            case Kind.CUT:
                return raw[: self.at]
            case Kind.SWAP:
                return _over(_over(raw, self.at, there), self.other, here)
            case Kind.COPY:
                return _over(raw, self.other, here)
            case Kind.APPEND:
                return raw + random.Random(self.value).randbytes(self.length)


def _over(raw: bytes, at: int, data: bytes) -> bytes:
    data = data[: max(0, len(raw) - at)]
    return raw[:at] + data + raw[at + len(data) :]


def random_damage(rng: random.Random, size: int) -> Damage:
    """Draw damage to a file of `size` bytes: a byte, a run, a sector, or its end."""
    kind = rng.choice(list(Kind))
    at, other = rng.randrange(size + 1), rng.randrange(size + 1)
    if kind == Kind.FLIP:
        return Damage(kind, at, 1, value=1 << rng.randrange(8))
    if kind == Kind.FILL:
        return Damage(kind, at, rng.choice((1, 8, 48, 64, 512)), value=rng.choice((0x00, 0xFF)))
    if kind in (Kind.SWAP, Kind.COPY):
        unit = rng.choice((8, 16, 48, 64, SECTOR_BYTES))
        return Damage(kind, at // unit * unit, unit, other // unit * unit)
    return Damage(kind, at, rng.choice((1, 8, 48, 200)), value=rng.getrandbits(32))


def damaged(fs: MemoryFileSystem, path: str, damage: Damage) -> MemoryFileSystem:
    """Return a copy of a file system in which one file is damaged."""
    copy = fs.clone()
    copy.write_bytes(path, damage.apply(fs.read_bytes(path)))
    return copy
