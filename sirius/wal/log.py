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
from functools import partial
from types import TracebackType
from typing import Self

from sirius.errors import DiskFull, InvalidRecord, LogClosed, LogError, LogFailed, OutOfOrder
from sirius.types import SegmentId, Seq
from sirius.wal.batch import Batch
from sirius.wal.block import Block, encode
from sirius.wal.commit import GroupCommit
from sirius.wal.compaction.plan import CompactionPolicy, CompactionResult
from sirius.wal.compaction.rewrite import compact
from sirius.wal.config import Durability, LogConfig
from sirius.wal.fs import FileSystem, OsFileSystem
from sirius.wal.incoming import Incoming
from sirius.wal.manifest import Manifest, SegmentInfo
from sirius.wal.parts import Part
from sirius.wal.record import Op, Record, Update, key_bytes
from sirius.wal.recovery import OnCorrupt
from sirius.wal.repair.replacement import replace
from sirius.wal.reserve import Reserve, naming_full
from sirius.wal.segment import DATA
from sirius.wal.segment_set import SegmentSet
from sirius.wal.snapshot import Snapshot
from sirius.wal.staging import Staging
from sirius.wal.store import RESERVE, Store
from sirius.wal.verify.verify import Report, verify

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
            self._segments = SegmentSet(
                store, config, on_corrupt=on_corrupt, clock=clock, now_us=now_us
            )
        except BaseException:
            self._lock_held.release()
            raise
        self._compact_lock = threading.RLock()
        self._reserve = Reserve(store.fs, f"{store.root}/{RESERVE}", config.reserve_bytes)
        self._closed = False
        self._commits = GroupCommit[Block](
            store.root,
            self._write_group,
            start=self._segments.writer.last,
            pending_bytes_max=config.pending_bytes_max,
            linger_s=config.linger_s,
            background=config.background and config.durability != Durability.OS,
        )
        self._segments.on_sealed = self._commits.reach

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
        return self._segments.manifest

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

    def fail(self, error: LogError) -> None:
        """Take no more appends: something failed beside the log that what comes next stands upon."""
        self._commits.fail(error)

    @property
    def disk_full(self) -> bool:
        """Whether appends are refused for want of room."""
        return isinstance(self.failure, DiskFull)

    @property
    def size(self) -> int:
        """How many bytes the segments have, without what is still waiting to be written."""
        segments = self._segments
        return sum(info.bytes for info in segments.manifest.segments) + segments.writer.size

    @property
    def tombstone_floor(self) -> Seq:
        """Deletes up to here may be gone: whoever is below takes the whole state."""
        return self._segments.manifest.tombstone_floor

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
        writer = self._segments.writer
        if self._config.durability == Durability.FSYNC:
            return
        try:
            writer.sync()
        except LogFailed as error:
            # A segment that was sealed meanwhile was synced then, and its file is closed.
            if writer is self._segments.writer:
                self._commits.fail(error)
                raise

    def _write_group(self, group: list[Block]) -> None:
        segments = self._segments
        try:
            segments.append(group)
        except DiskFull:
            # What the disk took of the group is in the log, so it must not be reported as refused.
            segments.finish_group()
            self._commits.reach(segments.writer.last)
            raise
        segments.finish_group()

    def resume(self) -> None:
        """Take appends again after a full disk, from `durable_seq` on."""
        if self.disk_full:
            self._commits.resume(self._segments.writer.last)

    # ------------------------------------------------------------------ segments

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self._store.root} is closed")

    @contextmanager
    def _changing(self) -> Iterator[SegmentSet]:
        """Have nobody else change the segments. Raises if the log is closed."""
        with self._segments.lock:
            self._check_open()
            try:
                yield self._segments
            except LogFailed as error:
                # Nobody knows which manifest the disk holds, so nothing more may be built upon either.
                self._commits.fail(error)
                raise

    def reserve_segment(self) -> SegmentId:
        """Give out the id of a segment to be built."""
        return self._segments.reserve()

    def swap(
        self, old: Sequence[SegmentId], new: Sequence[SegmentInfo], tombstone_floor: int = 0
    ) -> None:
        """Put finished segments, built under their temporary names, in the place of neighbours. Atomic."""
        with self._changing() as segments:
            segments.swap(old, new, tombstone_floor)

    def quarantine(self, segment: SegmentId, reason: str) -> None:
        """Set a damaged segment apart: its range is unavailable until it is repaired. An active one is sealed first."""
        if segment == self.manifest.active.id:
            self.rotate()
        with self._changing() as segments:
            segments.adopt(segments.manifest.quarantine(segment, reason), replaced=[segment])

    def tag(self, **tags: str) -> None:
        """Remember small facts of the layers above in the manifest."""
        with self._changing() as segments:
            segments.adopt(segments.manifest.tagged(**tags))

    def raise_tombstone_floor(self, seq: int) -> None:
        """Note that deletes up to `seq` may be missing, since this is a copy of a log that has dropped them."""
        with self._changing() as segments:
            segments.adopt(segments.manifest.raised(seq))

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Have everything written, and nothing appended or swapped until the end."""
        while True:
            self.flush()
            with self._commits.paused(), self._segments.lock, self._commits.changed:
                if self._commits.queued == self._commits.durable:
                    yield
                    return

    def rotate(self) -> None:
        """Seal the active segment, unless it is empty, so that compaction reaches what is in it."""
        with self._settled():
            if not self._segments.is_fresh:
                try:
                    self._segments.rotate()
                except LogError as error:
                    self._commits.fail(error)
                    raise

    def truncate_after(self, seq: int) -> int:
        """Remove everything behind `seq`, in one atomic step; return how many numbers went. They are given again.

        Only for a log that stands alone: see `sirius.wal.truncate`. Appends wait meanwhile.
        """
        with self._compact_lock, self._settled():
            gone = self._segments.writer.last - seq
            if seq < 0 or gone <= 0:
                return 0
            with self.snapshot() as snapshot:
                shorter = self._segments.prepare_cut(seq, snapshot)
            with self._changing() as segments:
                segments.cut(*shorter)
            self._commits.rewind(seq)
            return gone

    def stage(self) -> Staging:
        """Begin a whole log that is to take the place of this one: see `sirius.wal.staging`."""
        return Staging(self, self._renew)

    def _renew(self, new: Sequence[SegmentInfo], tombstone_floor: int) -> None:
        with self._compact_lock, self._settled():
            if new[-1].last < self._segments.writer.last:
                raise OutOfOrder(
                    f"a log up to {new[-1].last} cannot take the place of one up to "
                    f"{self._segments.writer.last}"
                )
            with self._changing() as segments:
                segments.renew(new, tombstone_floor)
            self._commits.rewind(new[-1].last)

    def receive(self, part: Part) -> Incoming:
        """Begin to take a part of another log's segment: see `sirius.wal.incoming`."""
        return Incoming(self, part)

    def install(self, info: SegmentInfo) -> None:
        """Let a finished segment, built under its temporary name, follow what is there. Atomic; appends wait meanwhile.

        Raises `OutOfOrder` if the log ends elsewhere by now. Then, and if there is no room, the log is what it was.
        """
        with self._settled():
            if info.first != self.next_seq:
                raise OutOfOrder(f"a segment from {info.first} on cannot stand at {self.next_seq}")
            full = f"{self._store.root}: no room for a new segment"
            with naming_full(full), self._changing() as segments:
                segments.install(info)
            self._commits.advance(info.last)

    def read_raw(self, segment: SegmentId, offset: int, length: int) -> bytes:
        """Return bytes of a segment's data file, unchecked, also of one that was replaced and is still there."""
        file = self._store.fs.open(f"{self._store.segment_dir(segment)}/{DATA}", "r")
        try:
            return file.read(offset, length)
        finally:
            file.close()

    def retire(self, *, at_once: bool = False) -> int:
        """Remove what compaction replaced and nobody can need any more; return how many versions went."""
        return self._segments.retire(at_once=at_once)

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

        def stopping() -> bool:
            return self._closed or should_stop()

        run = partial(compact, self, policy or CompactionPolicy(), stopping, on_progress)
        full = f"{self._store.root}: no room to compact in"
        with self._compact_lock:
            self._check_open()
            if not self.disk_full:
                try:
                    with naming_full(full):
                        return run()
                except DiskFull as error:
                    _log.warning("%s; trying again in the reserve", error)
            with self._reserve.lent(), self._segments.short_of_room(), naming_full(full):
                return run()

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
        return self._segments.snapshot(lambda: self.durable_seq)

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
                    self._segments.writer.close(self._segments.mode)
                else:
                    self._segments.writer.abandon()
            finally:
                self._lock_held.release()
