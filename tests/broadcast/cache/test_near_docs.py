"""What the page on the near cache shows runs, and is true; so does the example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_examples import run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "near-cache.md"
SNIPPETS = [
    # A reader's machine has nothing else to do.
    snippet.replace("timeout=10", "timeout=60")
    for snippet in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
]


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_runs(number: int, tmp_path: Path) -> None:
    exec(compile(SNIPPETS[number], f"{PAGE.name}[{number}]", "exec"), {"folder": tmp_path})


def test_the_snippets_are_found() -> None:
    assert len(SNIPPETS) == 8
    assert sum("assert" in snippet for snippet in SNIPPETS) == 7


def test_the_example_keeps_what_did_not_change() -> None:
    shown = run("near_cache.py")
    assert "100,000 reads, 1,000 of them from the database" in shown
    assert "after a write that was answered: price/7 is 120" in shown
    assert "away for 3 changes: 997 of 1000 entries are left" in shown
    assert "price/2 is 130" in shown
