"""What goes wrong in a run, drawn from its seed before it begins. Each fault brings its own end along."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sirius.testing.broadcast.settings import Settings
from sirius.testing.simulator.settings import stream as randomness


class Kind(StrEnum):
    """What can go wrong. Where a fault says no other, it is about the proxy or client `where`."""

    LINK = "link"
    """Cut the link between two proxies, `where` and `other`: the paper's Figure 2."""
    REGION = "region"
    """Cut a whole region off from the others."""
    ISOLATE = "isolate"
    """Cut one off from everybody."""
    ONE_WAY = "one-way"
    """What one says is not heard; it hears everything."""
    DROP = "drop"
    """Lose this share of all messages."""
    DUPLICATE = "duplicate"
    """Deliver this share of all messages twice."""
    DELAY = "delay"
    """Make messages take this much longer, on average: they overtake each other."""
    CRASH = "crash"
    """One dies and starts again. A client resumes from what its application had taken. A proxy keeps its own
    streams, and those of others if the amount is 1."""
    PAUSE = "pause"
    """SIGSTOP: nothing happens, then everything at once."""
    SLOW = "slow"
    """The application of a client takes this long over each batch."""
    LEAVE = "leave"
    """A client goes for good."""
    REPLICA = "replica"
    """The replica of a proxy that has this place in its chain dies, from the head, 0, to the tail, 1; and starts
    again. Not if it is the last one that has everything."""
    LINE = "line"
    """Cut the link between two neighbours of a chain, one of which has this place."""
    BLIND = "blind"
    """The replica at this place does not hear who the replicas are."""


_ANYWHERE: Final = [kind for kind in Kind if kind not in (Kind.REPLICA, Kind.LINE, Kind.BLIND)]
_RATES: Final = {
    Kind.DROP: (0.05, 0.5),
    Kind.DUPLICATE: (0.1, 0.6),
    Kind.DELAY: (0.01, 0.15),
    Kind.SLOW: (0.02, 0.4),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    at: float
    kind: Kind
    where: str = ""
    for_s: float = 0.0
    amount: float = 0.0
    other: str = ""

    def __str__(self) -> str:
        text = f"{self.at:7.3f} {self.kind:<9} {self.where or '-'} {self.other}"
        return f"{text.rstrip()} for {self.for_s:.2f} s, amount {self.amount:g}"


def draw_faults(settings: Settings) -> list[Fault]:
    """Return the faults of a run in the order of their times."""
    rng = randomness(settings.seed, "faults")
    kinds = [kind for kind in _ANYWHERE if rng.random() < 0.6] or list(_ANYWHERE)
    times = sorted(rng.uniform(0.1, settings.duration_s) for _ in range(settings.faults))
    found = [_draw(rng, settings, rng.choice(kinds), round(at, 3)) for at in times]
    return sorted([*found, *_draw_chain_faults(settings)], key=lambda fault: fault.at)


def _draw_chain_faults(settings: Settings) -> list[Fault]:
    """Chains get some of their own, so that every place in them fails often enough."""
    rng = randomness(settings.seed, "chain faults")
    found = []
    for name in settings.chains:
        for _ in range(rng.randrange(3, 8)):
            at = round(rng.uniform(0.4, settings.duration_s), 3)
            kind = rng.choice((Kind.REPLICA, Kind.LINE, Kind.BLIND))
            for_s = round(rng.uniform(0.05, 1.0), 2)
            found.append(Fault(at, kind, name, for_s, rng.choice((0.0, 0.5, 1.0))))
    return found


def _draw(rng: random.Random, settings: Settings, kind: Kind, at: float) -> Fault:
    clients = (*settings.clients, *(name for _, name in settings.joins))
    low, high = _RATES.get(kind, (0.0, 0.0))
    amount = round(rng.uniform(low, high), 3)
    for_s = round(rng.uniform(0.1, 1.2), 2)
    where = rng.choice((*settings.regions, rng.choice(clients)))
    match kind:
        case Kind.LINK:
            where, other = rng.choice(settings.regions), rng.choice(settings.regions)
            return Fault(at, kind, where, for_s, other=other)
        case Kind.REGION:
            where = rng.choice(settings.regions)
        case Kind.SLOW | Kind.LEAVE:
            where = rng.choice(clients)
        case Kind.CRASH:
            amount = float(rng.random() < 0.5)
        case Kind.DROP | Kind.DUPLICATE | Kind.DELAY:
            where = ""
    return Fault(at, kind, where, for_s, amount)
