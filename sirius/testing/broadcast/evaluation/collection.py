"""Figures 9 and 10: how popularity fades, and what garbage collection saves. Histories are the real ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from sirius.broadcast.events import EventBatch
from sirius.broadcast.history import MemoryHistory
from sirius.testing.broadcast.evaluation.plot import Chart, Line, Point
from sirius.testing.broadcast.evaluation.popularity import growing_keys, invalidations
from sirius.testing.broadcast.evaluation.scale import Drawn, Scale
from sirius.testing.broadcast.workload import KEY_BYTES, bounded_keys, unbounded_keys
from sirius.types import Seq

_WORKLOADS: Final = ((1.1, 200.0), (1.1, 100.0), (1.5, 200.0))
"""Skew and λ of invalidations. The first is like a real one, an engineer told the authors."""
_TICKS: Final = 3000
_SKEWS: Final = (1.1, 1.3, 1.5)
_EVENTS: Final = 3_000_000
_EVENTS_WITHOUT_END: Final = 10_000_000
"""New keys come in for ever: it takes more events to save as much."""
_BATCH: Final = 10_000
_KEYS: Final = 100_000
_BINS_PER_DECADE: Final = 6


def figure_9(scale: Scale) -> Drawn:
    """How often keys are invalidated, by how long ago they were added."""
    lines = []
    for number, (skew, per_tick) in enumerate(_WORKLOADS):
        scale.progress(number, len(_WORKLOADS))
        rng = np.random.default_rng(scale.seed)
        counts = np.zeros(_TICKS, np.int64)
        for _, ages in invalidations(skew, per_tick, _TICKS, rng):
            counts += np.bincount(ages, minlength=_TICKS)
        lines.append(Line(f"skew {skew}, λ = {per_tick:g}", tuple(_log_bins(counts))))
    slopes = {line.label: round(_slope(line.points), 2) for line in lines}
    chart = Chart(
        "figure-9",
        "Figure 9: invalidations of keys, by their age",
        "ticks since the key was added",
        "invalidations of keys of this age",
        tuple(lines),
        log_x=True,
        log_y=True,
    )
    return Drawn((chart,), {"slopes": slopes})


def _log_bins(counts: np.ndarray) -> Iterator[Point]:
    """Average over ages that look alike on a logarithmic axis."""
    edges = np.unique(
        np.round(np.logspace(0, np.log10(len(counts)), 4 * _BINS_PER_DECADE)).astype(int)
    )
    for low, high in pairwise(edges.tolist()):
        mean = float(counts[low:high].mean())
        if mean > 0:
            yield float(low + high - 1) / 2, mean


def _slope(points: tuple[Point, ...]) -> float:
    xs, ys = np.log(np.array(points)).T
    return float(np.polyfit(xs, ys, 1)[0])


# ---------------------------------------------------------------------- what is kept


def figure_10(scale: Scale) -> Drawn:
    """How many events a proxy keeps, of how many there were."""
    sets: dict[str, Callable[[], Iterable[bytes]]] = {}
    for skew in _SKEWS:
        sets[f"10a, skew {skew}"] = _unbounded(skew, scale.seed)
        sets[f"10b, skew {skew}"] = _bounded(skew, scale.seed)
    sets["keys added 1 : 10"] = _growing(scale.seed)
    sets["keys added as in Figure 9"] = _added(scale.seed)
    curves = {}
    for number, (name, batches) in enumerate(sets.items()):
        scale.progress(number, len(sets))
        curves[name] = tuple(kept(batches()))
    saved = {name: round(1 - points[-1][1] / points[-1][0], 3) for name, points in curves.items()}
    charts = [_chart(part, title, curves) for part, title in _TITLES.items()]
    return Drawn(tuple(charts), {"saved": saved})


_TITLES: Final = {
    "10a": "Figure 10a: events kept, keys without end",
    "10b": "Figure 10b: events kept, 100,000 keys",
}


def _chart(part: str, title: str, curves: dict[str, tuple[Point, ...]]) -> Chart:
    own = {name: points for name, points in curves.items() if name.startswith(part)}
    everything = tuple((x, x) for x, _ in next(iter(own.values())))
    lines = [Line("without garbage collection", everything)]
    lines += [Line(name.removeprefix(f"{part}, "), points) for name, points in own.items()]
    name = f"figure-{part}"
    return Chart(name, title, "events published", "events kept", tuple(lines), True, True)


def _unbounded(skew: float, seed: int) -> Callable[[], Iterable[bytes]]:
    return lambda: unbounded_keys(skew, _EVENTS_WITHOUT_END, np.random.default_rng(seed), _BATCH)


def _bounded(skew: float, seed: int) -> Callable[[], Iterable[bytes]]:
    return lambda: bounded_keys(skew, _EVENTS, np.random.default_rng(seed), _KEYS, _BATCH)


def _growing(seed: int) -> Callable[[], Iterable[bytes]]:
    return lambda: growing_keys(1.1, _EVENTS // 3, np.random.default_rng(seed), _KEYS, _BATCH)


def _added(seed: int) -> Callable[[], Iterable[bytes]]:
    skew, per_tick = _WORKLOADS[0]
    ticks = invalidations(skew, per_tick, _TICKS, np.random.default_rng(seed))
    return lambda: (keys.astype("<u8").tobytes() for keys, _ in ticks)


def kept(batches: Iterable[bytes]) -> Iterator[Point]:
    """Put batches of packed keys into a history; yield what there was and what is left, at round places."""
    history = MemoryHistory(random.Random(1))
    at = 1.0
    for keys in batches:
        batch = EventBatch.packed(keys, KEY_BYTES)
        history.append(batch.numbered(Seq(history.last + 1), 0))
        if history.last >= at:
            yield float(history.last), float(len(history))
            at = history.last * 10 ** (1 / _BINS_PER_DECADE)
    yield float(history.last), float(len(history))
