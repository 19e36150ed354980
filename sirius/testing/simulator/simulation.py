"""One run: faults and load for a while, then, in every other run, a healed phase in which everything must recover."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from sirius.errors import SiriusError
from sirius.testing.simulator.audit import audit
from sirius.testing.simulator.cluster import Cluster
from sirius.testing.simulator.faults import Fault, Kind
from sirius.testing.simulator.injector import Injector
from sirius.testing.simulator.settings import WRITES_PER_S_MIN, Settings, draw_settings
from sirius.testing.simulator.swarm import draw_schedule
from sirius.testing.simulator.truth import Violation

RESUME_S: Final = 5.0
"""Writes must resume within this time after healing."""
CONVERGE_S: Final = 5.0
"""And all nodes must have everything within this time after the last write."""
LONGER_S_MAX: Final = 10.0
"""A run in which little was written goes on for so long at most."""
_LEVEL_S: Final = 1.0
"""How long it takes, nearly always, until all nodes have everything."""
FAULTS_MIN: Final = 20
"""A run must have had this many faults."""
_LOOK_S: Final = 0.1


@dataclass(slots=True)
class Result:
    """What became of a run."""

    seed: int
    violation: str | None = None
    simulated_s: float = 0.0
    quiet_s: float = 0.0
    """How much of it was spent waiting for nodes to catch up, without load."""
    acknowledged: int = 0
    unknown: int = 0
    rejected: int = 0
    reads: int = 0
    slots: int = 0
    reigns: int = 0
    configurations: int = 0
    events: int = 0
    messages: int = 0
    faults: Counter[Kind] = field(default_factory=Counter)
    trace_crc: int = 0
    trace: list[str] = field(default_factory=list)

    @property
    def writes_per_s(self) -> float:
        """While there was load."""
        loaded_s = self.simulated_s - self.quiet_s
        return self.acknowledged / loaded_s if loaded_s else 0.0

    @property
    def is_void(self) -> bool:
        """Whether so little was written that the run proves nothing."""
        return self.violation is None and self.writes_per_s < WRITES_PER_S_MIN

    @property
    def has_few_faults(self) -> bool:
        """Whether too little went wrong."""
        return self.violation is None and self.faults.total() < FAULTS_MIN


def run(
    seed: int, schedule: Sequence[Fault] | None = None, settings: Settings | None = None
) -> Result:
    """Run one seed, with its own faults or with others."""
    settings = settings or draw_settings(seed)
    simulation = Simulation(settings, draw_schedule(settings) if schedule is None else schedule)
    return simulation.run()


class Simulation:
    """A cluster, its faults, and the order of the phases."""

    def __init__(self, settings: Settings, schedule: Sequence[Fault]) -> None:
        self.settings = settings
        self.cluster = Cluster(settings)
        self.injector = Injector(self.cluster)
        self.injector.plan(list(schedule))
        self._quiet_since: float | None = None

    def run(self) -> Result:
        """Go through all phases; a violation ends the run."""
        violation = None
        try:
            self._phases()
        except Violation as broken:
            violation = str(broken)
        except (SiriusError, OSError, ArithmeticError, LookupError, TypeError, ValueError) as bug:
            violation = f"bug: {type(bug).__name__}: {bug} at {_place(bug)}"
        if violation:
            self.cluster.note("!!", violation)
        return self._result(violation)

    def _phases(self) -> None:
        self.cluster.start()
        self.cluster.loop.run(self.settings.duration_s)
        if self.settings.liveness:
            self._recover()
        else:
            self._write_enough()
        self.cluster.checkers.check_rejected()
        audit(self.cluster)

    def _write_enough(self, for_s: float = 0.0) -> None:
        """Let a run that would be void go on, without further faults, until enough is written for so much longer.

        Storms in which nothing is written prove little. What they have left behind shows in what is written now.
        """
        loop, checkers = self.cluster.loop, self.cluster.checkers
        until = loop.now + LONGER_S_MAX
        while loop.now < until:
            if checkers.acknowledged >= WRITES_PER_S_MIN * (loop.now + for_s):
                return
            loop.run(loop.now + _LOOK_S)

    # ------------------------------------------------------------------ liveness

    def _recover(self) -> None:
        loop, clients = self.cluster.loop, self.cluster.clients
        healed_at = loop.now
        self.injector.heal()
        self._wait(
            lambda: clients.last_done_at > healed_at,
            RESUME_S,
            f"no write that was asked for since has been acknowledged {RESUME_S} s after healing",
        )
        self._write_enough(_LEVEL_S)
        clients.is_quiet = True
        self._quiet_since = loop.now
        self._wait(self._is_level, CONVERGE_S, "nodes have not reached the same end")

    def _wait(self, condition: Callable[[], bool], for_s: float, otherwise: str) -> None:
        loop = self.cluster.loop
        until = loop.now + for_s
        while not condition():
            if loop.now >= until:
                raise Violation(f"L: {otherwise}: {self._ends()}")
            loop.run(loop.now + _LOOK_S)

    def _is_level(self) -> bool:
        last = self.cluster.checkers.truth.last
        return all(
            node.is_up
            and node.replay.position == last == self.cluster.durable(node)
            and not node.handler.waiting
            for node in self.cluster.nodes.values()
        )

    def _ends(self) -> str:
        ends = (
            f"{node.name} {node.replay.position if node.is_up else 'down'}"
            for node in self.cluster.nodes.values()
        )
        leader = self.cluster.leader
        return (
            f"leader {leader.name if leader else 'nobody'}, "
            f"decided {self.cluster.checkers.truth.last}, {', '.join(ends)}"
        )

    # ------------------------------------------------------------------ result

    def _result(self, violation: str | None) -> Result:
        cluster, checkers = self.cluster, self.cluster.checkers
        counts, lines = cluster.clients.counts, cluster.trace.lines
        now, quiet_since = cluster.loop.now, self._quiet_since
        return Result(
            seed=self.settings.seed,
            violation=violation,
            simulated_s=now,
            quiet_s=0.0 if quiet_since is None else now - quiet_since,
            acknowledged=checkers.acknowledged,
            unknown=counts.unknown,
            rejected=counts.rejected,
            reads=counts.reads,
            slots=checkers.truth.last,
            reigns=checkers.reigns,
            configurations=len(checkers.truth.configurations),
            events=cluster.loop.happened,
            messages=cluster.network.sent,
            faults=self.injector.happened,
            trace_crc=crc32("\n".join(lines).encode()),
            trace=lines,
        )


def _place(bug: Exception) -> str:
    frames = traceback.extract_tb(bug.__traceback__)[-3:]
    return " < ".join(
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[::-1]
    )
