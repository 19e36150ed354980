"""Spark: the log beside Parquet and JSON with the same rows, in one warm session. About four minutes.

Every run loads anew, as a job would: Parquet reads its footers, the log its manifest. Parquet is Spark's default
(snappy), written from the log; its keys are in no order, as those of a log are.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.data import DELETES, make_log, updates
from benchmarks.figures import Figure, Work, in_turns, say, seconds
from benchmarks.peers import compact_rows, write_rows
from benchmarks.tailing import TAIL_RATE, ages_of_newest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 2_000_000
KEYS = 500_000
BLOCK = 1_000
SEGMENT_BYTES = 45_000_000
KEY = f"title/{KEYS // 3:018d}"


@dataclass(frozen=True)
class Data:
    """The same rows in three formats."""

    spark: SparkSession
    root: Path

    @property
    def path(self) -> str:
        return str(self.root / "log")

    def log(self, **options: str) -> DataFrame:
        return self.spark.read.format("sirius").options(**options).load(self.path)

    def parquet(self) -> DataFrame:
        return self.spark.read.parquet(str(self.root / "parquet"))

    def json(self) -> DataFrame:
        # With a schema, or Spark would read everything once more to guess one.
        return self.spark.read.schema(self.parquet().schema).json(str(self.root / "json"))


def figures() -> Iterator[Figure]:
    """Measure everything; temporary files go to the system's folder for such."""
    with tempfile.TemporaryDirectory(prefix="sirius-bench-") as folder:
        data = made(Path(folder))
        try:
            for part in PARTS:
                yield from part(data)
        finally:
            data.spark.stop()


def made(root: Path) -> Data:
    """Start a session, and write the rows in all formats."""
    from spark_connector import session

    say(f"making a log of {RECORDS:,} records")
    source = updates(RECORDS, KEYS, deletes=DELETES)
    make_log(str(root / "log"), source, block=BLOCK, segment_bytes_max=SEGMENT_BYTES)
    say("starting Spark, and writing the same rows as Parquet and JSON")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    conf = {"spark.local.dir": str(root / "scratch"), "spark.ui.showConsoleProgress": "false"}
    spark = session("local[2]", app="bench", conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    data = Data(spark, root)
    data.log().write.parquet(str(root / "parquet"))
    data.parquet().write.json(str(root / "json"))
    return data


def noop(df: DataFrame) -> None:
    """Read every row and column, and throw them away."""
    df.write.format("noop").mode("overwrite").save()


# ---------------------------------------------------------------------- reading


def everything(data: Data) -> Iterator[Figure]:
    say("reading all columns")
    works: dict[str, Work] = {
        "log": lambda: noop(data.log()),
        "parquet": lambda: noop(data.parquet()),
        "json": lambda: noop(data.json()),
    }
    # The first thing that is measured finds a JVM that has compiled little: a warm session is meant.
    in_turns(works, repeats=1)
    times = in_turns(works, repeats=5)
    rate = RECORDS / times["log"] / 1e6
    yield Figure("spark.read_rate", rate, "M rec/s", note="all columns, verified")
    yield Figure("spark.read", times["log"] / times["parquet"], "x parquet", 1.3, True)
    yield against_json("read", times["log"], times["json"])


def against_json(name: str, ours: float, theirs: float) -> Figure:
    """The bar is the same whatever is asked."""
    return Figure(f"spark.{name}_json", ours / theirs, "x json", 0.35, True)


def pruned(data: Data) -> Iterator[Figure]:
    say("counting and grouping")

    def group(df: DataFrame) -> None:
        df.groupBy("op").count().collect()

    times = in_turns(
        {
            "count": lambda: data.log(columns="segment").count(),
            "parquet count": lambda: data.parquet().count(),
            "group": lambda: group(data.log(columns="op")),
            "parquet group": lambda: group(data.parquet()),
        }
    )
    # Once is enough for what takes ten times as long.
    json = {"count": lambda: data.json().count(), "group": lambda: group(data.json())}
    for name, work in json.items():
        ratio = times[name] / times[f"parquet {name}"]
        yield Figure(f"spark.{name}", ratio, "x parquet", 2.0, True, "one column")
        yield against_json(name, times[name], seconds(work))


def one_key(data: Data) -> Iterator[Figure]:
    say("looking for one key")
    wanted = f"key = '{KEY}'"
    times = in_turns(
        {
            "option": lambda: data.log(key=KEY).collect(),
            "pushed": lambda: data.log(pushFilters="true").where(wanted).collect(),
            "parquet": lambda: data.parquet().where(wanted).collect(),
        }
    )
    json = seconds(lambda: data.json().where(wanted).collect())
    for name in ("option", "pushed"):
        yield Figure(f"spark.key_{name}", times[name] / times["parquet"], "x parquet", 1.0, True)
        yield against_json(f"key_{name}", times[name], json)


def to_parquet(data: Data) -> Iterator[Figure]:
    say("writing Parquet")
    target = str(data.root / "copy")

    def write(df: DataFrame) -> None:
        df.write.mode("overwrite").parquet(target)

    times = in_turns(
        {"log": lambda: write(data.log()), "parquet": lambda: write(data.parquet())}, repeats=3
    )
    yield Figure("spark.to_parquet", times["log"] / times["parquet"], "x parquet", 1.0, True)


def state(data: Data) -> Iterator[Figure]:
    say("reading the state")
    times = in_turns(
        {"state": lambda: noop(data.log(view="state")), "updates": lambda: noop(data.log())},
        repeats=3,
    )
    yield Figure("spark.state", times["state"] / times["updates"], "x updates", note="of all keys")


# ---------------------------------------------------------------------- writing


def to_log(data: Data) -> Iterator[Figure]:
    """Both are sorted by sequence number first, from rows that are in the order of their keys."""
    from spark_connector.writing import save

    say("writing a log")
    data.parquet().orderBy("key").write.parquet(str(data.root / "by-key"))
    rows = data.spark.read.parquet(str(data.root / "by-key"))
    ranged = rows.repartitionByRange(8, "seq").sortWithinPartitions("seq")
    times = in_turns(
        {
            "log": lambda: save(rows, str(data.root / "new"), mode="overwrite", partitions=8),
            "parquet": lambda: ranged.write.mode("overwrite").parquet(str(data.root / "new-copy")),
        },
        repeats=3,
    )
    yield Figure("spark.write", times["log"] / times["parquet"], "x parquet", 1.2, True)


# ---------------------------------------------------------------------- streams


def available_now(data: Data) -> Iterator[Figure]:
    """All that is there as a stream, beside the same as a batch. To start a query and to end it is not its speed."""
    say("reading the log as a stream")
    triggers: list[float] = []

    def stream() -> None:
        with tempfile.TemporaryDirectory(dir=data.root) as checkpoint:
            frame = data.spark.readStream.format("sirius").load(data.path)
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            progress = [each for each in query.recentProgress if each.numInputRows]
            assert sum(each.numInputRows for each in progress) == RECORDS
            triggers.append(sum(each.durationMs["triggerExecution"] for each in progress))

    times = in_turns({"stream": stream, "batch": lambda: noop(data.log())}, repeats=3)
    took = median(triggers[1:]) / 1000
    yield Figure("spark.stream_rate", RECORDS / took / 1e6, "M rec/s")
    yield Figure("spark.stream", times["batch"] / took, "x batch", 0.5)
    yield Figure(
        "spark.stream_query",
        times["batch"] / times["stream"],
        "x batch",
        note="with its start and end",
    )


def tail(data: Data) -> Iterator[Figure]:
    say(f"following a log that grows by {TAIL_RATE:,} records a second")
    ages = ages_of_newest(data.spark, data.root / "tailed")
    note = f"{TAIL_RATE:,} records a second, {len(ages)} micro-batches"
    yield Figure("spark.tail", median(ages) * 1000, "ms", 400, True, note)


# ---------------------------------------------------------------------- bulk work


def compact(data: Data) -> Iterator[Figure]:
    """Beside plain Python that goes over the same records in one file, keeps the last of each key, and copies those."""
    from spark_connector import jobs
    from waltool.cli import run as waltool

    say("compacting")
    rows, target = data.root / "rows", data.root / "compacted"
    write_rows(data.path, rows)

    def on_spark() -> None:
        shutil.rmtree(target, ignore_errors=True)
        jobs.compact(data.spark, data.path, str(target))

    def plain() -> None:
        compact_rows(rows, data.root / "plain")

    def on_one_machine() -> None:
        shutil.rmtree(target, ignore_errors=True)
        # What it prints would stand among the figures.
        with redirect_stdout(StringIO()):
            assert waltool(["compact", data.path, str(target)]) == 0

    times = in_turns(
        {"compact": on_spark, "compact_waltool": on_one_machine, "plain": plain}, repeats=3
    )
    for name, bar in (("compact", 2.0), ("compact_waltool", 6.0)):
        yield Figure(f"spark.{name}", times["plain"] / times[name], "x Python", bar)


PARTS: tuple[Callable[[Data], Iterator[Figure]], ...] = (
    everything,
    pruned,
    one_key,
    to_parquet,
    state,
    to_log,
    compact,
    available_now,
    tail,
)
