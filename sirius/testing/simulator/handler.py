"""A simulated handler: it takes what was decided from a real backlog, and sometimes takes long over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sirius.backlog import Backlog
from sirius.testing.simulator.truth import Violation
from sirius.types import Seq
from sirius.wal import Block, Log

_TAKES: Final = 64
"""How many times it takes from the backlog at a tick."""
_SLOW_EVERY: Final = 8
"""A slow one takes once in so many ticks."""


class SimHandler:
    """Applies blocks in order; begins anew with every life of its node."""

    def __init__(self, name: str, bytes_max: int) -> None:
        self._name = name
        self._bytes_max = bytes_max
        self.slow = 0
        """How many faults keep it busy."""
        self._ticks = 0
        self._backlog = Backlog(Seq(0), lambda _first, _last: (), bytes_max=bytes_max)

    def begin(self, log: Log, applied: int) -> None:
        """Everything up to `applied` was taken from the log when the node started, or took a whole log over."""

        def read(first: int, last: int) -> Iterable[Block]:
            last = min(last, log.durable_seq)
            return log.blocks(first, last) if first <= last else ()

        self._backlog = Backlog(Seq(applied), read, bytes_max=self._bytes_max)

    @property
    def waiting(self) -> int:
        """How many entries are decided and not applied."""
        return self._backlog.waiting

    def push(self, block: Block) -> None:
        self._backlog.push(block)

    def hurry(self) -> None:
        """One fault less keeps it busy."""
        self.slow = max(0, self.slow - 1)

    def apply(self) -> None:
        """Take what is next, as fast as it can. M: what waits in memory is bounded. P: nothing is left out."""
        backlog = self._backlog
        if backlog.bytes > self._bytes_max:
            raise Violation(
                f"M: {backlog.bytes} bytes wait for {self._name}'s handler, the bound is {self._bytes_max}"
            )
        self._ticks += 1
        if self.slow and self._ticks % _SLOW_EVERY:
            return
        for _ in range(1 if self.slow else _TAKES):
            if not backlog.waiting:
                return
            expected = backlog.taken + 1
            for block in backlog.take():
                if block.first != expected:
                    raise Violation(
                        f"P: {self._name}'s handler gets {block.first} in place of {expected}"
                    )
                expected = block.last + 1
