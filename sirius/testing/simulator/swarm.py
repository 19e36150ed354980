"""Draws a schedule of faults from the settings of a run.

Faults come in storms, and between storms it is calm for a moment: a cluster that is never left alone writes nothing,
and a run in which nothing is written proves nothing. What a storm has left behind shows in the calm.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sirius.testing.simulator.faults import LEADER, Fault, Kind
from sirius.testing.simulator.settings import Settings, stream

_HARSH: Final = frozenset(
    {
        Kind.ISOLATE,
        Kind.SPLIT,
        Kind.ONE_WAY,
        Kind.DEAF,
        Kind.KILL,
        Kind.POWER_LOSS,
        Kind.PAUSE,
        Kind.HUNG_DISK,
        Kind.FULL_DISK,
        Kind.SYNC_ERROR,
        Kind.PASSIVE,
    }
)
"""Kinds that stop writes when they meet the leader."""
_ALWAYS_POSSIBLE: Final = (
    Kind.DROP,
    Kind.DUPLICATE,
    Kind.DELAY,
    Kind.CLOCK_SPEED,
    Kind.SLOW_DISK,
    Kind.BURST,
)
"""Kinds that come in the place of what is not possible."""
_LEADER_EVERY_S: Final = 2.0
"""How often a harsh one may meet the leader: a cluster that never writes proves nothing."""


def draw_schedule(settings: Settings) -> list[Fault]:
    """Return the faults of a run in the order of their times."""
    return _Drawing(settings).schedule()


class _Drawing:
    def __init__(self, settings: Settings, name: str = "schedule") -> None:
        self._settings = settings
        self._rng: random.Random = stream(settings.seed, name)
        self._begins_at = self._rng.choice((0.0, 1.0, 1.0, 1.0))
        self._leader_free_at = 0.0
        self._storm_s = self._rng.uniform(0.9, 1.3)
        self._calm_s = self._rng.uniform(0.8, 1.1)
        self._has_rolled = False
        self._at_disk = self._rng.random() < 0.7
        self._draw: dict[Kind, Callable[[Kind, float], Fault]] = {
            Kind.ISOLATE: self._isolate,
            Kind.SPLIT: self._split,
            Kind.DROP: self._everywhere(0.02, 0.25),
            Kind.DUPLICATE: self._everywhere(0.05, 0.5),
            Kind.DELAY: self._everywhere(0.005, 0.06),
            Kind.KILL: self._crash,
            Kind.POWER_LOSS: self._crash,
            Kind.ROLLING_RESTART: self._rolling,
            Kind.CLOCK_SPEED: self._clock_speed,
            Kind.CLOCK_JUMP: self._clock_jump,
            Kind.SLOW_DISK: self._slow_disk,
            Kind.HUNG_DISK: self._hung_disk,
            Kind.SYNC_ERROR: self._sync_error,
            Kind.LOST_DISK: self._short,
            Kind.CORRUPT_JOURNAL: self._short,
            Kind.CORRUPT_LOG: self._short,
            Kind.HAND_OVER: self._hand_over,
            Kind.WISH: self._wish,
            Kind.COMPACT: self._compact,
            Kind.BURST: self._burst,
        }

    def schedule(self) -> list[Fault]:
        times = sorted(self._time() for _ in range(self._settings.faults))
        others = _Drawing(self._settings, "instead")
        faults = [
            replace(self._until_calm(self._one(at)), instead=others.possible(at)) for at in times
        ]
        more = [*self._slow_handlers(), *self._bad_files(), *self._late_leaders()]
        return sorted([*faults, *more], key=lambda fault: fault.at)

    def possible(self, at: float) -> Fault:
        """Draw a fault that is always possible, of a kind that is switched on if there is one."""
        kinds = [kind for kind in _ALWAYS_POSSIBLE if kind in self._settings.kinds]
        kind = self._rng.choice(kinds or _ALWAYS_POSSIBLE)
        fault = self._draw[kind](kind, at)
        if fault.where != LEADER:
            return fault
        # Nobody may lead then, and nobody else be up.
        return replace(fault, where=self._rng.choice(self._settings.names))

    def _slow_handlers(self) -> list[Fault]:
        rng, settings = stream(self._settings.seed, "handlers"), self._settings
        times = [
            round(rng.uniform(0.5, settings.duration_s - 1), 3) for _ in range(rng.randrange(3))
        ]
        return [
            Fault(
                at, Kind.SLOW_HANDLER, rng.choice(settings.names), round(rng.uniform(0.3, 2.0), 2)
            )
            for at in times
        ]

    def _bad_files(self) -> list[Fault]:
        """Where segments travel as files, have some of them be damaged or gone, for long: others have to help."""
        rng, settings = stream(self._settings.seed, "bad files"), self._settings
        if not settings.catchup.segment_slots:
            return []
        return [
            Fault(
                round(rng.uniform(0.5, settings.duration_s - 1), 3),
                Kind.BAD_FILES,
                rng.choice(settings.names),
                round(rng.uniform(0.5, 3.0), 2),
                rng.choice((0.0, 0.2, 1.0)),
            )
            for _ in range(rng.randrange(4))
        ]

    def _late_leaders(self) -> list[Fault]:
        """Where leases are in use, have a leader notice late that others have another."""
        rng, settings = stream(self._settings.seed, "leases"), self._settings
        if not settings.paxos.lease or len(settings.voters) == 1:
            return []
        at, for_s = (round(rng.uniform(*bounds), 3) for bounds in ((1.0, 4.0), (0.6, 1.0)))
        if rng.random() < 0.4:
            return [Fault(at, Kind.PAUSE, LEADER, for_s)]
        return [Fault(at, Kind.ISOLATE, LEADER, for_s, -settings.clock_bound)]

    def _time(self) -> float:
        """Draw a time in a storm."""
        round_s = self._storm_s + self._calm_s
        end = self._settings.duration_s - self._begins_at - 0.3
        at = self._rng.uniform(0, end)
        storm_at = at // round_s * round_s
        within = min(self._storm_s, end - storm_at)
        return round(self._begins_at + storm_at + (at - storm_at) % within, 3)

    def _until_calm(self, fault: Fault) -> Fault:
        """Have a fault end with its storm, more or less."""
        if fault.kind == Kind.ROLLING_RESTART or (fault.kind == Kind.ISOLATE and fault.amount):
            return fault
        since = (fault.at - self._begins_at) % (self._storm_s + self._calm_s)
        longest = max(0.1, self._storm_s - since + self._rng.uniform(0, 0.3))
        return replace(fault, for_s=min(fault.for_s, round(longest, 2)))

    def _one(self, at: float) -> Fault:
        kind = self._rng.choice(self._settings.kinds)
        if kind == Kind.ROLLING_RESTART:
            kind = Kind.RESTART if self._has_rolled else kind
            self._has_rolled = True
        return self._draw.get(kind, self._lasting)(kind, at)

    def _where(self, kind: Kind, at: float) -> str:
        """Draw whom it meets: often the leader, as far as a run can bear that."""
        rng, settings = self._rng, self._settings
        if kind not in _HARSH:
            return rng.choice((LEADER, *settings.names))
        if at >= self._leader_free_at and rng.random() < 0.5:
            self._leader_free_at = at + _LEADER_EVERY_S
            return LEADER
        return rng.choice(
            settings.names if len(settings.voters) > 1 else settings.names[1:] or settings.names
        )

    def _lasts(self, low: float, high: float) -> float:
        return round(self._rng.uniform(low, high), 2)

    def _lasting(self, kind: Kind, at: float) -> Fault:
        where = self._where(kind, at)
        return Fault(at, kind, where, self._lasts(0.1, 0.7 if where == LEADER else 1.2))

    def _short(self, kind: Kind, at: float) -> Fault:
        return Fault(at, kind, self._where(kind, at), self._lasts(0.05, 0.4))

    def _isolate(self, kind: Kind, at: float) -> Fault:
        """A leader whose clock is slow believes for longer than others that it leads."""
        if self._rng.random() < 0.5:
            return self._lasting(kind, at)
        slow = self._settings.clock_bound if self._settings.paxos.lease else 0.7
        return Fault(at, kind, LEADER, self._lasts(0.9, 1.4), -slow)

    def _split(self, kind: Kind, at: float) -> Fault:
        names = self._settings.names
        count = self._rng.randrange(1, max(2, len(names)))
        group = tuple(sorted(self._rng.sample(names, min(count, len(names)))))
        return Fault(at, kind, "", self._lasts(0.1, 0.9), names=group)

    def _everywhere(self, low: float, high: float) -> Callable[[Kind, float], Fault]:
        def draw(kind: Kind, at: float) -> Fault:
            amount = round(self._rng.uniform(low, high), 3)
            return Fault(at, kind, "", self._lasts(0.2, 1.5), amount)

        return draw

    def _crash(self, kind: Kind, at: float) -> Fault:
        call = self._rng.randrange(1, 12) if self._at_disk and self._rng.random() < 0.7 else 0
        return Fault(at, kind, self._where(kind, at), self._lasts(0.02, 0.8), at_call=call)

    def _rolling(self, kind: Kind, at: float) -> Fault:
        return Fault(at, kind, "", self._lasts(0.3, 0.8) * len(self._settings.voters))

    def _clock_speed(self, kind: Kind, at: float) -> Fault:
        bound = self._settings.clock_bound
        amount = round(self._rng.uniform(-bound, bound), 3)
        return Fault(at, kind, self._where(kind, at), self._lasts(0.3, 3.0), amount)

    def _clock_jump(self, kind: Kind, at: float) -> Fault:
        return Fault(
            at, kind, self._where(kind, at), amount=float(self._rng.randrange(-3600, 3600))
        )

    def _slow_disk(self, kind: Kind, at: float) -> Fault:
        amount = self._rng.choice((0.02, 0.1, 0.3))
        return Fault(at, kind, self._where(kind, at), self._lasts(0.2, 1.0), amount)

    def _hung_disk(self, kind: Kind, at: float) -> Fault:
        """Long enough that a leader has to step down."""
        return Fault(at, kind, self._where(kind, at), self._lasts(0.3, 1.2))

    def _sync_error(self, kind: Kind, at: float) -> Fault:
        return Fault(at, kind, self._where(kind, at), amount=self._rng.choice((0.1, 0.9)))

    def _hand_over(self, kind: Kind, at: float) -> Fault:
        return Fault(at, kind, LEADER)

    def _wish(self, kind: Kind, at: float) -> Fault:
        """Draw a change: one comes, one goes, one takes another's place, or everything is new."""
        settings, rng = self._settings, self._rng
        pool = [*settings.voters, *settings.spares]
        size = min(len(pool), max(1, len(settings.voters) + rng.choice((-1, 0, 0, 1))))
        return Fault(at, kind, names=tuple(sorted(rng.sample(pool, size))))

    def _compact(self, kind: Kind, at: float) -> Fault:
        call = self._rng.randrange(1, 20) if self._rng.random() < 0.3 else 0
        drops = float(self._rng.random() < 0.7)
        where = "" if not call and self._rng.random() < 0.4 else self._where(kind, at)
        return Fault(at, kind, where, amount=drops, at_call=call)

    def _burst(self, kind: Kind, at: float) -> Fault:
        return Fault(at, kind, "", self._lasts(0.3, 1.0), 3.0)
