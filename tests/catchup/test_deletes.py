"""No deleted key comes back: which parts of which logs fit together (`sirius.catchup.ranges`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sirius.catchup import Basis, Edition, Start
from sirius.catchup.messages import Pull
from sirius.catchup.ranges import Tail
from sirius.errors import InvariantViolation
from sirius.types import NodeId, Seq
from tests.catchup.logs import piece, replay
from tests.catchup.world import SMALL, World

NO_STREAM = replace(SMALL, window_slots_max=2, range_slots_max=2, cache_slots_max=1)


def tail(position: int, basis: Basis | None = None) -> Tail:
    return Tail(Start(Seq(position), basis=basis))


@pytest.mark.parametrize(
    ("position", "basis", "floor", "fits"),
    [
        (0, None, 9, True),
        (5, None, 5, True),
        (5, None, 4, True),
        (5, None, 6, False),
        (5, Basis(NodeId(1), 7), 6, True),
        (5, Basis(NodeId(1), 8), 6, False),
        (5, Basis(NodeId(2), 7), 6, False),
    ],
)
def test_what_fits(position: int, basis: Basis | None, floor: int, fits: bool) -> None:
    edition = Edition(7, Seq(floor))
    assert tail(position, basis).fits(NodeId(1), edition) is fits
    if not fits:
        with pytest.raises(InvariantViolation, match=f"floor {floor} does not fit behind 5"):
            tail(position, basis).take(NodeId(1), edition, Seq(9), Seq(9))


def test_a_basis_ends_with_the_first_part_from_elsewhere() -> None:
    one = Edition(1, Seq(9))
    log = tail(0)
    log.take(NodeId(1), one, Seq(2), Seq(9))
    log.take(NodeId(1), one, Seq(3), Seq(9))
    assert log.basis == Basis(NodeId(1), 1)
    log.take(NodeId(2), Edition(1, Seq(0)), Seq(4), Seq(9))
    assert log.basis is None
    assert not log.fits(NodeId(1), one)


def test_a_basis_ends_with_a_decision() -> None:
    log = tail(3, Basis(NodeId(1), 1))
    log.skip(Seq(3))
    assert log.basis
    log.skip(Seq(4))
    assert log.basis is None


def test_a_basis_ends_with_the_era() -> None:
    log = tail(3, Basis(NodeId(1), 1))
    log.take(NodeId(1), Edition(2, Seq(3)), Seq(4), Seq(4))
    assert log.basis is None


def story(world: World) -> None:
    """A key is put and deleted, and other deletes raise the floor above both."""
    world.write(1, "+k", "+a", "+b", "-k", "+c", "+d", "-d", "+e", "+f", "+g")


def drop(world: World, node: int, *slots: int) -> None:
    """Compact: drop updates; the last of them is a delete."""
    log = world.nodes[node].log
    for slot in slots[:-1]:
        del log.updates[slot]
    log.drop_delete(slots[-1])
    world.nodes[node].run(world.nodes[node].machine.compacted(log.edition))


def check(world: World, *nodes: int) -> None:
    for node in nodes:
        log = world.nodes[node].log
        assert log.tip == len(world.truth)
        assert log.state() == replay(world.truth)


def test_an_era_tells_of_a_drop_below_an_old_floor() -> None:
    """1. The floor of n1 is 7. 2. n9 takes +k from it. 3. n1 drops +k and -k; the floor stays. 4. n9 goes on."""
    world = World(config=NO_STREAM)
    world.add(1, voter=True)
    world.add(9).follow(world.source(1))
    story(world)
    drop(world, 1, 6, 7)
    world.tick(0.1)
    while world.nodes[9].log.tip < 2:
        world.deliver()
        for read in list(world.nodes[1].reads):
            world.nodes[1].disk(read)
    drop(world, 1, 1, 4)
    assert world.nodes[1].log.edition.floor == 7
    world.pass_time(20.0)
    check(world, 9)
    assert any("begins a resync" in line for line in world.trace)


def test_a_drop_while_the_log_is_read_is_noticed() -> None:
    """1. n9 asks for what follows +k. 2. n1 is about to read it. 3. n1 drops +k and -k. 4. It reads and answers."""
    world = World(config=NO_STREAM)
    world.add(1, voter=True)
    world.add(9).follow(world.source(1))
    story(world)
    drop(world, 1, 6, 7)
    world.tick(0.1)
    while world.nodes[9].log.tip < 2 or not world.nodes[1].reads:
        if world.wire:
            world.deliver()
        if world.nodes[9].log.tip < 2 and world.nodes[1].reads:
            world.nodes[1].disk(world.nodes[1].reads[0])
    drop(world, 1, 1, 4)
    world.settle()
    assert world.trace.count("n9 learned 3..4[3+b]") == 0
    world.pass_time(20.0)
    check(world, 9)


def test_who_copies_a_log_without_deletes_inherits_its_floor() -> None:
    """1. n1 drops +k and -k. 2. n9 takes all of it. 3. n8 has +k and asks n9: it must not take the rest from there."""
    world = World(config=NO_STREAM)
    world.add(1, voter=True)
    world.add(9).follow(world.source(1))
    world.add(8)
    story(world)
    world.nodes[8].append([piece(1, 2, world.truth)], "finds on disk")
    drop(world, 1, 1, 4)
    world.pass_time(4.0)
    assert world.nodes[9].log.edition.floor == 4
    world.nodes[8].follow(world.source(9))
    world.pass_time(4.0)
    check(world, 8, 9)
    assert "n8 is resynced to 10, floor 4, without ['k']" in world.trace


def test_from_the_floor_on_anybody_will_do_and_nothing_is_inherited() -> None:
    world = World(config=NO_STREAM)
    world.add(1, voter=True)
    world.add(9)
    story(world)
    world.nodes[9].append([piece(1, 4, world.truth)], "finds on disk")
    drop(world, 1, 1, 4)
    world.nodes[9].follow(world.source(1))
    world.pass_time(4.0)
    check(world, 9)
    assert world.nodes[9].log.edition == Edition(0, Seq(0))


def test_a_source_that_has_the_deletes_saves_a_resync() -> None:
    world = World(3, NO_STREAM)
    world.add(1, voter=True)
    world.add(2, voter=True)
    world.add(9)
    story(world)
    world.nodes[2].append([piece(1, 10, world.truth)], "decides")
    world.nodes[9].append([piece(1, 2, world.truth)], "finds on disk")
    drop(world, 1, 1, 4)
    world.nodes[9].follow(world.source(1, 1.0), world.source(2, 2.0))
    world.config = replace(NO_STREAM, prefer="nearest")
    world.nodes[9].boot()
    world.pass_time(4.0)
    check(world, 9)
    assert any("Resync" in line for line in world.trace)
    assert not any("begins a resync" in line for line in world.trace)


def test_patience_with_silent_sources_has_an_end() -> None:
    """Many others are silent, one after the other; the one that answers has dropped the deletes."""
    world = World(1, replace(NO_STREAM, shun_s=0.1, resync_patience_s=3.0))
    world.add(1, voter=True)
    world.add(9)
    story(world)
    world.nodes[9].append([piece(1, 2, world.truth)], "finds on disk")
    drop(world, 1, 1, 4)
    for node in (2, 3, 4):
        world.add(node, voter=True)
        world.cut.add((9, node))
    world.nodes[9].follow(*map(world.source, (1, 2, 3, 4)))
    world.pass_time(60.0)
    check(world, 9)
    assert any("begins a resync" in line for line in world.trace)


def test_the_state_is_whole_at_the_tip_that_the_source_had() -> None:
    """n1 has dropped +a at 1 for the newer one at 4; up to there n9 knows of no a at all, and says so."""
    world = World(config=NO_STREAM)
    world.add(1, voter=True)
    world.add(9).follow(world.source(1))
    world.write(1, "+a", "+b", "+c", "+a", "+d")
    del world.nodes[1].log.updates[1]
    world.tick(0.1)
    while world.nodes[9].log.tip < 2:
        world.deliver()
        for read in list(world.nodes[1].reads):
            world.nodes[1].disk(read)
    assert (world.nodes[9].machine.position, world.nodes[9].machine.whole) == (2, 5)
    world.wire.clear()
    world.add(10).follow(world.source(9))
    world.nodes[10].run(world.nodes[10].machine.tick(world.now))
    world.settle()
    assert world.nodes[10].machine.whole == 5, "and so it is for who follows"
    world.nodes[9].crash()
    assert world.nodes[9].machine.whole == 5
    assert world.nodes[9].machine.basis == Basis(NodeId(1), 0)
    world.pass_time(9.0)
    check(world, 9, 10)


def test_deletes_are_kept_for_the_slowest_follower() -> None:
    world = World(config=replace(NO_STREAM, followers_max=2, follower_timeout_s=5.0))
    world.add(1, voter=True)
    world.add(9).follow(world.source(1))
    story(world)
    assert world.nodes[1].machine.lowest_position is None
    world.pass_time(3.0)
    assert world.nodes[1].machine.lowest_position == 10
    slow = world.add(10)
    world.nodes[1].run(world.nodes[1].machine.step(slow.me, Pull(1, Seq(4), Seq(5), 100)))
    assert world.nodes[1].machine.lowest_position == 3
    world.pass_time(3.0)
    assert world.nodes[1].machine.lowest_position == 3
    world.pass_time(3.0)
    assert world.nodes[1].machine.lowest_position == 10, "it was not heard of for long"
    for position in (5, 6):
        stranger = world.add(position + 10)
        pull = Pull(1, Seq(position + 1), Seq(position + 2), 100)
        world.nodes[1].run(world.nodes[1].machine.step(stranger.me, pull))
    assert world.nodes[1].machine.lowest_position == 5, "n9, silent the longest, is forgotten"
