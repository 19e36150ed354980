"""What a benchmark yields, and how it is measured and printed.

Machines are noisy and differ. So a figure is a ratio of two medians, taken in turns within one run, wherever there is
something to compare with; absolute figures have generous bars or none.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import median

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `bar` is what it must reach; `at_most` turns it round."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def ok(self) -> bool:
        if self.bar is None:
            return True
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    def to_json(self) -> str:
        fields = {key: value for key, value in asdict(self).items() if key != "at_most"}
        return json.dumps({**fields, "value": round(self.value, 4), "ok": self.ok})

    def to_row(self) -> str:
        sign = "<=" if self.at_most else ">="
        bar = "" if self.bar is None else f"{sign} {self.bar:g}"
        verdict = "" if self.bar is None else ("ok" if self.ok else "SHORT")
        return f"{self.name:28} {self.value:12.4g} {self.unit:10} {bar:10} {verdict:6} {self.note}"


def seconds(work: Work) -> float:
    """Time one run, without the garbage of the one before."""
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(works: dict[str, Work], repeats: int = 5) -> dict[str, float]:
    """Run works in turns; return the median of each, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: median(values) for name, values in times.items()}


def show(figures: Iterable[Figure], *, as_json: bool) -> bool:
    """Print figures as they come; say whether all reach their bars."""
    good = True
    if not as_json:
        print(f"{'figure':28} {'value':>12} {'unit':10} {'bar':10}")
    for figure in figures:
        print(figure.to_json() if as_json else figure.to_row(), flush=True)
        good = good and figure.ok
    return good


def say(text: str) -> None:
    """Tell whoever waits what is going on; never on standard output."""
    print(f"  … {text}", file=sys.stderr, flush=True)
