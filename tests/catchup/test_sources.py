"""Whom a node asks when many do not help."""

from __future__ import annotations

import random
from typing import Literal

import pytest

from sirius.catchup.config import CatchupConfig
from sirius.catchup.context import Context
from sirius.catchup.sources import Source, Sources
from tests.catchup.world import member


def make_sources(prefer: Literal["random", "nearest"], count: int, seed: int) -> Sources:
    context = Context(member(99), CatchupConfig(prefer=prefer), random.Random(seed), 0.0)
    sources = Sources(context)
    sources.replace([Source(member(node), distance=float(node)) for node in range(1, count + 1)])
    return sources


def asked_until(sources: Sources, helpful: int) -> list[int]:
    """Ask until somebody helps, when all that could not are forgiven before the next one is asked."""
    asked: list[int] = []
    while helpful not in asked and len(asked) < 1000:
        source = sources.choose(sources.all)
        assert source is not None
        asked.append(source.node)
        sources.shun(source)
    return asked


@pytest.mark.parametrize("seed", range(20))
def test_who_can_help_is_found_before_anybody_is_asked_twice(seed: int) -> None:
    """Seed 1103 of the simulator: a follower asked one dead member after the other, again and again, at random."""
    asked = asked_until(make_sources("random", 7, seed), helpful=7)
    assert len(asked) == len(set(asked)) <= 7


def test_a_near_one_that_never_helps_does_not_keep_a_node_from_asking_others() -> None:
    assert asked_until(make_sources("nearest", 5, seed=1), helpful=5) == [1, 2, 3, 4, 5]


def test_once_somebody_has_helped_the_nearest_comes_first_again() -> None:
    sources = make_sources("nearest", 3, seed=1)
    asked_until(sources, helpful=3)
    sources.succeeded()
    assert asked_until(sources, helpful=1) == [1]


def test_who_is_no_source_any_more_is_forgotten() -> None:
    sources = make_sources("nearest", 2, seed=1)
    asked_until(sources, helpful=2)
    sources.replace(sources.all[1:])
    sources.replace([Source(member(1), distance=1.0), *sources.all])
    assert asked_until(sources, helpful=1) == [1]
