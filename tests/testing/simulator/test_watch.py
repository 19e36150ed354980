"""The watch over nodes that are good for nothing, and the handler that is slow."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sirius.backlog import Backlog
from sirius.codec import BlockCodec
from sirius.engine import Engine
from sirius.testing.simulator import Fault, Kind, draw_settings, run
from sirius.testing.simulator.handler import SimHandler
from sirius.testing.simulator.simulation import Simulation
from sirius.testing.simulator.truth import Violation
from sirius.testing.simulator.watch import Watch
from sirius.types import NO_BALLOT, Ballot
from tests.testing.simulator.blocks import noops

CODEC = BlockCodec(lambda: 0)
TIMEOUT_S = 1.0


def fake(
    *, voters: int = 3, leads: bool = False, waits: bool = False, ballot: Ballot = NO_BALLOT
) -> Engine:
    machine = SimpleNamespace(configuration=SimpleNamespace(voters=range(voters)), is_leader=leads)
    journal = SimpleNamespace(highest_ballot=ballot)
    return cast(Engine, SimpleNamespace(machine=machine, journal=journal, waits_for_journal=waits))


def begun() -> Watch:
    watch = Watch("a", TIMEOUT_S)
    watch.begin(fake(), 0.0)
    return watch


def test_a_leader_that_hears_nobody_is_found() -> None:
    watch = begun()
    watch.look(fake(leads=True), 1.4, disk_hangs=False)
    with pytest.raises(Violation, match=r"L: a leads, and has heard nobody for 1\.60 s"):
        watch.look(fake(leads=True), 1.6, disk_hangs=False)


def test_a_candidate_that_hears_nobody_is_found() -> None:
    watch = begun()
    watch.look(fake(), 1.6, disk_hangs=False)
    with pytest.raises(Violation, match="L: a runs for leader"):
        watch.look(fake(ballot=Ballot(1, 1)), 1.7, disk_hangs=False)


def test_who_hears_somebody_may_lead_and_run() -> None:
    watch = begun()
    watch.heard(1.0)
    watch.look(fake(leads=True, ballot=Ballot(1, 1)), 2.4, disk_hangs=False)


def test_who_votes_alone_has_nobody_to_hear() -> None:
    begun().look(fake(voters=1, leads=True), 9.0, disk_hangs=False)


def test_a_leader_whose_disk_hangs_is_found() -> None:
    watch = begun()
    stuck = fake(voters=1, leads=True, waits=True)
    watch.look(stuck, 5.0, disk_hangs=True)
    watch.look(stuck, 6.4, disk_hangs=True)
    with pytest.raises(Violation, match=r"L: a leads, and its disk has hung for 1\.60 s"):
        watch.look(stuck, 6.6, disk_hangs=True)


@pytest.mark.parametrize("between", ["synced", "no hang", "nothing to write"])
def test_a_disk_that_worked_in_between_does_not_hang(between: str) -> None:
    watch = begun()
    stuck = fake(voters=1, leads=True, waits=True)
    watch.look(stuck, 5.0, disk_hangs=True)
    if between == "synced":
        watch.synced()
    else:
        idle = fake(voters=1, leads=True, waits=between == "no hang")
        watch.look(idle, 5.5, disk_hangs=between != "no hang")
    watch.look(stuck, 6.6, disk_hangs=True)


# ---------------------------------------------------------------------- handlers


def test_what_waits_for_a_handler_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = SimHandler("a", 10)
    handler.push(noops(1, 1))
    handler.apply()
    monkeypatch.setattr(Backlog, "bytes", property(lambda _self: 11))
    with pytest.raises(Violation, match="M: 11 bytes wait for a's handler"):
        handler.apply()


def test_a_handler_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = SimHandler("a", 1000)
    handler.push(noops(1, 1))
    monkeypatch.setattr(Backlog, "take", lambda _self: [noops(2, 2)])
    with pytest.raises(Violation, match="P: a's handler gets 2 in place of 1"):
        handler.apply()


def test_a_slow_handler_disturbs_nobody() -> None:
    settings = draw_settings(3)
    schedule = [Fault(1.0, Kind.SLOW_HANDLER, name, 99.0) for name in settings.names]
    slow, quick = run(3, schedule), run(3, [])
    assert slow.violation is None
    assert (slow.acknowledged, slow.slots) == (quick.acknowledged, quick.slots)


# ---------------------------------------------------------------------- followers


def test_followers_follow_each_other_and_never_in_a_ring() -> None:
    settings = replace(draw_settings(3), followers=("p", "q"), chained=True)
    settings = replace(settings, catchup=replace(settings.catchup, prefer="nearest"))
    simulation = Simulation(settings, [])
    simulation.cluster.start()
    simulation.cluster.loop.run(5.0)
    nodes: list[Any] = [simulation.cluster.nodes[name] for name in settings.followers]
    sources = [node.engine.catchup.source for node in nodes]
    names = [source.name for source in sources if source is not None]
    assert len(names) == 2
    assert len({"p", "q"} & set(names)) == 1
