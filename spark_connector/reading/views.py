"""Views: the state that a log stands for, and what changed within a range.

Which record is the newest of its key is found on the driver, the way compaction does it: newest segment first, 12
bytes for each distinct key, no Python object a record. Tasks get a bit for each record and read on their own. Nothing
is shuffled, and bodies never leave their task.

**History.** Compaction removes a record once a newer one of its key is in the log, and leaves a hole. So a state in the
past is whole only if what was removed from it was superseded before that moment, too. A hole does not say by what it
was superseded; but that was in the log when the file that has the hole was written last. So states are whole

- up to the last number in front of the first hole, and
- from the last record on that may have been in the log when a file with such a hole was written.

The second needs clocks: that of the machine which wrote the file, and those by which records got their times. They are
taken to agree to within `CLOCKS_AGREE_US`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final

import numpy as np

from sirius.errors import ResyncRequired, UsageError
from sirius.wal import Batch, Op
from sirius.wal.batch import Column, Mask
from sirius.wal.block import Ints
from sirius.wal.compaction.liveness import NewestFirst
from sirius.wal.record import CONTROL_FROM
from spark_connector.options import Options
from spark_connector.reading.pieces import Run, run_of
from spark_connector.reading.pinned import Pinned, Stretch, pieces_of
from spark_connector.reading.predicate import Predicate, to_us
from spark_connector.reading.rows import Rows
from spark_connector.reading.scan import Reading, Scan
from spark_connector.schema import schema_of

CLOCKS_AGREE_US: Final = 60_000_000

LiveRows = dict[int, Ints]
"""The sequence numbers that count, by segment."""


def live_rows(log: Pinned, scan: Scan, options: Options, reading: Reading) -> LiveRows:
    """Return which records within the scan's range are the newest of their key; a state has no deletes."""
    only_puts = options.view == "state"
    # The filters are for what the view shows, not for what it is made of.
    survey = replace(scan, schema=schema_of(("seq", "key")), predicate=Predicate())
    newest, found = NewestFirst(), LiveRows()
    for stretch in reversed(log.stretches):
        rows = newest.segment(_batches(log, stretch, survey, reading))
        ops = rows.entries["op"]
        live = rows.live & (ops == Op.PUT if only_puts else ops < CONTROL_FROM)
        found[stretch.segment] = rows.entries["seq"].view(np.int64)[live]
    return found


def _batches(log: Pinned, stretch: Stretch, scan: Scan, reading: Reading) -> Iterator[Batch]:
    """Yield the entries and keys of one segment that lie within the scan's range."""
    for piece in pieces_of(replace(log, stretches=[stretch]), scan):
        for _, rows in scan.rows(piece, reading):
            yield _batch(rows).between(scan.first, scan.last)


def _batch(rows: Rows) -> Batch:
    entries, keys = rows.entries, rows.key_blob
    seq = entries["seq"]
    first, last = (int(seq[0]), int(seq[-1])) if len(seq) else (1, 1)
    body_len = entries["body_len"]
    bodies = Column(b"", body_len, 0, int(body_len.sum(dtype=np.int64)))
    return Batch(first, last, entries, Column(keys, entries["key_len"], 0, len(keys)), bodies)


# ---------------------------------------------------------------------- which moment


def range_of(log: Pinned, options: Options) -> tuple[int, int]:
    """Return the sequence numbers that were asked for, or say that they cannot be answered for."""
    first, last = options.from_seq or 1, min(options.to_seq or log.last, log.last)
    if options.as_of is not None:
        last = _moment(log, options)
    if options.view == "changes" and 1 < first <= log.tombstone_floor:
        raise ResyncRequired(first - 1, log.tombstone_floor)
    if options.view != "updates" and last < log.last:
        require_history(log, first, last)
    return first, last


def _moment(log: Pinned, options: Options) -> int:
    moment = options.as_of
    if isinstance(moment, datetime):
        return last_before(log, to_us(moment))
    if moment is not None and moment > log.last:
        raise UsageError(
            f"{log.path}: there is no state at {moment} yet: the log ends at {log.last}"
        )
    return moment or log.last


def last_before(log: Pinned, time_us: int) -> int:
    """Return the number of the last record that has this time or an earlier one; 0 if all are later."""
    for stretch in reversed(log.stretches):
        for run in _runs_before(stretch, time_us):
            last = 0
            for _, rows in Scan(schema_of(("seq",))).rows(stretch.piece([run]), Reading()):
                entries = rows.entries
                seqs = entries["seq"][entries["ts"] <= time_us]
                last = int(seqs[-1]) if len(seqs) else last
            if last:
                return last
    return 0


def _runs_before(stretch: Stretch, time_us: int) -> Iterator[Run]:
    """Yield, newest first, the blocks that may hold a record of this time or an earlier one."""
    if stretch.table is None:
        yield from stretch.whole().runs
        return
    table = stretch.table
    for row in np.flatnonzero((table["ts_min"] <= time_us) & (table["count"] > 0))[::-1].tolist():
        yield run_of(table, row, row)


# ---------------------------------------------------------------------- history


def require_history(log: Pinned, first: int, last: int) -> None:
    """Raise unless the newest record of every key up to `last`, from `first` on, is still in the log."""
    hole, written_us = _holes(log, first, last)
    if hole is None:
        return
    begins = min(_last_written_by(log, written_us + CLOCKS_AGREE_US), log.last)
    if last < begins:
        upto = f"up to {hole - 1} or " if hole > first else ""
        raise UsageError(
            f"{log.path}: what was in the log at {last} is no longer known: compaction has removed updates from {hole} "
            f"on. States are whole {upto}from {begins} on"
        )


def _holes(log: Pinned, first: int, last: int) -> tuple[int | None, int]:
    """Return the first number without a record in a range, and when a file with such was written last."""
    found, written_us, expected = None, 0, first
    for stretch in log.stretches:
        if stretch.last < first or stretch.first > last:
            continue
        hole = _hole_in(stretch, max(first, expected), last)
        if hole is not None:
            found = hole if found is None else found
            written_us = max(written_us, os.stat(stretch.path).st_mtime_ns // 1000)
        expected = stretch.last + 1
    return found, written_us


def _hole_in(stretch: Stretch, first: int, last: int) -> int | None:
    """Return the first number within a range that a segment should have a record for and has not."""
    if stretch.first > first:
        return first
    if stretch.records == stretch.last - stretch.first + 1:
        return None
    for run in _sparse(stretch, first, last):
        present = _present(stretch, run)
        wanted = np.arange(max(first, run.first), min(last, run.last) + 1)
        missing = wanted[~np.isin(wanted, present)]
        if len(missing):
            return int(missing[0])
    return None


def _sparse(stretch: Stretch, first: int, last: int) -> Iterator[Run]:
    """Yield the blocks of a range that have holes; all as one where nobody knows."""
    table = stretch.table
    if table is None:
        yield from stretch.whole().runs
        return
    sparse: Mask = table["last"] - table["first"] + 1 > table["count"]
    sparse &= (table["last"] >= first) & (table["first"] <= last)
    for row in np.flatnonzero(sparse).tolist():
        yield run_of(table, row, row)


def _present(stretch: Stretch, run: Run) -> Ints:
    """Return the numbers that a run has records for."""
    scan = Scan(schema_of(("seq",)))
    found = [rows.entries["seq"] for _, rows in scan.rows(stretch.piece([run]), Reading())]
    return np.concatenate([np.zeros(0, np.uint64), *found]).astype(np.int64)


def _last_written_by(log: Pinned, time_us: int) -> int:
    """Return the last number that a block with a record of this time or an earlier one covers."""
    for stretch in reversed(log.stretches):
        if stretch.table is None:
            return stretch.last
        early = np.flatnonzero((stretch.table["ts_min"] <= time_us) & (stretch.table["count"] > 0))
        if len(early):
            return int(stretch.table["last"][early[-1]])
    return 0
