"""A history that is kept in a Sirius log: it survives a restart, with the same sequence numbers.

Every event is an entry with the event's own number (`.records`), and a copy of what is alive is in memory, where it is
read. A batch is written as soon as it is prepared and counts when the log says that it is safe; so nothing collects
anything before it is as safe as what it collects was. Opening replays the log: GC events collect once more what they
collected.

**Compaction** is that of the log. It keeps the newest event of each key by itself; of those that predicates have
collected it is told which are alive. Who published what must not be forgotten when his last events are
collected, so it is put aside in a file before every pass.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from crc32c import crc32c

from sirius.broadcast.disk.records import block_of, events_in, publishers_in
from sirius.broadcast.events import EventBatch
from sirius.broadcast.history import History, MemoryHistory, Published
from sirius.errors import CorruptLog
from sirius.types import Seq
from sirius.wal.compaction.plan import CompactionPolicy, CompactionResult
from sirius.wal.config import Durability, LogConfig
from sirius.wal.fs import FileSystem, OsFileSystem
from sirius.wal.log import Log
from sirius.wal.segment import read_whole, write_whole

_MARK: Final = struct.Struct("<QQQQ")
_CHECKSUM: Final = 4


class LogHistory:
    """One stream in one folder. See `sirius.broadcast.history.History` for who calls what."""

    def __init__(self, log: Log, fs: FileSystem, folder: str) -> None:
        self._log, self._fs, self._folder = log, fs, folder
        self._memory = MemoryHistory()
        self._replay()
        self._prepared = self._memory.last
        self._compacted = self._memory.last

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: LogConfig | None = None,
        *,
        fs: FileSystem | None = None,
    ) -> LogHistory:
        """Open the history in a folder, or begin one there. With `Durability.OS` it survives the process alone."""
        fs, folder = fs or OsFileSystem(), os.fspath(path).rstrip("/")
        if not fs.isdir(folder):
            fs.mkdir(folder)
            fs.sync_dir(os.path.dirname(folder) or ".")
        log = Log.open(f"{folder}/log", config, fs=fs)
        try:
            return cls(log, fs, folder)
        except BaseException:
            log.close()
            raise

    def close(self) -> None:
        """Let the folder go."""
        self._log.close()

    # ------------------------------------------------------------------ what survived

    def _replay(self) -> None:
        for item in self._read_publishers():
            self._memory.note(*item)
        for batch in self._log.batches():
            self._memory.append(events_in(batch))
            for publisher, serial, first, last in publishers_in(batch):
                self._memory.note(publisher, Published(serial, first, last))

    @property
    def _path(self) -> str:
        return f"{self._folder}/publishers"

    def _read_publishers(self) -> list[tuple[int, Published]]:
        if not self._fs.exists(self._path):
            return []
        raw = read_whole(self._fs, self._path)
        checksum, marks = raw[:_CHECKSUM], raw[_CHECKSUM:]
        if checksum != _checksum(marks):
            raise CorruptLog(f"{self._path} is damaged: its checksum does not match")
        return [
            (publisher, Published(serial, Seq(first), Seq(last)))
            for publisher, serial, first, last in _MARK.iter_unpack(marks)
        ]

    # ------------------------------------------------------------------ what is in memory

    @property
    def last(self) -> Seq:
        return self._memory.last

    @property
    def last_time(self) -> int:
        return self._memory.last_time

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def __len__(self) -> int:
        """Return how many events are alive."""
        return len(self._memory)

    def __bool__(self) -> bool:
        """An empty history is one all the same."""
        return True

    def attribute_names(self, *, exact: bool) -> set[str]:
        return self._memory.attribute_names(exact=exact)

    def read(self, first: Seq, last: Seq, bytes_max: int) -> EventBatch:
        return self._memory.read(first, last, bytes_max)

    def published(self, publisher: int) -> Published | None:
        return self._memory.published(publisher)

    def publishers(self, first: Seq, last: Seq) -> list[tuple[int, Published]]:
        return self._memory.publishers(first, last)

    def note(self, publisher: int, published: Published) -> None:
        self._memory.note(publisher, published)

    # ------------------------------------------------------------------ writing

    def on_ready(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called, on another thread, when more is `ready`."""
        self._log.on_durable(callback)

    def prepare(self, batch: EventBatch) -> None:
        """Write a batch; waits if much is waiting. Raises `DiskFull`, or `BadMessage` if it does not fit a block."""
        self._log.append(block_of(batch, self._log.config.limits))
        self._prepared = batch.last

    @property
    def ready(self) -> Seq:
        return self._log.durable_seq

    def append(self, batch: EventBatch) -> None:
        """Add what comes next. What was not prepared is written now, and waited for."""
        if batch.last > self._prepared:
            self._memory.vet(batch)
            self.prepare(batch)
            self._log.flush()
        self._memory.append(batch)

    # ------------------------------------------------------------------ compaction

    @property
    def grown(self) -> int:
        """How many events have come since the last compaction."""
        return self.last - self._compacted

    def compact(self, *, dead_fraction_min: float = 0.25) -> CompactionResult:
        """Have the log forget what was collected, and wait for it."""
        return self.compaction(dead_fraction_min=dead_fraction_min)()

    def compaction(self, *, dead_fraction_min: float = 0.25) -> Callable[[], CompactionResult]:
        """Put aside what must be kept, and return what does the rest: on any thread, while this one goes on."""
        self._compacted = self.last
        marks = self._memory.publishers(Seq(0), self.last)
        raw = b"".join(_MARK.pack(publisher, *published) for publisher, published in marks)
        write_whole(self._fs, f"{self._path}.new", _checksum(raw) + raw)
        self._fs.replace(f"{self._path}.new", self._path)
        self._fs.sync_dir(self._folder)
        policy = CompactionPolicy(
            dead_fraction_min=dead_fraction_min, upto=self.last, alive=self._memory.live_seqs()
        )
        return partial(self._log.compact, policy)


def _checksum(raw: bytes) -> bytes:
    return crc32c(raw).to_bytes(_CHECKSUM, "little")


def open_in(folder: str, durability: Durability = Durability.FSYNC) -> Callable[[str], History]:
    """Return what opens the history of each stream in a folder of its own below `folder`."""

    def opened(stream: str) -> History:
        return LogHistory.open(f"{folder}/{stream}", LogConfig(durability=durability))

    return opened
