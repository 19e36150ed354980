"""New logs and files that a command writes: there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from sirius.errors import UsageError
from sirius.types import Seq
from sirius.wal import Batch, Durability, Log, LogConfig, OsFileSystem
from sirius.wal.compaction.plan import Reblocker
from sirius.wal.fs import remove_tree

_WRITING = ".writing"
# Closing the log syncs it; room for compaction is kept aside by whoever opens it to write.
CONFIG = LogConfig(durability=Durability.OS, reserve_bytes=0)


@contextmanager
def new_log(path: str, config: LogConfig = CONFIG) -> Iterator[Log]:
    """Write a log below `path.writing`; it gets its name at the end, with all of it on disk."""
    fs, target = OsFileSystem(), path.rstrip("/")
    building = target + _WRITING
    for name in (target, building):
        if fs.exists(name):
            raise UsageError(f"{name} is there already; this command writes a new log only")
    try:
        with Log.open(building, config) as log:
            yield log
        fs.replace(building, target)
        fs.sync_dir(os.path.dirname(target) or ".")
    except BaseException:
        remove_tree(fs, building)
        raise


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Write a file as `path.writing`; it gets its name at the end, with all of it on disk."""
    building = path + _WRITING
    for name in (path, building):
        if os.path.lexists(name):
            raise UsageError(f"{name} is there already; this command writes a new file only")
    try:
        with open(building, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(building, path)
        OsFileSystem().sync_dir(os.path.dirname(path) or ".")
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(building)
        raise


class Copier:
    """Appends batches to a new log, which covers all from 1 on: what is left out becomes holes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._blocks = Reblocker(log.next_seq)
        self.records = 0

    def add(self, batch: Batch) -> None:
        """Append the entries of a batch, which lies behind those before."""
        self.records += len(batch)
        for block in self._blocks.add(batch):
            self._log.append(block)

    def finish(self, last: int) -> None:
        """Write what is left, and cover everything up to `last`."""
        if self._blocks.next_first <= last:
            self.add(Batch.hole(Seq(last), Seq(last)))
        for block in self._blocks.finish():
            self._log.append(block)
