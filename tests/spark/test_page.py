"""What docs/spark.md shows is run: every line of Python and SQL, and every command but that of another Spark."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sirius.testing.processes import ProcessCluster
from sirius.transport.client import Client
from spark_connector.cli import run
from tests.cluster.test_tls_cluster import TlsCluster
from tests.spark.readlogs import expected, make, numbered, put
from tests.spark.test_publish import certificates, endpoint
from tests.walkthrough import Page
from waltool.cli import run as waltool

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
FOLDERS = "(?:/(?:var/lib/sirius|checkpoints|tmp|mnt)/)?"
NAMES = r"(films|loaded|imported|report|ckpt|films-changes|smaller|backup|(?:films|then|noon)\.(?:parquet|json))"
QUOTED = re.compile(rf"""(?<=["']){FOLDERS}{NAMES}(?=["'])""")
WORD = re.compile(rf"(?<= ){FOLDERS}{NAMES}(?=[ \n])")
"""Paths on the page, in code and in commands."""


class Reader:
    """Somebody who types along, in a folder of his own."""

    def __init__(
        self, spark: SparkSession, folder: Path, cluster: ProcessCluster, guarded: TlsCluster
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.names: dict[str, Any] = {}
        shown = certificates(guarded, "ops-page")
        self._nodes = {"plain": endpoint(cluster), "tls": endpoint(guarded)}
        self._words = {
            "ca.pem": shown["tlsCa"],
            "loader.pem": shown["tlsCert"],
            "loader.key": shown["tlsKey"],
            "1_000_000": "40",
        }

    def _here(self, text: str, folder: Path, paths: re.Pattern[str] = QUOTED) -> str:
        """Put names that are there in the place of those on the page."""
        nodes = self._nodes["tls" if "tlsCa" in text else "plain"]
        text = paths.sub(lambda found: f"{folder}/{found[1]}", text)
        for word, meant in {**self._words, "films1:7400,films2:7400": nodes}.items():
            text = text.replace(word, meant)
        return text

    def python(self, text: str) -> None:
        if 'changes.writeStream.format("sirius")' in text:
            # A stream of a cluster to the same cluster would have no end.
            source = self.spark.readStream.format("sirius")
            self.names["changes"] = source.load(str(self.folder / "films"))
        exec(compile(self._here(text, self.folder), "the page", "exec"), self.names)
        for query in self.spark.streams.active:
            query.processAllAvailable()
            query.stop()

    def sql(self, text: str) -> None:
        for statement in filter(str.strip, self._here(text, self.folder).split(";")):
            self.spark.sql(statement).collect()

    def sh(self, text: str) -> None:
        folder = self.folder / "sh"
        for line in self._here(text, folder, WORD).splitlines():
            program, *words = shlex.split(line)
            if program == "waltool":
                assert waltool(words) == 0, line
            elif program == "python":
                assert run(words[2:]) == 0, line
            else:
                # It starts a Spark of its own: test_jobs_alone.py does so.
                assert program == "spark-submit"


def put_in_place(folder: Path) -> Path:
    """Make what the page takes to be there."""
    folder.mkdir(exist_ok=True)
    log = make(folder / "films", numbered(4, 20), rotate_after=2)
    shutil.copytree(log, folder / "backup")
    (folder / "films.json").write_text(json.dumps({"key": "a", "body": "x"}))
    return log


@pytest.mark.deep
def test_the_page_can_be_typed_along(
    spark: SparkSession, tmp_path: Path, cluster: ProcessCluster, guarded: TlsCluster
) -> None:
    log = put_in_place(tmp_path)
    put_in_place(tmp_path / "sh")
    with Client([endpoint(cluster)]) as client:
        client.publish([put("page/1", b"x")])
    reader = Reader(spark, tmp_path, cluster, guarded)
    kinds = []
    for kind, _, text in Page(PAGE.read_text()).blocks:
        getattr(reader, kind)(text)
        kinds.append(kind)
    assert (kinds.count("python"), kinds.count("sql"), kinds.count("sh")) == (7, 1, 1)
    whole = [row[:5] for row in expected(log)]
    assert [row[:5] for row in expected(tmp_path / "loaded")] == whole
    assert [row[:5] for row in expected(tmp_path / "imported")] == whole
    assert spark.read.parquet(str(tmp_path / "films.parquet")).count() == len(whole)
    assert "page/1" in {
        row.key for row in spark.read.parquet(str(tmp_path / "films-changes")).collect()
    }
    assert [row[3:5] for row in expected(tmp_path / "sh" / "imported")] == [("a", b"x")]
