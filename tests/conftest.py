"""Options that all tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The same examples every time, so that a red test is red for everybody; a soak looks for new ones. No deadline: the
# machine may be busy, and time is no property of the code.
settings.register_profile("sirius", deadline=None, derandomize=not os.environ.get("SIRIUS_SOAK"))
settings.load_profile("sirius")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write transcripts (testdata/*.txt) anew instead of comparing them; read them afterwards",
    )
