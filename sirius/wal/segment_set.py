"""The segments of an open log: which there are, the one that is appended to, and what becomes of replaced ones.

Every change of the set is one new manifest. `adopt` is the one place where a manifest comes into force, and the order
there is what makes a change atomic: commit first, then remember, then call the version before it history. All that a
change needs on disk is there before; whatever it replaces goes away later (`Retirement`).

**Threads.** Whoever changes the set holds `lock`. The thread that writes groups is the only one that appends to
`writer`, and takes the lock to rotate. Snapshots take it for a moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sirius.errors import DiskFull
from sirius.types import SegmentId
from sirius.wal.block import Block
from sirius.wal.config import Durability, LogConfig
from sirius.wal.frames import FileHeader, FileKind, Mode
from sirius.wal.fs import remove_tree
from sirius.wal.manifest import Manifest, SegmentInfo
from sirius.wal.recovery import OnCorrupt, recover_active
from sirius.wal.reserve import naming_full
from sirius.wal.segment import SegmentWriter
from sirius.wal.settling import new_manifest, settle_in
from sirius.wal.snapshot import ActiveView, SegmentCache, Snapshot
from sirius.wal.store import Retirement, Store
from sirius.wal.truncate import fill, shortened

_INDEX_LAG = 256
_log = logging.getLogger("sirius.wal")


class SegmentSet:
    """The segments of a log that is open for writing. Opening it recovers what a crash left."""

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
        self._fsync = config.durability == Durability.FSYNC
        self._retirement = Retirement(store, config.retire_after_s, clock)
        self._cache = SegmentCache(store, config.limits)
        self._short = False
        self.mode = Mode.FSYNC if self._fsync else Mode.OS
        self.lock = threading.RLock()
        self.on_sealed: Callable[[int], None] = lambda _last: None
        """Called when the active segment was sealed: everything up to its end is on disk."""
        self.manifest: Manifest
        """The manifest in force."""
        self.writer: SegmentWriter
        """The active segment."""
        if store.versions():
            self._recover(on_corrupt)
        else:
            self._create()

    # ------------------------------------------------------------------ opening

    def _create(self) -> None:
        self.manifest = new_manifest(self._store)
        self.writer = self._new_writer(self.manifest)
        self._store.commit(self.manifest)

    def _recover(self, on_corrupt: OnCorrupt) -> None:
        self.manifest = settle_in(self._store, self._config.limits)
        for version in self._store.versions():
            if version != self.manifest.version:
                self._retirement.supersede(version)
        limits = self._config.limits
        found = recover_active(self._store, self.manifest, self.mode, limits, on_corrupt)
        if found.writer is None:
            self._follow(found.info)
        else:
            self.writer = found.writer

    def _new_writer(self, manifest: Manifest) -> SegmentWriter:
        """Make the active segment of a manifest that is to come into force."""
        info = manifest.active
        header = FileHeader(FileKind.SEGMENT, info.id, manifest.uid, info.first, self._now_us())
        folder = self._store.segment_dir(info.id)
        # An attempt that found the disk full may have left something.
        remove_tree(self._store.fs, folder)
        return SegmentWriter.create(self._store.fs, folder, header, self.mode)

    # ------------------------------------------------------------------ changes

    def adopt(self, after: Manifest, *, replaced: Sequence[SegmentId] = ()) -> None:
        """Put a manifest in force. If that fails the one before it is, or nobody knows (`LogFailed`)."""
        before = self.manifest
        self._store.commit(after)
        self.manifest = after
        self._retirement.supersede(before.version)
        for segment in replaced:
            self._cache.forget(segment)

    def _adopt_with(self, after: Manifest, writer: SegmentWriter) -> None:
        """Put a manifest in force that names another active segment."""
        try:
            self.adopt(after)
        except BaseException:
            writer.abandon()
            raise
        self.writer = writer

    def reserve(self) -> SegmentId:
        """Give out the id of a segment to be built."""
        with self.lock:
            self.manifest, segment = self.manifest.reserve()
            return segment

    def swap(
        self, old: Sequence[SegmentId], new: Sequence[SegmentInfo], tombstone_floor: int
    ) -> None:
        """Put finished segments, built under their temporary names, in the place of neighbours."""
        after = self.manifest.swap(old, new, tombstone_floor)
        for info in new:
            self._store.publish_segment(info.id)
        self.adopt(after, replaced=old)
        self.retire(at_once=self._short)

    def rotate(self) -> None:
        """Seal the active segment and let an empty one follow. Without room for that it stays, whole and active."""
        with self.lock:
            full = self.writer
            with naming_full(f"{self._store.root}: no room for a new segment"):
                sealed = full.seal(self.mode)
                self._follow(sealed)
            full.abandon()
            self.on_sealed(sealed.last)

    def _follow(self, finished: SegmentInfo) -> None:
        after = self.manifest.rotate(finished)
        self._adopt_with(after, self._new_writer(after))

    def install(self, info: SegmentInfo) -> None:
        """Let a finished segment, built under its temporary name, follow what is there."""
        # As in `renew`: the id is in force before its segment is, or the segment would prove a lost manifest.
        self.adopt(self.manifest.tagged())
        before = self.writer
        after = self.manifest.extended(info, None if self.is_fresh else before.seal(self.mode))
        self._store.publish_segment(info.id)
        self._adopt_with(after, self._new_writer(after))
        before.abandon()

    def renew(self, new: Sequence[SegmentInfo], tombstone_floor: int) -> None:
        """Put finished segments, built under their temporary names, in the place of all."""
        # Ids that were given out come into force first: after a crash the segments are rubbish, and no lost manifest.
        self.adopt(self.manifest.tagged())
        before, longer = self.manifest, self.writer
        after = before.renewed(new, tombstone_floor)
        for info in new:
            self._store.publish_segment(info.id)
        self._adopt_with(after, self._new_writer(after))
        longer.abandon()
        for info in before.segments:
            self._cache.forget(info.id)

    def prepare_cut(self, seq: int, snapshot: Snapshot) -> tuple[Manifest, SegmentWriter]:
        """Write what a log that ends with `seq` needs; `cut` makes it so. See `sirius.wal.truncate`."""
        after = shortened(self.manifest, seq)
        writer = self._new_writer(after)
        try:
            fill(writer, snapshot, seq, self.mode)
        except BaseException:
            writer.abandon()
            remove_tree(self._store.fs, self._store.segment_dir(after.active.id))
            raise
        return after, writer

    def cut(self, after: Manifest, writer: SegmentWriter) -> None:
        """Let the active segment, and what lies in front of it, give way to what was prepared."""
        longer = self.writer
        self._adopt_with(after, writer)
        longer.abandon()

    # ------------------------------------------------------------------ writing

    def append(self, group: list[Block]) -> None:
        """Write blocks, into as many segments as they need. On a full disk a part of them may stand."""
        at = 0
        while at < len(group):
            count = self._fitting(group[at:])
            if count == 0:
                self.rotate()
                continue
            self.writer.append(group[at : at + count])
            at += count

    def _fitting(self, blocks: list[Block]) -> int:
        """Return how many of the blocks the active segment still takes; an empty one takes any block."""
        size, records = self.writer.size, self.writer.records
        for count, block in enumerate(blocks):
            size += len(block)
            records += block.count
            over = (
                size > self._config.segment_bytes_max or records > self._config.segment_records_max
            )
            if over and not (self.is_fresh and count == 0):
                return count
        return len(blocks)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing stands in the active segment yet."""
        return self.writer.last < self.writer.header.first

    def finish_group(self) -> None:
        """Make what was appended as safe as the mode promises, and mark it."""
        writer = self.writer
        if self._fsync:
            writer.sync()
        lagging = writer.index_lag >= _INDEX_LAG
        if lagging:
            writer.write_index()
        if self._fsync or lagging:
            try:
                writer.mark(self.mode, synced=self._fsync)
            except DiskFull as error:
                # The group is safe without it; the next append will say that the disk is full.
                _log.warning("%s: no room for a mark: %s", self._store.root, error)

    # ------------------------------------------------------------------ reading, retiring

    def snapshot(self, durable: Callable[[], int]) -> Snapshot:
        """Return a fixed view of everything up to the point that `durable` says."""
        with self.lock:
            manifest, version = self.manifest, self.manifest.version
            last = min(durable(), self.writer.last)
            view = ActiveView(self._cache.open(manifest.active), self.writer.index)
            self._retirement.pin(version)
        return Snapshot(manifest, self._cache, view, last, lambda: self._retirement.unpin(version))

    def retire(self, *, at_once: bool = False) -> int:
        """Remove what was replaced and nobody can need any more; return how many versions went."""
        with self.lock:
            return self._retirement.run(self.manifest, at_once=at_once)

    @contextmanager
    def short_of_room(self) -> Iterator[None]:
        """Keep nothing that was replaced, meanwhile."""
        self._short = True
        try:
            self.retire(at_once=True)
            yield
        finally:
            self._short = False
