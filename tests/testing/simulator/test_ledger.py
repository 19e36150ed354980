"""Long runs in pieces: what was run is not run again, unless the code has changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sirius.testing.simulator import run
from sirius.testing.simulator.__main__ import main
from sirius.testing.simulator.ledger import Ledger, code_version, from_json, to_json
from sirius.testing.simulator.many import with_progress
from sirius.testing.simulator.simulation import Result


def test_a_result_is_the_same_when_it_is_read_again_but_for_its_trace() -> None:
    result = run(2)
    assert result.trace
    result.trace = []
    assert from_json(json.loads(json.dumps(to_json(result)))) == result


def test_what_is_in_the_ledger_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["--seed", "2", "--count", "2", "--json", "--ledger", str(tmp_path)]
    assert main(call) == 0
    first = json.loads(capsys.readouterr().out)
    (path,) = tmp_path.iterdir()
    lines = path.read_text().splitlines()
    broken = {**json.loads(lines[1]), "violation": "A: this is what the ledger says"}
    path.write_text(lines[0] + "\n" + json.dumps(broken) + "\n")
    assert main(call) == 1
    second = json.loads(capsys.readouterr().out)
    assert second["violations"] == [{"seed": 3, "violation": "A: this is what the ledger says"}]
    assert second["acknowledged"] == first["acknowledged"]


def test_a_line_that_was_being_written_is_run_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert len(list(ledger.kept([Result(1), Result(2)]))) == 2
    ledger.path.write_bytes(ledger.path.read_bytes()[:-5])
    again = Ledger(tmp_path)
    assert again.left([1, 2, 3]) == [2, 3]
    assert list(again.kept([Result(2)])) == [Result(2)]
    assert Ledger(tmp_path).left([1, 2, 3]) == [3]


def test_results_are_in_the_ledger_as_soon_as_they_are_there(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    next(ledger.kept([Result(1), Result(2)]))
    assert Ledger(tmp_path).left([1, 2]) == [2]


def test_a_compiled_module_counts_as_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("sirius.compiled_for_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    (tmp_path / "each.py").write_text("1")
    (tmp_path / "each.cpython-311-x86_64-linux-gnu.so").write_bytes(b"machine code")
    versions = []
    for name, source in (
        ("each.py", "1"),
        ("each.cpython-311-x86_64-linux-gnu.so", "1"),
        ("each.py", "2"),
    ):
        (tmp_path / "each.py").write_text(source)
        module.__file__ = str(tmp_path / name)
        versions.append(code_version())
    assert versions[0] == versions[1] != versions[2]


def test_other_code_has_another_ledger(tmp_path: Path) -> None:
    assert list(Ledger(tmp_path, "old").kept([Result(1)])) == [Result(1)]
    assert Ledger(tmp_path).left([1]) == [1]
    assert Ledger(tmp_path).path.stem == code_version()


def test_long_runs_say_how_far_they_are() -> None:
    times = iter(range(0, 1000, 4))
    said: list[str] = []
    results = [Result(1), Result(2), Result(3, violation="A"), Result(4)]
    passed = with_progress(results, 40, said.append, lambda: float(next(times)), broken=2)
    assert list(passed) == results
    assert said == ["3 of 40 seeds, 3 broken, about 3 min left"]


def test_a_run_that_goes_on_says_what_was_broken_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    list(Ledger(tmp_path).kept([Result(1), Result(2, violation="A: two values")]))
    assert main(["--seed", "1", "--count", "2", "--ledger", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"2 seeds of this code ({code_version()}) are in the ledger, 1 broken" in said
