"""Replaying a log into a handler: at the start, and when the whole log was taken anew from another node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final

import numpy as np
from crc32c import crc32c

from sirius.driver.calls import Caller
from sirius.wal import Batch, Op, Snapshot
from sirius.wal.block import ENTRY, assemble
from sirius.wal.state import live_batches

_GONE_AT_ONCE: Final = 4096


class Replay(StrEnum):
    """How a log is replayed.

    ========  ==================================================================================
    serial    every update in log order, by one thread, as it happened
    newest    the newest PUT of each key alone, in no particular order
    parallel  updates of one key in order, those of different keys at the same time by many threads
    ========  ==================================================================================
    """

    SERIAL = "serial"
    NEWEST = "newest"
    PARALLEL = "parallel"


class Replayer:
    """Hands a snapshot to a handler."""

    def __init__(
        self,
        caller: Callable[[], Caller],
        way: Replay,
        threads: int,
        progress: Callable[[int], None],
    ) -> None:
        self._caller = caller
        self._way = way
        self._threads = threads
        self._progress = progress

    def run(self, snapshot: Snapshot, should_stop: Callable[[], bool]) -> bool:
        """Replay all of it; False if it was told to stop."""
        if self._way == Replay.PARALLEL and self._threads > 1:
            return self._parallel(snapshot, should_stop)
        caller = self._caller()
        batches = live_batches(snapshot) if self._way == Replay.NEWEST else snapshot.batches()
        for batch in batches:
            if should_stop():
                return False
            caller.apply(batch.updates())
            self._progress(len(batch))
        return True

    def _parallel(self, snapshot: Snapshot, should_stop: Callable[[], bool]) -> bool:
        callers = [self._caller() for _ in range(self._threads)]
        with ThreadPoolExecutor(self._threads, "sirius-replay") as pool:
            for batch in snapshot.batches():
                if should_stop():
                    return False
                parts = _by_key(batch.updates(), self._threads)
                # Every part is done before the next batch begins: so updates of one key stay in order.
                for _ in pool.map(Caller.apply, callers, parts):
                    pass
                self._progress(len(batch))
        return True


def _by_key(batch: Batch, count: int) -> list[Batch]:
    """Split a batch so that one key is always in the same part."""
    blobs = batch.key_blobs()
    part = np.fromiter((crc32c(key) % count for key in blobs), np.int64, len(blobs))
    return [batch.where(part == number) for number in range(count)]


def gone(old: Snapshot, new: Snapshot) -> Iterator[Batch]:
    """Yield DELETEs for the keys that are in an old state and not in a new one, numbered as the end of the new log."""
    keys = {key for batch in live_batches(old) for key in batch.key_blobs()}
    for batch in live_batches(new):
        keys.difference_update(batch.key_blobs())
    left = sorted(keys)
    for at in range(0, len(left), _GONE_AT_ONCE):
        yield _deletes(left[at : at + _GONE_AT_ONCE], int(new.last))


def _deletes(keys: list[bytes], seq: int) -> Batch:
    entries = np.zeros(len(keys), ENTRY)
    entries["op"] = Op.DELETE
    entries["seq"] = np.arange(1, len(keys) + 1)
    block = assemble(1, len(keys), entries, keys, [b""] * len(keys))
    batch = Batch.of(block)
    numbered = batch.entries.copy()
    numbered["seq"] = seq
    return Batch(seq, seq, numbered, batch.key_column, batch.body_column)
