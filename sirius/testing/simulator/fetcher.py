"""Catch-up in the simulator: a node that is behind asks another for a range of its log.

A seam of its own: whatever asks and answers for ranges takes its place here. A range is bounded, says how far it
proves everything, and comes from the log on disk. Whoever stands below the tombstone floor of the other, and is not
empty, is refused: deletes in between may be gone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from sirius.engine import Engine
from sirius.errors import LogError
from sirius.wal import Block

_SLOTS_MAX: Final = 400
_PATIENCE_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Ask:
    """Which decisions come behind `position`?"""

    position: int


@dataclass(frozen=True, slots=True)
class Range:
    """These. `end` is how far I know them; `refused` says that I cannot give them to you."""

    blocks: tuple[Block, ...]
    end: int
    refused: bool = False


class Fetcher:
    """What one node in one life has asked for."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._asked_at = float("-inf")
        self.refusals = 0
        """How many in a row have refused: the node is too far behind for any."""

    def wants(self, engine: Engine, now: float) -> bool:
        """Say whether to ask somebody now."""
        machine = engine.machine
        behind = machine.known > machine.decided or not machine.is_voter
        return behind and now - self._asked_at >= _PATIENCE_S

    def ask(self, engine: Engine, now: float) -> Ask:
        self._asked_at = now + self._rng.uniform(-0.1, 0.1)
        return Ask(engine.machine.decided)

    def take(self, engine: Engine, message: Range) -> bool:
        """Learn what came; say whether there is more to be had at once."""
        decided = engine.machine.decided
        self.refusals = self.refusals + 1 if message.refused else 0
        blocks = [block for block in message.blocks if block.last > decided]
        if not blocks or blocks[0].first > decided + 1:
            return False
        engine.learn(blocks)
        self._asked_at = float("-inf")
        return message.end > engine.machine.decided


def answer(engine: Engine, message: Ask) -> Range | None:
    """Give a range of the log that is on disk; None if there is nothing to say."""
    log, first = engine.log, message.position + 1
    if first > log.durable_seq:
        return None
    last = first + _SLOTS_MAX - 1
    if message.position < log.tombstone_floor:
        if message.position:
            return Range((), log.durable_seq, refused=True)
        last = max(last, log.tombstone_floor)
    try:
        blocks = tuple(log.blocks(first, min(last, log.durable_seq)))
    except LogError:
        return None
    return Range(blocks, log.durable_seq)
