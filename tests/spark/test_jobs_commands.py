"""`--engine spark` where there is no Spark, no Java, or no sense in it: no session is started here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, UnknownException

from spark_connector.cli import run as main
from spark_connector.jobs.running import _told
from tests.spark.readlogs import make, numbered
from waltool.cli import run as waltool

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compact", "log", "--engine", "spark"], "give OUT"),
        (["compact", "log", "new", "--engine", "spark", "--rate", "5MB"], "no --rate"),
        (["stats", "log", "--master", "local[2]"], "give --engine spark"),
        (["export", "log", "--engine", "spark"], "folder of Parquet"),
        (["export", "log", "-o", "x.csv", "--engine", "spark"], "folder of Parquet"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(tmp_path / "log", numbered(2, 3))
    monkeypatch.chdir(tmp_path)
    assert waltool(arguments) == 2
    assert words in capsys.readouterr().err
    assert os.listdir() == ["log"]


def test_the_package_names_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tail"]) == 2
    name = "python -m spark_connector"
    assert capsys.readouterr().err == f"{name}: No such command 'tail'; try '{name} --help'\n"
    assert main([]) == 2
    shown = capsys.readouterr().err
    for name in ("compact", "diff", "export", "stats", "churn", "state", "import"):
        assert f"  {name} " in shown
        assert main([name, "--help"]) == 0
        assert "--master" in capsys.readouterr().out


TRACE = "Job aborted\n  File x\n{} films: no\n\tat org.x"


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (PythonException(TRACE.format("sirius.errors.CorruptFile:")), "films: no", 1),
        (PythonException(TRACE.format("sirius.errors.NotALog:")), "films: no", 2),
        (PythonException(TRACE.format("spark_connector.a.b.PublishFailed:")), "films: no", 1),
        (AnalysisException(TRACE.format("sirius.errors.CorruptFile:")), "films: no", 1),
        (AnalysisException("[PATH_NOT_FOUND] films\n"), "[PATH_NOT_FOUND] films", 2),
        (PythonException("Master must be set\n at org.x"), "Master must be set", 1),
        (
            UnknownException(
                "An error occurred while calling o7.load.\n: org.x.Y$Z: films\n\tat x"
            ),
            "films",
            1,
        ),
    ],
)
def test_a_failure_on_spark_is_one_line_with_the_exit_code_that_it_has_here(
    error: Exception, message: str, code: int
) -> None:
    told = _told(error)
    assert (str(told), told.exit_code) == (message, code)


WITHOUT = """
import sys
sys.modules[{module!r}] = None
from waltool.cli import run
sys.exit(run(["stats", {log!r}, *{options!r}]))
"""


def run_without(module: str, log: Path, *options: str, **environment: str) -> tuple[int, str]:
    """Run `waltool stats` in an interpreter that lacks a module."""
    script = WITHOUT.format(module=module, log=str(log), options=options)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("module", ["pyspark", "pyarrow"])
def test_without_pyspark_the_command_says_what_to_install(module: str, tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(2, 3))
    code, said = run_without(module, log, "--engine", "spark")
    assert code == 2
    assert said.count("\n") == 1
    assert f"needs {module}" in said
    assert "pip install 'sirius-log[spark]'" in said
    assert run_without(module, log) == (0, "")


def test_without_java_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(2, 3))
    code, said = run_without("nothing", log, "--engine", "spark", JAVA_HOME=str(tmp_path))
    assert (code, said.count("\n")) == (1, 1)
    assert "has no bin/java that starts" in said
