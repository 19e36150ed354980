"""One run: publications and faults for a while, then everything is healed, and everybody must get up to date."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from sirius.errors import SiriusError
from sirius.testing.broadcast.checker import Violation
from sirius.testing.broadcast.faults import Fault, Kind, draw_faults
from sirius.testing.broadcast.settings import Settings, draw_settings
from sirius.testing.broadcast.world import World

CONVERGE_S: Final = 5.0
"""How long it may take after healing."""
EVENTS_MIN: Final = 40
"""A run with fewer published events proves nothing."""
_STILL_PUBLISHED_S: Final = 0.5
"""For how long more is published after healing: what faults have left behind shows there."""
_STILL_PUBLISHED_S_MAX: Final = 2.5
_LOOK_S: Final = 0.05


@dataclass(slots=True)
class Result:
    """What became of a run."""

    seed: int
    violation: str | None
    simulated_s: float
    healed_in_s: float
    published: int
    acknowledged: int
    delivered: int
    holes: int
    messages: int
    faults: Counter[Kind] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    trace_crc: int = 0

    @property
    def is_void(self) -> bool:
        return self.violation is None and self.published < EVENTS_MIN


def run(
    seed: int, faults: Sequence[Fault] | None = None, settings: Settings | None = None
) -> Result:
    """Run one seed, with its own faults or with others."""
    settings = settings or draw_settings(seed)
    return Simulation(settings, draw_faults(settings) if faults is None else faults).run()


class Simulation:
    """A world, and the order of the phases."""

    def __init__(self, settings: Settings, faults: Sequence[Fault]) -> None:
        self.world = World(settings)
        self._faults = list(faults)
        self._healed_in_s = 0.0

    def run(self) -> Result:
        violation = None
        try:
            self._phases()
        except Violation as broken:
            violation = str(broken)
        except (SiriusError, ArithmeticError, LookupError, TypeError, ValueError) as bug:
            violation = f"bug: {type(bug).__name__}: {bug} at {_place(bug)}"
        return self._result(violation)

    def _phases(self) -> None:
        world = self.world
        world.start(self._faults)
        world.loop.run(world.settings.duration_s)
        world.heal()
        healed_at = world.loop.now
        self._publish_enough()
        world.is_calm = True
        while (late := self._late()) is not None:
            if world.loop.now - healed_at >= CONVERGE_S:
                raise Violation(f"L: {CONVERGE_S} s after healing {late}")
            world.loop.run(world.loop.now + _LOOK_S)
        self._healed_in_s = world.loop.now - healed_at
        self._check_holes()

    def _publish_enough(self) -> None:
        """Go on publishing for a while, and for longer where faults have left too little."""
        loop, events = self.world.loop, self.world.checker.truth.events
        until = loop.now + _STILL_PUBLISHED_S_MAX
        loop.run(loop.now + _STILL_PUBLISHED_S)
        while sum(map(len, events.values())) < EVENTS_MIN and loop.now < until:
            loop.run(loop.now + _LOOK_S)

    def _late(self) -> str | None:
        """Say who is not up to date, if anybody."""
        world, truth = self.world, self.world.checker.truth
        for client in world.clients.values():
            if client.is_up and client.machine.unpublished:
                return f"{client.name} has {client.machine.unpublished} publications left"
        for node in world.nodes:
            for stream, count in node.counts:
                if count < truth.last(stream):
                    return f"{node.name} is at {count} of {truth.last(stream)} in {stream}"
        return None

    def _check_holes(self) -> None:
        for client in self.world.clients.values():
            if client.is_up:
                for stream in client.taken:
                    self.world.checker.check_holes(client.name, stream)

    def _result(self, violation: str | None) -> Result:
        world, checker = self.world, self.world.checker
        lines = self._trace(violation)
        return Result(
            seed=world.settings.seed,
            violation=violation,
            simulated_s=world.loop.now,
            healed_in_s=self._healed_in_s,
            published=sum(map(len, checker.truth.events.values())),
            acknowledged=checker.acknowledged,
            delivered=checker.delivered,
            holes=checker.holes,
            messages=world.network.sent,
            faults=world.happened,
            trace=lines,
            trace_crc=crc32("\n".join(lines).encode()),
        )

    def _trace(self, violation: str | None) -> list[str]:
        """Return what happened, with an end that shows any difference between two runs."""
        world = self.world
        counts = [f"{node.name} {node.life} {node.is_up}" for node in world.nodes]
        sums = f"{world.network.sent} messages, {world.loop.happened} events, {violation}"
        places = [
            f"{who} {stream} {each.position} {each.holes}"
            for (who, stream), each in world.checker.audiences.items()
        ]
        return [*world.trace.lines, *counts, *places, sums]


def _place(bug: Exception) -> str:
    frames = traceback.extract_tb(bug.__traceback__)[-3:]
    return " < ".join(
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[::-1]
    )
