"""Decided blocks on their way to the handler: bounded, and never in the way of persistence.

The log takes every decided block at once; the handler takes its time. In between only so much is kept in memory. What
does not fit is left out, and read from the log again when its turn comes: nothing is buffered that can be pulled. So a
slow handler costs its node memory up to the bound and its readers freshness, and costs the cluster nothing. Callers on
that node feel it: `is_behind` says that it should take no more requests for now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from sirius.errors import InvariantViolation
from sirius.types import Seq
from sirius.wal import Block

_READ_SLOTS = 4096
"""How much is read from the log at a time. Blocks are cut at this."""


class Backlog:
    """A queue of one thread that pushes and one that takes; both hold the same lock, or are the same thread."""

    def __init__(
        self,
        applied: Seq,
        read: Callable[[int, int], Iterable[Block]],
        *,
        bytes_max: int = 64 * 1024 * 1024,
        behind_max: int = 100_000,
    ) -> None:
        self._read = read
        self._bytes_max = bytes_max
        self._behind_max = behind_max
        self._queue: deque[Block] = deque()
        self._bytes = 0
        self._taken = applied
        self._decided = applied

    @property
    def bytes(self) -> int:
        """Memory in use."""
        return self._bytes

    @property
    def taken(self) -> Seq:
        """Everything up to here was taken."""
        return self._taken

    @property
    def decided(self) -> Seq:
        """Everything up to here was pushed."""
        return self._decided

    @property
    def waiting(self) -> int:
        """How many sequence numbers wait."""
        return self._decided - self._taken

    @property
    def is_behind(self) -> bool:
        """Whether the handler is so late that callers should wait for it."""
        return self.waiting > self._behind_max

    def push(self, block: Block) -> None:
        """Add the next decided block, which is in the log already."""
        if block.first != self._decided + 1:
            raise InvariantViolation(f"block {block.first} does not follow {self._decided}")
        follows = not self._queue or self._queue[-1].last + 1 == block.first
        begins = self._queue or self._taken == self._decided
        self._decided = block.last
        if follows and begins and self._bytes + len(block) <= self._bytes_max:
            self._queue.append(block)
            self._bytes += len(block)

    def jump(self, last: int) -> None:
        """Everything up to `last` is in the log, and is read from there when its turn comes."""
        self._decided = Seq(max(self._decided, last))

    def take(self) -> list[Block]:
        """Return the next blocks, in order: one from memory, or some from the log. Empty if there is nothing.

        Raises what reading the log raises; then nothing was taken.
        """
        if (block := self.pop()) is not None:
            return [block]
        first, last = self.missing
        blocks = list(self._read(first, last)) if first <= last else []
        if blocks:
            self.skip(blocks[-1].last)
        return blocks

    # For two threads, so that the log is not read with the lock held:

    def pop(self) -> Block | None:
        """Take the next block, if it is in memory."""
        if not self._queue:
            return None
        block = self._queue.popleft()
        self._bytes -= len(block)
        self._taken = block.last
        return block

    @property
    def missing(self) -> tuple[int, int]:
        """The next range to read from the log when `pop` has nothing; it may be empty."""
        return self._taken + 1, min(self._decided, self._taken + _READ_SLOTS)

    @property
    def gap(self) -> tuple[int, int]:
        """All of that range, for who reads it piece by piece."""
        return self._taken + 1, self._decided

    def skip(self, last: int) -> None:
        """What comes next, up to `last`, was read from the log."""
        self._taken = Seq(last)
