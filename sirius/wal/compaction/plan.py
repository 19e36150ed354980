"""Compaction: keeping the newest update of each key, while the log is in use.

The paper compacts pairwise: for each segment it goes over all older ones, so a full pass over s segments reads s²/2 of
them. Here a pass reads each segment once to learn what is dead in it, and a second time only if it is worth rewriting:

1. **Survey** (`.survey`), newest segment first: a record is live if its key has not been seen yet. What is
   kept in memory is 12 bytes a distinct key; which records are live goes to scratch files, one bit each.
2. **Plan** (`plan`, pure): which neighbours to rewrite into one. A segment is worth it when enough of it is dead, or
   when it and its neighbour have become small. Rewriting a segment of which a part f is dead costs (1-f)/f bytes
   written for each byte freed; with the default of f = 0.25 that is three at worst, one when half is dead.
3. **Rewrite** (`.rewrite`): live records are copied as they are, with the checksums they were born with,
   into full blocks of a new segment; then one manifest swaps it in. Each swap stands on its own: a pass can stop or
   crash after any of them, and the next pass finds less to do.

**Deletes.** A DELETE whose key has a newer update goes like any other superseded record. A DELETE that is the newest
word on its key may go only

- when no older record of the key is in the log *before* the pass (else a crash between two swaps, or a segment that
  is not worth rewriting, would bring the old value back),
- when every registered follower is past it, and
- when it is old enough, if the policy asks for an age.

Its number then raises the manifest's **tombstone floor**: whoever stands below the floor may have missed a delete and
takes the whole state instead of a suffix. No delete is dropped while a segment is in quarantine in front of it, for
nobody knows what is in there.

No-ops go. The newest membership entry stays, and so do the newest marks of the publishers' sessions that wrote last.
Records above `CompactionPolicy.upto` stay whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sirius.errors import UsageError
from sirius.types import SegmentId, Seq
from sirius.wal.batch import Batch, Mask
from sirius.wal.block import (
    ALIGN,
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    Block,
    Entries,
    Ints,
    joined,
    seal,
)
from sirius.wal.manifest import SegmentInfo
from sirius.wal.record import DEFAULT_LIMITS

BLOCK_RECORDS: Final = 4096
BLOCK_BYTES: Final = 1 << 20
SESSIONS_KEPT: Final = 65_536
"""As many as consensus remembers (`sirius.paxos.sessions`): with fewer, what is sent again would be taken twice."""
_INPUTS_MAX: Final = 64
_SMALL: Final = 4


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """What a pass may do."""

    dead_fraction_min: float = 0.25
    """Rewrite a segment when at least this part of its bytes is dead; 0 rewrites all that have anything dead."""
    upto: Seq | None = None
    """Leave newer records alone."""
    drop_deletes_upto: Seq = Seq(0)
    """Deletes up to here may go: every registered follower is past it. 0 keeps all deletes."""
    sessions_kept: int = SESSIONS_KEPT
    """How many publishers' sessions keep the mark that says how far they have got."""
    drop_deletes_before_us: int | None = None
    """Deletes must also be older than this time."""
    alive: Ints | None = None
    """Of records up to `upto` only these, in order, may stay; None: the newest of each key. For a layer above that
    knows of records that are dead although nothing has taken their place."""
    rate_bytes_per_s: float | None = None
    """Read and write no more than this, on average."""

    def __post_init__(self) -> None:
        if not 0 <= self.dead_fraction_min <= 1:
            raise UsageError(f"dead_fraction_min is a fraction, not {self.dead_fraction_min}")


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """What a survey learnt of one sealed segment."""

    info: SegmentInfo
    live_records: int
    live_bytes: int

    @property
    def dead_fraction(self) -> float:
        return 1.0 - min(1.0, self.live_bytes / self.info.bytes) if self.info.bytes else 0.0

    @property
    def has_dead(self) -> bool:
        return self.live_records < self.info.records


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Neighbours that become one segment."""

    inputs: tuple[SegmentStats, ...]

    @property
    def ids(self) -> list[SegmentId]:
        return [stats.info.id for stats in self.inputs]

    @property
    def first(self) -> Seq:
        return self.inputs[0].info.first

    @property
    def last(self) -> Seq:
        return self.inputs[-1].info.last


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a pass did. Write amplification is `bytes_written / bytes_freed`."""

    segments_before: int
    segments_after: int
    records_dropped: int
    deletes_dropped: int
    bytes_read: int
    bytes_written: int
    bytes_freed: int
    keys: int
    keys_bytes: int
    tombstone_floor: Seq
    damaged: tuple[SegmentId, ...] = ()
    stopped: bool = False


def plan(
    surveyed: Sequence[SegmentStats | None],
    policy: CompactionPolicy,
    *,
    segment_bytes_max: int,
    segment_records_max: int,
) -> list[Rewrite]:
    """Decide which neighbours to rewrite. Pure: the same survey gives the same plan.

    `None` stands for a segment that cannot be read; nothing is merged across it. Greedy from the oldest on: a group
    grows while its live part fits into one segment and what is added is worth touching.
    """
    rewrites: list[Rewrite] = []
    group: list[SegmentStats] = []
    for stats in [*surveyed, None]:
        if stats is not None and _joins(
            group, stats, policy, segment_bytes_max, segment_records_max
        ):
            group.append(stats)
            continue
        rewrites += _finished(group, policy)
        group = [stats] if stats is not None and _worth(stats, policy, segment_bytes_max) else []
    return rewrites


def _worth(stats: SegmentStats, policy: CompactionPolicy, bytes_max: int) -> bool:
    return _dead_enough(stats, policy) or stats.live_bytes * _SMALL <= bytes_max


def _dead_enough(stats: SegmentStats, policy: CompactionPolicy) -> bool:
    return stats.has_dead and stats.dead_fraction >= policy.dead_fraction_min


def _joins(
    group: list[SegmentStats],
    stats: SegmentStats,
    policy: CompactionPolicy,
    bytes_max: int,
    records_max: int,
) -> bool:
    together = [*group, stats]
    return (
        bool(group)
        and len(together) <= _INPUTS_MAX
        and _worth(stats, policy, bytes_max)
        and sum(member.live_bytes for member in together) <= bytes_max
        and sum(member.live_records for member in together) <= records_max
    )


def _finished(group: list[SegmentStats], policy: CompactionPolicy) -> list[Rewrite]:
    if len(group) > 1 or (group and _dead_enough(group[0], policy)):
        return [Rewrite(tuple(group))]
    return []


class Throttle:
    """Keeps an average rate by sleeping, and says when to stop."""

    def __init__(
        self,
        rate_bytes_per_s: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._rate = rate_bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self.should_stop = should_stop
        self.spent = 0

    def spend(self, count: int) -> None:
        """Account for `count` bytes; sleep if they came too fast."""
        self.spent += count
        if self._rate is not None:
            ahead = self.spent / self._rate - (self._clock() - self._started)
            if ahead > 0:
                self._sleep(ahead)


@dataclass(slots=True)
class Reblocker:
    """Collects records into blocks of a good size that cover a range without a gap."""

    next_first: int
    bytes_max: int = DEFAULT_LIMITS.block_bytes_max
    _entries: list[Entries] = field(default_factory=list)
    _keys: list[bytes] = field(default_factory=list)
    _bodies: list[bytes] = field(default_factory=list)
    _records: int = 0
    _bytes: int = 0
    _last: int = 0

    def add(self, batch: Batch) -> Iterator[Block]:
        """Take the records of a batch, which lies behind those before; yield blocks that are full."""
        for part, size in self._parts(batch):
            if self._records and self._size(self._bytes + size) > self.bytes_max:
                yield self._block()
            self._take(part, size)
            if self._records >= BLOCK_RECORDS or self._bytes >= BLOCK_BYTES:
                yield self._block()

    def _parts(self, batch: Batch) -> Iterator[tuple[Batch, int]]:
        """Split a batch until every part fits into a block; that of one record always does."""
        size = record_bytes(batch.entries)
        if len(batch) <= 1 or self._size(size) <= self.bytes_max:
            yield batch, size
            return
        middle = int(batch.seq[len(batch) // 2])
        yield from self._parts(batch.between(batch.first, middle - 1))
        yield from self._parts(batch.between(middle, batch.last))

    @staticmethod
    def _size(payload: int) -> int:
        return HEADER_BYTES + payload + -payload % ALIGN

    def _take(self, batch: Batch, size: int) -> None:
        if len(batch):
            self._entries.append(batch.entries)
            self._keys.append(batch.key_column.blob())
            self._bodies.append(batch.body_column.blob())
        self._records += len(batch)
        self._bytes += size
        self._last = batch.last

    def finish(self) -> Iterator[Block]:
        """Yield what is left, be it nothing but a hole."""
        if self._last >= self.next_first:
            yield self._block()

    def _block(self) -> Block:
        entries = np.frombuffer(joined(self._entries), ENTRY)
        block = seal(self.next_first, self._last, entries, self._keys, self._bodies)
        self.next_first = self._last + 1
        self._entries, self._keys, self._bodies = [], [], []
        self._records = self._bytes = 0
        return block


def record_bytes(entries: Entries, which: Mask | slice = slice(None)) -> int:
    """Return how many bytes records take in a segment, blocks' headers aside."""
    keys, bodies = entries["key_len"][which], entries["body_len"][which]
    payload = keys.sum(dtype=np.int64) + bodies.sum(dtype=np.int64)
    return len(keys) * ENTRY_BYTES + int(payload)


def kept(batches: Iterator[Batch], live: Mask, dropped: Ints) -> Iterator[Batch]:
    """Leave out of a segment's batches what is dead, and the deletes that may go."""
    at = 0
    for batch in batches:
        mask = live[at : at + len(batch)]
        at += len(batch)
        if len(dropped):
            mask = mask & ~np.isin(batch.seq.astype(np.int64), dropped)
        yield batch.where(mask)
