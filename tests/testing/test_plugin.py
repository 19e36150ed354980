"""The pytest plugin, as users meet it: through its entry point, with its options and its fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

# Runs of pytest within this process forget what they imported, and numpy cannot be imported twice.
import sirius.testing.handlers

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]

HANDLER = """
    import random

    from sirius.handler import RequestHandler, SiriusResult

    class Titles(RequestHandler):
        def __init__(self):
            self.by_key = {}

        def handle_put(self, key, body):
            self.by_key[key] = body
            return SiriusResult.none()

        def handle_delete(self, key):
            self.by_key.pop(key, None)
            return SiriusResult.none()
"""
SEEDS = """
    def test_seeds(sirius_handler_check):
        print("seeds", list(sirius_handler_check.keywords["seeds"]))
"""


def test_the_plugin_is_found_without_a_word_and_loads_nothing_heavy(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded_yet():
            assert "sirius.testing.plugin" in sys.modules
            heavy = {"numpy", "crc32c", "sirius.wal", "sirius.testing.simulator"}
            assert not heavy & set(sys.modules)

        def test_until_somebody_asks(sirius_handler_check):
            assert "sirius.testing.simulator" in sys.modules
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_a_good_handler_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HANDLER
        + """
    def test_titles(sirius_handler_check):
        sirius_handler_check(Titles)
    """
    )
    pytester.runpytest_inprocess("--sirius-seeds=1").assert_outcomes(passed=1)


def test_the_author_of_a_bad_handler_sees_the_reason_and_none_of_our_frames(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        HANDLER
        + """
    class Dice(Titles):
        def handle_put(self, key, body):
            self.by_key[key] = random.random()
            return SiriusResult.none()

    def test_dice(sirius_handler_check):
        sirius_handler_check(Dice)
    """
    )
    result = pytester.runpytest_inprocess("--sirius-seed=4")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">       sirius_handler_check(Dice)",
            "E       *HandlerDiverged: Dice has another state on node *",
            "E         where: seed 4, node *, sequence number *",
            "E         handler.by_key[[]'key/*",
            "E         why: the same updates in the same order led to two states. *",
            "E         again: check_handler(..., seeds=[[]4]) or pytest --sirius-seed 4",
        ]
    )
    result.stdout.no_fnmatch_line("*simulator*")


def test_an_exception_is_shown_where_it_was_raised(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HANDLER
        + """
    class Numbers(Titles):
        def handle_put(self, key, body):
            self.by_key[key] = int(body)
            return SiriusResult.none()

    def test_numbers(sirius_handler_check):
        sirius_handler_check(Numbers)
    """
    )
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(
        [
            ">       self.by_key[[]key] = int(body)",
            "E       ValueError: invalid literal for int() *",
            "The above exception was the direct cause of the following exception:",
            "E       *HandlerRaised: Numbers raised ValueError: *",
            "E         update: PUT 'key/*",
        ]
    )
    result.stdout.no_fnmatch_line("*simulator*")


@pytest.mark.parametrize(
    ("options", "seeds"),
    [
        ([], [0, 1, 2]),
        (["--sirius-seeds=5"], [0, 1, 2, 3, 4]),
        (["--sirius-seed=17"], [17]),
        (["--sirius-seeds=5", "--sirius-seed=0"], [0]),
    ],
)
def test_the_command_line_says_which_seeds(
    pytester: pytest.Pytester, options: list[str], seeds: list[int]
) -> None:
    pytester.makepyfile(SEEDS)
    result = pytester.runpytest_inprocess("-s", *options)
    result.stdout.fnmatch_lines([f"*seeds {str(seeds).replace('[', '[[]')}*"])


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_number_of_seeds_that_makes_no_sense_is_refused(
    pytester: pytest.Pytester, value: str
) -> None:
    result = pytester.runpytest_inprocess(f"--sirius-seeds={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--sirius-seeds: * '{value}'"])


def test_the_example_passes(pytester: pytest.Pytester) -> None:
    example = ROOT / "examples" / "test_films_handler.py"
    pytester.makepyfile(test_films_handler=example.read_text(encoding="utf-8"))
    pytester.runpytest_inprocess("--sirius-seeds=1").assert_outcomes(passed=2)


def test_the_names_of_the_package_are_there_when_they_are_used() -> None:
    assert set(sirius.testing.__all__) <= set(dir(sirius.testing))
    assert sirius.testing.__all__ == sorted(sirius.testing._HOMES)
    for name in sirius.testing.__all__:
        assert getattr(sirius.testing, name) is not None
    with pytest.raises(AttributeError, match=r"'sirius.testing' has no attribute 'unheard_of'"):
        sirius.testing.unheard_of  # noqa: B018
