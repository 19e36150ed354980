"""Offline repair of a log's folder.

In this order, each step one manifest and safe to be interrupted at any system call:

1. A manifest that is lost or damaged is made anew from the segments (`.rebuild`).
2. Index files that do not match the data are written anew.
3. Of segments that are damaged or in quarantine all that can be proven is saved (`.salvage`). If that is
   everything, the segment is written anew and swapped in. If something is lost nothing happens to the segment, unless
   the caller accepts the loss; then the lost ranges become holes, and the tombstone floor rises over them, for there
   may have been deletes among them.
4. A torn tail of the active segment is cut off, as opening the log would. An active segment that is damaged is set
   apart, an empty one follows it, and step 3 is done for it.
5. A journal that does not open is reported. It moves to quarantine if the caller gives up the vote (`.acceptor`).

The folder of a segment that was replaced moves to `quarantine/<id>-<n>`; repair removes nothing. To make that hold
across a crash, one manifest names the segment as quarantined before the next one replaces it: the next repair finds
what an older manifest calls quarantined, the newest does not name, and still lies among the segments.

Segments cannot tell how far an active one went whose end is gone with its marks: that looks like a torn tail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from sirius.errors import NotALog
from sirius.types import SegmentId
from sirius.wal.block import Block
from sirius.wal.config import LogConfig
from sirius.wal.frames import End, Walk, diagnose
from sirius.wal.fs import FileSystem, OsFileSystem
from sirius.wal.index import Index
from sirius.wal.manifest import Manifest, SegmentInfo, State
from sirius.wal.repair.acceptor import settle_journal
from sirius.wal.repair.rebuild import (
    described,
    next_id,
    overlooked,
    readable_manifests,
    rebuild_manifest,
    surveyed,
)
from sirius.wal.repair.replacement import build
from sirius.wal.repair.report import Action, RepairReport, What
from sirius.wal.repair.salvage import Range, salvage
from sirius.wal.repair.workbench import Workbench
from sirius.wal.repair.wreck import Wreck
from sirius.wal.store import LOCK, MANIFESTS, SEGMENTS, Store

__all__ = ["Action", "RepairReport", "What", "rebuild_manifest", "repair"]

Progress = Callable[[int, int], None]


def repair(
    path: str | os.PathLike[str],
    *,
    fs: FileSystem | None = None,
    config: LogConfig | None = None,
    accept_loss: bool = False,
    discard_journal: bool = False,
    dry_run: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> RepairReport:
    """Repair the log in folder `path`, which nobody may have open for writing; return what was done.

    Reads every segment and blocks on the disk. `accept_loss` makes holes of what cannot be saved. `discard_journal`
    gives up a journal that is damaged, and with it the node's vote; a whole one stays. `dry_run` writes nothing and
    returns what would be done. `progress` gets the bytes done and the bytes in all. Done twice, the second time changes
    nothing. Raises `CorruptLog` if a lost manifest cannot be made anew, `LogLocked` if the log is open, `NotALog` if
    there is none.
    """
    store = Store(fs or OsFileSystem(), os.fspath(path))
    if not any(store.fs.isdir(f"{store.root}/{name}") for name in (MANIFESTS, SEGMENTS)):
        raise NotALog(f"{store.root} is not a Sirius log")
    with _locked(store, dry_run):
        bench = Workbench(store, config or LogConfig(), dry_run)
        _Repair(bench, accept_loss).run(progress)
        settle_journal(bench, discard=discard_journal)
        return RepairReport(store.root, dry_run, tuple(bench.actions))


@contextmanager
def _locked(store: Store, dry_run: bool) -> Iterator[None]:
    if dry_run and not store.fs.exists(f"{store.root}/{LOCK}"):
        # Taking the lock would make the file, and whoever had the log open would have made it.
        yield
        return
    lock = store.lock()
    try:
        yield
    finally:
        lock.release()


class _Repair:
    """Decides what is to be done with each segment."""

    def __init__(self, bench: Workbench, accept_loss: bool) -> None:
        self._bench = bench
        self._store = bench.store
        self._limits = bench.config.limits
        self._accept_loss = accept_loss

    def run(self, progress: Progress) -> None:
        bench = self._bench
        bench.manifest = self._in_force()
        spare = max(bench.manifest.next_segment, next_id(self._store))
        bench.manifest = replace(bench.manifest, next_segment=SegmentId(spare))
        bench.keep_replaced()
        infos = bench.manifest.segments
        sizes = [bench.size(info) for info in infos]
        for at, info in enumerate(infos):
            progress(sum(sizes[:at]), sum(sizes))
            if info.state == State.ACTIVE:
                self._active(info)
            else:
                self._finished(info)
        progress(sum(sizes), sum(sizes))

    # ------------------------------------------------------------------ manifest

    def _in_force(self) -> Manifest:
        """Return the manifest to go by, made anew and committed if need be."""
        newest = next(readable_manifests(self._store), None)
        if newest is None:
            return self._made_anew("no manifest can be read")
        if newest.version != self._store.versions()[0]:
            return self._made_anew("the newest one is damaged")
        if self._store.is_copy(newest) and self._store.missing(newest, copy=True):
            return self._complete(newest)
        if overlooked(self._store, newest, self._limits) is not None:
            return self._made_anew("segments show that a newer one is lost")
        return newest

    def _made_anew(self, reason: str) -> Manifest:
        manifest = rebuild_manifest(self._store, self._limits)
        return self._changed(
            manifest, f"{reason}; the tombstone floor is {manifest.tombstone_floor}"
        )

    def _complete(self, newest: Manifest) -> Manifest:
        """In a copy, take the newest manifest of which everything is there, as opening the log would."""
        for older in readable_manifests(self._store):
            if not self._store.missing(older, copy=True):
                uid = int.from_bytes(os.urandom(8))
                own = replace(older, version=newest.version).at_home(self._store.home(), uid)
                return self._changed(own, f"a copy, of which version {older.version} is complete")
        return newest

    def _changed(self, manifest: Manifest, reason: str) -> Manifest:
        path = f"{MANIFESTS}/{manifest.version:010d}"
        self._bench.note(What.MANIFEST, path, 1, None, reason)
        self._bench.commit(manifest)
        return manifest

    # ------------------------------------------------------------------ sealed and quarantined segments

    def _open(self, info: SegmentInfo) -> Wreck | None:
        folder, uid = self._store.segment_dir(info.id), self._bench.manifest.uid
        try:
            return Wreck(self._store.fs, folder, info, uid, self._limits)
        except FileNotFoundError:
            return None

    def _finished(self, info: SegmentInfo) -> None:
        segment = self._open(info)
        if segment is None:
            hole = Block.hole(info.first, info.last)
            self._settle(info, [(info.first, info.last)], [hole], "the data file is missing")
            return
        try:
            size = segment.size()
            walk, index = surveyed(segment, min(info.bytes, size) or size)
            if _is_sound(segment, walk):
                self._bring_up_to_date(segment, described(info, walk, index), index)
            else:
                saved = salvage(segment, info.last, segment.index_file())
                blocks = saved.blocks(holes=True)
                self._settle(info, saved.lost, blocks, _reason(segment, walk))
        finally:
            segment.close()

    def _bring_up_to_date(self, segment: Wreck, now: SegmentInfo, index: Index) -> None:
        bench, info, table = self._bench, segment.info, index.table.tobytes()
        if segment.index_file() != table:
            bench.write_index(info, table)
        if now != info:
            back = info.state == State.QUARANTINED
            bench.note_segment(What.TAKEN_BACK if back else What.ENTRY, now, info.reason)
            bench.commit(bench.manifest.swap([info.id], [now]))

    def _settle(
        self, info: SegmentInfo, lost: list[Range], blocks: Iterable[Block], reason: str
    ) -> None:
        """Replace a damaged segment by what was saved of it, if nothing was lost or the loss is accepted."""
        replaced = self._accept_loss or not lost
        if replaced:
            self._bench.note_segment(What.REWRITTEN, info, reason)
        for first, last in lost:
            what = What.HOLE if replaced else What.LOST
            self._bench.note(what, f"{SEGMENTS}/{info.name}", first, last, reason)
        if replaced:
            self._rewrite(info, lost, blocks, reason)
        elif info.state == State.SEALED and self._bench.size(info) < info.bytes:
            # As it is it would keep the log from being opened, and so a peer from mending it.
            self._bench.note_segment(What.SET_APART, info, reason)
            self._bench.commit(self._bench.manifest.quarantine(info.id, reason))

    def _rewrite(
        self, info: SegmentInfo, lost: list[Range], blocks: Iterable[Block], reason: str
    ) -> None:
        bench = self._bench
        if not bench.dry_run:
            if info.state != State.QUARANTINED:
                bench.commit(bench.manifest.quarantine(info.id, reason))
            floor = max((last for _, last in lost), default=0)
            bench.swap([info.id], build(bench, blocks), floor)
        bench.keep(info)

    # ------------------------------------------------------------------ the active segment

    def _active(self, info: SegmentInfo) -> None:
        self._bench.drop_cache(info)
        segment = self._open(info)
        if segment is None:
            self._give_up(info, "the data file is missing")
            return
        try:
            walk, index = surveyed(segment)
            end, table = diagnose(walk), index.table.tobytes()
            if segment.header_damaged or end == End.CORRUPT:
                self._start_anew(segment, _reason(segment, walk))
            elif end == End.TORN:
                self._bench.cut(info, walk, index)
            elif not table.startswith(segment.index_file()):
                self._bench.write_index(info, table)
        finally:
            segment.close()

    def _start_anew(self, segment: Wreck, reason: str) -> None:
        """Set a damaged active segment apart, let an empty one follow, and save what can be saved."""
        bench, info = self._bench, segment.info
        saved = salvage(segment, None, segment.index_file())
        if saved.last < info.first:
            # Nothing in the file speaks of a record. If it still says which segment it is, there was none.
            settle = self._empty if segment.identified else self._give_up
            settle(info, reason)
            return
        apart = replace(info, last=saved.last, state=State.QUARANTINED, reason=reason)
        bench.note_segment(What.SET_APART, apart, reason)
        rotated = bench.manifest.rotate(apart)
        bench.create(rotated.active)
        bench.commit(rotated)
        self._settle(apart, saved.lost, saved.blocks(holes=True), reason)

    def _give_up(self, info: SegmentInfo, reason: str) -> None:
        """Nothing is known of the active segment, not even how far it went."""
        what = What.HOLE if self._accept_loss else What.LOST
        self._bench.note_segment(what, info, f"{reason}; nobody knows how far it went")
        if self._accept_loss:
            self._empty(info, reason)

    def _empty(self, info: SegmentInfo, reason: str) -> None:
        bench = self._bench
        bench.note_segment(What.EMPTIED, info, reason)
        fresh = SegmentInfo(bench.reserve_segment(), info.first)
        bench.create(fresh)
        bench.commit(bench.manifest.swap([info.id], [fresh]))
        bench.keep(info)


def _is_sound(segment: Wreck, walk: Walk) -> bool:
    """Say whether a walk found all that the manifest says of a finished segment."""
    info = segment.info
    whole = walk.fault is None and not segment.header_damaged
    return whole and walk.next_first == info.last + 1 and walk.position >= info.bytes


def _reason(segment: Wreck, walk: Walk) -> str:
    if segment.header_damaged:
        return "the file header is damaged"
    return f"damaged at byte {walk.position}: {walk.fault or 'it ends too early'}"
