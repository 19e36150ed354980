"""One node's disk: a file system in memory, and all that can happen to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from errno import EIO
from typing import Final

from sirius.errors import CorruptFile
from sirius.testing.filesystem import MemoryFileSystem
from sirius.wal import Durability, Log, LogConfig
from sirius.wal.journal import Journal

_ROOT: Final = "log"
_JOURNAL: Final = "log/journal"
_ROOM_BYTES: Final = 600


class SimDisk:
    """Where a node keeps its log and its journal. It outlives the node's process."""

    def __init__(self, rng: random.Random, config: LogConfig, trim_bytes_min: int) -> None:
        self._rng = rng
        self._config = config
        self._trim_bytes_min = trim_bytes_min
        self.fs = MemoryFileSystem()
        self.sync_delays: list[float] = []
        """How long a sync takes, one for each fault that is going on."""
        self.hangs = 0
        """How many faults keep syncs from returning."""
        self.rotten = False
        """Whether a bit was flipped, so that damage may be found."""
        self.loses_power = False
        """Whether the crash that is to come is one of the whole machine."""

    # ------------------------------------------------------------------ a process opens it

    def open(self, clock: Callable[[], float], now_us: Callable[[], int]) -> tuple[Log, Journal]:
        """Open log and journal. A damaged journal is set aside: the node comes back as a new one, without a vote."""
        log = Log.open(
            _ROOT, self._config, fs=self.fs, on_corrupt="quarantine", clock=clock, now_us=now_us
        )
        try:
            journal = self._journal(log, now_us)
        except CorruptFile:
            log.close()
            if not self.rotten:
                raise
            self.fs.replace(f"{_JOURNAL}/journal", f"{_JOURNAL}/journal.damaged")
            return self.open(clock, now_us)
        except BaseException:
            log.close()
            raise
        journal.trim_bytes_min = self._trim_bytes_min
        return log, journal

    def _journal(self, log: Log, now_us: Callable[[], int]) -> Journal:
        return Journal.open(
            _JOURNAL,
            uid=log.manifest.uid,
            fs=self.fs,
            durability=Durability.FSYNC,
            limits=self._config.limits,
            now_us=now_us,
            background=False,
        )

    # ------------------------------------------------------------------ faults

    def crash_at(self, calls: int, *, power_loss: bool) -> None:
        """Have the process die at the n-th change of the disk from now on."""
        self.loses_power = self.loses_power or power_loss
        self.fs.crash_mode = self._rng.choice(("before", "partial"))
        self.fs.crash_at = len(self.fs.operations) + calls

    def kill(self, *, power_loss: bool) -> None:
        """The process is gone; with the power, any part of what was not synced goes as well."""
        lost = power_loss or self.loses_power
        self.loses_power = False
        dead = self.fs
        capacity = dead.capacity_bytes
        if lost:
            self.fs = self._rng.choice(list(dead.crash_states(4, seed=self._rng)))
            dead.kill()
        else:
            self.fs = dead.kill()
        self.fs.capacity_bytes = capacity

    def worst(self) -> MemoryFileSystem:
        """Return what is left if nothing survives that was not synced."""
        return self.fs.synced()

    def lose(self) -> None:
        """Everything is gone."""
        self.fs = MemoryFileSystem()
        self.rotten = False

    def fail_sync(self, what: str) -> None:
        """The next sync of the journal or of a segment fails."""
        self.fs.fail("sync", what, EIO)

    def fill_up(self) -> None:
        self.fs.capacity_bytes = self.fs.used_bytes + _ROOM_BYTES

    def make_room(self) -> None:
        self.fs.capacity_bytes = None

    def flip_bit(self, where: str) -> str | None:
        """Flip one bit of a file whose path contains a string; return what was done, None if there is no such file."""
        files = [
            path
            for path, content in self.fs.tree().items()
            if where in path and content and not path.endswith(("LOCK", ".damaged"))
        ]
        if not files:
            return None
        self.rotten = True
        path = self._rng.choice(files)
        offset = self._rng.randrange(len(self.fs.read_bytes(path)))
        self.fs.flip(path, offset, 1 << self._rng.randrange(8))
        return f"{path} at byte {offset}"

    # ------------------------------------------------------------------ time

    def sync_delay(self, usual_s: float) -> float | None:
        """Return how long a sync takes that begins now; None if it does not return."""
        if self.hangs:
            return None
        slow = max(self.sync_delays, default=0.0)
        return usual_s * self._rng.uniform(0.5, 2.0) + slow * self._rng.uniform(0.5, 1.5)

    def heal(self) -> None:
        self.sync_delays.clear()
        self.hangs = 0
        self.make_room()
