"""Shortens a schedule of faults that breaks a promise, so that a person can follow what happens.

Delta debugging: leave out a half, a quarter, an eighth of the faults, and so on down to single ones, and keep whatever
still breaks the same promise. Each fault brings its own end along and has randomness of its own, so the others stay as
they were. What the nodes make of it may be quite another run, so the letter of the promise has to be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sirius.testing.simulator.faults import Fault
from sirius.testing.simulator.settings import draw_settings
from sirius.testing.simulator.simulation import run
from sirius.testing.simulator.swarm import draw_schedule

Fails = Callable[[Sequence[Fault]], bool]


def minimise(seed: int) -> list[Fault]:
    """Return few of the faults of a seed that still break the promise which all of them break."""
    schedule = draw_schedule(draw_settings(seed))
    promise = _promise(run(seed, schedule).violation)
    if promise is None:
        return schedule
    return shorten(schedule, lambda fewer: _promise(run(seed, fewer).violation) == promise)


def _promise(violation: str | None) -> str | None:
    """Return which promise was broken: the letter, or the kind of the bug."""
    return None if violation is None else violation.partition(":")[0]


def shorten(schedule: Sequence[Fault], fails: Fails) -> list[Fault]:
    """Return a part of a failing schedule that fails and of which no single fault can be left out."""
    kept = list(schedule)
    size = max(1, len(kept) // 2)
    while True:
        before = len(kept)
        kept = _without_parts(kept, size, fails)
        if len(kept) == before and size == 1:
            return kept
        if len(kept) == before or size > len(kept):
            size = max(1, size // 2)


def _without_parts(kept: list[Fault], size: int, fails: Fails) -> list[Fault]:
    at = 0
    while at < len(kept):
        fewer = kept[:at] + kept[at + size :]
        if fails(fewer):
            kept = fewer
        else:
            at += size
    return kept
