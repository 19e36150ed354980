"""`sirius bench` on a node of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sirius.cli.load import Load, Measured, load_embedded
from sirius.errors import OutcomeUnknown
from sirius.node import Sirius
from sirius.wal import LogReader

Run = Callable[..., Any]


def test_a_node_is_measured_and_nothing_is_left(
    sirius: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = sirius("bench --json --seconds 0.2 --outstanding 64 --body-bytes 50 --durability os")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert (found["where"], found["outstanding"], found["body_bytes"]) == ("one node, os", 64, 50)
    assert found["updates"] > 64
    assert found["rate"] == pytest.approx(found["updates"] / found["seconds"], rel=0.01)
    assert 0 < found["p50_s"] <= found["p90_s"] <= found["p99_s"] <= found["seconds"]
    assert os.listdir(tmp_path) == []


def test_people_get_a_few_lines_and_the_log_stays_where_they_want_it(
    sirius: Run, tmp_path: Path
) -> None:
    result = sirius("bench", "--seconds", "0.1", "--durability", "os", "--data", tmp_path / "kept")
    words = [line.split()[0] for line in result.out.splitlines()[1:]]
    assert words == ["updates", "rate", "p50", "p90", "p99"]
    with LogReader.open(str(tmp_path / "kept")) as reader:
        assert reader.last > 10


def test_percentiles_are_those_of_sorted_times() -> None:
    measured = Measured(100, 2.0, [number / 100 for number in range(100)])
    assert (measured.rate, measured.percentile(0.5), measured.percentile(0.99)) == (50, 0.5, 0.99)
    assert Measured(0, 0.0, []).percentile(0.5) == Measured(0, 0.0, []).rate == 0.0


def test_a_request_that_fails_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = Sirius.enqueue_put, 0

    def failing(self: Sirius, key: str, body: bytes) -> Any:
        nonlocal count
        count += 1
        ack = real(self, key, body)
        if count == 10:
            from concurrent.futures import Future

            failed: Future[Any] = Future()
            failed.set_exception(OutcomeUnknown("who knows"))
            return failed
        return ack

    monkeypatch.setattr(Sirius, "enqueue_put", failing)
    with pytest.raises(OutcomeUnknown, match="who knows"):
        load_embedded(str(tmp_path / "data"), "os", Load(4, 60.0, b"x"))
