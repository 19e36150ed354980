"""A writer that keeps the books of what it asked of a log, and the rules that a log must keep.

Not a test itself: `test_crash_states`, `test_disk_full` and others use it. The books are the model:
entry n of `issued` has sequence number n. A log that was opened after whatever happened must hold
the first n entries, for some n between what was promised and all that were issued; of these it may
lack only what compaction was allowed to drop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from sirius.types import Seq
from sirius.wal import (
    Block,
    CompactionPolicy,
    Durability,
    FileSystem,
    Log,
    LogConfig,
    LogReader,
    Op,
    Record,
    Snapshot,
    Update,
)

ROOT: Final = "log"
NOW_US: Final = 1_700_000_000_000_000
SMALL: Final = LogConfig(
    background=False,
    segment_bytes_max=700,
    retire_after_s=0.0,
    reserve_bytes=0,
)
"""Segments of a few records, retired at once, written in the caller's thread: every call counts."""
EAGER: Final = CompactionPolicy(dead_fraction_min=0.0)

Issued = tuple[Op, str, bytes]
State = dict[str, bytes]
Promise = Literal["appended", "flushed", "closed"]

logging.getLogger("sirius.wal").setLevel(logging.CRITICAL)


def mode(durability: Durability, base: LogConfig = SMALL) -> LogConfig:
    return replace(base, durability=durability)


def promise(durability: Durability, *, power_is_lost: bool) -> Promise:
    """Return what a mode promises to survive a power loss, or the death of the process alone."""
    if durability == Durability.FSYNC:
        return "flushed"
    if durability == Durability.OS and not power_is_lost:
        return "appended"
    return "closed"


def open_log(fs: FileSystem, config: LogConfig = SMALL) -> Log:
    return Log.open(ROOT, config, fs=fs, clock=lambda: 0.0, now_us=lambda: NOW_US)


def state_of(entries: Iterable[Issued]) -> State:
    """Replay entries: the state that they stand for."""
    state: State = {}
    for op, key, body in entries:
        if op == Op.PUT:
            state[key] = body
        elif op == Op.DELETE:
            state.pop(key, None)
    return state


def issued_as(records: Iterable[Record]) -> list[tuple[int, Issued]]:
    return [(record.seq, (record.op, record.key, record.body)) for record in records]


@dataclass
class Books:
    """What was asked of the log, and what it promised."""

    issued: list[Issued] = field(default_factory=list)
    appended: int = 0
    """So many appends returned; so many were flushed; so many were there when the log was closed."""
    flushed: int = 0
    closed: int = 0
    dropped_upto: int = 0
    """Deletes up to here were allowed to go."""
    promise: Promise = "flushed"
    """Which of the above must be there now."""

    @property
    def acknowledged(self) -> int:
        return {"appended": self.appended, "flushed": self.flushed, "closed": self.closed}[
            self.promise
        ]

    def cut(self, held: int) -> Books:
        """Return the books of a log that was found to hold so much, and now vouches for it."""
        return replace(self, issued=self.issued[:held], appended=held, flushed=held, closed=held)

    def check(self, log: Log) -> int:
        """Compare a log that was just opened with the books; return how much of them it holds."""
        with log.snapshot() as snapshot:
            held = snapshot.last
            # After a failure numbers were given out for what was dropped.
            assert log.failure or log.next_seq == held + 1, (log.next_seq, held)
            assert self.acknowledged <= held <= len(self.issued), (
                f"{held} records are there; {self.acknowledged} were acknowledged, "
                f"{len(self.issued)} issued"
            )
            self.check_snapshot(snapshot)
        return held

    def check_snapshot(self, snapshot: Snapshot) -> None:
        entries = self.issued[: snapshot.last]
        found = issued_as(snapshot.records())
        check_entries(found, entries, min(self.dropped_upto, snapshot.manifest.tombstone_floor))
        check_coverage(snapshot.blocks(), snapshot.last)
        assert state_of(entry for _, entry in found) == state_of(entries)


def check_entries(
    found: Sequence[tuple[int, Issued]], entries: Sequence[Issued], floor: int
) -> None:
    """`found` must be `entries` without what was superseded, no-ops, and deletes up to the floor."""
    newest = {_space(entry): seq for seq, entry in enumerate(entries, 1)}
    there = dict(found)
    assert [seq for seq, _ in found] == sorted(there), "out of order, or twice"
    for seq, entry in found:
        assert 1 <= seq <= len(entries), f"{seq} was never issued"
        assert entry == entries[seq - 1], f"{seq} is {entry}, not {entries[seq - 1]}"
    for seq, entry in enumerate(entries, 1):
        op = entry[0]
        may_go = newest[_space(entry)] > seq or op == Op.NOOP or (op == Op.DELETE and seq <= floor)
        assert seq in there or may_go, f"{seq} {entry} is gone, and nothing newer replaced it"


def _space(entry: Issued) -> tuple[int, str]:
    op, key, _ = entry
    return (int(op) if op >= Op.NOOP else 0, key)


def check_coverage(blocks: Iterable[Block], last: int, first: int = 1) -> None:
    """Blocks, parsed anew from their bytes, must cover `first` to `last` without a gap."""
    expected = first
    for block in blocks:
        parsed = Block.parse(block.raw)
        assert parsed.first == expected, f"a block from {parsed.first} on, not {expected}"
        expected = parsed.last + 1
    assert expected == last + 1, f"the blocks end before {expected}, not at {last}"


class Writer:
    """Runs operations, one letter each, and writes down what it does before and after each call.

    ===  ======================================  ===  ==================================
    a    append and flush                        c    compact all there is to compact
    d    append a delete and flush               t    the same, and drop deletes
    w    append without flush                    z    retire what was replaced
    r    append a large block, which rotates     o    close and open again
    x    close
    ===  ======================================  ===  ==================================
    """

    def __init__(
        self,
        fs: FileSystem,
        config: LogConfig = SMALL,
        books: Books | None = None,
        log: Log | None = None,
    ) -> None:
        self._fs = fs
        self._config = config
        self.books = books or Books()
        self._log = log

    @property
    def log(self) -> Log:
        if self._log is None:
            self._log = open_log(self._fs, self._config)
        return self._log

    def run(self, operations: str) -> None:
        steps = {
            "a": lambda: self._write(40),
            "d": lambda: self._write(None),
            "w": lambda: self._write(40, flush=False),
            "r": lambda: self._write(620),
            "c": lambda: self.log.compact(EAGER),
            "t": self._drop_deletes,
            "z": lambda: self.log.retire(at_once=True),
            "o": self._reopen,
            "x": self._close,
        }
        for operation in operations:
            steps[operation]()

    def _write(self, size: int | None, *, flush: bool = True) -> None:
        log = self.log
        entry = self._next_entry(size)
        self.books.issued.append(entry)
        log.write([Update(entry[0], entry[1].encode(), entry[2])])
        self.books.appended = len(self.books.issued)
        if flush:
            log.flush()
            self.books.flushed = len(self.books.issued)

    def _next_entry(self, size: int | None) -> Issued:
        """Keys come back every third time; a body says where it belongs."""
        number = len(self.books.issued)
        if size is None:
            return (Op.DELETE, f"key{(number - 1) % 3}", b"")
        return (Op.PUT, f"key{number % 3}", b"%d." % number * (size // len(b"%d." % number)))

    def _drop_deletes(self) -> None:
        log = self.log
        self.books.dropped_upto = log.durable_seq
        log.compact(replace(EAGER, drop_deletes_upto=Seq(log.durable_seq)))

    def _reopen(self) -> None:
        self._close()
        assert self.log is not None

    def _close(self) -> None:
        if self._log is not None:
            log, self._log = self._log, None
            log.close()
            self.books.flushed = self.books.closed = len(self.books.issued)


def goes_on(log: Log, fs: FileSystem, books: Books, config: LogConfig) -> None:
    """Check a log that was just opened, work with it, open it again and check again."""
    held = books.check(log)
    after = books.cut(held)
    Writer(fs, config, after, log).run("atx")
    with open_log(fs, config) as again:
        assert after.check(again) == held + 1
    with LogReader.open(ROOT, fs=fs) as reader, reader.snapshot() as snapshot:
        assert snapshot.last == held + 1
        after.check_snapshot(snapshot)
