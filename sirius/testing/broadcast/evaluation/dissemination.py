"""Figures 5b, 6 and 7: throughput and latency of proxies and clients, and what a lost link does to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from sirius.broadcast.events import Stream
from sirius.broadcast.messages import Peer
from sirius.testing.broadcast.evaluation.geoplex import (
    BUNDLE,
    MAX_LOAD,
    OPENED_S,
    Geoplex,
    Plan,
    latencies,
)
from sirius.testing.broadcast.evaluation.plot import Chart, Line, Point
from sirius.testing.broadcast.evaluation.scale import Drawn, Scale

COASTS: Final = latencies("ABC", 12, 37, 40)
"""Two regions on one coast and one on the other, as in Figure 5a."""
FOUR: Final = latencies("0123", 15, 40, 45, 45, 40, 15)
"""Figure 8: two on each coast; the link between 2 and 3 has 15 ms and fails."""
CLIENTS: Final = 1000
FANOUTS: Final = (1, 2, 4, 8)
SHUFFLES_S: Final = (0.03, 0.1, 0.3)
LOADS: Final = tuple((1 + 2 * number) / 6 for number in range(6))
_STEADY_S: Final = 0.3
"""After so long everything flows, as in the paper."""
_MEASURED_S: Final = 0.7
_LATENCY_S: Final = 0.3
"""Of the first so many seconds that are measured: what comes later may not be everywhere when the run ends."""
_MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of Figures 5b and 6."""

    throughput: float
    """Events a second, of an average client."""
    latency_s: dict[str, float]
    """From the arrival at the proxy until all clients have it, by the region it comes from."""
    messages: int


def measure(plan: Plan) -> Measured:
    """Run a load for a second; leave out the beginning."""
    geoplex = Geoplex(plan)
    begin = OPENED_S + _STEADY_S
    end = begin + _MEASURED_S
    geoplex.publish(end)
    geoplex.clock.run(end)
    meter = geoplex.meter
    waits = {
        region: meter.latencies(Stream(region), begin, begin + _LATENCY_S, end)
        for region in plan.regions
    }
    return Measured(
        meter.throughput(begin, end) * BUNDLE,
        {region: fmean(each) for region, each in waits.items()},
        geoplex.links.sent,
    )


def _plan(scale: Scale, **settings: Any) -> Plan:
    return Plan(COASTS, clients=scale.clients or CLIENTS, seed=scale.seed, **settings)


def figure_5b(scale: Scale) -> Drawn:
    """Throughput as a function of the shuffle time, for fanouts."""
    lines, latency_s = [], {}
    for row, fanout in enumerate(FANOUTS):
        points: list[Point] = []
        for column, shuffle_s in enumerate(SHUFFLES_S):
            done = row * len(SHUFFLES_S) + column
            scale.progress(done, len(FANOUTS) * len(SHUFFLES_S))
            found = measure(_plan(scale, fanout=fanout, shuffle_s=shuffle_s))
            points.append((shuffle_s * 1000, found.throughput / _MILLION))
            latency_s[f"F {fanout}, {shuffle_s * 1000:g} ms"] = round(
                fmean(found.latency_s.values()), 3
            )
        lines.append(Line(f"fanout {fanout}", tuple(points)))
    chart = Chart(
        "figure-5b",
        "Figure 5b: throughput by shuffle time",
        "shuffle time, ms",
        "million events/s at each client",
        tuple(lines),
    )
    facts = {"load": MAX_LOAD, "clients": 3 * (scale.clients or CLIENTS), "latency_s": latency_s}
    return Drawn((chart,), facts)


def figure_6(scale: Scale) -> Drawn:
    """Latency and throughput as the load grows, for events of two regions."""
    regions = ("A", "C")
    points: dict[tuple[str, int], list[Point]] = {}
    fanouts = FANOUTS[1:]
    for row, fanout in enumerate(fanouts):
        for column, load in enumerate(LOADS):
            scale.progress(row * len(LOADS) + column, len(fanouts) * len(LOADS))
            found = measure(_plan(scale, fanout=fanout, load=load * MAX_LOAD))
            for region in regions:
                point = found.throughput / _MILLION, found.latency_s[region] * 1000
                points.setdefault((region, fanout), []).append(point)
    charts = [
        Chart(
            f"figure-6-{region.lower()}",
            f"Figure 6: latency of events from region {region}, by throughput",
            "million events/s at each client",
            "ms until all clients have it",
            tuple(Line(f"fanout {f}", tuple(points[region, f])) for f in fanouts),
        )
        for region in regions
    ]
    facts = {"clients": 3 * (scale.clients or CLIENTS), "loads": [round(x, 3) for x in LOADS]}
    return Drawn(tuple(charts), facts)


# ---------------------------------------------------------------------- a link goes down

DOWN_S: Final = 19.0
UP_S: Final = 41.0
END_S: Final = 60.0
OUTAGE_CLIENTS: Final = 50
_WINDOW_S: Final = 0.5


def outage(
    plan: Plan,
    down_s: float,
    up_s: float,
    end_s: float,
    watch: Callable[[Geoplex], None] | None = None,
) -> Geoplex:
    """Run four regions whose link between 2 and 3 is out for a while, and two seconds more for all to arrive."""
    geoplex = Geoplex(plan)
    if watch is not None:
        watch(geoplex)
    geoplex.publish(end_s)
    geoplex.clock.at(down_s, geoplex.links.cut, frozenset("23"))
    geoplex.clock.at(up_s, geoplex.links.cut, None)
    geoplex.clock.run(end_s + 2.0)
    return geoplex


def outage_plan(clients: int = OUTAGE_CLIENTS, seed: int = 1, load: float = MAX_LOAD) -> Plan:
    return Plan(FOUR, clients=clients, batch_s=0.1, load=load, seed=seed)


def recovery_s(geoplex: Geoplex, down_s: float, share: float = 0.95) -> float:
    """Return how long after the failure the throughput was below a share of the load for the last time."""
    load = geoplex.plan.load / BUNDLE
    steps = [down_s + number * 0.1 for number in range(30)]
    low = [at for at in steps if geoplex.meter.throughput(at, at + 0.1) < share * load]
    return (low[-1] + 0.1 - down_s) if low else 0.0


def figure_7(scale: Scale) -> Drawn:
    """Throughput and latency over time, with a link that fails."""
    scale.progress(0, 1)
    plan = outage_plan(scale.clients or OUTAGE_CLIENTS, scale.seed)
    geoplex = outage(plan, DOWN_S, UP_S, END_S)
    meter = geoplex.meter
    times = [1.0 + number * _WINDOW_S for number in range(int((END_S - 1.0) / _WINDOW_S))]
    rates = tuple((at, meter.throughput(at, at + _WINDOW_S) * BUNDLE / _MILLION) for at in times)
    waits = [
        Line(f"events from region {region}", tuple(_waits(geoplex, region, times)))
        for region in ("0", "2")
    ]
    throughput = Chart(
        "figure-7a",
        "Figure 7a: throughput; the link 2-3 is out from 19 to 41",
        "seconds",
        "million events/s at each client",
        (Line("average client", rates),),
        zero_y=False,
    )
    latency = Chart(
        "figure-7b", "Figure 7b: latency", "seconds", "ms until all clients have it", tuple(waits)
    )
    facts = {
        "clients": 4 * plan.clients,
        "recovered_s": round(recovery_s(geoplex, DOWN_S), 2),
        "batches_missing": meter.missing(),
        "holes": meter.holes,
        "messages_lost": geoplex.links.lost,
        "source_of_2_at_3": geoplex.proxies[Peer("3")].source(Stream("2")),
    }
    return Drawn((throughput, latency), facts)


def _waits(geoplex: Geoplex, region: str, times: list[float]) -> list[Point]:
    found = []
    for at in times:
        each = geoplex.meter.latencies(Stream(region), at, at + _WINDOW_S)
        if each:
            found.append((at, fmean(each) * 1000))
    return found
