"""The survey of a compaction pass: which records are live, and which deletes may go.

Goes over the log from the newest segment to the oldest, reading each once. See `sirius.wal.compaction` for the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sirius.errors import CorruptFile
from sirius.types import SegmentId, Seq
from sirius.wal.batch import Batch, Mask
from sirius.wal.block import Entries, Ints
from sirius.wal.compaction import CompactionPolicy, SegmentStats, Throttle, record_bytes
from sirius.wal.fs import FileSystem, remove_tree
from sirius.wal.keyset import Hashes, KeyHasher, KeySet, newest
from sirius.wal.manifest import SegmentInfo, State
from sirius.wal.record import Op
from sirius.wal.segment import read_whole, write_whole
from sirius.wal.snapshot import Snapshot

_HASH_ROWS: Final = 16_384


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
        write_whole(self.fs, f"{self.folder}/{segment:08d}", np.packbits(live).tobytes())

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

    def strike(self, hashes: Hashes) -> None:
        """Records with these hashes, sorted, are older than all candidates: those that they match must stay."""
        if not len(self._seq) or not len(hashes):
            return
        high = hashes.high
        at = np.minimum(np.searchsorted(high, self._hashes.high), len(high) - 1)
        # An equal upper part is enough to keep a candidate: to keep a delete is never wrong.
        staying = high[at] != self._hashes.high
        self._hashes, self._seq = self._hashes.take(staying), self._seq[staying]

    def strike_all(self) -> None:
        """Nobody knows what is older than the candidates: all must stay."""
        self._hashes, self._seq = self._hashes.take(slice(0, 0)), self._seq[:0]

    def add(self, hashes: Hashes, entries: Entries) -> None:
        """Take candidates: the newest records of keys that have no other record in the same segment."""
        policy, seq = self._policy, entries["seq"].astype(np.int64)
        mask = (entries["op"] == Op.DELETE) & (seq <= policy.drop_deletes_upto)
        if policy.drop_deletes_before_us is not None:
            mask &= entries["ts"] < policy.drop_deletes_before_us
        if policy.upto is not None:
            mask &= seq <= policy.upto
        if bool(mask.any()):
            joined = Hashes.join([self._hashes, hashes.take(mask)])
            order = np.argsort(joined.high, kind="stable")
            self._hashes, self._seq = joined.take(order), np.append(self._seq, seq[mask])[order]

    @property
    def droppable(self) -> frozenset[int]:
        return frozenset(self._seq.tolist())


@dataclass(slots=True)
class Survey:
    """Goes over a snapshot and says what is live."""

    snapshot: Snapshot
    policy: CompactionPolicy
    scratch: Scratch
    throttle: Throttle
    on_progress: Callable[[int], None]
    seen: KeySet = field(default_factory=KeySet)
    damaged: dict[SegmentId, CorruptFile] = field(default_factory=dict)
    _hasher: KeyHasher = field(default_factory=KeyHasher)

    def run(self) -> tuple[list[SegmentStats | None], frozenset[int]]:
        """Return what was learnt of each sealed segment, oldest first, and the deletes that may go."""
        tombstones = Tombstones(self.policy)
        stats: list[SegmentStats | None] = []
        for info in reversed(self.snapshot.segments):
            if self.throttle.should_stop():
                return [], frozenset()
            learnt = self._segment(info, tombstones)
            if info.state != State.ACTIVE:
                stats.append(learnt)
        return stats[::-1], tombstones.droppable

    def _segment(self, info: SegmentInfo, tombstones: Tombstones) -> SegmentStats | None:
        if info.state == State.QUARANTINED:
            tombstones.strike_all()
            return None
        try:
            hashes, entries = self._columns(info)
        except CorruptFile as error:
            self.damaged[info.id] = error
            tombstones.strike_all()
            return None
        live = self._live(hashes, entries, tombstones)
        if info.state != State.ACTIVE:
            self.scratch.save(info.id, live)
        return SegmentStats(info, int(live.sum()), record_bytes(entries[live]))

    def _columns(self, info: SegmentInfo) -> tuple[Hashes, Entries]:
        """Read a segment's keys and entries. Bounded by the size of a segment."""
        hashes, entries = [self._hasher.hash([_NOTHING])], [_NOTHING.entries]
        for batches in grouped(self.snapshot.segment_batches(info), _HASH_ROWS):
            hashes.append(self._hasher.hash(batches))
            entries += [batch.entries for batch in batches]
            size = sum(record_bytes(batch.entries) for batch in batches)
            self.throttle.spend(size)
            self.on_progress(size)
        return Hashes.join(hashes), np.concatenate(entries)

    def _live(self, hashes: Hashes, entries: Entries, tombstones: Tombstones) -> Mask:
        live = np.zeros(len(entries), np.bool_)
        if not len(entries):
            return live
        found = newest(hashes)
        unique = hashes.take(found.rows)
        known = self.seen.find(unique)
        live[found.rows[~known]] = True
        live &= entries["op"] != Op.NOOP
        if self.policy.upto is not None:
            live |= entries["seq"] > self.policy.upto
        tombstones.strike(unique)
        alone = ~known & (found.counts == 1)
        tombstones.add(unique.take(alone), entries[found.rows[alone]])
        self.seen.add(unique.take(~known))
        return live


def grouped(batches: Iterator[Batch], rows: int) -> Iterator[list[Batch]]:
    """Put batches together until they have at least so many rows."""
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= rows:
            yield group
            group = []
    if group:
        yield group


_NOTHING: Final = Batch.hole(Seq(1), Seq(1))
