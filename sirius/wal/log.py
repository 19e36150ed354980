"""The log: appending, rotating, swapping segments; and reading through snapshots.

**Writing.** `append` checks that a block continues the log and queues it; a thread writes what has queued up as one
group, syncs once and moves the durable point (`sirius.wal.commit`). In mode `os` the caller's thread writes and nobody
syncs; in mode `memory` the thread writes behind, without syncing.

**Failing.** A sync that failed is never retried, because the kernel may have dropped the pages and forgotten it: the
log stops, and has to be opened (and so verified) again. A full disk is different: the write was taken back, so the log
stays readable, refuses appends, can be compacted, and goes on after `resume`.

**Threads.** `append`, `flush` and all reads may be called from any thread. `compact` runs in the caller's thread and
blocks neither appends nor readers.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as replace_fields
from functools import partial
from types import TracebackType
from typing import Literal, Self

from sirius.errors import (
    CorruptLog,
    DiskFull,
    InvalidRecord,
    LogClosed,
    LogError,
    LogFailed,
    OutOfOrder,
)
from sirius.types import SegmentId, Seq
from sirius.wal.batch import Batch
from sirius.wal.block import Block, encode
from sirius.wal.commit import GroupCommit
from sirius.wal.compaction.plan import CompactionPolicy, CompactionResult
from sirius.wal.compaction.rewrite import compact
from sirius.wal.config import Durability, LogConfig
from sirius.wal.frames import FileHeader, FileKind, Mode
from sirius.wal.fs import FileSystem, OsFileSystem, is_full, remove_tree
from sirius.wal.manifest import Manifest, SegmentInfo
from sirius.wal.record import Op, Record, Update, key_bytes
from sirius.wal.recovery import recover_active
from sirius.wal.repair.rebuild import next_id, overlooked
from sirius.wal.repair.replacement import replace
from sirius.wal.reserve import Reserve
from sirius.wal.segment import SegmentWriter
from sirius.wal.snapshot import ActiveView, SegmentCache, Snapshot
from sirius.wal.store import RESERVE, Retirement, Store
from sirius.wal.truncate import fill, shortened
from sirius.wal.verify.verify import Report, verify

OnCorrupt = Literal["raise", "quarantine"]
_INDEX_LAG = 256
_log = logging.getLogger("sirius.wal")


class Log:
    """A log on disk, open for writing. One process at a time."""

    def __init__(
        self,
        store: Store,
        config: LogConfig,
        *,
        on_corrupt: OnCorrupt,
        clock: Callable[[], float],
        now_us: Callable[[], int],
    ) -> None:
        self._store = store
        self._config = config
        self._now_us = now_us
        self._lock_held = store.lock()
        try:
            self._retirement = Retirement(store, config.retire_after_s, clock)
            self._cache = SegmentCache(store, config.limits)
            self._manifest, self._writer = self._recover(on_corrupt)
        except BaseException:
            self._lock_held.release()
            raise
        self._manifest_lock = threading.RLock()
        self._compact_lock = threading.RLock()
        self._reserve = Reserve(store.fs, f"{store.root}/{RESERVE}", config.reserve_bytes)
        self._closed = False
        self._short = False
        self._commits = GroupCommit[Block](
            store.root,
            self._write_group,
            start=self._writer.last,
            pending_bytes_max=config.pending_bytes_max,
            background=config.background and config.durability != Durability.OS,
        )

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: LogConfig | None = None,
        *,
        fs: FileSystem | None = None,
        on_corrupt: OnCorrupt = "raise",
        clock: Callable[[], float] = time.monotonic,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> Log:
        """Open the log in folder `path` for writing; an empty or missing folder becomes a new log.

        Recovery cuts off a torn tail, which was never acknowledged. Damage in front of it raises `CorruptLog`, or
        with `on_corrupt="quarantine"` sets the damaged segment apart: its range is unavailable until it is repaired.
        """
        store = Store(fs or OsFileSystem(), os.fspath(path))
        if not store.is_log():
            store.lay_out()
        return cls(store, config or LogConfig(), on_corrupt=on_corrupt, clock=clock, now_us=now_us)

    # ------------------------------------------------------------------ opening

    def _recover(self, on_corrupt: OnCorrupt) -> tuple[Manifest, SegmentWriter]:
        if not self._store.versions():
            return self._create()
        manifest = self._store.load()
        manifest = self._settle_in(manifest)
        found = recover_active(self._store, manifest, self._mode, self._config.limits, on_corrupt)
        if found.writer is not None:
            return manifest, found.writer
        return self._next_segment(manifest, found.info)

    def _create(self) -> tuple[Manifest, SegmentWriter]:
        self._store.lay_out()
        self._store.refuse_orphans()
        manifest = Manifest(
            uid=int.from_bytes(os.urandom(8)),
            home=self._store.home(),
            next_segment=SegmentId(2),
            segments=(SegmentInfo(SegmentId(1), Seq(1)),),
        )
        self._store.sweep(manifest, keep_building=False)
        writer = self._new_writer(manifest.active, manifest.uid)
        self._store.commit(manifest)
        return manifest, writer

    def _settle_in(self, manifest: Manifest) -> Manifest:
        """Give a copy an identity of its own, and clear away what crashes left."""
        self._refuse_loss(manifest)
        self._store.settle_names()
        if self._store.is_copy(manifest):
            manifest = self._at_home(manifest)
        for version in self._store.versions()[1:]:
            self._retirement.supersede(version)
        self._store.sweep(manifest, keep_building=False)
        return manifest

    def _refuse_loss(self, manifest: Manifest) -> None:
        """Raise if a newer manifest was lost: to go on with this one would sweep away what only that one named."""
        segment = overlooked(self._store, manifest, self._config.limits)
        if segment is not None:
            raise CorruptLog(
                f"{self._store.root}: segment {segment} holds records, and no manifest names it: the newest manifest "
                f"is lost. Nothing was removed; `waltool repair {self._store.root}` makes the manifest anew"
            )

    def _at_home(self, manifest: Manifest) -> Manifest:
        """Make a copy a log of its own, from the version of which everything is there."""
        _log.warning("%s is a copy: it becomes a log of its own", self._store.root)
        newest = max(self._store.versions())
        for version in range(manifest.version + 1, newest + 1):
            self._store.remove_manifest(version)
        # Numbered above all that came along, so that nothing of it looks like what this log did later.
        base = replace_fields(manifest, version=newest, next_segment=next_id(self._store))
        own = base.at_home(self._store.home(), int.from_bytes(os.urandom(8)))
        self._store.commit(own)
        return own

    def _new_writer(self, info: SegmentInfo, uid: int) -> SegmentWriter:
        header = FileHeader(FileKind.SEGMENT, info.id, uid, info.first, self._now_us())
        folder = self._store.segment_dir(info.id)
        # An attempt that found the disk full may have left something.
        remove_tree(self._store.fs, folder)
        return SegmentWriter.create(self._store.fs, folder, header, self._mode)

    # ------------------------------------------------------------------ state

    @property
    def path(self) -> str:
        return self._store.root

    @property
    def store(self) -> Store:
        return self._store

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def manifest(self) -> Manifest:
        """The manifest in force."""
        return self._manifest

    @property
    def next_seq(self) -> Seq:
        """The sequence number with which the next block must begin."""
        return Seq(self._commits.queued + 1)

    @property
    def durable_seq(self) -> Seq:
        """Everything up to here is as safe as the durability mode promises."""
        return Seq(self._commits.durable)

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called with the new durable point after each group, on the thread that wrote it."""
        self._commits.on_durable = callback

    @property
    def failure(self) -> LogError | None:
        """Why the log takes no more appends, if it does not."""
        return self._commits.failure

    @property
    def disk_full(self) -> bool:
        """Whether appends are refused for want of room."""
        return isinstance(self.failure, DiskFull)

    @property
    def tombstone_floor(self) -> Seq:
        """Deletes up to here may be gone: whoever is below takes the whole state."""
        return self._manifest.tombstone_floor

    @property
    def _mode(self) -> Mode:
        return Mode.FSYNC if self._config.durability == Durability.FSYNC else Mode.OS

    # ------------------------------------------------------------------ writing

    def put(self, key: str, body: bytes) -> Seq:
        """Append one PUT; return its sequence number. See `flush` for when it is safe."""
        return self.write([Update(Op.PUT, key_bytes(key), body)])

    def delete(self, key: str) -> Seq:
        """Append one DELETE; return its sequence number."""
        return self.write([Update(Op.DELETE, key_bytes(key))])

    def write(self, updates: Iterable[Update]) -> Seq:
        """Number, encode and append updates as one block; return the last sequence number."""
        with self._commits.changed:
            self._commits.wait_for_room()
            block = encode(self.next_seq, list(updates), self._now_us(), self._config.limits)
            self._commits.queue(block, len(block), block.last)
        self._push(block.last)
        return block.last

    def append(self, block: Block) -> None:
        """Append a block that begins where the log ends. Waits while too much is waiting for the disk."""
        with self._commits.changed:
            self._commits.wait_for_room()
            if block.first != self.next_seq:
                raise OutOfOrder(f"a block from {block.first} on cannot stand at {self.next_seq}")
            if len(block) > (limit := self._config.limits.block_bytes_max):
                raise InvalidRecord(f"the block has {len(block)} bytes, the limit is {limit}")
            self._commits.queue(block, len(block), block.last)
        self._push(block.last)

    def _push(self, point: int) -> None:
        """In mode `os`, or when too much is waiting and nobody else writes, write now."""
        inline = self._config.durability == Durability.OS
        if inline or (not self._config.background and self._commits.crowded):
            self._commits.commit()
            # Another thread may have taken this block into its group, and failed.
            self._commits.require(point)

    def flush(self, timeout_s: float | None = None) -> Seq:
        """Return once all that was appended before is as safe as the mode promises; return that point."""
        return Seq(self._commits.flush(timeout_s))

    def sync(self) -> None:
        """Put on disk all that was written, in whatever mode. A failure is final, as with every sync."""
        writer = self._writer
        if self._config.durability == Durability.FSYNC:
            return
        try:
            writer.sync()
        except LogFailed as error:
            # A segment that was sealed meanwhile was synced then, and its file is closed.
            if writer is self._writer:
                self._commits.fail(error)
                raise

    def _write_group(self, group: list[Block]) -> None:
        try:
            self._append_group(group)
        except DiskFull:
            # What the disk took of the group is in the log, so it must not be reported as refused.
            self._finish_group()
            self._commits.reach(self._writer.last)
            raise
        self._finish_group()

    def _append_group(self, group: list[Block]) -> None:
        at = 0
        while at < len(group):
            count = self._fitting(group[at:])
            if count == 0:
                self._rotate()
                continue
            self._writer.append(group[at : at + count])
            at += count

    def _finish_group(self) -> None:
        writer, fsync = self._writer, self._config.durability == Durability.FSYNC
        if fsync:
            writer.sync()
        lagging = writer.index_lag >= _INDEX_LAG
        if lagging:
            writer.write_index()
        if fsync or lagging:
            try:
                writer.mark(self._mode, synced=fsync)
            except DiskFull as error:
                # The group is safe without it; the next append will say that the disk is full.
                _log.warning("%s: no room for a mark: %s", self._store.root, error)

    def _fitting(self, blocks: list[Block]) -> int:
        """Return how many of the blocks the active segment still takes; an empty one takes any block."""
        size, records = self._writer.size, self._writer.records
        fresh = self._writer.last < self._writer.header.first
        for count, block in enumerate(blocks):
            size += len(block)
            records += block.count
            over = (
                size > self._config.segment_bytes_max or records > self._config.segment_records_max
            )
            if over and not (fresh and count == 0):
                return count
        return len(blocks)

    def resume(self) -> None:
        """Take appends again after a full disk, from `durable_seq` on."""
        if self.disk_full:
            self._commits.resume(self._writer.last)

    # ------------------------------------------------------------------ segments

    def _rotate(self) -> None:
        with self._manifest_lock:
            full = self._writer
            try:
                sealed = full.seal(self._mode)
                self._manifest, self._writer = self._next_segment(self._manifest, sealed)
            except OSError as error:
                if is_full(error):
                    # The segment is still the active one, and whole: the next append tries again.
                    raise DiskFull(f"{self._store.root}: no room for a new segment") from error
                raise
            full.abandon()
            self._commits.reach(sealed.last)

    def _next_segment(
        self, manifest: Manifest, finished: SegmentInfo
    ) -> tuple[Manifest, SegmentWriter]:
        rotated = manifest.rotate(finished)
        writer = self._new_writer(rotated.active, rotated.uid)
        self._store.commit(rotated)
        self._retirement.supersede(manifest.version)
        return rotated, writer

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self._store.root} is closed")

    def _commit(self, manifest: Manifest) -> None:
        self._check_open()
        try:
            self._store.commit(manifest)
        except LogFailed as error:
            # Nobody knows which manifest the disk holds, so nothing more may be built upon either.
            self._commits.fail(error)
            raise

    def reserve_segment(self) -> SegmentId:
        """Give out the id of a segment to be built."""
        with self._manifest_lock:
            self._manifest, segment = self._manifest.reserve()
            return segment

    def swap(
        self, old: Sequence[SegmentId], new: Sequence[SegmentInfo], tombstone_floor: int = 0
    ) -> None:
        """Put finished segments, built under their temporary names, in the place of neighbours. Atomic."""
        with self._manifest_lock:
            before = self._manifest
            after = before.swap(old, new, tombstone_floor)
            for info in new:
                self._store.publish_segment(info.id)
            self._commit(after)
            self._manifest = after
            self._retirement.supersede(before.version)
            for segment in old:
                self._cache.forget(segment)
            self._retirement.run(after, at_once=self._short)

    def quarantine(self, segment: SegmentId, reason: str) -> None:
        """Set a damaged segment apart: its range is unavailable until it is repaired. An active one is sealed first."""
        if segment == self._manifest.active.id:
            self.rotate()
        with self._manifest_lock:
            before = self._manifest
            after = before.quarantine(segment, reason)
            self._commit(after)
            self._manifest = after
            self._retirement.supersede(before.version)
            self._cache.forget(segment)

    def tag(self, **tags: str) -> None:
        """Remember small facts of the layers above in the manifest."""
        with self._manifest_lock:
            before = self._manifest
            self._commit(after := before.tagged(**tags))
            self._manifest = after
            self._retirement.supersede(before.version)

    def raise_tombstone_floor(self, seq: int) -> None:
        """Note that deletes up to `seq` may be missing, since this is a copy of a log that has dropped them."""
        with self._manifest_lock:
            before = self._manifest
            self._commit(after := before.raised(seq))
            self._manifest = after
            self._retirement.supersede(before.version)

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Have everything written, and nothing appended or swapped until the end."""
        while True:
            self.flush()
            with self._commits.paused(), self._manifest_lock, self._commits.changed:
                if self._commits.queued == self._commits.durable:
                    yield
                    return

    def rotate(self) -> None:
        """Seal the active segment, unless it is empty, so that compaction reaches what is in it."""
        with self._settled():
            if self._writer.last >= self._writer.header.first:
                try:
                    self._rotate()
                except LogError as error:
                    self._commits.fail(error)
                    raise

    def truncate_after(self, seq: int) -> int:
        """Remove everything behind `seq`, in one atomic step; return how many numbers went. They are given again.

        Only for a log that stands alone: see `sirius.wal.truncate`. Appends wait meanwhile.
        """
        with self._compact_lock, self._settled():
            gone = self._writer.last - seq
            if seq < 0 or gone <= 0:
                return 0
            before, after = self._manifest, shortened(self._manifest, seq)
            writer = self._new_writer(after.active, after.uid)
            try:
                with self.snapshot() as snapshot:
                    fill(writer, snapshot, seq, self._mode)
            except BaseException:
                writer.abandon()
                remove_tree(self._store.fs, self._store.segment_dir(after.active.id))
                raise
            self._commit(after)
            self._writer.abandon()
            self._manifest, self._writer = after, writer
            self._retirement.supersede(before.version)
            self._commits.rewind(seq)
            return gone

    def retire(self, *, at_once: bool = False) -> int:
        """Remove what compaction replaced and nobody can need any more; return how many versions went."""
        with self._manifest_lock:
            return self._retirement.run(self._manifest, at_once=at_once)

    def compact(
        self,
        policy: CompactionPolicy | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> CompactionResult:
        """Run one compaction pass in the caller's thread. Appends and readers go on meanwhile.

        `on_progress` gets bytes done and bytes in all; `should_stop` is asked often, and what was swapped in
        before it said yes stays. A damaged segment that the pass meets is set apart.

        On a full disk the pass works in the reserve, and what it replaces is removed at once.
        """
        run = partial(
            compact,
            self,
            policy or CompactionPolicy(),
            lambda: self._closed or should_stop(),
            on_progress,
        )
        with self._compact_lock:
            self._check_open()
            if not self.disk_full:
                try:
                    return self._named_full(run)
                except DiskFull as error:
                    _log.warning("%s; trying again in the reserve", error)
            with self._short_of_room():
                return self._named_full(run)

    @contextmanager
    def _short_of_room(self) -> Iterator[None]:
        """Lend the reserve, and keep nothing meanwhile that was replaced."""
        with self._reserve.lent(True):
            self._short = True
            try:
                self.retire(at_once=True)
                yield
            finally:
                self._short = False

    def _named_full(self, run: Callable[[], CompactionResult]) -> CompactionResult:
        try:
            return run()
        except OSError as error:
            if is_full(error):
                raise DiskFull(f"{self._store.root}: no room to compact in") from error
            raise

    def replace(
        self, first: int, last: int, blocks: Iterable[Block], *, source_floor: int | None = None
    ) -> None:
        """Put blocks from a peer in the place of damaged segments. Atomic; appends and readers go on meanwhile.

        Neighbouring segments that are sealed or quarantined must cover exactly `first` to `last`, and so must the
        blocks, one following the other; they are checked before they count. If anything is wrong (`UsageError`,
        `OutOfOrder`, `InvalidRecord`) nothing is changed. Runs in the caller's thread, after a compaction pass.

        **Deletes.** A delete may be dropped once no older record of its key is left, so a part of one log cannot
        always stand among the parts of another. Either of two dangers raises `ResyncRequired`: take the whole state.

        - `last` is below this log's tombstone floor: the peer's blocks may hold a PUT whose DELETE, behind `last`,
          was dropped here. The key would come back. From the floor on there is no such DELETE: either it is
          inside the range, where the peer has it or has dropped the PUT as well, or it was never dropped here.
        - The peer dropped a DELETE of the range while the PUT is still here, in front of `first`. Dropped deletes lie
          in holes at or below the peer's tombstone floor, `source_floor`; if it is not given, every hole may be one.

        A peer that is ahead may have dropped values because of newer ones that this log does not have yet: its state
        is whole again once it has got as far as the peer was.
        """
        with self._compact_lock:
            replace(self, first, last, blocks, source_floor)

    # ------------------------------------------------------------------ reading

    def snapshot(self) -> Snapshot:
        """Return a fixed view of everything up to `durable_seq`."""
        with self._manifest_lock:
            manifest, writer = self._manifest, self._writer
            last = min(self.durable_seq, writer.last)
            view = ActiveView(self._cache.open(manifest.active), writer.index)
            version = manifest.version
            self._retirement.pin(version)
        return Snapshot(manifest, self._cache, view, last, lambda: self._retirement.unpin(version))

    def records(self, first: int = 1, last: int | None = None) -> Iterator[Record]:
        """Yield decided entries of a range, which is proven to be covered completely."""
        with self.snapshot() as snapshot:
            yield from snapshot.records(first, last)

    def batches(self, first: int = 1, last: int | None = None) -> Iterator[Batch]:
        """Like `records`, many at a time, as columns."""
        with self.snapshot() as snapshot:
            yield from snapshot.batches(first, last)

    def blocks(self, first: int = 1, last: int | None = None) -> Iterator[Block]:
        """Like `records`, encoded: blocks that cover exactly the range."""
        with self.snapshot() as snapshot:
            yield from snapshot.blocks(first, last)

    def record(self, seq: int) -> Record | None:
        """Look up one entry, or None for a hole."""
        with self.snapshot() as snapshot:
            return snapshot.record(seq)

    def verify(self, *, deep: bool = False) -> Report:
        """Check every byte of the log as it is on disk; damage is reported, not raised."""
        return verify(self._store, deep=deep, live=True, limits=self._config.limits)

    # ------------------------------------------------------------------ closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what is waiting, leave the files so that the next opener need not wonder, and unlock."""
        if self._closed:
            return
        self._closed = True
        # A pass that is running stops at the next occasion. The lock goes when nobody changes segments any more.
        with self._compact_lock:
            try:
                if self._commits.close():
                    self._writer.close(self._mode)
                else:
                    self._writer.abandon()
            finally:
                self._lock_held.release()
