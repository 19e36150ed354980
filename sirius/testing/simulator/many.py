"""Many seeds, over several processes; and their totals."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sirius.testing.simulator.faults import Kind
from sirius.testing.simulator.simulation import Result, run

TWICE_EVERY: Final = 20
"""One seed in so many runs twice, and its traces must be equal."""
_COLLECT_AT: Final = (50_000, 10, 20)
_SAY_EVERY_S: Final = 10.0


def run_checked(seed: int) -> Result:
    """Run a seed; every twentieth runs once more, to see that nothing but the seed decides what happens."""
    result = run(seed)
    if seed % TWICE_EVERY == 0 and result.violation is None:
        again = run(seed)
        if (again.trace, again.events) != (result.trace, result.events):
            pairs = zip(result.trace, again.trace, strict=False)
            line = next((f"{a!r}, then {b!r}" for a, b in pairs if a != b), "one is longer")
            return replace(result, violation=f"T: two runs differ: {line}")
    return result


def run_many(seeds: Sequence[int], jobs: int = 1) -> Iterator[Result]:
    """Yield the results of seeds in their order. The traces of those that went well stay behind."""
    if jobs == 1:
        yield from map(_run_quietly, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, collect_rarely) as pool:
        yield from pool.imap(_run_quietly, seeds, chunksize=2)


def collect_rarely() -> None:
    """Have the garbage collector of this process look at new objects alone, and at many at once.

    A run is over in half a second, and what it leaves behind is of no use to the next: whoever looks at all objects
    again and again looks at those that are alive.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT_AT)


def _run_quietly(seed: int) -> Result:
    # The log warns of every torn tail that it cuts off, and there are thousands here.
    logging.getLogger("sirius.wal").setLevel(logging.CRITICAL + 1)
    result = run_checked(seed)
    return result if result.violation else replace(result, trace=[])


def with_progress(
    results: Iterable[Result],
    count: int,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    *,
    broken: int = 0,
) -> Iterator[Result]:
    """Pass results on, and say now and then how far one is. `broken` is how many were broken before."""
    began = said = clock()
    for done, result in enumerate(results, 1):
        broken += result.violation is not None
        if clock() - said >= _SAY_EVERY_S:
            said = clock()
            left_min = (said - began) / done * (count - done) / 60
            say(f"{done:,} of {count:,} seeds, {broken} broken, about {left_min:.0f} min left")
        yield result


@dataclass(slots=True)
class Totals:
    """The sum of many runs."""

    seeds: int = 0
    violations: list[Result] = field(default_factory=list)
    void: list[int] = field(default_factory=list)
    few_faults: list[int] = field(default_factory=list)
    simulated_s: float = 0.0
    acknowledged: int = 0
    unknown: int = 0
    rejected: int = 0
    reads: int = 0
    slots: int = 0
    reigns: int = 0
    configurations: int = 0
    messages: int = 0
    faults: Counter[Kind] = field(default_factory=Counter)

    @classmethod
    def of(cls, results: Iterable[Result]) -> Totals:
        totals = cls()
        for result in results:
            totals.add(result)
        return totals

    def add(self, result: Result) -> None:
        self.seeds += 1
        if result.violation:
            self.violations.append(result)
        if result.is_void:
            self.void.append(result.seed)
        if result.has_few_faults:
            self.few_faults.append(result.seed)
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.faults.update(result.faults)

    def lines(self) -> list[str]:
        """Return them for people to read."""
        kinds = [f"  {kind:<16}{self.faults[kind]:>8}" for kind in Kind]
        return [
            f"{self.seeds} seeds, {len(self.violations)} violations, {len(self.void)} void, "
            f"{len(self.few_faults)} with few faults",
            f"{self.simulated_s:.0f} simulated seconds, {self.messages} messages, {self.slots} slots, "
            f"{self.acknowledged} writes acknowledged, {self.unknown} requests unknown, "
            f"{self.rejected} rejected, {self.reads} reads, {self.reigns} reigns, "
            f"{self.configurations} configurations",
            f"{self.faults.total()} faults:",
            *kinds,
        ]

    def as_json(self) -> dict[str, Any]:
        """Return them for programs to read."""
        sums = {name: getattr(self, name) for name in ("seeds", "void", "few_faults", *_SUMS)}
        broken = [{"seed": each.seed, "violation": each.violation} for each in self.violations]
        return {**sums, "violations": broken, "faults": {str(k): self.faults[k] for k in Kind}}


_SUMS: Final = (
    "simulated_s",
    "acknowledged",
    "unknown",
    "rejected",
    "reads",
    "slots",
    "reigns",
    "configurations",
    "messages",
)
