"""Going through every byte: in `make test` through every fifth one, in `make test-deep` through all of them.

Five has no factor in common with 2, 3 and 8, so tests that vary what they do by the offset still try everything.
"""

from __future__ import annotations

from typing import Final

import pytest

SOME: Final = 5
BYTE_BY_BYTE: Final = pytest.mark.parametrize(
    "step", [pytest.param(SOME, id="some"), pytest.param(1, id="all", marks=pytest.mark.deep)]
)
