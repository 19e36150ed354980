"""The survey of a compaction pass: which records are live, and which deletes may go.

Goes over the log from the newest segment to the oldest, reading each once. See `.plan` for the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from sirius.errors import CorruptFile
from sirius.types import SegmentId
from sirius.wal.batch import Mask
from sirius.wal.block import ENTRY_BYTES, Entries, Ints
from sirius.wal.compaction.keyset import Hashes
from sirius.wal.compaction.liveness import NewestFirst, SegmentRows
from sirius.wal.compaction.plan import CompactionPolicy, SegmentStats, Throttle, record_bytes
from sirius.wal.fs import FileSystem, remove_tree
from sirius.wal.manifest import SegmentInfo, State
from sirius.wal.record import Op
from sirius.wal.segment import read_whole
from sirius.wal.snapshot import Snapshot


@dataclass(slots=True)
class Scratch:
    """Where a pass notes which records are live: a bit each, a file a segment. Rubbish after a crash."""

    fs: FileSystem
    folder: str

    def __enter__(self) -> Scratch:
        remove_tree(self.fs, self.folder)
        self.fs.mkdir(self.folder)
        return self

    def __exit__(self, *exc: object) -> None:
        remove_tree(self.fs, self.folder)

    def save(self, segment: SegmentId, live: Mask) -> None:
        file = self.fs.open(f"{self.folder}/{segment:08d}", "x")
        try:
            file.append([np.packbits(live).tobytes()])
        finally:
            file.close()

    def load(self, info: SegmentInfo) -> Mask:
        raw = read_whole(self.fs, f"{self.folder}/{info.id:08d}")
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=info.records)
        return bits.astype(np.bool_)


class Tombstones:
    """Deletes that are the newest word on their key: may they go?"""

    def __init__(self, policy: CompactionPolicy) -> None:
        self._policy = policy
        self._hashes = Hashes(np.zeros(0, np.uint64), np.zeros(0, np.uint32))
        self._seq: Ints = np.zeros(0, np.int64)
        self._bytes: Ints = np.zeros(0, np.int64)

    def strike(self, hashes: Hashes) -> None:
        """Records with these hashes, sorted, are older than all candidates: those that they match must stay."""
        if not len(self._seq) or not len(hashes):
            return
        high = hashes.high
        at = np.minimum(np.searchsorted(high, self._hashes.high), len(high) - 1)
        # An equal upper part is enough to keep a candidate: to keep a delete is never wrong.
        self._keep(high[at] != self._hashes.high)

    def strike_all(self) -> None:
        """Nobody knows what is older than the candidates: all must stay."""
        self._keep(np.zeros(len(self._seq), np.bool_))

    def _keep(self, which: Mask | Ints) -> None:
        self._hashes = self._hashes.take(which)
        self._seq, self._bytes = self._seq[which], self._bytes[which]

    def add(self, hashes: Hashes, entries: Entries) -> None:
        """Take candidates: the newest records of keys that have no other record in the same segment."""
        policy, seq = self._policy, entries["seq"].astype(np.int64)
        mask = (entries["op"] == Op.DELETE) & (seq <= policy.drop_deletes_upto)
        if policy.drop_deletes_before_us is not None:
            mask &= entries["ts"] < policy.drop_deletes_before_us
        if policy.upto is not None:
            mask &= seq <= policy.upto
        if bool(mask.any()):
            self._hashes = Hashes.join([self._hashes, hashes.take(mask)])
            self._seq = np.append(self._seq, seq[mask])
            self._bytes = np.append(self._bytes, ENTRY_BYTES + entries["key_len"][mask])
            self._keep(np.argsort(self._hashes.high, kind="stable"))

    @property
    def droppable(self) -> Ints:
        """The sequence numbers of those that may go, sorted."""
        return np.sort(self._seq)

    def left_of(self, surveyed: list[SegmentStats | None]) -> list[SegmentStats | None]:
        """Return what is left of segments once the deletes that may go are gone."""
        order = np.argsort(self._seq)
        seq, upto = self._seq[order], np.append(0, np.cumsum(self._bytes[order]))

        def left(stats: SegmentStats) -> SegmentStats:
            low, high = np.searchsorted(seq, [stats.info.first, stats.info.last + 1]).tolist()
            size = int(upto[high] - upto[low])
            return replace(
                stats,
                live_records=stats.live_records - (high - low),
                live_bytes=stats.live_bytes - size,
            )

        return [stats and left(stats) for stats in surveyed]


@dataclass(slots=True)
class Survey:
    """Goes over a snapshot and says what is live."""

    snapshot: Snapshot
    policy: CompactionPolicy
    scratch: Scratch
    throttle: Throttle
    on_progress: Callable[[int], None]
    damaged: dict[SegmentId, CorruptFile] = field(default_factory=dict)
    scan: NewestFirst = field(default_factory=NewestFirst)
    _sessions: int = 0

    def run(self) -> tuple[list[SegmentStats | None], Ints]:
        """Return what was learnt of each sealed segment, oldest first, and the deletes that may go."""
        tombstones = Tombstones(self.policy)
        stats: list[SegmentStats | None] = []
        for info in reversed(self.snapshot.segments):
            if self.throttle.should_stop():
                return [], np.zeros(0, np.int64)
            learnt = self._segment(info, tombstones)
            if info.state != State.ACTIVE:
                stats.append(learnt)
        return tombstones.left_of(stats[::-1]), tombstones.droppable

    def _segment(self, info: SegmentInfo, tombstones: Tombstones) -> SegmentStats | None:
        if info.state == State.QUARANTINED:
            tombstones.strike_all()
            return None
        try:
            rows = self.scan.segment(self.snapshot.segment_batches(info), self._account)
        except CorruptFile as error:
            self.damaged[info.id] = error
            tombstones.strike_all()
            return None
        tombstones.strike(rows.unique)
        if self.policy.drop_deletes_upto:
            alone = ~rows.superseded & (rows.rows == 1)
            tombstones.add(rows.unique.take(alone), rows.entries[rows.newest_row[alone]])
        live = self._live(rows)
        if info.state != State.ACTIVE:
            self.scratch.save(info.id, live)
        return SegmentStats(info, int(live.sum()), record_bytes(rows.entries, live))

    def _live(self, rows: SegmentRows) -> Mask:
        live = rows.live
        live &= rows.entries["op"] != Op.NOOP
        live[self._forgotten(live & (rows.entries["op"] == Op.SESSION))] = False
        if self.policy.alive is not None:
            live &= np.isin(rows.entries["seq"].astype(np.int64), self.policy.alive)
        if self.policy.upto is not None:
            live |= rows.entries["seq"] > self.policy.upto
        return live

    def _forgotten(self, marks: Mask) -> Ints:
        """Return where those marks of sessions stand that are older than as many as are kept."""
        found = marks.nonzero()[0]
        kept = max(0, self.policy.sessions_kept - self._sessions)
        self._sessions += len(found)
        return found[: max(0, len(found) - kept)]

    def _account(self, entries: Entries) -> None:
        size = record_bytes(entries)
        self.throttle.spend(size)
        self.on_progress(size)
