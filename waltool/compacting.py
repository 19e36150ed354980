"""What compaction keeps: foretold without touching the log, and done on the way to a new one.

A pass over a log in place is `sirius.wal.compaction.rewrite`. This is for the other two cases. Both go once over the
log to find the newest record of each key (`waltool.newest`). To foretell a pass, they go by the plan that the pass
would make; to write a new log, all that is dead is left out, since there is no segment whose rewriting could be spared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from sirius.wal import Batch, CompactionPolicy, LogConfig, Op, SegmentInfo, State
from sirius.wal.batch import Mask
from sirius.wal.block import ENTRY_BYTES, HEADER_BYTES
from sirius.wal.compaction.plan import BLOCK_RECORDS, Rewrite, SegmentStats, plan
from sirius.wal.frames import FILE_HEADER_BYTES, MARK_BYTES
from sirius.wal.segment import DATA
from waltool.newest import NewestTable, Rows, live
from waltool.source import SiriusSource, file_size

ANCESTOR_ENTRY_BYTES: Final = 64
"""What a record takes beside key and body: 40 bytes in the data, 24 in the index."""


class Sums(NamedTuple):
    """How large a log is."""

    segments: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass did, or would do."""

    before: Sums
    after: Sums
    deletes_dropped: int
    bytes_written: int
    tombstone_floor: int
    damaged: tuple[int, ...] = ()
    stopped: bool = False

    @property
    def bytes_freed(self) -> int:
        return self.before.bytes - self.after.bytes

    @property
    def amplification(self) -> float | None:
        """How many bytes were written for each byte freed."""
        return round(self.bytes_written / self.bytes_freed, 2) if self.bytes_freed > 0 else None

    def as_json(self) -> dict[str, Any]:
        return {
            "before": self.before._asdict(),
            "after": self.after._asdict(),
            "bytes_freed": self.bytes_freed,
            "bytes_written": self.bytes_written,
            "write_amplification": self.amplification,
            "deletes_dropped": self.deletes_dropped,
            "tombstone_floor": self.tombstone_floor,
            "damaged": list(self.damaged),
            "stopped": self.stopped,
        }


def droppable(rows: Rows, policy: CompactionPolicy) -> Mask:
    """Say which rows are deletes that the policy lets go."""
    mask: Mask = (rows["op"] == Op.DELETE) & (rows["seq"] <= policy.drop_deletes_upto)
    if policy.drop_deletes_before_us is not None:
        mask &= rows["ts"] < policy.drop_deletes_before_us
    return mask


def estimated_bytes(kind: str, records: int, payload: int) -> int:
    """Return about how large a segment with so many records is; `payload` is what they take in one of ours."""
    if kind.startswith("ancestor"):
        return payload + records * (ANCESTOR_ENTRY_BYTES - ENTRY_BYTES)
    blocks = -(-records // BLOCK_RECORDS) or 1
    return FILE_HEADER_BYTES + 2 * MARK_BYTES + blocks * HEADER_BYTES + payload


class Forecast:
    """Foretells a pass over a log of ours in place, which seals the active segment first."""

    def __init__(self, source: SiriusSource, policy: CompactionPolicy) -> None:
        self._source = source
        self._policy = policy
        self._snapshot = source.reader.snapshot()
        self._infos = [self._sealed(info) for info in self._snapshot.segments]
        self._table = NewestTable()

    def _sealed(self, info: SegmentInfo) -> SegmentInfo:
        if info.state != State.ACTIVE:
            return info
        data = f"{self._source.store.segment_dir(info.id)}/{DATA}"
        count = int(self._snapshot.index(info)["count"].sum(dtype=np.int64))
        size = file_size(data) if count else 0
        return replace(info, last=self._snapshot.last, bytes=size, records=count)

    def batches(self) -> Iterator[Batch]:
        """Go over the log; what a quarantined segment holds is not looked at. Take all before `outcome`."""
        for info in self._snapshot.segments:
            if info.state != State.QUARANTINED:
                for batch in self._snapshot.segment_batches(info):
                    self._table.add(batch)
                    yield batch

    def outcome(self) -> Outcome:
        """Say what the pass would do."""
        rows = live(self._table.rows())
        leaving = self._leaving(rows)
        kept, config = rows[~leaving], LogConfig()
        surveyed = [self._stats(info, kept) for info in self._infos if info.records or info.bytes]
        rewrites = plan(
            surveyed,
            self._policy,
            segment_bytes_max=config.segment_bytes_max,
            segment_records_max=config.segment_records_max,
        )
        return self._sum_up(rewrites, rows[leaving])

    def _stats(self, info: SegmentInfo, rows: Rows) -> SegmentStats | None:
        if info.state == State.QUARANTINED:
            return None
        inside = _within(rows, info.first, info.last)
        return SegmentStats(info, len(inside), int(inside["size"].sum()))

    def _leaving(self, rows: Rows) -> Mask:
        """Say which deletes would go: those without an older record, and with nothing unknown before them."""
        known = [info.first for info in self._infos if info.state == State.QUARANTINED]
        mask: Mask = droppable(rows, self._policy) & ~rows["older"]
        if known:
            mask &= rows["seq"] < min(known)
        return mask

    def _sum_up(self, rewrites: list[Rewrite], deletes: Rows) -> Outcome:
        infos = [info for info in self._infos if info.records or info.bytes]
        before = Sums(len(infos), sum(i.records for i in infos), sum(i.bytes for i in infos))
        segments, records, size = before
        gone, floor, written = 0, int(self._snapshot.manifest.tombstone_floor), 0
        for item in rewrites:
            leaving = _within(deletes, item.first, item.last)
            kept = sum(stats.live_records for stats in item.inputs)
            made = estimated_bytes("sirius", kept, sum(stats.live_bytes for stats in item.inputs))
            segments -= len(item.inputs) - 1
            records -= sum(stats.info.records for stats in item.inputs) - kept
            size -= sum(stats.info.bytes for stats in item.inputs) - made
            gone, written = gone + len(leaving), written + made
            floor = max(floor, int(leaving["seq"].max(initial=0)))
        return Outcome(before, Sums(segments, records, size), gone, written, floor)


def _within(rows: Rows, first: int, last: int) -> Rows:
    low, high = np.searchsorted(rows["seq"], [first, last + 1]).tolist()
    return rows[low:high]
