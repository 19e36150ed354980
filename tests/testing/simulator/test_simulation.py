"""A run as a whole: repeatable, with its phases, and able to find what is put in to be found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sirius.paxos.acceptor import Acceptor
from sirius.paxos.commander import Pipeline
from sirius.paxos.leader import Leader
from sirius.paxos.leading import Leading
from sirius.paxos.state import State
from sirius.testing.simulator import Fault, Kind, draw_schedule, draw_settings, run
from sirius.testing.simulator.faults import LEADER
from sirius.testing.simulator.many import Totals, run_checked, run_many
from sirius.testing.simulator.simulation import FAULTS_MIN, LONGER_S_MAX, Result
from sirius.types import NO_BALLOT


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run(3), run(3)
    assert first.trace == second.trace
    assert first == second


def test_another_seed_is_another_run() -> None:
    assert run(3).trace_crc != run(5).trace_crc


def test_without_faults_nearly_everything_is_acknowledged() -> None:
    result = run(2, schedule=[])
    assert result.violation is None
    assert (result.unknown, result.rejected) == (0, 0)
    assert result.writes_per_s > 0.8 * draw_settings(2).writes_per_s
    assert result.reigns == 1


def test_every_other_seed_ends_in_a_liveness_phase() -> None:
    assert [draw_settings(seed).liveness for seed in range(4)] == [False, True, False, True]
    assert any("everything is healed" in line for line in run(1).trace)


def test_sizes_followers_and_faults_are_those_that_were_promised() -> None:
    settings = [draw_settings(seed) for seed in range(200)]
    assert {len(each.voters) for each in settings} == {1, 3, 5, 7}
    assert any(each.followers for each in settings)
    assert all(len(draw_schedule(each)) >= 20 for each in settings)
    kinds = Counter(fault.kind for each in settings for fault in draw_schedule(each))
    assert set(kinds) == set(Kind)


def test_whatever_turns_out_to_be_impossible_a_run_has_enough_faults() -> None:
    for seed in range(200):
        schedule = draw_schedule(draw_settings(seed))
        instead = [fault.instead.kind for fault in schedule if fault.instead is not None]
        assert len(instead) >= FAULTS_MIN
        assert set(instead) <= {"drop", "duplicate", "delay", "clock-speed", "slow-disk", "burst"}
        # Seed 1002711: nobody was up to lead, so it could not happen to a leader.
        assert all(fault.instead is None or fault.instead.where != LEADER for fault in schedule)


@pytest.mark.parametrize("liveness", [False, True])
def test_a_run_in_which_little_is_written_goes_on(liveness: bool) -> None:
    settings = replace(draw_settings(2), liveness=liveness, duration_s=6.0)
    down = [Fault(0.2, Kind.KILL, name, 5.7) for name in settings.names]
    result = run(2, down, settings)
    assert result.violation is None
    assert result.simulated_s > settings.duration_s + 1
    assert not result.is_void


def test_a_run_in_which_nothing_can_be_written_ends_all_the_same() -> None:
    settings = replace(draw_settings(2), duration_s=2.0)
    down = [Fault(0.2, Kind.KILL, name, 99.0) for name in settings.names]
    result = run(2, down, settings)
    assert result.simulated_s == pytest.approx(settings.duration_s + LONGER_S_MAX, abs=0.2)
    assert result.is_void


def test_a_cluster_that_is_not_healed_breaks_the_promise_of_liveness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sirius.testing.simulator.injector.Injector.heal", lambda self: None)
    settings = replace(draw_settings(1), followers=(), spares=())
    cut = [Fault(1.0, Kind.ISOLATE, name, 99.0) for name in settings.voters]
    result = run(1, cut, settings)
    assert result.violation is not None
    assert result.violation.startswith("L: no write")


def test_healing_orders_no_members_that_have_all_lost_their_disks() -> None:
    """The only member was taken out and lost its disk: told to be the only one again, it would found a cluster."""
    assert run(1001563).violation is None


def test_an_error_of_the_machine_is_a_violation_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raises(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(Leading, "accepted", raises)
    violation = run(2).violation
    assert violation is not None
    assert violation.startswith("bug: ZeroDivisionError: by nothing at test_simulation.py:")


# ---------------------------------------------------------------------- bugs that are put in


def first_violation(seeds: range, letters: str = "ADPCRMLWb") -> str:
    """Run seeds until one breaks a promise, or one of some."""
    violations = (run(seed).violation for seed in seeds)
    return next((each for each in violations if each and each[0] in letters), "nothing")


@pytest.mark.deep
def test_acceptors_without_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 1: the ancestor's acceptors forget everything when they restart."""

    def forgetful(self: Acceptor, *_: object) -> None:
        remember(self, NO_BALLOT, ())

    remember = Acceptor.__init__
    monkeypatch.setattr(Acceptor, "__init__", forgetful)
    assert first_violation(range(60))[0] in "ADPb"


def test_ballots_that_are_used_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 3."""
    recover = State.recover.__func__  # type: ignore[attr-defined]

    def forgetful(cls: type[State], *arguments: Any) -> State:
        state: State = recover(cls, *arguments)
        state.highest = state.used = NO_BALLOT
        return state

    monkeypatch.setattr(State, "recover", classmethod(forgetful))
    assert first_violation(range(60)).startswith(("A:", "bug: InvariantViolation"))


def test_requests_that_take_effect_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 6: a leader that takes whatever comes."""
    monkeypatch.setattr(Leader, "_last_serial", lambda _self, request: request.serial - 1)
    assert first_violation(range(40)).startswith("D:")


def test_a_quorum_that_is_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sirius.paxos.members.Configuration.is_quorum", lambda _self, nodes: bool(len(nodes))
    )
    assert first_violation(range(60), "AD") != "nothing"


def test_a_leader_that_decides_without_votes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 5: acknowledged before it is on any disk."""

    def decide(self: Pipeline, _configuration: object) -> Any:
        if not self._under_way:
            return None
        value = self._under_way.popleft().value
        self.bytes -= len(value)
        return value

    monkeypatch.setattr(Pipeline, "pop_decided", decide)
    assert first_violation(range(40))[0] in "AD"


def test_reads_of_a_leader_that_was_replaced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 22: a leader that answers reads without asking whether it still leads."""
    monkeypatch.setattr(
        Leading, "holds_lease", property(lambda self: self._state.leader is not None)
    )
    assert first_violation(range(34, 60)).startswith("R: a read")


# ---------------------------------------------------------------------- many


def test_one_seed_in_twenty_runs_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def fake(seed: int) -> Result:
        ran.append(seed)
        return Result(seed, trace=[str(len(ran))])

    monkeypatch.setattr("sirius.testing.simulator.many.run", fake)
    assert run_checked(7).violation is None
    violation = run_checked(20).violation
    assert ran == [7, 20, 20]
    assert violation == "T: two runs differ: '2', then '3'"


def test_totals_add_up() -> None:
    totals = Totals.of(run_many([1, 2]))
    single = [run(1), run(2)]
    assert totals.acknowledged == sum(each.acknowledged for each in single)
    assert totals.faults == single[0].faults + single[1].faults
    assert totals.as_json()["seeds"] == 2
    assert totals.lines()[0].startswith("2 seeds, 0 violations")


def test_a_run_without_writes_is_void() -> None:
    assert Result(1, simulated_s=10, acknowledged=499).is_void
    assert not Result(1, simulated_s=10, acknowledged=500).is_void
    # Nobody writes while nodes catch up: seeds 1445 and 1935, in which that takes two seconds.
    assert not Result(1, simulated_s=12, quiet_s=2, acknowledged=500).is_void
    assert Result(1, simulated_s=12, quiet_s=2, acknowledged=499).is_void


def test_the_time_in_which_nodes_catch_up_is_not_counted_as_one_of_load() -> None:
    results = [run(seed) for seed in (1, 3, 5, 7)]
    assert all(result.quiet_s < result.simulated_s for result in results)
    assert any(result.quiet_s for result in results), "not all have caught up when the load ends"
    assert run(2).quiet_s == 0, "it has no liveness phase"
