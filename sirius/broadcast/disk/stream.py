"""A Sirius log as a stream: every update is an event, with the log's own sequence number.

A PUT and a DELETE are keyed events of the key; the attribute `op` tells them apart (1 and 2, as in the log). What the
log's compaction has left out is a hole, as are entries that are no updates. A later update of the key is there, and
says why; with one exception. A hole at or below the log's *tombstone floor* may have been a DELETE of which nothing
else is left. In the last of these holes stands a GC event that collects everything before: whoever comes from below
drops all that he has, and nobody is left with a key that is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from sirius.broadcast.columns import Ints
from sirius.broadcast.events import EventBatch, Kind
from sirius.wal.batch import Batch

OP: Final = "op"
"""The attribute that says what an update does: 1 puts, 2 deletes."""


def events_of_log(
    batch: Batch, floor: int, time_us: int = 0, *, bodies: bool = False
) -> EventBatch:
    """Return what a part of a log says. Times do not fall below `time_us`, that of the event before.

    `floor` is the log's tombstone floor, asked for after the part was read; with `bodies` they are the payloads.
    """
    updates = batch.updates()
    seqs, ops = updates.seq.astype(np.int64), updates.op.astype(np.int64)
    times = np.maximum.accumulate(np.append(time_us, updates.entries["ts"].astype(np.int64)))
    keys, payloads = updates.key_blobs(), updates.bodies() if bodies else [b""] * len(updates)
    kinds = [Kind.KEYED] * len(updates)
    purge = _purge_at(batch, floor)
    if purge is not None:
        at = int(np.searchsorted(seqs, purge))
        seqs, ops = np.insert(seqs, at, purge), np.insert(ops, at, 0)
        times = np.insert(times, at + 1, times[at])
        keys.insert(at, b"")
        payloads.insert(at, b"seq < %d" % purge)
        kinds.insert(at, Kind.GC)
    made = EventBatch.of(keys, kinds, payloads=payloads, attributes={OP: ops.tolist()})
    return _placed(made, batch, seqs, times[1:])


def _placed(made: EventBatch, batch: Batch, seqs: Ints, times: Ints) -> EventBatch:
    places = (seqs - batch.first).astype(np.uint32)
    has_holes = len(seqs) < batch.last - batch.first + 1
    return replace(
        made,
        first=batch.first,
        last=batch.last,
        places=places if has_holes else None,
        times=times,
    )


def _purge_at(batch: Batch, floor: int) -> int | None:
    """Return the last hole at or below the floor, if there is one: it may have been a delete."""
    if not batch.holes or floor < batch.first:
        return None
    low = batch.between(batch.first, floor)
    seqs = low.seq.astype(np.int64)
    dense = low.last + 1 - np.arange(len(seqs), 0, -1)
    other = np.flatnonzero(seqs != dense)
    last = int(dense[other[-1]]) if len(other) else low.last - len(seqs)
    return last if last >= low.first else None
