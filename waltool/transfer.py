"""Writing what was read from one log as another, of any of the four kinds.

Batches that cover everything from 1 on go in, a new log comes out: as a whole, under its own name, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from sirius.errors import InvalidRecord, UsageError
from sirius.wal import Batch, Block, LogConfig, OsFileSystem
from sirius.wal.compaction.rewrite import reblocked
from sirius.wal.record import CONTROL_FROM
from sirius.wal.single import write_single
from waltool.ancestry import (
    EVENTS_PER_SEGMENT,
    TAG,
    AncestorTarget,
    Fitter,
    Losses,
    Slice,
    encode,
    slices_of,
)
from waltool.source import AncestorSource, SiriusSource, Source, is_live
from waltool.target import CONFIG, new_log

Kind = Literal["sirius", "single", "ancestor-segmented", "ancestor-legacy"]
KINDS: Final[tuple[Kind, ...]] = ("sirius", "single", "ancestor-segmented", "ancestor-legacy")


@dataclass(frozen=True, slots=True)
class Target:
    """What to write, and what it should keep of the log that it is made from."""

    path: str
    kind: Kind
    events_per_segment: int | None = None
    segment_bytes: int | None = None
    drop_control: bool = False
    truncate_times: bool = False
    slices: Sequence[Slice] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    tombstone_floor: int = 0

    def __post_init__(self) -> None:
        if self.segment_bytes and self.kind != "sirius":
            raise UsageError(f"--segment-bytes is for a Sirius log, not for {self.kind}")
        if self.events_per_segment and self.kind not in ("sirius", "ancestor-segmented"):
            raise UsageError(f"--events-per-segment is not for {self.kind}, which has no segments")

    def like(self, source: Source) -> Target:
        """Keep what `source` says about itself, apart from its records."""
        if isinstance(source, SiriusSource):
            manifest = source.reader.manifest
            kept = replace(self, tags=manifest.tags, tombstone_floor=manifest.tombstone_floor)
        else:
            slices = slices_of(source)
            kept = replace(self, tags={TAG: encode(slices)}) if slices else self
        if self.kind != "ancestor-segmented" or self.events_per_segment:
            return kept
        return replace(kept, slices=slices_of(source))

    def with_floor(self, seq: int) -> Target:
        """Deletes up to `seq` are missing, too."""
        return replace(self, tombstone_floor=max(self.tombstone_floor, seq))

    @property
    def config(self) -> LogConfig:
        """The settings of a log of ours."""
        return replace(
            CONFIG,
            segment_bytes_max=self.segment_bytes or CONFIG.segment_bytes_max,
            segment_records_max=self.events_per_segment or CONFIG.segment_records_max,
        )


@dataclass(frozen=True, slots=True)
class Written:
    """What the new log holds, and what it could not."""

    records: int
    last: int
    losses: Losses = field(default_factory=Losses)


Accounting = Callable[[Block], None]


def write(
    target: Target, batches: Iterator[Batch], on_block: Accounting = lambda _: None
) -> Written:
    """Write batches, which cover everything from 1 on, as a new log."""
    if target.kind == "sirius":
        return _write_sirius(target, batches, on_block)
    if target.kind == "single":
        return _write_single(target, batches, on_block)
    return _write_ancestor(target, batches)


def _write_sirius(target: Target, batches: Iterator[Batch], on_block: Accounting) -> Written:
    records = 0
    with new_log(target.path, target.config) as log:
        for block in _portions(_blocks(batches), target.config.segment_records_max):
            on_block(block)
            log.append(block)
            records += block.count
        if target.tombstone_floor:
            log.raise_tombstone_floor(target.tombstone_floor)
        if target.tags:
            log.tag(**target.tags)
        return Written(records, log.next_seq - 1)


def _write_single(target: Target, batches: Iterator[Batch], on_block: Accounting) -> Written:
    records = 0

    def counted() -> Iterator[Block]:
        nonlocal records
        for block in _blocks(batches):
            on_block(block)
            yield block
            records += block.count

    last = write_single(OsFileSystem(), target.path, counted())
    return Written(records, last)


def _blocks(batches: Iterator[Batch]) -> Iterator[Block]:
    return reblocked(map(_checked, batches), 1)


def _portions(blocks: Iterator[Block], records: int) -> Iterator[Block]:
    """Cut blocks so that a segment may end after every so many records."""
    room = records
    for whole in blocks:
        block = whole
        while block.count > room:
            last = int(block.entries["seq"][room - 1])
            yield block.cut(block.first, last)
            block, room = block.cut(last + 1, block.last), records
        yield block
        room = room - block.count or records


def _checked(batch: Batch) -> Batch:
    """Refuse what only another format can hold."""
    keyless = (batch.entries["key_len"] == 0) & (batch.op < CONTROL_FROM)
    if keyless.any():
        seq = batch.seq[keyless.argmax()]
        raise InvalidRecord(f"record {seq} has an empty key, which a log of ours does not take")
    return batch


def _write_ancestor(target: Target, batches: Iterator[Batch]) -> Written:
    fitter = Fitter(target.drop_control, target.truncate_times)
    layout: Literal["segmented", "legacy"] = (
        "segmented" if target.kind == "ancestor-segmented" else "legacy"
    )
    events = target.events_per_segment or EVENTS_PER_SEGMENT
    with AncestorTarget(target.path, layout, target.slices, events) as log:
        for batch in batches:
            log.add(fitter.columns(batch))
    return Written(log.records, log.last, fitter.losses)


def torn_tail(source: Source) -> str | None:
    """Say what was left out because a crash left it unfinished. To be asked after reading the log."""
    if isinstance(source, SiriusSource) and not is_live(source.path):
        return source.reader.torn
    if isinstance(source, AncestorSource) and source.reader.torn_tail is not None:
        path, offset = source.reader.torn_tail
        return f"{path} ends within an entry, which begins at byte {offset}"
    return None
