"""A whole log in the making, beside the one in force.

A node that is below the tombstone floor of everybody else cannot take a part of their logs: deletes that it would need
are gone. It takes all of one of them instead. Blocks from 1 on are written into segments under temporary names; when
they go far enough, one manifest puts them in the place of all that were there. Until then the log in force is what it
was, and a crash leaves rubbish that the next opening sweeps away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sirius.errors import OutOfOrder, UsageError
from sirius.types import Seq
from sirius.wal.block import Block
from sirius.wal.manifest import SegmentInfo
from sirius.wal.repair.replacement import Draft, Site


class Staging:
    """Takes blocks in order, from 1 on; then `finish` or `discard`."""

    def __init__(self, site: Site, renew: Callable[[Sequence[SegmentInfo], int], None]) -> None:
        self._draft = Draft(site)
        self._renew = renew
        self._is_over = False
        self.last = Seq(0)
        """How far it goes."""

    def append(self, blocks: Iterable[Block]) -> None:
        """Add blocks, whose checksums were verified."""
        self._check()
        for block in blocks:
            if block.first != self.last + 1:
                raise OutOfOrder(f"a block from {block.first} on cannot stand at {self.last + 1}")
            self._draft.add(block)
            self.last = block.last

    def add(self, info: SegmentInfo) -> None:
        """Add a segment that is finished, under its temporary name: see `sirius.wal.incoming`."""
        self._check()
        if info.first != self.last + 1:
            raise OutOfOrder(f"a segment from {info.first} on cannot stand at {self.last + 1}")
        self._draft.include(info)
        self.last = info.last

    def finish(self, tombstone_floor: int) -> None:
        """Make it the log, in one atomic step. Appends wait meanwhile; if it is too short nothing happens."""
        self._check()
        if not self.last:
            raise UsageError("an empty log takes the place of none")
        self._renew(self._draft.finish(), tombstone_floor)
        self._is_over = True

    def discard(self) -> None:
        """Remove what was written. After `finish` this does nothing."""
        if not self._is_over:
            self._is_over = True
            self._draft.discard()

    def _check(self) -> None:
        if self._is_over:
            raise UsageError("this staged log is the log already, or was discarded")
