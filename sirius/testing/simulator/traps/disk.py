"""Traps of the disk and of those who follow: what is not there and taken for there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from sirius import feeding
from sirius.backlog import Backlog
from sirius.catchup.effects import ReadRange
from sirius.catchup.feeder import Feeder
from sirius.catchup.ranges import Tail
from sirius.catchup.upstream import Upstream
from sirius.errors import DiskFull
from sirius.testing.simulator.traps.trap import Patch, Trap
from sirius.wal import Block, Log
from sirius.wal.frames import FrameWriter
from sirius.wal.journal import Journal

_write: Final = Journal._write


def _declare_what_cannot_be_read(log: Log, read: ReadRange) -> feeding.Fed:
    with log.snapshot() as snapshot:
        last = min(read.last, snapshot.last)
        blocks = [*snapshot.blocks(read.first, last)] if read.first <= last else []
        if last < read.last:
            blocks.append(Block.hole(max(last + 1, read.first), read.last))
        return feeding.Found(read.read, tuple(blocks), feeding.edition_of(snapshot.manifest))


def _everything_fits(*_: Any) -> bool:
    return True


def _ignore_a_failed_sync(self: Any) -> None:
    with suppress(OSError):
        self._file.sync()


def _ignore_a_full_disk(self: Journal, groups: Any) -> None:
    with suppress(DiskFull):
        _write(self, groups)


def _keep_everything(self: Any, block: Block) -> None:
    self._decided = block.last
    self._queue.append(block)
    self._bytes += len(block)


TRAPS: Final = (
    Trap(
        "10",
        "catch-up gap",
        "a source declares a range of which it cannot read the end",
        (Patch(feeding, "_range", _declare_what_cannot_be_read),),
    ),
    Trap(
        "12",
        "resurrected deletes",
        "nobody looks at the tombstone floor: any part of any log goes behind any other",
        (Patch(Feeder, "_fits", _everything_fits), Patch(Tail, "fits", _everything_fits)),
    ),
    Trap(
        "16",
        "failed fsync",
        "a sync that failed is taken for one that worked",
        (Patch(FrameWriter, "sync", _ignore_a_failed_sync),),
    ),
    Trap(
        "18",
        "disk full",
        "what the journal had no room for counts as written",
        (Patch(Journal, "_write", _ignore_a_full_disk),),
    ),
    Trap(
        "21",
        "slow handler",
        "decided blocks wait for their handler without a bound",
        (Patch(Backlog, "push", _keep_everything),),
    ),
    Trap(
        "23",
        "follower cycles",
        "nobody looks whether a source follows oneself",
        (Patch(Upstream, "accepts", _everything_fits),),
    ),
)
