"""What the connector does about memory in Spark's workers, seen from one that looks like one."""

from __future__ import annotations

import gc
import subprocess
import sys

from pyspark.sql import SparkSession

from spark_connector.memory import in_worker, spare_collections
from tests.spark.killing import ROOT

WORKER = """
import gc, sys
from importlib.machinery import ModuleSpec

import spark_connector.memory as memory

sys.modules["__main__"].__spec__ = ModuleSpec({name!r}, None)
memory.spare_collections()
frozen = gc.get_freeze_count()
garbage = [[] for _ in range(1000)]
memory.spare_collections()
print(frozen > 5000, gc.get_freeze_count() == frozen)
"""


def as_process(name: str) -> str:
    """Say whether things were frozen in a process with this main module, and whether it was once."""
    command = [sys.executable, "-c", WORKER.format(name=name)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_a_worker_of_sparks_daemon_leaves_what_is_loaded_out_of_collections_once() -> None:
    assert as_process("pyspark.daemon") == "True True\n"


def test_other_processes_collect_their_garbage_as_ever() -> None:
    assert as_process("somebody.elses") == "False True\n"
    assert not in_worker()
    frozen = gc.get_freeze_count()
    spare_collections()
    assert gc.get_freeze_count() == frozen


def test_sparks_workers_are_known_for_what_they_are(spark: SparkSession) -> None:
    """If Spark called its daemon by another name, every query would be slower and nothing else would tell."""

    found = spark.sparkContext.parallelize([0], 1).map(lambda _: in_worker()).collect()
    assert found == [True]
