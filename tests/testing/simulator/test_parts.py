"""The parts of the simulator, one at a time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sirius.codec import BlockCodec
from sirius.testing.simulator import Fault, Kind, draw_settings, run
from sirius.testing.simulator.__main__ import main
from sirius.testing.simulator.clock import NodeClock
from sirius.testing.simulator.cluster import Cluster
from sirius.testing.simulator.events import Loop, Trace
from sirius.testing.simulator.faults import LEADER
from sirius.testing.simulator.injector import Injector
from sirius.testing.simulator.minimise import shorten
from sirius.testing.simulator.network import Network

THREE = replace(
    draw_settings(2), voters=("a", "b", "c"), spares=(), followers=("p",), duration_s=9.0
)


@pytest.fixture
def network() -> tuple[Loop, Network, list[Any]]:
    loop, arrived = Loop(), list[Any]()
    return (
        loop,
        Network(loop, random.Random(1), 0.01, lambda _s, _t, item: arrived.append(item)),
        arrived,
    )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(THREE)


def inject(cluster: Cluster, fault: Fault) -> Injector:
    """Start a cluster, and let a fault come once it has a leader."""
    injector = Injector(cluster)
    injector.plan([fault])
    cluster.start()
    cluster.loop.run(fault.at + 0.001)
    return injector


# ---------------------------------------------------------------------- time


def test_events_happen_in_the_order_of_their_times_and_then_of_their_numbers() -> None:
    loop, happened = Loop(), list[str]()
    for time, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (9.0, "never")):
        loop.at(time, lambda name=name: happened.append(name))  # type: ignore[misc]
    loop.run(5.0)
    assert happened == ["a", "b", "c"]
    assert loop.now == 5.0


def test_a_trace_line_says_when_who_and_what() -> None:
    loop = Loop()
    trace = Trace(loop)
    loop.run(3.2138)
    trace.note("b", "leads ballot 4.b from 17")
    assert trace.lines == ["   3.214 b    leads ballot 4.b from 17"]


def test_monotonic_time_never_goes_back_and_the_time_of_day_jumps() -> None:
    clock = NodeClock(100.0)
    clock.run_at(0.5, 10.0)
    assert clock.monotonic(10.0) == 110.0
    assert clock.monotonic(12.0) == 111.0
    before = clock.time_of_day_us(12.0)
    clock.jump(-3600)
    assert clock.monotonic(12.0) == 111.0
    assert clock.time_of_day_us(12.0) == before - 3600 * 1_000_000


# ---------------------------------------------------------------------- network


def test_a_cut_link_loses_what_is_under_way_and_what_is_sent_one_way_only(
    network: tuple[Loop, Network, list[Any]],
) -> None:
    loop, wire, arrived = network
    wire.send("a", "b", "under way")
    wire.cut("a", "b")
    wire.send("a", "b", "sent")
    wire.send("b", "a", "back")
    loop.run(1.0)
    assert arrived == ["back"]


def test_a_link_that_was_cut_twice_has_to_be_healed_twice(
    network: tuple[Loop, Network, list[Any]],
) -> None:
    loop, wire, arrived = network
    wire.cut("a", "b")
    wire.cut("a", "b")
    wire.heal("a", "b")
    wire.send("a", "b", 1)
    wire.heal("a", "b")
    wire.send("a", "b", 2)
    loop.run(1.0)
    assert arrived == [2]


def test_rates_drop_double_and_reorder(network: tuple[Loop, Network, list[Any]]) -> None:
    loop, wire, arrived = network
    wire.drop.append(1.0)
    wire.send("a", "b", "lost")
    wire.drop.clear()
    wire.duplicate.append(1.0)
    wire.delay.append(0.5)
    for number in range(20):
        wire.send("a", "b", number)
    loop.run(60.0)
    assert sorted(arrived) == sorted([*range(20), *range(20)])
    assert arrived != sorted(arrived)


# ---------------------------------------------------------------------- faults


def test_a_killed_node_comes_back_after_its_time(cluster: Cluster) -> None:
    injector = inject(cluster, Fault(1.0, Kind.KILL, "b", 0.5))
    assert not cluster.nodes["b"].is_up
    cluster.loop.run(1.6)
    assert cluster.nodes["b"].is_up
    assert injector.happened == {Kind.KILL: 1}


def test_a_fault_at_the_leader_finds_it(cluster: Cluster) -> None:
    inject(cluster, Fault(1.0, Kind.KILL, LEADER, 5.0))
    assert sum(not node.is_up for node in cluster.nodes.values()) == 1
    cluster.loop.run(4.0)
    assert cluster.leader is not None


def test_a_lost_disk_is_another_node(cluster: Cluster) -> None:
    Injector(cluster).plan([Fault(1.0, Kind.LOST_DISK, "b", 0.1)])
    cluster.start()
    cluster.loop.run(0.9)
    before = cluster.nodes["b"].node_id
    cluster.loop.run(1.2)
    assert cluster.nodes["b"].node_id != before
    assert cluster.lost == {before}


def test_no_more_disks_are_lost_than_the_promise_covers(cluster: Cluster) -> None:
    injector = Injector(cluster)
    injector.plan([Fault(1.0, Kind.LOST_DISK, name, 60.0) for name in "abc"])
    cluster.start()
    cluster.loop.run(1.01)
    assert injector.happened == {Kind.LOST_DISK: 1}


def test_another_fault_comes_in_the_place_of_one_that_stays_impossible(cluster: Cluster) -> None:
    drop = Fault(1.0, Kind.DROP, "", 0.5, 0.2)
    injector = Injector(cluster)
    injector.plan([Fault(1.0, Kind.LOST_DISK, name, 60.0, instead=drop) for name in "ab"])
    cluster.start()
    cluster.loop.run(1.5)
    assert injector.happened == {Kind.LOST_DISK: 1}
    cluster.loop.run(2.5)
    assert injector.happened == {Kind.LOST_DISK: 1, Kind.DROP: 1}
    assert cluster.network.drop == [0.2]
    cluster.loop.run(3.0)
    assert cluster.network.drop == []


def test_it_comes_at_once_when_there_is_no_time_left_to_try_again(cluster: Cluster) -> None:
    drop = Fault(8.8, Kind.DROP, "", 0.5, 0.2)
    injector = Injector(cluster)
    injector.plan([Fault(8.8, Kind.LOST_DISK, name, 60.0, instead=drop) for name in "ab"])
    cluster.start()
    cluster.loop.run(8.801)
    assert injector.happened == {Kind.LOST_DISK: 1, Kind.DROP: 1}


def test_a_fault_that_finds_nobody_is_tried_again(cluster: Cluster) -> None:
    injector = Injector(cluster)
    injector.plan([Fault(1.0, Kind.KILL, name, 0.3) for name in "abc"])
    injector.plan([Fault(1.1, Kind.PAUSE, LEADER, 0.1)])
    cluster.start()
    cluster.loop.run(1.2)
    assert injector.happened == {Kind.KILL: 3}
    cluster.loop.run(2.0)
    assert injector.happened == {Kind.KILL: 3, Kind.PAUSE: 1}


def test_a_paused_node_does_nothing_and_then_everything(cluster: Cluster) -> None:
    inject(cluster, Fault(1.0, Kind.PAUSE, "b", 1.0))
    before = cluster.nodes["b"].replay.position
    cluster.loop.run(1.9)
    assert cluster.nodes["b"].replay.position == before
    cluster.loop.run(3.5)
    assert cluster.nodes["b"].replay.position > before


def test_a_hung_disk_syncs_nothing(cluster: Cluster) -> None:
    inject(cluster, Fault(1.0, Kind.HUNG_DISK, "b", 1.0))
    cluster.loop.run(1.1)
    before = cluster.durable(cluster.nodes["b"])
    cluster.loop.run(1.9)
    assert cluster.durable(cluster.nodes["b"]) == before
    cluster.loop.run(4.0)
    assert cluster.durable(cluster.nodes["b"]) > before


def test_healing_undoes_everything(cluster: Cluster) -> None:
    injector = Injector(cluster)
    kinds = (Kind.ISOLATE, Kind.PAUSE, Kind.HUNG_DISK, Kind.PASSIVE, Kind.FULL_DISK)
    injector.plan([Fault(1.0, kind, "b", 60.0) for kind in kinds])
    injector.plan([Fault(1.1, Kind.KILL, "c", 60.0), Fault(1.1, Kind.DROP, "", 60.0, 1.0)])
    cluster.start()
    cluster.loop.run(2.0)
    injector.heal()
    cluster.loop.run(6.0)
    assert all(node.is_up for node in cluster.nodes.values())
    ends = {node.replay.position for node in cluster.nodes.values()}
    assert min(ends) > cluster.checkers.truth.last - 200


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_fault_happens_and_breaks_nothing_alone(kind: Kind) -> None:
    voters = ("a", "c") if kind in (Kind.WISH, Kind.SPLIT) else ()
    where = LEADER if kind == Kind.HAND_OVER else "b"
    fault = Fault(2.0, kind, where, 0.4, 0.3, names=voters)
    result = run(3, [fault], replace(THREE, seed=3, liveness=True, duration_s=3.5))
    assert result.violation is None
    assert result.faults == {kind: 1}


# ---------------------------------------------------------------------- minimising


def needs(*numbers: int) -> Callable[[list[Fault]], bool]:
    return lambda faults: {fault.at for fault in faults} >= set(numbers)


@pytest.mark.parametrize("wanted", [(), (0,), (29,), (3, 17), (4, 5, 6, 28)])
def test_a_schedule_is_shortened_to_what_is_needed(wanted: tuple[int, ...]) -> None:
    schedule = [Fault(number, Kind.KILL, "a") for number in range(30)]
    shortened = shorten(schedule, needs(*wanted))  # type: ignore[arg-type]
    assert [fault.at for fault in shortened] == list(wanted)


# ---------------------------------------------------------------------- the command


def test_the_command_shows_settings_schedule_and_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.txt"
    assert main(["--seed", "2", "--trace", str(trace)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("seed 2: voters ")
    assert shown[-1].startswith("seed 2: good; ")
    assert len(shown) > 20
    assert trace.read_text(encoding="utf-8").splitlines() == run(2).trace


def test_the_command_runs_many_and_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--count", "2", "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)
    assert totals["seeds"] == 2
    assert totals["violations"] == []
    assert set(totals["faults"]) == set(map(str, Kind))


def test_a_broken_promise_is_told_with_the_way_to_see_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sirius.testing.simulator.checkers.held_bytes_max", lambda *_: 100)
    assert main(["--seed", "2", "--minimise"]) == 1
    told = capsys.readouterr()
    assert "M: " in told.err
    assert "make sim SEED=2" in told.err
    assert told.out.splitlines()[-1] == "these 0 faults are enough:"


# ---------------------------------------------------------------------- disks that may go


def test_a_disk_stays_that_voters_to_come_may_need(cluster: Cluster) -> None:
    """Seed 1046755: `b` was to leave, which it and `c` had accepted and nobody knew to be decided; then `a` lost its
    disk, and with it one of the two that were left."""
    cluster.start()
    cluster.loop.run(2.0)
    a, b, truth = cluster.nodes["a"], cluster.nodes["b"], cluster.checkers.truth
    assert cluster.may_lose(a)
    _, now = truth.configurations[-1]
    rest = tuple(member for member in now.voters if member.name != "b")
    change = replace(now, number=now.number + 1, voters=rest)
    cluster.proposes(BlockCodec(lambda: 0).membership(truth.last + 1, change))
    assert not cluster.may_lose(a)
    assert cluster.may_lose(b)
    cluster.loop.run(3.0)
    assert cluster.may_lose(a), "something else was decided there"


def test_what_nodes_propose_is_known(cluster: Cluster) -> None:
    cluster.start()
    cluster.loop.run(2.0)
    for node in cluster.nodes.values():
        node.wish = ("a", "c") if node.wish else None
        node.read_member_file()
    cluster.loop.run(4.0)
    proposed = [{member.name for member in each.voters} for _, each in cluster._proposed]
    assert {"a", "c"} in proposed
