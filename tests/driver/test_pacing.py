"""How fast files are given to others."""

from __future__ import annotations

from sirius.driver.pacing import Pace


def test_files_are_given_as_fast_as_they_are_asked_for_when_there_is_nothing_else_to_do() -> None:
    pace = Pace(100.0)
    assert [pace.wait_s(5.0, 200, is_busy=False) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_while_there_is_other_work_they_keep_to_a_rate() -> None:
    pace = Pace(100.0)
    assert [pace.wait_s(5.0, 200, is_busy=True) for _ in range(3)] == [0.0, 2.0, 4.0]
    assert pace.wait_s(10.0, 50, is_busy=True) == 1.0
    assert pace.wait_s(20.0, 50, is_busy=True) == 0.0, "what was not used is not made up for"
