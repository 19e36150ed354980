"""The seeds that everybody runs: none may break a promise, and enough must happen in them."""

from __future__ import annotations

import os

import pytest

from sirius.testing.simulator.many import Totals, run_many

pytestmark = pytest.mark.long

JOBS = min(2, os.cpu_count() or 1)


def check(totals: Totals) -> None:
    print("\n" + "\n".join(totals.lines()))
    broken = [f"seed {each.seed}: {each.violation}" for each in totals.violations]
    assert not broken, "\n".join(broken)
    assert all(totals.faults.values())
    assert totals.void == [], "nothing is written in them, although they went on without faults"
    assert totals.few_faults == []


def test_300_seeds_break_no_promise() -> None:
    check(Totals.of(run_many(range(300), JOBS)))


@pytest.mark.deep
def test_2000_seeds_break_no_promise() -> None:
    check(Totals.of(run_many(range(300, 2300), JOBS)))
