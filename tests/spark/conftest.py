"""One Spark session for all tests, and clusters for them: they take longer to start than the tests take to run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sirius.testing.processes import ProcessCluster
from spark_connector import session
from tests.cluster.test_tls_cluster import TlsCluster

# Of a session that lives for minutes, a quarter of the processor time would go into compiling its hottest parts again,
# better, and into threads that collect garbage.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for a session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder: Path = tmp_path_factory.mktemp("spark")
    conf = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = session("local[2]", app="tests", conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[ProcessCluster]:
    """A cluster that talks in the clear. Tests tell their keys apart."""
    with ProcessCluster.temporary(1) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        yield cluster


@pytest.fixture(scope="session")
def guarded() -> Iterator[TlsCluster]:
    """A cluster that asks for certificates."""
    with TlsCluster.temporary(1, durability="os") as cluster:
        cluster.prepare()
        cluster.start()
        cluster.wait_until_ready()
        yield cluster
