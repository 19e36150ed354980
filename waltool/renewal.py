"""Compaction into a new log: find out what is live, copy that.

What is live is found by one pass over the log here, or by many machines (`spark_connector.jobs`); either way it comes
as a `Kept`, and either way the same code copies it. So who found it does not show in a single byte.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import numpy as np

from sirius.errors import UsageError
from sirius.wal import Batch, CompactionPolicy
from sirius.wal.block import Ints
from sirius.wal.compaction.plan import Throttle, record_bytes
from waltool.commands.info import describe
from waltool.compacting import Outcome, Sums, droppable, estimated_bytes
from waltool.newest import NewestTable, Rows, among, live, take
from waltool.progress import Progress
from waltool.source import SiriusSource, Source, open_source
from waltool.transfer import Kind, Target, write


class Kept(NamedTuple):
    """What a new log would hold of one with so many `records`."""

    records: int
    seqs: Ints
    """The numbers of what stays, sorted."""
    nbytes: int
    """What that takes in blocks, without their headers."""
    deletes: int
    """How many deletes are let go that are the newest word on their key, and the last of them."""
    last_delete: int

    @classmethod
    def of(cls, rows: Rows, records: int, policy: CompactionPolicy) -> Kept:
        """Sort out the newest rows of all keys, or of some."""
        rows = live(rows)
        leaving = droppable(rows, policy)
        deletes = take(rows, np.flatnonzero(leaving))
        kept = take(rows, np.flatnonzero(~leaving)) if len(deletes) else rows
        last = int(deletes["seq"].max(initial=0))
        return cls(records, kept["seq"].copy(), int(kept["size"].sum()), len(deletes), last)

    @classmethod
    def join(cls, parts: list[Kept]) -> Kept:
        """Put together what was found for different keys."""
        seqs = np.concatenate([np.zeros(0, np.int64), *(part.seqs for part in parts)])
        return cls(
            sum(part.records for part in parts),
            np.sort(seqs),
            sum(part.nbytes for part in parts),
            sum(part.deletes for part in parts),
            max((part.last_delete for part in parts), default=0),
        )


Survey = Callable[[Source, CompactionPolicy, Progress, Throttle], Kept]


def survey(source: Source, policy: CompactionPolicy, bar: Progress, throttle: Throttle) -> Kept:
    """Go over a log once, in this process."""
    table, is_slowed = NewestTable(), policy.rate_bytes_per_s is not None
    for batch in bar.over(source.batches(), 1):
        if is_slowed:
            throttle.spend(record_bytes(batch.entries))
        table.add(batch)
    return Kept.of(table.rows(), table.records, policy)


def _wide_batches(source: Source) -> Iterator[Batch]:
    """Go over a log, in as large steps as its format allows."""
    return source.wide_batches() if isinstance(source, SiriusSource) else source.batches()


def into_new(
    source: Source,
    target: str,
    policy: CompactionPolicy,
    bar: Progress,
    *,
    survey: Survey = survey,
    dry_run: bool = False,
) -> Outcome:
    """Compact a log into a new one of the same format, or say what would become of it."""
    if os.path.lexists(target):
        raise UsageError(f"{target} is there already; this command writes a new log only")
    throttle = Throttle(policy.rate_bytes_per_s, time.monotonic, time.sleep)
    kept = survey(source, policy, bar, throttle)
    wanted = Target(target, cast(Kind, source.kind), drop_control=True, truncate_times=True)
    wanted = wanted.like(source).with_floor(kept.last_delete)
    if dry_run:
        return _foretold(source, kept, wanted)
    # The bar counts on from the pass before.
    batches = bar.over(_wide_batches(source), 1 - source.last)
    copied = (batch.where(among(kept.seqs, batch)) for batch in batches)
    written = write(wanted, copied, lambda block: throttle.spend(len(block)))
    return _compared(source, target, kept, written.records)


def _foretold(source: Source, kept: Kept, wanted: Target) -> Outcome:
    found = describe(source)
    made = estimated_bytes(source.kind, len(kept.seqs), kept.nbytes)
    segments = len(found["segments"])
    return Outcome(
        Sums(segments, kept.records, found["bytes"]),
        Sums(segments, len(kept.seqs), made),
        deletes_dropped=kept.deletes,
        bytes_written=made,
        tombstone_floor=wanted.tombstone_floor if wanted.kind == "sirius" else 0,
    )


def _compared(source: Source, target: str, kept: Kept, records: int) -> Outcome:
    with open_source(target) as made:
        before, after = describe(source), describe(made)
    return Outcome(
        Sums(len(before["segments"]), kept.records, before["bytes"]),
        Sums(len(after["segments"]), records, after["bytes"]),
        deletes_dropped=kept.deletes,
        bytes_written=after["bytes"],
        tombstone_floor=after["tombstone_floor"] or 0,
    )
