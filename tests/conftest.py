"""Options that all tests share."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from hypothesis import settings

# The same examples every time, so that a red test is red for everybody; a soak looks for new ones. No deadline: the
# machine may be busy, and time is no property of the code.
settings.register_profile("sirius", deadline=None, derandomize=not os.environ.get("SIRIUS_SOAK"))
settings.load_profile("sirius")

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
