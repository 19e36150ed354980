"""Many seeds, over several processes; and their totals."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sirius.testing.broadcast.faults import Kind
from sirius.testing.broadcast.simulation import Result, run
from sirius.testing.simulator.many import collect_rarely

TWICE_EVERY: Final = 20
"""One seed in so many runs twice, and its traces must be equal."""


def run_checked(seed: int) -> Result:
    """Run a seed; every twentieth runs once more, to see that nothing but the seed decides what happens."""
    result = run(seed)
    if seed % TWICE_EVERY == 0 and result.violation is None:
        again = run(seed)
        if again.trace != result.trace:
            return replace(result, violation="T: two runs differ")
    return result if result.violation else replace(result, trace=[])


def run_many(seeds: Sequence[int], jobs: int = 1) -> Iterator[Result]:
    """Yield the results of seeds in their order."""
    if jobs == 1:
        yield from map(run_checked, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, collect_rarely) as pool:
        yield from pool.imap(run_checked, seeds, chunksize=4)


@dataclass(slots=True)
class Totals:
    """The sum of many runs."""

    seeds: int = 0
    violations: list[Result] = field(default_factory=list)
    void: list[int] = field(default_factory=list)
    published: int = 0
    acknowledged: int = 0
    delivered: int = 0
    holes: int = 0
    messages: int = 0
    healed_in_s_max: float = 0.0
    faults: Counter[Kind] = field(default_factory=Counter)

    @classmethod
    def of(cls, results: Iterable[Result]) -> Totals:
        totals = cls()
        for result in results:
            totals.add(result)
        return totals

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.violations += [result] if result.violation else []
        self.void += [result.seed] if result.is_void else []
        for name in ("published", "acknowledged", "delivered", "holes", "messages"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.healed_in_s_max = max(self.healed_in_s_max, result.healed_in_s)
        self.faults.update(result.faults)

    def lines(self) -> list[str]:
        """Return them for people to read."""
        return [
            f"{self.seeds} seeds, {len(self.violations)} violations, {len(self.void)} void",
            f"{self.published} events published, {self.acknowledged} batches acknowledged, "
            f"{self.delivered} events and {self.holes} holes delivered, {self.messages} messages",
            f"up to date within {self.healed_in_s_max:.2f} s of healing",
            f"{self.faults.total()} faults:",
            *(f"  {kind:<10}{self.faults[kind]:>8}" for kind in Kind),
        ]
