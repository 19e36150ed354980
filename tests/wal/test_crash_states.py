"""What a crash leaves at any call of any operation: nothing promised is lost, nothing is invented.

Each test prints how many crashes and states it looked at (`pytest -s`), and fails if they are fewer
than there should be. The letters of the workloads are explained in `bookkeeping.Writer`; a dash
means that all names were on disk before the last operation began.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pytest

from sirius.wal import Durability, LogConfig
from tests.wal.bookkeeping import SMALL, mode
from tests.wal.crashlab import SOAK, Lab, steady

TINY: Final = replace(SMALL, segment_bytes_max=400)
"""Every append rotates, and compaction merges what is left."""
LAZY: Final = replace(TINY, retire_after_s=600.0)
RESERVING: Final = replace(SMALL, reserve_bytes=600)


@dataclass(frozen=True)
class Case:
    """Workloads whose last operation is the one to crash in, and how many states that must give."""

    config: LogConfig
    workloads: str
    states_min: int

    def __iter__(self) -> Iterator[str]:
        return iter(self.workloads.split())


CASES: Final = {
    "creation": Case(SMALL, "o", 100),
    "append": Case(SMALL, "a aa wa ada a-a", 200),
    "append without flush": Case(SMALL, "w aw ww", 100),
    "rotation": Case(SMALL, "ar wr rr-r", 450),
    "rewrite": Case(SMALL, "rdr-t", 600),
    "merge": Case(TINY, "aaa-c", 600),
    "retirement": Case(LAZY, "aaac-z", 100),
    "recovery": Case(SMALL, "ao rwo rdrt-o", 300),
    "close": Case(SMALL, "ax rw-x", 100),
    "reserve": Case(RESERVING, "o ao", 200),
}


@pytest.fixture(autouse=True)
def _steady() -> Iterator[None]:
    with steady():
        yield


def report(lab: Lab, what: str, states_min: int) -> None:
    print(
        f"{what}: {lab.crashes} crashes, {lab.states} states ({lab.exhaustive} crashes with all of "
        f"theirs), {lab.opened} distinct ones opened, {lab.refused} refused"
    )
    assert lab.states >= states_min, lab


@pytest.mark.parametrize("name", CASES)
def test_a_power_loss_at_any_call_loses_nothing_that_was_flushed(name: str) -> None:
    case, lab = CASES[name], Lab(per_crash_max=16)
    for workload in case:
        lab.power_loss(workload, case.config)
    report(lab, name, case.states_min)
    assert lab.refused == 0


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("durability", Durability)
def test_killing_the_process_at_any_call_loses_nothing_that_its_mode_promised(
    name: str, durability: Durability
) -> None:
    case, lab = CASES[name], Lab(per_crash_max=1)
    for workload in case:
        lab.kill(workload, mode(durability, case.config))
    report(lab, f"{name}, {durability}", 9)
    assert lab.refused == 0


@pytest.mark.parametrize("name", CASES)
def test_what_is_flushed_after_a_kill_survives_a_power_loss(name: str) -> None:
    case, lab = CASES[name], Lab(per_crash_max=6)
    for workload in case:
        lab.kill_then_power_loss(workload, case.config)
    report(lab, name, 50)
    assert lab.refused == 0


@pytest.mark.parametrize("name", CASES)
def test_a_power_loss_while_recovering_from_one_is_recovered_from(name: str) -> None:
    case, lab = CASES[name], Lab(per_crash_max=3)
    for workload in case:
        lab.crash_while_recovering(workload, case.config, stride=5)
    report(lab, name, 60)
    assert lab.refused == 0


@pytest.mark.parametrize("name", CASES)
def test_without_syncs_a_power_loss_leaves_a_prefix_or_is_refused(name: str) -> None:
    case, lab = CASES[name], Lab(per_crash_max=6)
    durability = Durability.MEMORY if name in ("creation", "append", "close") else Durability.OS
    for workload in case:
        lab.power_loss(workload, mode(durability, case.config))
    report(lab, f"{name}, {durability}", 40)
    assert lab.refused < lab.opened / 10


def test_a_hole_in_front_of_a_block_that_survived_is_refused_and_not_cut_off() -> None:
    lab = Lab(per_crash_max=1000)
    lab.power_loss("oaaaa", mode(Durability.OS))
    assert lab.refused > 0, "no state with a hole was there: the test above tests nothing"
    assert lab.exhaustive == lab.crashes


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_many_states_of_every_operation(name: str) -> None:
    case, lab = CASES[name], Lab(per_crash_max=20_000 if SOAK else 120)
    for workload in case:
        lab.power_loss(workload, case.config)
        lab.kill_then_power_loss(workload, case.config)
        lab.crash_while_recovering(workload, case.config, stride=1 if SOAK else 13)
    report(lab, name, 2 * case.states_min)
    assert lab.refused == 0


@pytest.mark.deep
@pytest.mark.parametrize("last", "arto")
def test_every_workload_of_up_to_five_operations(last: str) -> None:
    """Of five only those that end with a rotation or a compaction: the others do nothing new."""
    lab = Lab(per_crash_max=12 if SOAK else 2)
    longest = 6 if SOAK else 5 if last in "rt" else 4
    for length in range(longest):
        for before in itertools.product("awrto" if SOAK else "arto", repeat=length):
            if is_worth_it(workload := "".join(before) + last):
                lab.power_loss(f"{workload[:-1]}-{last}", TINY)
    report(lab, f"…{last}", 500)
    assert lab.refused == 0


def is_worth_it(workload: str) -> bool:
    """Leave out what does nothing: opening twice, compacting twice or before there is a segment."""
    doubled = "oo" in workload or "tt" in workload
    return not doubled and sum(map(workload.count, "awr")) >= 2 * ("t" in workload)
