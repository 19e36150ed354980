"""What section 5.1 of the Sirius paper, "Catch-Up Protocol", promises; each test cites its sentence."""

from __future__ import annotations

from dataclasses import replace

from sirius.catchup.effects import ReadRange
from sirius.catchup.messages import Pull, Range
from sirius.types import Seq
from tests.catchup.logs import piece
from tests.catchup.world import SMALL, World

WRITES = [f"+{letter}" for letter in "abcdefghijklmnop"]


def world_of(*nodes: int, follower: int = 9) -> World:
    """Primaries that all have the same sixteen updates, and a follower that has none."""
    world = World(config=replace(SMALL, cache_slots_max=1))
    for node in (*nodes, follower):
        world.add(node, voter=node != follower)
    world.write(nodes[0], *WRITES)
    for node in nodes[1:]:
        world.nodes[node].append([piece(1, 16, world.truth)], "decides")
    world.nodes[follower].follow(*map(world.source, nodes))
    return world


def pulls(world: World) -> list[tuple[int, Pull]]:
    return [(to.node, message) for _, to, message in world.wire if isinstance(message, Pull)]


def test_each_node_periodically_selects_a_random_peer() -> None:
    """5.1: "each node periodically selects a random peer"."""
    asked = set()
    world = World()
    for node in (1, 2, 3):
        world.add(node, voter=True)
    world.nodes[3].follow(world.source(1), world.source(2))
    for _ in range(20):
        world.tick(1.6)
        asked |= {to for to, _ in pulls(world)}
        count = len(pulls(world))
        world.settle()
        assert count == 1, "one question a period, and every period one"
    assert asked == {1, 2}


def test_a_voter_that_misses_a_decision_asks_too() -> None:
    """5.1: "nodes are particularly susceptible to lost decision messages; these delay updates"."""
    world = world_of(1, 2)
    voter = world.add(3, voter=True)
    voter.follow(world.source(1), world.source(2))
    voter.append([piece(1, 3, world.truth)], "decides")
    world.settle()
    voter.run(voter.machine.heard(Seq(16)))
    world.pass_time(2.0)
    assert voter.log.tip == 16
    assert voter.machine.source is None, "what comes next is the business of consensus"


def test_the_range_begins_at_the_lowest_missing_number() -> None:
    """5.1: "requests a range of updates starting from the lowest sequence number for which it does not have"."""
    world = world_of(1)
    world.nodes[9].append([piece(1, 5, world.truth)], "finds on disk")
    world.tick(0.1)
    [(_, pull)] = pulls(world)
    assert (pull.first, pull.last) == (6, 5 + SMALL.window_slots_min)


def test_the_peer_replies_with_all_it_has_in_the_range() -> None:
    """5.1: "The peer replies with all the decisions it has that fall within the given slot number range"."""
    world = world_of(1)
    world.tick(0.1)
    [(_, pull)] = pulls(world)
    feeder = world.nodes[1]
    feeder.run(
        feeder.machine.step(
            world.nodes[9].me, pull._replace(first=Seq(4), last=Seq(9), bytes_max=999, era=0)
        )
    )
    feeder.disk(feeder.reads[0])
    answer = world.wire[-1][2]
    assert isinstance(answer, Range)
    assert (answer.first, answer.last) == (4, 9)
    assert [update for value in answer.values for update in value.updates] == world.truth[3:9]  # type: ignore[attr-defined]


def test_recent_decisions_come_from_a_small_cache() -> None:
    """5.1: "Some of these may be returned from a small in-memory cache of updates kept by the peer"."""
    world = world_of(1)
    world.write(1, "+q")
    world.nodes[9].append([piece(1, 16, world.truth)], "finds on disk")
    world.tick(0.1)
    world.deliver()
    assert world.nodes[1].reads == []
    assert isinstance(world.wire[-1][2], Range)


def test_older_decisions_come_from_the_log() -> None:
    """5.1: "the peer may need to consult the persistent log for older updates no longer in its cache"."""
    world = world_of(1)
    world.tick(0.1)
    world.deliver()
    assert [type(read) for read in world.nodes[1].reads] == [ReadRange]


def test_a_full_range_is_followed_by_the_next_of_the_same_peer() -> None:
    """5.1: "If the peer replies with a full range of updates, the process continues: ... from the same peer"."""
    world = world_of(1, 2)
    world.tick(0.1)
    asked = []
    while world.wire:
        asked += [to for to, _ in pulls(world)]
        world.deliver()
        for node in (1, 2):
            for read in list(world.nodes[node].reads):
                world.nodes[node].disk(read)
        if len(asked) == 3:
            break
    assert len(set(asked)) == 1
    assert world.nodes[9].log.tip > SMALL.window_slots_min


def test_a_partial_range_ends_the_round() -> None:
    """5.1: "Once a partial range is returned, the catchup protocol ceases until the next period begins"."""
    world = World()
    world.add(1, voter=True)
    world.add(2, voter=True).follow(world.source(1))
    world.write(1, "+a")
    world.tick(1.6)
    world.settle()
    assert world.nodes[2].log.tip == 1
    world.trace.clear()
    world.tick(0.1)
    assert world.trace == []
    world.tick(1.6)
    assert len(pulls(world)) == 1


def test_the_next_period_begins_with_another_peer_when_one_has_failed() -> None:
    """5.1: "until the next period begins with a new, random peer"."""
    world = world_of(1, 2)
    world.nodes[1].log.unreadable = (1, 16)
    world.tick(0.1)
    world.pass_time(3.0)
    assert world.nodes[9].log.tip == 16
    assert world.nodes[9].machine.source == world.nodes[2].me


def test_members_that_do_not_vote_catch_up_by_the_primaries() -> None:
    """5.1: "provides for dependent cluster members that do not participate in Paxos"."""
    world = world_of(1, 2)
    world.pass_time(3.0)
    assert world.nodes[9].log.tip == 16
    assert len(world.nodes[9].machine.path) == 2


def test_clusters_that_follow_are_seconds_behind() -> None:
    """5.1: "following along for updates - often within seconds of each other and across datacenters"."""
    world = world_of(1, 2)
    for node, upstream in ((10, 9), (11, 10)):
        world.add(node).follow(world.source(upstream))
    world.pass_time(6.0)
    world.write(1, "+z")
    world.nodes[2].append([piece(17, 17, world.truth)], "decides")
    world.settle()
    assert [world.nodes[node].log.tip for node in (9, 10, 11)] == [17, 17, 17], "pushed at once"


def test_another_cluster_can_become_the_primary() -> None:
    """5.1: "Different clusters can be activated as primaries ... without an application restart"."""
    world = world_of(1)
    world.pass_time(3.0)
    follower, primary = world.nodes[9], world.nodes[1]
    follower.voter, primary.voter = True, False
    follower.run(follower.machine.set_voter(True))
    primary.run(primary.machine.set_voter(False))
    primary.follow(world.source(9))
    world.pass_time(12.0)
    world.write(9, "+z")
    world.pass_time(3.0)
    assert (primary.log.tip, primary.machine.path) == (17, (9, 1))
    assert follower.machine.path == (9,)


def test_what_cannot_be_read_is_never_declared() -> None:
    """Not in the paper, whose peers declare what they cannot read: trap 10 of the design."""
    world = world_of(1)
    world.nodes[1].log.unreadable = (3, 4)
    world.pass_time(8.0)
    assert world.nodes[9].log.tip == 2
    assert world.nodes[9].machine.known == 16
    assert any("Unavailable" in line for line in world.trace)
