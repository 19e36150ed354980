"""Which Spark a session runs, and from where its workers import it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_connector.home import _build, linked_home
from spark_connector.session import prepare_environment


def imported_from(_rows: Iterable[int]) -> Iterator[str]:
    """On a worker: the place of its pyspark."""
    import pyspark

    yield pyspark.__file__


def test_workers_import_the_installed_pyspark_and_not_a_zip(spark: SparkSession) -> None:
    import pyspark

    places = spark.sparkContext.parallelize(range(2), 1).mapPartitions(imported_from).collect()
    assert places == [pyspark.__file__]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sirius"


def test_a_home_has_all_but_the_zip_and_is_made_once(cache: Path) -> None:
    home, again = linked_home(), linked_home()
    assert home is not None
    assert again == home
    assert [*cache.iterdir()] == [home]
    assert (home / "bin" / "spark-submit").is_file()
    assert any((home / "jars").glob("spark-core*.jar"))
    assert not (home / "python").exists()


def test_who_comes_second_takes_what_is_there_and_leaves_nothing_behind(cache: Path) -> None:
    home = linked_home()
    assert home is not None
    _build(home, {"late": "/"})
    assert [*cache.iterdir()] == [home]
    assert not (home / "late").exists()


def test_a_home_that_cannot_be_made_is_an_error_and_leaves_nothing_behind(cache: Path) -> None:
    with pytest.raises(OSError, match="no such folder"):
        _build(cache / "home", {"bin": "/", "no such folder/jars": "/"})
    assert [*cache.iterdir()] == []


def test_without_an_installed_pyspark_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_connector.home.find_spec", lambda name: None)
    assert linked_home() is None


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch, cache: Path) -> dict[str, str]:
    """An environment in which nobody has chosen anything."""
    ours = {"SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"}
    rest = {name: value for name, value in os.environ.items() if name not in ours}
    monkeypatch.setattr(os, "environ", rest)
    return rest


def test_a_session_on_this_machine_gets_such_a_home(environ: dict[str, str]) -> None:
    prepare_environment("local[2]")
    assert environ["SPARK_HOME"] == str(linked_home())


def test_where_no_home_can_be_made_spark_has_its_own(environ: dict[str, str], cache: Path) -> None:
    cache.parent.touch()
    prepare_environment("local[2]")
    assert "SPARK_HOME" not in environ


@pytest.mark.parametrize(
    ("master", "chosen"),
    [
        ("spark://elsewhere:7077", {}),
        ("local[2]", {"SPARK_HOME": "/opt/spark"}),
        ("local[2]", {"PYSPARK_PYTHON": "/usr/bin/python-of-others"}),
    ],
)
def test_what_somebody_has_chosen_stays(
    master: str, chosen: dict[str, str], environ: dict[str, str], cache: Path
) -> None:
    environ |= chosen
    prepare_environment(master)
    assert environ.get("SPARK_HOME") == chosen.get("SPARK_HOME")
    assert environ["PYSPARK_PYTHON"] == chosen.get("PYSPARK_PYTHON", sys.executable)
    assert not cache.exists()
