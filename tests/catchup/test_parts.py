"""The small parts: settings, regions, cache, choice of a source."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from sirius.catchup import Catchup, CatchupConfig, Source, Start
from sirius.catchup.messages import Here, Pull
from sirius.catchup.ranges import Tail, coverage_fault
from sirius.errors import UsageError
from sirius.types import Seq
from sirius.wal import Block, Op, Update, encode
from tests.catchup.world import SMALL, World, member


@pytest.mark.parametrize(
    "settings",
    [
        {"window_slots_min": 0},
        {"window_bytes_min": 9, "window_bytes_max": 8},
        {"retry_s": 0.0},
        {"keepalive_s": 3.0},
        {"here_s": 4.0},
        {"reads_max": 0},
        {"shun_s": -1.0},
        {"segment_slots": -1},
        {"files_max": 0},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(settings))):
        CatchupConfig(**settings)


def test_nothing_may_be_set_to_never() -> None:
    assert CatchupConfig(segment_slots=0, gap_patience_s=0.0).segment_slots == 0


def west(config: CatchupConfig = SMALL) -> Catchup:
    machine = Catchup(member(5), config, random.Random(2), 0.0, region="west")
    sources = [
        Source(member(1), "east", primary=True),
        Source(member(4), "west"),
        Source(member(6), "west"),
    ]
    machine.set_sources(sources)
    return machine


def asked(machine: Catchup, now: float) -> list[int]:
    return [to.node for to, message in machine.tick(now).send if isinstance(message, Pull)]


def test_the_lowest_of_a_region_pulls_outside() -> None:
    machine = west()
    assert machine.pulls_for_region
    machine.step(member(6), Here("west", Seq(0), True))
    machine.step(member(4), Here("east", Seq(0), True))
    assert machine.pulls_for_region, "a higher one does not matter, nor does one of another region"
    machine.step(member(4), Here("west", Seq(0), False))
    assert machine.pulls_for_region, "nor does one that has no way out"
    machine.step(member(4), Here("west", Seq(0), True))
    assert not machine.pulls_for_region
    machine.tick(SMALL.region_timeout_s)
    assert machine.pulls_for_region, "it was not heard of any more"
    machine.set_voter(True)
    assert not machine.pulls_for_region, "a voter has no need to"


def test_the_others_pull_inside_until_nothing_comes() -> None:
    machine = west()
    machine.step(member(4), Here("west", Seq(0), True))
    assert asked(machine, 0.1)[0] in (4, 6)
    seen: list[int] = []
    for step in range(2, 200):
        machine.step(member(4), Here("west", Seq(3), True))
        seen += asked(machine, step * 0.1)
    assert machine.known == 3
    assert 1 in seen, "nobody inside answers although there is more"


def test_neighbours_are_bounded() -> None:
    machine = west(config=replace(SMALL, region_nodes_max=1))
    for node in (6, 4, 6):
        machine.step(member(node), Here("west", Seq(0), True))
    assert machine.pulls_for_region


def test_everybody_is_told_who_is_there_now_and_then() -> None:
    machine = west()
    told = [
        (to.node, message) for to, message in machine.tick(0.1).send if isinstance(message, Here)
    ]
    assert told == [(4, Here("west", Seq(0), True)), (6, Here("west", Seq(0), True))]
    assert not any(isinstance(message, Here) for _, message in machine.tick(0.2).send)


def test_a_region_with_a_primary_pulls_inside() -> None:
    machine = west()
    machine.set_sources(
        [Source(member(1), "east", primary=True), Source(member(2), "west", primary=True)]
    )
    assert asked(machine, 0.1) == [2]


def test_a_region_alone_pulls_inside() -> None:
    machine = west()
    machine.set_sources([Source(member(4), "west")])
    assert asked(machine, 0.1) == [4]


def test_a_node_without_a_region_asks_nobody_but_its_stream() -> None:
    world = World()
    world.add(1, voter=True)
    world.add(9).follow(world.source(1))
    world.pass_time(2.0)
    world.trace.clear()
    world.pass_time(20.0)
    assert not any("Pull" in line for line in world.trace)


def test_nearest_means_one_of_the_nearest() -> None:
    seen = set()
    for seed in range(20):
        config = replace(SMALL, prefer="nearest")
        machine = Catchup(member(9), config, random.Random(seed), 0.0)
        machine.set_sources([Source(member(node), distance=node // 3) for node in (1, 2, 3, 4)])
        seen |= set(asked(machine, 0.1))
    assert seen == {1, 2}


def test_time_does_not_go_back() -> None:
    world = World()
    node = world.add(9)
    node.follow(Source(member(1)))
    world.tick(5.0)
    world.wire.clear()
    assert node.machine.tick(world.now - 4.0).send == []


def test_rounds_of_a_ring_that_formed_at_one_stroke_come_apart() -> None:
    """Three followers, each of which may ask the next, and one of them a primary as well."""
    world = World(7)
    world.add(1, voter=True)
    for node in (2, 3, 4):
        world.add(node)
    for node, upstream in ((2, 3), (3, 4), (4, 2)):
        world.nodes[node].follow(world.source(upstream))
    world.pass_time(10.0)
    world.nodes[4].follow(world.source(2), world.source(1))
    world.write(1, "+a")
    world.pass_time(25.0)
    assert [world.nodes[node].log.tip for node in (2, 3, 4)] == [1, 1, 1]
    assert list(world.nodes[2].machine.path) == [1, 4, 3, 2]


def test_blocks_of_the_log_are_values() -> None:
    """Holes and all: what the log reads is what travels."""
    updates = [Update(Op.PUT, b"k", b"v")] * 3
    blocks = [encode(1, updates, 0), Block.hole(4, 6), encode(7, updates, 0)]
    assert coverage_fault(1, 9, blocks) is None
    assert coverage_fault(1, 9, [blocks[0], blocks[2]]) is not None
    rest = Tail(Start(Seq(5))).rest_of(blocks)
    assert [(value.first, value.last) for value in rest] == [(6, 6), (7, 9)]
