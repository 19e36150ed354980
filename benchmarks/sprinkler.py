"""What the evaluation of the Sprinkler paper must show, in simulated time: the figures do not depend on the machine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Figure
from sirius.testing.broadcast.evaluation.dissemination import (
    COASTS,
    measure,
    outage,
    outage_plan,
    recovery_s,
)
from sirius.testing.broadcast.evaluation.geoplex import MAX_LOAD, Plan
from sirius.testing.broadcast.workload import bounded_keys, space_saved, unbounded_keys

_CLIENTS = 30


def figures() -> Iterator[Figure]:
    """Measure everything, in about half a minute."""
    yield from garbage_collection()
    yield from link_failure()
    yield from full_load()


def garbage_collection() -> Iterator[Figure]:
    """Section 5.4: roughly 85 % with 100,000 keys, roughly three quarters without a bound."""
    saved = space_saved(bounded_keys(1.1, 500_000, np.random.default_rng(7)))
    note = "skew 1.1, 100,000 keys, 500,000 events"
    yield Figure("broadcast.gc_space_saved", saved, "share", 0.85, note=note)
    saved = space_saved(unbounded_keys(1.1, 10_000_000, np.random.default_rng(7)))
    note = "skew 1.1, keys without end, 10,000,000 events"
    yield Figure("broadcast.gc_space_saved_unbounded", saved, "share", 0.7, note=note)


def link_failure() -> Iterator[Figure]:
    """Section 5.3: four regions, a link is out."""
    geoplex = outage(outage_plan(_CLIENTS), 4.0, 8.0, 11.0)
    note = f"simulated; 4 regions x {_CLIENTS} clients, {MAX_LOAD:,} events/s"
    took_s = recovery_s(geoplex, 4.0)
    yield Figure("broadcast.link_recovery", took_s, "s", 1.0, True, note)
    lost = geoplex.meter.missing() + geoplex.meter.holes
    yield Figure("broadcast.link_events_lost", lost, "events", 0.0, True, note)


def full_load() -> Iterator[Figure]:
    """Section 5.2: what the prototype carried at most, and how long it takes to be everywhere."""
    found = measure(Plan(COASTS, clients=_CLIENTS))
    note = f"simulated; 3 regions x {_CLIENTS} clients, fanout 4"
    share = found.throughput / MAX_LOAD
    yield Figure("broadcast.sim_throughput", share, "of load", 0.98, note=note)
    worst_s = max(found.latency_s.values())
    yield Figure("broadcast.sim_latency", worst_s, "s", 0.3, True, f"{note}; to all clients")
