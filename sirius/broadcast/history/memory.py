"""A history in memory.

A batch is appended, and collects, as a whole: keyed events through the hash table of `keys`, GC events one by one
through `predicates`. An event that was collected is dead and never comes back; between two live events there is a
hole, however many were collected there. When two thirds of the rows are dead they are packed: O(1) an event over
time.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sirius.broadcast.columns import AnyColumn, Ints, constant, picked, repeated
from sirius.broadcast.events import EventBatch, Kind
from sirius.broadcast.history.keys import NOBODY, U64, Hashes, KeyHasher, KeyIndex, newest
from sirius.broadcast.history.rows import ROW_BYTES, Rows
from sirius.broadcast.limits import ATTRIBUTES_MAX
from sirius.broadcast.predicates import (
    Predicate,
    PredicateError,
    covers,
    is_closed,
    matching,
    parse,
)
from sirius.errors import BadMessage, InvariantViolation, OutOfOrder
from sirius.types import Seq

_PACK_ROWS_MIN: Final = 1024
_PACK_FACTOR: Final = 3
"""How many rows there may be for each that is alive: more take room, fewer take time."""
_MANY: Final = 256
"""From so many events on it pays to look for those that collect each other."""
_READ_ROWS_MAX: Final = 1 << 16
_RANGE_MAX: Final = 2**32 - 1


ANYTHING: Final = Seq(1 << 62)
"""As a sequence number: there is no end to it."""


class Published(NamedTuple):
    """The last batch of a publisher, and where it stands."""

    serial: int
    first: Seq
    last: Seq


class MemoryHistory:
    """One stream. See `sirius.broadcast.history.History` for who calls what."""

    def __init__(self, rng: random.Random | None = None, publishers_max: int = 10_000) -> None:
        self._hasher = KeyHasher(rng or random.Random(0))
        self._index = KeyIndex()
        self._rows = Rows()
        self._topics: list[str] = []
        self._topic_ids: dict[str, int] = {}
        self._topic_hashes: U64 = np.empty(0, np.uint64)
        self._predicates: dict[int, Predicate] = {}
        self._publishers: OrderedDict[int, Published] = OrderedDict()
        self._publishers_max = publishers_max
        self._live_rows = 0
        self._live_bytes = 0
        self.last = Seq(0)
        self.last_time = 0
        self.unproven = 0
        """How often an event that collects was kept, because the new predicate may not cover what it collected."""

    def __len__(self) -> int:
        """Return how many events are alive."""
        return self._live_rows

    def __bool__(self) -> bool:
        """An empty history is one all the same."""
        return True

    @property
    def nbytes(self) -> int:
        return self._live_bytes + self._live_rows * ROW_BYTES

    def attribute_names(self, *, exact: bool) -> set[str]:
        if exact:
            self._pack()
        return self._rows.attribute_names

    # ------------------------------------------------------------------ append

    def prepare(self, batch: EventBatch) -> None:
        """There is nothing to prepare in memory."""

    @property
    def ready(self) -> Seq:
        """Whatever was prepared may be appended."""
        return ANYTHING

    def append(self, batch: EventBatch) -> None:
        """Add what comes next. O(events), vectorised; a GC event costs a pass over the history at most."""
        predicates = self.vet(batch)
        if len(batch):
            self.last_time = int(batch.times[-1])
            self._extend(batch, predicates)
        self.last = batch.last
        if batch.publisher:
            self.note(batch.publisher, Published(batch.serial, batch.first, batch.last))
        if len(self._rows) > max(_PACK_ROWS_MIN, _PACK_FACTOR * self._live_rows):
            self._pack()

    def vet(self, batch: EventBatch) -> dict[int, Predicate]:
        """Raise what `append` would; return the predicates of its GC events."""
        if batch.first != self.last + 1:
            raise OutOfOrder(f"a batch from {batch.first} on does not follow {self.last}")
        predicates = predicates_of(batch)
        if len(batch):
            self._check_attributes(batch)
            if int(batch.times[0]) < self.last_time:
                raise BadMessage(
                    f"time falls from {self.last_time} to {batch.times[0]} at {batch.first}"
                )
        return predicates

    def _check_attributes(self, batch: EventBatch) -> None:
        """See that whoever reads all of the history at once gets a batch within the limits."""
        for exact in (False, True):
            names = self.attribute_names(exact=exact) | set(batch.attributes)
            if len(names) <= ATTRIBUTES_MAX:
                return
        raise BadMessage(f"a stream has at most {ATTRIBUTES_MAX} attributes at a time")

    def _extend(self, batch: EventBatch, predicates: dict[int, Predicate]) -> None:
        base = len(self._rows)
        topic_ids = self._number(batch)
        keyed = _keyed(batch)
        hashes = _NO_HASHES
        if len(keyed):
            hashes = self._hash(batch, topic_ids)
        if len(keyed) == len(batch) >= _MANY:
            # What another event of the same batch collects never gets a row.
            rows = np.flatnonzero(newest(hashes))
            batch, topic_ids, keyed = (
                batch.selected(rows),
                picked(topic_ids, rows),
                keyed[: len(rows)],
            )
            hashes = Hashes(hashes.find[rows], hashes.check[rows])
        self._rows.extend(batch, topic_ids, hashes)
        self._live_rows += len(batch)
        self._live_bytes += batch.nbytes
        if len(keyed):
            self._collect_keys(keyed + base, hashes.find[keyed])
        for number, predicate in predicates.items():
            self._collect(predicate, base + number)

    def _hash(self, batch: EventBatch, topic_ids: AnyColumn) -> Hashes:
        if topic_ids.strides == (0,):
            topic_hashes = repeated(self._topic_hashes[topic_ids[:1]], len(batch))
        else:
            topic_hashes = self._topic_hashes[topic_ids]
        return self._hasher.hash(batch.keys, batch.key_lengths, topic_hashes)

    def _number(self, batch: EventBatch) -> AnyColumn:
        """Return the history's own numbers of a batch's topics."""
        numbers = [self._topic_number(topic) for topic in batch.topics]
        if len(numbers) == 1:
            return constant(numbers[0], len(batch), np.int32)
        return np.array(numbers, np.int32)[batch.topic_ids]

    def _topic_number(self, topic: str) -> int:
        number = self._topic_ids.get(topic)
        if number is None:
            number = self._topic_ids[topic] = len(self._topics)
            self._topics.append(topic)
            value = np.uint64(self._hasher.hash_topic(topic))
            self._topic_hashes = np.append(self._topic_hashes, value)
        return number

    def note(self, publisher: int, published: Published) -> None:
        known = self._publishers.get(publisher)
        if known is not None and known.serial >= published.serial:
            return
        self._publishers[publisher] = published
        self._publishers.move_to_end(publisher)
        if len(self._publishers) > self._publishers_max:
            self._publishers.popitem(last=False)

    # ------------------------------------------------------------------ collecting

    def _collect_keys(self, rows: Ints, finds: U64) -> None:
        """Have keyed events collect the earlier keyed events of their topics and keys."""
        before, now = self._index.replace(finds, rows)
        is_last = now == rows
        checks = self._rows.checks
        older, newer = rows[~is_last], now[~is_last]
        self._kill(older[checks[older] == checks[newer]])
        found = is_last & (before != NOBODY)
        older, newer = before[found], rows[found]
        older = older[checks[older] == checks[newer]]
        self._kill(older[self._rows.live[older]])

    def _collect(self, predicate: Predicate, row: int) -> None:
        """Have the GC event at a row collect what matches, as far as that is final."""
        rows = self._rows
        table = rows.table(self._topics)
        found = matching(predicate, table, np.flatnonzero(rows.live[:row]))
        kinds = rows.kinds[found]
        keep = kinds == Kind.GC
        if not is_closed(predicate):
            keep |= kinds == Kind.KEYED
        kept = found[keep]
        covered = [each for each in kept.tolist() if self._covers(predicate, each, table.times)]
        self.unproven += len(kept) - len(covered)
        self._kill(found[~keep])
        self._kill(np.array(covered, np.int64))
        self._predicates[int(rows.seqs[row])] = predicate

    def _covers(self, new: Predicate, row: int, times: Ints) -> bool:
        """Say whether a GC event may go, and forget its predicate if so."""
        seq = int(self._rows.seqs[row])
        old = self._predicates.get(seq)
        if old is None or not covers(new, old, seq, int(times[row])):
            return False
        del self._predicates[seq]
        return True

    def _kill(self, rows: Ints) -> None:
        """Mark rows that are alive as dead."""
        if len(rows):
            self._rows.live[rows] = False
            self._live_rows -= len(rows)
            self._live_bytes -= int(self._rows.sizes[rows].sum(dtype=np.int64))

    def _pack(self) -> None:
        rows = self._rows
        rows.pack()
        self._topics = rows.renumber_topics(self._topics)
        self._topic_ids = {topic: number for number, topic in enumerate(self._topics)}
        hashes = map(self._hasher.hash_topic, self._topics)
        self._topic_hashes = np.fromiter(hashes, np.uint64, len(self._topics))
        keyed = np.flatnonzero(rows.kinds == Kind.KEYED)
        self._index.reset(len(keyed))
        self._index.replace(rows.finds[keyed], keyed)

    # ------------------------------------------------------------------ reading

    def read(self, first: Seq, last: Seq, bytes_max: int) -> EventBatch:
        """Return what is left of a range. O(log rows + what is returned)."""
        last = Seq(min(last, self.last, first + _RANGE_MAX - 1))
        if not 1 <= first <= last:
            raise InvariantViolation(f"{first} to {last} is not in a history up to {self.last}")
        seqs = self._rows.seqs
        begin, end = np.searchsorted(seqs, (first, last + 1)).tolist()
        stop = min(end, begin + _READ_ROWS_MAX)
        rows = begin + np.flatnonzero(self._rows.live[begin:stop])
        fits = self._fitting(rows, bytes_max)
        if fits < len(rows):
            last = Seq(int(seqs[rows[fits]]) - 1)
        elif stop < end:
            last = Seq(int(seqs[stop]) - 1)
        elif not len(rows):
            last = self._end_of_hole(end)
        return self._rows.batch(rows[:fits], first, last, self._topics)

    def _end_of_hole(self, row: int) -> Seq:
        """Return where a hole ends that goes on at a row: it takes no more room if it is told at once."""
        alive = np.flatnonzero(self._rows.live[row : row + _READ_ROWS_MAX])
        at = row + (int(alive[0]) if len(alive) else _READ_ROWS_MAX)
        return self.last if at >= len(self._rows) else Seq(int(self._rows.seqs[at]) - 1)

    def _fitting(self, rows: Ints, bytes_max: int) -> int:
        """Return how many of some rows fit; one always does."""
        ends = np.cumsum(self._rows.sizes[rows], dtype=np.int64)
        return min(len(rows), max(1, int(np.searchsorted(ends, bytes_max, side="right"))))

    def live_seqs(self) -> Ints:
        """Return the numbers of all events that are alive."""
        return self._rows.seqs[self._rows.live]

    def published(self, publisher: int) -> Published | None:
        return self._publishers.get(publisher)

    def publishers(self, first: Seq, last: Seq) -> list[tuple[int, Published]]:
        """O(publishers)."""
        return [item for item in self._publishers.items() if first <= item[1].last <= last]

    def check(self) -> None:
        """Verify what must always hold. For tests: O(rows)."""
        rows, live = self._rows, self._rows.live
        if int(live.sum()) != self._live_rows:
            raise InvariantViolation(f"{live.sum()} rows are alive, not {self._live_rows}")
        if int(rows.sizes[live].sum()) != self._live_bytes:
            raise InvariantViolation(f"{rows.sizes[live].sum()} bytes, not {self._live_bytes}")
        if bool((np.diff(rows.seqs) <= 0).any()):
            raise InvariantViolation("sequence numbers do not rise")
        gc_events = rows.seqs[live & (rows.kinds == Kind.GC)].tolist()
        if sorted(self._predicates) != gc_events:
            raise InvariantViolation(f"predicates of {sorted(self._predicates)}, not {gc_events}")


_NO_HASHES: Final = Hashes(np.zeros(1, np.uint64), np.zeros(1, np.uint32))


def _keyed(batch: EventBatch) -> Ints:
    """Return which records are keyed events."""
    kinds: npt.NDArray[np.uint8] = batch.kinds
    return np.flatnonzero(kinds == Kind.KEYED)


def predicates_of(batch: EventBatch) -> dict[int, Predicate]:
    """Read the predicates of a batch before anything is changed."""
    try:
        return {row: parse(payload) for row, payload in batch.gc_payloads()}
    except PredicateError as error:
        raise BadMessage(f"a GC event behind {batch.first - 1} cannot be read: {error}") from error
