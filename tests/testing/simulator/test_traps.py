"""Known mistakes that are put back: the simulator has to find every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirius.testing.simulator import run
from sirius.testing.simulator.__main__ import main
from sirius.testing.simulator.traps import TRAPS, Patch, Trap, hunt

SEEDS_MAX = 3000
SHOWN_BY = {
    "1": 27,
    "2": 132,
    "5": 3,
    "7": 1,
    "7b": 7,
    "8": 26,
    "9": 4,
    "10": 17,
    "12": 170,
    "16": 3,
    "17": 13,
    "18": 27,
    "22": 222,
    "22b": 109,
    "23": 19,
    "24": 11,
}
"""A seed that shows each trap. From seed 1 on it takes as long as docs/simulator.md says."""
QUICK = ("3", "6", "21")
DOCS = Path(__file__).parents[3] / "docs" / "simulator.md"


def check_found(number: str, first: int, seeds: int) -> None:
    catch = hunt(TRAPS[number], range(first, first + seeds))
    assert catch is not None, f"no seed in {seeds} shows it"
    print(f"trap {number}: {catch.seeds} seeds from {first} on: {catch.result.violation}")
    assert run(catch.result.seed).violation is None, "it was not the trap"


@pytest.mark.parametrize("number", QUICK)
def test_some_traps_are_found_at_once(number: str) -> None:
    check_found(number, 1, 60)


@pytest.mark.deep
@pytest.mark.parametrize("number", [number for number in TRAPS if number not in QUICK])
def test_every_trap_is_found(number: str) -> None:
    """Should the simulator draw other runs one day, this takes longer, and the table has to be made anew."""
    check_found(number, max(1, SHOWN_BY[number] - 2), SEEDS_MAX)


def test_there_is_a_trap_for_every_mistake_that_a_simulated_cluster_can_make() -> None:
    numbers = {int(number.rstrip("b")) for number in TRAPS}
    assert numbers == {1, 2, 3, *range(5, 11), 12, 16, 17, 18, *range(21, 25)}
    assert set(SHOWN_BY) | set(QUICK) == set(TRAPS)


def test_every_trap_stands_in_the_table_of_the_docs() -> None:
    rows = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    for trap in TRAPS.values():
        assert any(row.startswith(f"| {trap.number} | {trap.name} |") for row in rows), trap.name


# ---------------------------------------------------------------------- how a trap is laid


class Victim:
    """Something to be changed."""

    def answer(self) -> int:
        return 42


TRAP = Trap("0", "wrong answer", "", (Patch(Victim, "answer", lambda _self: 41),))


def test_a_trap_changes_the_code_while_it_is_sprung() -> None:
    with TRAP.sprung():
        assert Victim().answer() == 41
    assert Victim().answer() == 42


def test_a_trap_is_gone_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), TRAP.sprung():
        raise ZeroDivisionError
    assert Victim().answer() == 42


@pytest.mark.parametrize("number", TRAPS)
def test_nothing_of_a_trap_stays_behind(number: str) -> None:
    trap = TRAPS[number]
    before = [vars(owner)[name] for owner, name, _ in trap.patches]
    with trap.sprung():
        assert [vars(owner)[name] for owner, name, _ in trap.patches] != before or number == "2"
    assert [vars(owner)[name] for owner, name, _ in trap.patches] == before


def test_a_run_after_a_hunt_is_the_same_as_before() -> None:
    before = run(2).trace_crc
    hunt(TRAPS["2"], [2])
    assert run(2).trace_crc == before


def test_the_command_line_tells_what_was_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.txt"
    assert main(["--trap", "6", "--seed", "1", "--count", "60", "--trace", str(trace)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("trap 6, idempotent is not commutative: ")
    assert "found after 1 seeds: seed 1: BROKEN" in shown
    assert "D: slot" in trace.read_text(encoding="utf-8")


def test_the_command_line_tells_what_was_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trap", "12", "--seed", "2", "--count", "1"]) == 0
    assert capsys.readouterr().out.endswith("not found in 1 seeds\n")
