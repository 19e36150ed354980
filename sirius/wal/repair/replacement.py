"""Putting blocks in the place of segments: new segments under temporary names, then one manifest that swaps them in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sirius.errors import CorruptLog, InvalidRecord, OutOfOrder, ResyncRequired, UsageError
from sirius.types import SegmentId
from sirius.wal.block import Block
from sirius.wal.config import LogConfig
from sirius.wal.frames import FileHeader, FileKind, Mode
from sirius.wal.fs import remove_tree
from sirius.wal.manifest import Manifest, SegmentInfo
from sirius.wal.record import Limits
from sirius.wal.segment import SegmentWriter
from sirius.wal.store import Store


class Site(Protocol):
    """Where segments are replaced: a log that is open, or a folder under repair."""

    @property
    def store(self) -> Store: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def manifest(self) -> Manifest: ...
    def reserve_segment(self) -> SegmentId: ...
    def swap(
        self, old: Sequence[SegmentId], new: Sequence[SegmentInfo], tombstone_floor: int = 0
    ) -> None: ...


def replace(
    site: Site, first: int, last: int, blocks: Iterable[Block], source_floor: int | None = None
) -> None:
    """Put blocks from a peer in the place of sealed or quarantined segments; see `Log.replace`."""
    old = _exactly(site.manifest, first, last)
    if last < site.manifest.tombstone_floor:
        raise ResyncRequired(last, site.manifest.tombstone_floor)
    delivery = _Delivery(first, last, site.config.limits, source_floor)
    new = build(site, delivery.checked(blocks))
    site.swap(old, new, delivery.floor)


def _exactly(manifest: Manifest, first: int, last: int) -> list[SegmentId]:
    """Return the segments, none of them active, that cover exactly a range."""
    inside = [info for info in manifest.segments[:-1] if first <= info.first and info.last <= last]
    if not inside or (inside[0].first, inside[-1].last) != (first, last):
        raise UsageError(f"no segments that are finished cover exactly {first} to {last}")
    return [info.id for info in inside]


@dataclass(slots=True)
class _Delivery:
    """Blocks from elsewhere that are to cover a range exactly."""

    first: int
    last: int
    limits: Limits
    source_floor: int | None
    _holes_upto: int = field(default=0, init=False)

    @property
    def floor(self) -> int:
        """Deletes up to here may be missing from the blocks: where there is no hole, nothing is."""
        return min(self._holes_upto, self.last if self.source_floor is None else self.source_floor)

    def checked(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the blocks; raise as soon as it is known that they must not be taken."""
        expected = self.first
        for block in map(self._parsed, blocks):
            if block.first != expected or block.last > self.last:
                raise OutOfOrder(
                    f"a block for {block.first} to {block.last} is not part of {expected} to "
                    f"{self.last}"
                )
            if block.count < block.last - block.first + 1:
                self._holes_upto = block.last
            yield block
            expected = block.last + 1
        if expected <= self.last:
            raise OutOfOrder(f"the blocks end before {expected}, not at {self.last}")
        if self.floor >= self.first > 1:
            raise ResyncRequired(self.first - 1, self.floor)

    def _parsed(self, block: Block) -> Block:
        try:
            return Block.parse(block.raw, self.limits)
        except CorruptLog as error:
            raise InvalidRecord(f"a block from elsewhere is damaged: {error}") from error


def build(site: Site, blocks: Iterable[Block]) -> list[SegmentInfo]:
    """Write blocks into new segments under temporary names. If that fails nothing is left of them."""
    draft = Draft(site)
    try:
        for block in blocks:
            draft.add(block)
        return draft.finish()
    except BaseException:
        draft.discard()
        raise


class Draft:
    """Segments in the making, as many as the blocks need."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._finished: list[SegmentInfo] = []
        self._folders: list[str] = []
        self._writer: SegmentWriter | None = None

    def add(self, block: Block) -> None:
        if self._writer is not None and self._is_full(self._writer, block):
            self._seal(self._writer)
        if self._writer is None:
            self._writer = self._begin(block.first)
        self._writer.append([block])

    def _is_full(self, writer: SegmentWriter, block: Block) -> bool:
        config = self._site.config
        return (
            writer.size + len(block) > config.segment_bytes_max
            or writer.records + block.count > config.segment_records_max
        )

    def _begin(self, first: int) -> SegmentWriter:
        site, segment = self._site, self._site.reserve_segment()
        self._folders.append(site.store.building_dir(segment))
        created_us = time.time_ns() // 1000
        header = FileHeader(FileKind.SEGMENT, segment, site.manifest.uid, first, created_us)
        return SegmentWriter.create(site.store.fs, self._folders[-1], header, Mode.OS)

    def _seal(self, writer: SegmentWriter) -> None:
        self._finished.append(writer.seal(Mode.OS))
        writer.abandon()
        self._site.store.fs.sync_dir(self._folders[-1])
        self._writer = None

    def include(self, info: SegmentInfo) -> None:
        """Let a segment that somebody else has finished be the next."""
        if self._writer is not None:
            self._seal(self._writer)
        self._finished.append(info)
        self._folders.append(self._site.store.building_dir(info.id))

    def finish(self) -> list[SegmentInfo]:
        if self._writer is not None:
            self._seal(self._writer)
        return self._finished

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
        for folder in self._folders:
            remove_tree(self._site.store.fs, folder)
