"""The examples run, and do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout


def test_quickstart_finds_what_it_wrote_before(tmp_path: Path) -> None:
    first, second = (run("quickstart.py", str(tmp_path / "films")) for _ in range(2))
    assert first.startswith("0 films were in the log")
    assert second.startswith("1001 films were in the log")
    assert "title/casablanca: {'year': 1942}" in second


def test_the_tv_guide_answers_from_its_indexes() -> None:
    shown = run("tv_guide.py")
    assert "959 showings on 40 channels" in shown
    assert "a showing without a time is rejected: showing/00000 is no showing" in shown
    assert "at 20:15, on all 40 channels" in shown
    assert 'titles that begin with "mo": [\'Moon of the ' in shown
