"""Options that all tests share."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time, so that a red test is red for everybody; a soak looks for new ones. No deadline: the
# machine may be busy, and time is no property of the code.
IS_SOAK = bool(os.environ.get("SIRIUS_SOAK"))
settings.register_profile(
    "sirius",
    deadline=None,
    derandomize=not IS_SOAK,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sirius")

# Hypothesis also tries the constants that it finds in the modules loaded so far. With those, the examples of a test
# depend on which tests the process has run before it, and in parallel that is a matter of chance.
# An old Hypothesis does not do that yet.
if not IS_SOAK:
    with suppress(ImportError):
        from hypothesis.internal.conjecture import providers
        from hypothesis.internal.constants_ast import Constants

        no_constants = Constants()
        providers._get_local_constants = lambda: no_constants

# A shell that runs something in the background lets it ignore Ctrl-C, and its children inherit that: tests that send
# the signal to a process would wait for ever.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write transcripts (testdata/*.txt) anew instead of comparing them; read them afterwards",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have what takes long begin first: whatever begins last, all wait for."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Have one process run all tests of Spark, which share a session, and whoever is free each of the others.

    That process runs nothing else: Spark takes Ctrl-C for itself, and leaves threads and variables behind.
    """
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith("tests/spark/") else nodeid

        def _reschedule(self, node: Any) -> None:
            if "spark" not in self.assigned_work[node]:
                super()._reschedule(node)
            elif not node.shutting_down:
                node.shutdown()  # when it is done with what it has

    return Together(config, log)
