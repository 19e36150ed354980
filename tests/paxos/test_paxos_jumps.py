"""A node whose log gets a whole segment at once: what consensus knows then is what it would know of every value."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sirius.paxos.effects import Unknown
from sirius.paxos.sessions import Sessions
from sirius.paxos.values import PUBLISHERS, Content, Run
from sirius.types import Seq
from tests.paxos.harness import Cluster
from tests.paxos.words import hole


def learned(first: int, *contents: tuple[Content, int]) -> Sessions:
    table = Sessions(first, 10)
    for content, last in contents:
        table.learn(content, Seq(last))
    return table


def run(session: int, serial: int, slot: int) -> Content:
    return Content((Run(session, serial, Seq(slot)),))


def test_a_node_that_got_a_segment_goes_on_from_there() -> None:
    cluster = Cluster()
    cluster.elect("a")
    cluster.propose("c", 1, "x")
    cluster.drop("Forward")
    machine, begin = cluster.machine("c"), cluster.machine("c").decided
    before = machine.configuration
    cluster.nodes["c"].disk.log.append(hole(begin + 1, 50))
    cluster._do("c", machine.installed(Seq(begin + 1), Seq(50), None, learned(begin + 1)))
    assert machine.decided == machine.known == 50
    assert machine.configuration == before
    assert [type(each) for each in cluster.answers("c")] == [Unknown]


def test_a_segment_says_who_votes() -> None:
    cluster = Cluster()
    cluster.elect("a")
    machine = cluster.machine("c")
    assert machine.configuration is not None
    other = replace(machine.configuration, number=99)
    machine.installed(Seq(machine.decided + 1), Seq(50), other, learned(2))
    assert machine.configuration == other


def test_a_leader_whose_log_gets_a_segment_steps_down() -> None:
    cluster = Cluster()
    cluster.elect("a")
    machine = cluster.machine("a")
    machine.installed(Seq(machine.decided + 1), Seq(50), None, learned(2))
    assert cluster.leaders == []


def test_a_segment_that_consensus_has_overtaken_changes_nothing() -> None:
    cluster = Cluster()
    cluster.elect("a")
    machine = cluster.machine("a")
    decided = machine.decided
    machine.installed(Seq(1), decided, None, learned(1, (run(5, 1, 1), 1)))
    assert (machine.decided, cluster.leaders) == (decided, ["a"])


def test_who_wrote_in_a_segment_is_known_behind_it() -> None:
    table = learned(1, (run(5, 3, 3), 3), (run(6, 1, 4), 4))
    table.extend(Seq(5), learned(5, (run(6, 2, 6), 6), (run(PUBLISHERS, 9, 7), 7)))
    assert [table.last_serial(each, 0) for each in (5, 6, 7, PUBLISHERS)] == [3, 2, 0, 9]


def test_a_hole_in_a_segment_hides_what_was_before_it() -> None:
    table = learned(1, (run(5, 3, 3), 3))
    later = learned(4, (Content((), (), True), 9), (run(6, 2, 10), 10))
    table.extend(Seq(4), later)
    assert (table.complete_from, table.last_serial(5, 0), table.last_serial(6, 0)) == (10, None, 2)


@pytest.mark.parametrize("seed", range(200))
def test_a_table_learned_in_two_parts_is_the_one_learned_in_one(seed: int) -> None:
    rng = random.Random(seed)
    contents = [
        Content((), (), True)
        if rng.random() < 0.1
        else run(rng.choice((1, 2, 3, PUBLISHERS, PUBLISHERS + 1, PUBLISHERS + 2)), slot, slot)
        for slot in range(1, 13)
    ]
    cut = rng.randrange(13)
    whole, parts, later = (Sessions(first, 2, publishers_max=2) for first in (1, 1, cut + 1))
    for slot, content in enumerate(contents, 1):
        whole.learn(content, Seq(slot))
        (parts if slot <= cut else later).learn(content, Seq(slot))
    parts.extend(Seq(cut + 1), later)
    assert vars(parts) == vars(whole)
