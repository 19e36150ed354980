"""The progress bar: what it shows, and where it stays away."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from waltool.output import Output
from waltool.progress import Progress, progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_shows_share_rate_and_time_left() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("reading", 1000, shown=True, stream=stream, clock=clock) as bar:
        bar.at(100)
        assert stream.getvalue() == "", "not before somebody could get impatient"
        clock.now = 2.0
        bar.at(250)
        clock.now = 2.05
        bar.at(260)
        drawn = stream.getvalue()
    assert drawn == "\rreading [######..................]  25%  125/s  ETA 0:06\x1b[K"
    assert stream.getvalue() == drawn + "\r\x1b[K"


def test_progress_in_bytes_and_hours() -> None:
    stream, clock = io.StringIO(), Clock()
    bar = Progress("checking", 0, shown=True, unit="bytes", stream=stream, clock=clock)
    clock.now = 10.0
    bar.at(10 << 20, 4 << 30)
    assert stream.getvalue().endswith("  0%  1.0 MiB/s  ETA 1:08:06\x1b[K")


@pytest.mark.parametrize(
    ("options", "terminal", "beside_records", "shown"),
    [
        ({}, True, False, True),
        ({}, True, True, False),
        ({}, False, False, False),
        ({"as_json": True}, True, False, False),
        ({"quiet": True}, True, False, False),
    ],
)
def test_progress_stays_away_where_it_is_not_wanted(
    options: dict[str, bool],
    terminal: bool,
    beside_records: bool,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("stdout", "stderr"):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
        monkeypatch.setattr(f"sys.{name}", stream)
    bar = progress(Output(**options), "reading", 10, beside_records=beside_records)
    assert bar._shown is shown


def test_commands_show_progress_on_a_terminal(
    corpus: Path, waltool: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltool.progress._PATIENCE_S", -1.0)
    monkeypatch.setattr("waltool.progress._EVERY_S", 0.0)
    for command in ("stats", "keys", "verify", "grep -c title"):
        result = waltool(f"{command} films", terminal=True)
        assert "100%" in result.err, command
        assert result.err.endswith("\r\x1b[K"), command
        assert waltool(f"{command} --quiet films", terminal=True).err == ""
        assert waltool(f"{command} --json films", terminal=True).err == ""
