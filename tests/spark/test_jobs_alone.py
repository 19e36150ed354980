"""Commands that only Spark has, and what they have in common with those of one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from spark_connector import find_java
from spark_connector.cli import run
from tests.spark.killing import ROOT, without_java
from tests.spark.readlogs import (
    T0_US,
    data_file,
    delete,
    expected,
    flip,
    make,
    numbered,
    open_log,
    put,
    write,
)
from tests.spark.test_jobs import Output, output, random_log
from waltool.cli import run as waltool

__all__ = ["output"]


def test_the_busiest_keys_are_those_that_one_machine_counts(
    spark: SparkSession, output: Output, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = random_log(tmp_path / "log", 5)
    counted = [json.loads(line) for line in output("keys", "--all", "--json", log)[1].splitlines()]
    wanted = sorted(counted, key=lambda row: (-row["updates"], row["key"].encode()))[:8]
    assert run(["churn", "--top", "8", "--json", log]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = ("key", "updates", "seq", "live")
    assert [[row[name] for name in names] for row in found] == [
        [row[name] for name in names] for row in wanted
    ]
    assert run(["churn", "--top", "1", log]) == 0
    assert wanted[0]["key"] in capsys.readouterr().out


def test_a_state_is_written_as_parquet_or_not_at_all(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    with open_log(path) as log:
        write(log, [put("a", b"1"), put("b", b"1")], T0_US)
        write(log, [put("a", b"2"), delete("b")], T0_US + 3_600_000_000)
    target = tmp_path / "then.parquet"
    assert run(["state", "--as-of", "2", str(path), str(target)]) == 0
    assert "2 keys" in capsys.readouterr().out
    assert {(row["key"], row["body"]) for row in pq.read_table(target).to_pylist()} == {
        ("a", b"1"),
        ("b", b"1"),
    }
    assert run(["state", "--as-of", "2023-11-15T00:00:00Z", str(path), str(target)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(["state", "--as-of", "99", str(path), str(tmp_path / "later")]) == 2
    assert "the log ends at 4" in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "then.parquet"]


def test_what_was_exported_becomes_a_log_again(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = make(tmp_path / "log", numbered(6, 20), rotate_after=2)
    assert waltool(["export", "-o", str(tmp_path / "log.parquet"), str(log)]) == 0
    assert run(["import", "--json", str(tmp_path / "log.parquet"), str(tmp_path / "new")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["records"] == 120
    found, wanted = expected(tmp_path / "new"), expected(log)
    assert [row[:5] for row in found] == [row[:5] for row in wanted]
    for table, other in (("nowhere", "other"), ("log.parquet", "log")):
        assert run(["import", str(tmp_path / table), str(tmp_path / other)]) == 2
        said = capsys.readouterr().err
        assert (said.count("\n"), str(tmp_path / "nowhere") in said) == (1, table == "nowhere")
    assert run(["import", "--format", "papyrus", str(log), str(tmp_path / "other")]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("python -m spark_connector: [DATA_SOURCE_NOT_FOUND] Failed to find")
    assert not (tmp_path / "other").exists()


def test_json_becomes_a_log(spark: SparkSession, tmp_path: Path) -> None:
    """It knows neither bytes nor times."""
    rows = [
        {"seq": 2, "op": "DELETE", "key": "ü", "ts": "2026-11-16T12:00:01Z"},
        {"seq": 1, "op": "PUT", "key": "ü", "ts": "2026-11-16T12:00:00Z", "body": "é"},
    ]
    (tmp_path / "films.json").write_text("\n".join(map(json.dumps, rows)))
    table, target = str(tmp_path / "films.json"), tmp_path / "films"
    assert run(["import", "--format", "json", table, str(target)]) == 0
    noon_us = 1_794_830_400_000_000
    assert [row[:5] for row in expected(target)] == [
        (1, noon_us, "PUT", "ü", "é".encode()),
        (2, noon_us + 1_000_000, "DELETE", "ü", None),
    ]


# ---------------------------------------------------------------------- processes of their own


def said(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.deep
@pytest.mark.spark
def test_a_machine_without_java_runs_a_job(tmp_path: Path) -> None:
    log = random_log(tmp_path / "log", 6)
    environment = without_java(tmp_path)
    probe = "import shutil; assert shutil.which('java') is None"
    said([sys.executable, "-c", probe], environment)
    command = [sys.executable, "-m", "spark_connector", "stats", "--json", log]
    found = json.loads(said(command, environment))
    assert found == json.loads(said([sys.executable, "-m", "waltool", *command[3:]], environment))
    assert len(list((tmp_path / "cache" / "sirius").glob("java-*/bin/java"))) == 1


@pytest.mark.deep
@pytest.mark.spark
def test_a_job_that_fails_says_why_and_shows_no_java(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(6, 20), rotate_after=2)
    flip(data_file(log, 2), 200)
    command = [sys.executable, "-m", "spark_connector", "stats", str(log)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert f"python -m spark_connector: {data_file(log, 2)}: damaged at byte" in done.stderr
    assert "\tat " not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.deep
@pytest.mark.spark
def test_spark_submit_takes_the_package(tmp_path: Path) -> None:
    log = random_log(tmp_path / "log", 7)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    program = ROOT / "spark_connector" / "__main__.py"
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    arguments = ["stats", "--json", log]
    found = said([str(submit), "--master", "local[1]", str(program), *arguments], environment)
    local = said([sys.executable, "-m", "waltool", *arguments], environment)
    assert json.loads(found.splitlines()[-1]) == json.loads(local)
