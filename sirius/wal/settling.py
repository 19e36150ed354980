"""Settling into a log's folder: which manifest is in force, whose log it is, and what may be cleared away.

This comes before the recovery of the active segment (`sirius.wal.recovery`). The writer's lock is held, and the order
matters:

1. A newer manifest that was lost is noticed before anything is removed on the word of an older one.
2. Names that a process changed just before it was killed are put on disk.
3. A copy becomes a log of its own.
4. What no manifest names is swept away.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from sirius.errors import CorruptLog
from sirius.types import SegmentId, Seq
from sirius.wal.manifest import Manifest, SegmentInfo
from sirius.wal.record import Limits
from sirius.wal.repair.rebuild import next_id, overlooked
from sirius.wal.store import Store

_log = logging.getLogger("sirius.wal")


def new_manifest(store: Store) -> Manifest:
    """Return the first manifest of a new log; it has still to be committed, and its segment to be made."""
    store.lay_out()
    store.refuse_orphans()
    manifest = Manifest(
        uid=_new_uid(),
        home=store.home(),
        next_segment=SegmentId(2),
        segments=(SegmentInfo(SegmentId(1), Seq(1)),),
    )
    store.sweep(manifest, keep_building=False)
    return manifest


def settle_in(store: Store, limits: Limits) -> Manifest:
    """Return the manifest in force, once the folder is in order."""
    manifest = load_whole(store, limits)
    store.settle_names()
    if store.is_copy(manifest):
        manifest = _at_home(store, manifest)
    store.sweep(manifest, keep_building=False)
    return manifest


def load_whole(store: Store, limits: Limits) -> Manifest:
    """Return the manifest in force, or raise if a newer one was lost: then it names only a part of the log.

    If another manifest has come meanwhile, a writer is at work, and nothing is lost: it commits, then fills.
    """
    versions = store.versions() if store.is_log() else []
    manifest = store.load()
    segment = overlooked(store, manifest, limits)
    if segment is not None and store.versions() == versions:
        raise CorruptLog(
            f"{store.root}: segment {segment} holds records, and no manifest names it: the newest manifest is lost. "
            f"Nothing was removed; `waltool repair {store.root}` makes the manifest anew"
        )
    return manifest


def _at_home(store: Store, manifest: Manifest) -> Manifest:
    """Make a copy a log of its own, from the version of which everything is there."""
    _log.warning("%s is a copy: it becomes a log of its own", store.root)
    newest = max(store.versions())
    for version in range(manifest.version + 1, newest + 1):
        store.remove_manifest(version)
    # Numbered above all that came along, so that nothing of it looks like what this log did later.
    base = replace(manifest, version=newest, next_segment=next_id(store))
    own = base.at_home(store.home(), _new_uid())
    store.commit(own)
    return own


def _new_uid() -> int:
    return int.from_bytes(os.urandom(8))
