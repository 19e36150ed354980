"""How Hypothesis is set up here: what it finds does not depend on chance, on load or on what ran before."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("SIRIUS_SOAK")), reason="a soak looks for new examples"
)


def examples() -> list[tuple[list[int], str]]:
    found: list[tuple[list[int], str]] = []

    @given(st.lists(st.integers()), st.text())
    def test(numbers: list[int], text: str) -> None:
        found.append((numbers, text))

    test()
    return found


def test_examples_do_not_depend_on_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = examples()
    path = tmp_path / "with_constants.py"
    path.write_text(f"NUMBERS = {list(range(777_000, 777_500))}\nTEXTS = {list('äöü')}\n")
    spec = importlib.util.spec_from_file_location("with_constants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "with_constants", module)
    spec.loader.exec_module(module)
    assert examples() == before


def test_time_is_no_reason_to_fail() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
    assert settings(max_examples=7).derandomize
