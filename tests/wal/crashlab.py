"""Runs a workload, lets it crash at each of its calls, and looks at every state that may be left.

Not a test itself. A workload is a string of operations, see `bookkeeping.Writer`. Crashes are tried
in its last operation only: those before it are the last ones of shorter workloads.

Many crashes leave the same disk, and many disks are the same once they are recovered. A `Lab`
therefore opens each distinct disk once, and goes on working with each distinct recovered one; there
index files do not count, for they are hints. `steady` makes equal runs leave equal bytes.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from unittest.mock import patch

from sirius.errors import CorruptLog
from sirius.testing import MemoryFileSystem, Operation, SimulatedCrash
from sirius.testing._gate import Gate
from sirius.wal import Durability, Log, LogConfig
from sirius.wal.segment import INDEX
from tests.wal.bookkeeping import NOW_US, ROOT, Books, Writer, goes_on, open_log, promise

SOAK = os.environ.get("SIRIUS_SOAK") == "1"


@contextmanager
def steady() -> Iterator[None]:
    """Make unique ids and times the same in each run."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(os, "urandom", lambda n: random.Random(n).randbytes(n)))
        stack.enter_context(patch.object(time, "time_ns", lambda: 1000 * NOW_US))
        yield


@dataclass
class Crash:
    """A run that ended at a numbered call: in front of it, or half-way through an append."""

    fs: MemoryFileSystem
    books: Books
    workload: str
    config: LogConfig
    at: int
    half_way: bool = False

    def __str__(self) -> str:
        calls = [*self.fs.operations, ("end",)]
        how = "in" if self.half_way else "before"
        return f"{self.workload!r}, {self.config.durability}, {how} call {self.at} {calls[self.at - 1]}"


class Watched(Gate):
    """Tells of every numbered call before it happens."""

    before_call: Callable[[], None] = staticmethod(lambda: None)

    def admit_change(
        self, operation: Operation, path: str, partly: Callable[[], object] | None = None
    ) -> None:
        self.before_call()
        super().admit_change(operation, path, partly)


def crashes(workload: str, config: LogConfig) -> Iterator[Crash]:
    """Yield the crash at every call of the last operation, and the one when it is done.

    One run does for all that come in front of a call: the disk is cloned there. A crash half-way
    through an append takes a run of its own.
    """
    found: list[Crash] = []
    fs, gate = MemoryFileSystem(), Watched()
    fs._gate = gate
    writer = Writer(fs, config)

    def note() -> None:
        books = replace(writer.books, issued=list(writer.books.issued))
        found.append(Crash(fs.clone(), books, workload, config, len(fs.operations) + 1))

    _begin(fs, writer, workload)
    gate.before_call = note
    writer.run(workload[-1])
    note()
    for crash in found:
        yield crash
        if crash.at <= len(fs.operations) and fs.operations[crash.at - 1][0] == "append":
            yield _half_way(workload, config, crash.at)


def _half_way(workload: str, config: LogConfig, at: int) -> Crash:
    fs = MemoryFileSystem(crash_at=at, crash_mode="partial")
    writer = Writer(fs, config)
    try:
        _begin(fs, writer, workload)
        writer.run(workload[-1])
    except SimulatedCrash:
        return Crash(fs, writer.books, workload, config, at, half_way=True)
    raise AssertionError(f"{workload!r} has no call {at}: it does not run the same way twice")


def _begin(fs: MemoryFileSystem, writer: Writer, workload: str) -> None:
    """Run a workload up to its last operation.

    Where a dash stands in front of that one, all names are on disk by then: the system had the
    time. What a crash may leave of the operation can then be listed completely.
    """
    before = workload[:-1]
    writer.run(before.removesuffix("-"))
    if before.endswith("-"):
        _sync_names(fs, ROOT)


def _sync_names(fs: MemoryFileSystem, folder: str) -> None:
    if fs.isdir(folder):
        fs.sync_dir(folder)
        for name in fs.listdir(folder):
            _sync_names(fs, f"{folder}/{name}")


@dataclass
class Lab:
    """Looks at what crashes leave, and counts."""

    per_crash_max: int
    crashes: int = 0
    states: int = 0
    opened: int = 0
    exhaustive: int = 0
    """At how many crashes every state was looked at, and no sample."""
    refused: int = 0
    _disks: set[bytes] = field(default_factory=set)
    _recovered: set[bytes] = field(default_factory=set)

    def power_loss(self, workload: str, config: LogConfig) -> None:
        """Lose power at every call of the last operation."""
        for crash in crashes(workload, config):
            self.crashes += 1
            crash.books.promise = promise(config.durability, power_is_lost=True)
            self._look_at_all(crash, crash.fs)

    def _look_at_all(self, crash: Crash, fs: MemoryFileSystem) -> None:
        count = 0
        for state in fs.crash_states(self.per_crash_max, seed=crash.at):
            count += 1
            self.look(crash, state)
        self.states += count
        self.exhaustive += count < self.per_crash_max

    def kill(self, workload: str, config: LogConfig) -> None:
        """Kill the process at every call of the last operation."""
        for crash in crashes(workload, config):
            self.crashes += 1
            self.states += 1
            crash.books.promise = promise(config.durability, power_is_lost=False)
            self.look(crash, crash.fs.kill())

    def kill_then_power_loss(self, workload: str, config: LogConfig) -> None:
        """Kill the process, let the next one write, and lose power then."""
        for crash in crashes(workload, config):
            self.crashes += 1
            fs = crash.fs.kill()
            log = open_log(fs, config)
            crash.books = crash.books.cut(crash.books.check(log))
            Writer(fs, config, crash.books, log).run("az")
            self._look_at_all(crash, fs)

    def crash_while_recovering(self, workload: str, config: LogConfig, stride: int = 1) -> None:
        """Lose power, and again at every call of the recovery from it."""
        for crash in itertools.islice(crashes(workload, config), 0, None, stride):
            for state in crash.fs.crash_states(3, seed=crash.at):
                if self._is_new(self._disks, state, crash.books, "recovering"):
                    self._crash_again(crash, state)

    def _crash_again(self, crash: Crash, state: MemoryFileSystem) -> None:
        for at in range(1, _recovery_calls(state, crash.config) + 1):
            again = state.clone()
            again.crash_at, again.crash_mode = at, "partial"
            try:
                open_log(again, crash.config)
            except SimulatedCrash:
                self.crashes += 1
                self._look_at_all(crash, again)

    def look(self, crash: Crash, state: MemoryFileSystem) -> None:
        """Open what a crash left; what was not seen before is checked and worked with."""
        if not self._is_new(self._disks, state, crash.books):
            return
        self.opened += 1
        try:
            self._open(state, crash)
        except Exception as error:
            raise AssertionError(f"{crash}: {error!r}") from error

    def _open(self, state: MemoryFileSystem, crash: Crash) -> None:
        log = self._opened(state, crash)
        if log is None:
            self.refused += 1
        elif self._is_new(self._recovered, state, crash.books, leave_out=INDEX):
            goes_on(log, state, crash.books, crash.config)
        else:
            crash.books.check(log)

    def _opened(self, state: MemoryFileSystem, crash: Crash) -> Log | None:
        try:
            return open_log(state, crash.config)
        except CorruptLog:
            if crash.config.durability == Durability.FSYNC:
                raise
            return None

    def _is_new(
        self,
        seen: set[bytes],
        fs: MemoryFileSystem,
        books: Books,
        purpose: str = "",
        leave_out: str = "",
    ) -> bool:
        description = repr((purpose, books, _everything(fs, leave_out)))
        digest = blake2b(description.encode(), digest_size=16).digest()
        if digest in seen:
            return False
        seen.add(digest)
        return True


def _recovery_calls(state: MemoryFileSystem, config: LogConfig) -> int:
    fs = state.clone()
    open_log(fs, config)
    return len(fs.operations)


def _everything(
    fs: MemoryFileSystem, leave_out: str, folder: str = "."
) -> list[tuple[str, object]]:
    """Names and bytes, empty folders too."""
    found: list[tuple[str, object]] = []
    for name in fs.listdir(folder):
        path = f"{folder}/{name}"
        if fs.isdir(path):
            found.append((name, _everything(fs, leave_out, path)))
        elif name != leave_out:
            found.append((name, fs.read_bytes(path)))
    return found
