"""The pytest plugin: the fixture `sirius_handler_check`, and options that say which clusters it runs.

Every run of pytest in an environment with Sirius loads this module, so it imports nothing but pytest until a test asks
for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sirius.testing.handlers import Counts


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options. pytest calls it once, before anything is collected."""
    group = parser.getgroup("sirius", "Sirius: handlers in simulated clusters")
    group.addoption(
        "--sirius-seeds",
        type=_at_least_one,
        default=3,
        metavar="N",
        help="run the seeds 0 to N-1 (3)",
    )
    group.addoption(
        "--sirius-seed", type=int, metavar="S", help="run this seed alone, to repeat a failure"
    )


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(f"{number} seeds check nothing")
    return number


@pytest.fixture
def sirius_handler_check(pytestconfig: pytest.Config) -> Callable[..., Counts]:
    """`sirius.testing.check_handler` with the seeds of the command line."""
    from sirius.testing.handlers import check_handler

    seed: int | None = pytestconfig.getoption("sirius_seed")
    seeds = range(pytestconfig.getoption("sirius_seeds")) if seed is None else [seed]
    return partial(check_handler, seeds=seeds)
