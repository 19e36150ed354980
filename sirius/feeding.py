"""Reads of the log on behalf of others: what catch-up asks for, answered from disk.

May be called on any thread: it reads through snapshots and changes nothing. The answer goes back to the engine's
thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from sirius.catchup.effects import ListSegments, Read, ReadRange
from sirius.catchup.messages import Edition, SegmentOffer
from sirius.errors import LogError
from sirius.wal import Block, Log, Manifest


class Found(NamedTuple):
    """Blocks for a range."""

    read: int
    blocks: tuple[Block, ...]
    edition: Edition


class Listed(NamedTuple):
    """Segments, as parts of files."""

    read: int
    offers: tuple[SegmentOffer, ...]
    edition: Edition


class Unreadable(NamedTuple):
    """It cannot be read here."""

    read: int
    reason: str


Fed = Found | Listed | Unreadable


def edition_of(manifest: Manifest) -> Edition:
    """Return which deletes a log has dropped, under a number that no other log shares."""
    return Edition((manifest.uid + manifest.era) % (1 << 64), manifest.tombstone_floor)


def feed(log: Log, read: Read) -> Fed:
    """Do a read. Whatever goes wrong, somebody else may be asked."""
    try:
        match read:
            case ReadRange():
                return _range(log, read)
            case ListSegments():
                return _segments(log, read)
    except (LogError, OSError) as error:
        return Unreadable(read.read, str(error))


def _range(log: Log, read: ReadRange) -> Fed:
    with log.snapshot() as snapshot:
        last = min(read.last, snapshot.last)
        if last < read.first:
            return Unreadable(read.read, f"the log on disk ends at {snapshot.last}")
        blocks = tuple(_within(snapshot.blocks(read.first, last), read.bytes_max))
        return Found(read.read, blocks, edition_of(snapshot.manifest))


def _segments(log: Log, read: ListSegments) -> Fed:
    """List what is on disk, the finished part of the active segment too."""
    with log.snapshot() as snapshot:
        parts = islice(snapshot.parts(read.first), read.segments_max)
        offers = tuple(SegmentOffer(*part) for part in parts)
        return Listed(read.read, offers, edition_of(snapshot.manifest))


def _within(blocks: Iterator[Block], bytes_max: int) -> Iterator[Block]:
    """Yield blocks until they have enough bytes; at least one."""
    size = 0
    for block in blocks:
        yield block
        size += len(block)
        if size >= bytes_max:
            return
