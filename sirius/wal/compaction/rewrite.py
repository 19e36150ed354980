"""One compaction pass over a live log: survey, plan, rewrite, swap. See `sirius.wal.compaction.plan`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sirius.errors import CorruptFile
from sirius.types import SegmentId, Seq
from sirius.wal.batch import Batch
from sirius.wal.block import Block, Ints
from sirius.wal.compaction.plan import (
    CompactionPolicy,
    CompactionResult,
    Reblocker,
    Rewrite,
    Throttle,
    kept,
    plan,
)
from sirius.wal.compaction.survey import Scratch, Survey
from sirius.wal.config import LogConfig
from sirius.wal.frames import FileHeader, FileKind, Mode
from sirius.wal.fs import remove_tree
from sirius.wal.manifest import Manifest, SegmentInfo
from sirius.wal.record import DEFAULT_LIMITS, Limits
from sirius.wal.segment import SegmentWriter
from sirius.wal.snapshot import Snapshot
from sirius.wal.store import BUILDING, SEGMENTS, Store

Progress = Callable[[int, int], None]


class Host(Protocol):
    """What a pass needs of the log that it compacts."""

    @property
    def store(self) -> Store: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def manifest(self) -> Manifest: ...
    def snapshot(self) -> Snapshot: ...
    def sync(self) -> None: ...
    def reserve_segment(self) -> SegmentId: ...
    def swap(
        self, old: Sequence[SegmentId], new: Sequence[SegmentInfo], tombstone_floor: int = 0
    ) -> None: ...
    def quarantine(self, segment: SegmentId, reason: str) -> None: ...


@dataclass(slots=True)
class _Tally:
    records: int = 0
    deletes: int = 0
    written: int = 0
    freed: int = 0


def compact(
    host: Host, policy: CompactionPolicy, should_stop: Callable[[], bool], on_progress: Progress
) -> CompactionResult:
    """Run one pass; see `Log.compact`."""
    throttle = Throttle(policy.rate_bytes_per_s, time.monotonic, time.sleep, should_stop)
    scratch = Scratch(host.store.fs, f"{host.store.root}/{SEGMENTS}/live{BUILDING}")
    with scratch:
        with host.snapshot() as snapshot:
            meter = _Meter(on_progress, sum(info.bytes for info in snapshot.segments))
            survey = Survey(snapshot, policy, scratch, throttle, meter.advance)
            surveyed, droppable = survey.run()
        rewrites = plan(
            surveyed,
            policy,
            segment_bytes_max=host.config.segment_bytes_max,
            segment_records_max=host.config.segment_records_max,
        )
        meter.total += sum(stats.info.bytes for item in rewrites for stats in item.inputs)
        tally = _Tally()
        if rewrites:
            # What supersedes a record has to be on disk before the record goes, whatever the mode promises.
            host.sync()
        stopped = not _Pass(host, survey, droppable, meter, tally).run_all(rewrites)
    for segment, error in survey.damaged.items():
        host.quarantine(segment, str(error))
    return CompactionResult(
        segments_before=len(snapshot.segments),
        segments_after=len(host.manifest.segments),
        records_dropped=tally.records,
        deletes_dropped=tally.deletes,
        bytes_read=meter.done,
        bytes_written=tally.written,
        bytes_freed=tally.freed,
        keys=len(survey.scan.seen),
        keys_bytes=survey.scan.seen.nbytes,
        tombstone_floor=host.manifest.tombstone_floor,
        damaged=tuple(survey.damaged),
        stopped=stopped or should_stop(),
    )


@dataclass(slots=True)
class _Meter:
    on_progress: Progress
    total: int
    done: int = 0

    def advance(self, count: int) -> None:
        self.done += count
        self.on_progress(min(self.done, self.total), self.total)


class _Stopped(Exception):
    """Somebody asked the pass to stop in the middle of a segment."""


@dataclass(slots=True)
class _Pass:
    host: Host
    survey: Survey
    droppable: Ints
    meter: _Meter
    tally: _Tally

    def run_all(self, rewrites: Sequence[Rewrite]) -> bool:
        """Do one rewrite after the other; say whether all were done."""
        for item in rewrites:
            if self.survey.throttle.should_stop():
                return False
            try:
                self.run(item)
            except _Stopped:
                return False
        return True

    def run(self, item: Rewrite) -> None:
        """Write neighbours anew as one segment, and swap it in. A damaged one among them is left as it is."""
        segment = self.host.reserve_segment()
        folder = self.host.store.building_dir(segment)
        gone = _within(self.droppable, item.first, item.last)
        try:
            built = self._build(item, segment, folder, gone)
        except CorruptFile as error:
            remove_tree(self.host.store.fs, folder)
            self.survey.damaged[_owner(self.host.store, item, error)] = error
            return
        except BaseException:
            remove_tree(self.host.store.fs, folder)
            raise
        self.host.swap(item.ids, [built], int(gone.max(initial=0)))
        self.tally.records += sum(stats.info.records for stats in item.inputs) - built.records
        self.tally.deletes += len(gone)
        self.tally.written += built.bytes
        self.tally.freed += sum(stats.info.bytes for stats in item.inputs) - built.bytes

    def _build(self, item: Rewrite, segment: SegmentId, folder: str, gone: Ints) -> SegmentInfo:
        manifest = self.host.manifest
        created = time.time_ns() // 1000
        header = FileHeader(FileKind.SEGMENT, segment, manifest.uid, item.first, created)
        writer = SegmentWriter.create(self.host.store.fs, folder, header, Mode.OS, durable=False)
        try:
            limits = self.host.config.limits
            for block in reblocked(self._kept(item, gone), item.first, limits):
                writer.append([block])
                self.survey.throttle.spend(len(block))
            return writer.seal(Mode.OS)
        finally:
            writer.abandon()

    def _kept(self, item: Rewrite, gone: Ints) -> Iterator[Batch]:
        # A view of its own: once it is closed and the swap is done, nothing keeps the old segments on a full disk.
        with self.host.snapshot() as snapshot:
            for stats in item.inputs:
                live = self.survey.scratch.load(stats.info)
                batches = snapshot.segment_batches(stats.info)
                yield from kept(self._metered(batches), live, gone)

    def _metered(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            if self.survey.throttle.should_stop():
                raise _Stopped
            yield batch
            size = batch.key_column.nbytes + batch.body_column.nbytes
            self.survey.throttle.spend(size)
            self.meter.advance(size)


def reblocked(
    batches: Iterator[Batch], first: int, limits: Limits = DEFAULT_LIMITS
) -> Iterator[Block]:
    """Put the records of batches that follow each other from `first` on into blocks of a good size."""
    blocks = Reblocker(first, limits.block_bytes_max)
    for batch in batches:
        yield from blocks.add(batch)
    yield from blocks.finish()


def _within(seqs: Ints, first: Seq, last: Seq) -> Ints:
    low, high = np.searchsorted(seqs, [first, last + 1]).tolist()
    return seqs[low:high]


def _owner(store: Store, item: Rewrite, error: CorruptFile) -> SegmentId:
    """Return which of the inputs a damaged file belongs to."""
    for stats in item.inputs:
        if error.path.startswith(store.segment_dir(stats.info.id)):
            return stats.info.id
    raise error
