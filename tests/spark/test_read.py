"""Batch reads on a real Spark session."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sirius.wal import CompactionPolicy, Op, Update
from spark_connector.reading import ReadReport
from spark_connector.schema import schema_of
from tests.spark.readlogs import (
    T0_US,
    Row,
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
from tests.wal import ancestors

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load(spark: SparkSession, *paths: Path | str, **options: str) -> DataFrame:
    given: Any = str(paths[0]) if len(paths) == 1 else [str(path) for path in paths]
    return spark.read.format("sirius").options(**options).load(given)


def rows(df: DataFrame) -> list[Row]:
    """What a query gives, in order of sequence, times in microseconds."""
    if "ts" in df.columns:
        df = df.withColumn("ts", F.unix_micros("ts"))
    found = [
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)
        for row in df.collect()
    ]
    return sorted(found, key=repr) if "seq" not in df.columns else sorted(found)


@contextmanager
def pushdown(spark: SparkSession, on: bool) -> Iterator[None]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, on)
    try:
        yield
    finally:
        spark.conf.set(PUSHDOWN, str(before))


# ---------------------------------------------------------------------- rows


def odd_log(path: Path) -> Path:
    """Everything that is unusual about keys and bodies, in several segments, with holes."""
    large = bytes(range(256)) * 4096
    blocks: list[list[Update]] = [
        [put("a", b"superseded"), put("ключ/ß", b""), put("large", large)],
        [Update(Op.NOOP, b""), delete("ключ/ß"), put("\U0001f3ac", b"\x00\xff")],
        [put("a", b"newest")],
    ]
    make(path, blocks, rotate_after=1)
    with open_log(path) as log:
        log.compact(CompactionPolicy(dead_fraction_min=0))
        write(log, [put("b", b"active")], T0_US)
    return path


def test_schema_and_rows(spark: SparkSession, tmp_path: Path) -> None:
    log = odd_log(tmp_path / "log")
    df = load(spark, log)
    assert df.schema == schema_of()
    found = rows(df)
    assert found == expected(log)
    assert [row[0] for row in found] == [3, 5, 6, 7, 8]
    assert found[0][4] == bytes(range(256)) * 4096


def test_empty_logs_and_lone_records(spark: SparkSession, tmp_path: Path) -> None:
    empty, lone = make(tmp_path / "empty", []), make(tmp_path / "lone", [[put("é", b"")]])
    assert load(spark, empty).count() == 0
    assert rows(load(spark, lone)) == [(1, T0_US, "PUT", "é", b"", 1)]


def test_columns_that_are_not_in_the_schema_are_not_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = make(tmp_path / "log", numbered(8, 50, body=6000), rotate_after=2)
    wanted = [(row[3], row[0]) for row in expected(log)]
    folder = str(tmp_path / "report")
    by_option = load(spark, log, columns="key,seq", verify="false", report=folder)
    assert by_option.columns == ["key", "seq"]
    assert sorted(rows(by_option)) == sorted(wanted)
    size = sum(file.stat().st_size for file in log.glob("segments/*/data"))
    assert ReadReport.load(folder).nbytes < size / 20
    by_schema = spark.read.format("sirius").schema("key STRING, seq BIGINT").load(str(log))
    assert sorted(rows(by_schema)) == sorted(wanted)


# ---------------------------------------------------------------------- filters

Check = tuple[Callable[[], Column], Callable[[Row], bool]]


def moment(block: float) -> datetime:
    return EPOCH + timedelta(microseconds=T0_US, seconds=block)


def checks() -> list[Check]:
    """Filters as a user writes them, and the same in Python."""
    return [
        (lambda: F.col("key") == "key3", lambda row: row[3] == "key3"),
        (
            lambda: F.col("key").isin("key1", "key5", "nokey"),
            lambda row: row[3] in ("key1", "key5"),
        ),
        (lambda: F.col("key").startswith("key1"), lambda row: row[3].startswith("key1")),
        (lambda: F.col("key").like("%2"), lambda row: row[3].endswith("2")),
        (lambda: F.col("key") > "key3", lambda row: row[3] > "key3"),
        (lambda: F.col("key") < "key2", lambda row: row[3] < "key2"),
        (lambda: F.col("seq") > 11, lambda row: row[0] > 11),
        (lambda: F.col("seq") < 30, lambda row: row[0] < 30),
        (lambda: F.col("op") == "DELETE", lambda row: row[2] == "DELETE"),
        (lambda: F.col("op") != "DELETE", lambda row: row[2] != "DELETE"),
        (lambda: F.col("seq").between(17, 42), lambda row: 17 <= row[0] <= 42),
        (lambda: ~F.col("seq").isin(3, 4, 5), lambda row: row[0] not in (3, 4, 5)),
        (lambda: F.col("ts") >= F.lit(moment(3)), lambda row: row[1] >= T0_US + 3_000_000),
        (lambda: F.col("ts") < F.lit(moment(6.5)), lambda row: row[1] < T0_US + 6_500_000),
        (lambda: F.col("segment") == 2, lambda row: row[5] == 2),
        (lambda: F.col("body").isNull(), lambda row: row[4] is None),
        (lambda: F.length("key") == 5, lambda row: len(row[3]) == 5),
        (
            lambda: (F.col("seq") < 9) | (F.col("key") == "key4"),
            lambda row: row[0] < 9 or row[3] == "key4",
        ),
    ]


@pytest.mark.parametrize("on", [True, False])
def test_any_filters_give_what_plain_python_gives(
    spark: SparkSession, tmp_path: Path, on: bool
) -> None:
    """Every filter in some query: alone, for two that exclude each other would show nothing, and in random pairs."""
    rng = random.Random(7 if on else 8)
    blocks = numbered(rng.randint(6, 14), rng.randint(3, 9), keys=rng.randint(5, 15))
    log = make(tmp_path / "log", blocks, rotate_after=rng.randint(1, 5))
    whole, every = expected(log), checks()
    groups = [[each] for each in every] if on else []
    with pushdown(spark, on):
        for chosen in (*groups, *(rng.sample(every, 2) for _ in range(5))):
            query = load(spark, log, pushFilters="true")
            for column, _ in chosen:
                query = query.where(column())
            assert rows(query) == [row for row in whole if all(test(row) for _, test in chosen)]


def test_filters_keep_segments_and_blocks_from_being_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = make(tmp_path / "log", numbered(16, 50, body=6000), rotate_after=2)
    folder = str(tmp_path / "report")

    def touched(condition: Column | str) -> tuple[int, tuple[int, ...], int]:
        count = load(spark, log, report=folder, pushFilters="true").where(condition).count()
        report = ReadReport.load(folder)
        return count, report.segments, report.nbytes

    size = sum(file.stat().st_size for file in log.glob("segments/*/data"))
    count, segments, nbytes = touched("length(key) > 0")
    assert (count, segments, nbytes > 0.9 * size) == (800, tuple(range(1, 9)), True)
    count, segments, nbytes = touched("seq between 210 and 220")
    assert (count, segments, nbytes < size / 10) == (11, (3,), True)
    count, segments, nbytes = touched(F.col("ts") == F.lit(moment(15)))
    assert (count, segments, nbytes < size / 10) == (50, (8,), True)
    # What is answered by the log is dropped from the plan: the tasks send these rows and no others.
    assert touched("key = 'key3' and op = 'PUT'")[0] == ReadReport.load(folder).rows
    with pushdown(spark, on=False):
        count, segments, _ = touched("seq between 210 and 220")
        assert (count, segments, ReadReport.load(folder).rows) == (11, tuple(range(1, 9)), 800)


def test_a_dataframe_can_be_used_with_one_filter_after_the_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark keeps what was pushed for later uses of the same DataFrame: so nothing is pushed unless asked for."""
    log = make(tmp_path / "log", numbered(4, 10), rotate_after=2)
    df = load(spark, log)
    few, others = df.where("seq <= 5"), df.where("seq >= 38")
    assert (few.count(), df.count(), few.union(others).count()) == (5, 40, 8)


def test_options_pick_rows_and_keep_segments_from_being_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = make(tmp_path / "log", numbered(16, 50, body=6000), rotate_after=2)
    whole, folder = expected(log), str(tmp_path / "report")
    found = rows(load(spark, log, key="key3", op="put", report=folder))
    assert found == [row for row in whole if row[3] == "key3" and row[2] == "PUT"]
    assert ReadReport.load(folder).rows == len(found)
    times = {"since": moment(5).isoformat(), "until": moment(6).isoformat()}
    df = load(spark, log, keyPrefix="key", report=folder, **times)
    assert rows(df.where("seq != 260")) == [row for row in whole[250:300] if row[0] != 260]
    assert ReadReport.load(folder).segments == (3,)


# ---------------------------------------------------------------------- views, sources, moments


def test_views(spark: SparkSession, tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(9, 10), rotate_after=2)
    whole = expected(log)
    newest = {row[3]: row for row in whole}
    assert rows(load(spark, log, view="state")) == sorted(
        row for row in newest.values() if row[2] == "PUT"
    )
    past = {row[3]: row for row in whole if row[0] <= 40}
    wanted = sorted(row for row in past.values() if row[2] == "PUT")
    assert rows(load(spark, log, view="state", asOf="40")) == wanted
    assert rows(load(spark, log, view="state", asOf=moment(3.5).isoformat())) == wanted
    within = {row[3]: row for row in whole if 21 <= row[0] <= 70}
    found = load(spark, log, view="changes", fromSeq="21", toSeq="70").where("key > 'key1'")
    assert rows(found) == sorted(row for row in within.values() if row[3] > "key1")


def test_several_logs_of_several_formats_and_from_sql(spark: SparkSession, tmp_path: Path) -> None:
    ours = make(tmp_path / "ours", [[put("a", b"1")], [put("b", b"2")]], rotate_after=1)
    old = ancestors.write(tmp_path / "old", ancestors.EVENTS[:2])
    keys = ["a", "b", "title/casablanca", "título/ça"]
    assert [row[0] for row in rows(load(spark, ours, old, columns="key"))] == keys
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW films USING sirius OPTIONS (path '{ours}', columns 'seq,key')"
    )
    assert spark.sql("SELECT key FROM films WHERE seq > 1").collect() == [("b",)]


def test_a_log_that_is_written_and_compacted_all_the_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every block writes all keys: a state in which they differ would be none that ever was."""
    keys, stop, rounds = [f"key{n}" for n in range(20)], threading.Event(), 0
    path = tmp_path / "log"
    ready = threading.Event()

    def work() -> None:
        nonlocal rounds
        with open_log(path) as log:
            while not stop.is_set() or rounds < 3:
                rounds += 1
                for _ in range(5):
                    log.write([put(key, b"%06d" % rounds) for key in keys])
                log.rotate()
                log.flush()
                log.compact(CompactionPolicy(dead_fraction_min=0))
                log.retire()
                ready.set()
                stop.wait(0.02)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        assert ready.wait(60)
        for _ in range(3):
            found = rows(load(spark, path, view="state", columns="key,body"))
            assert sorted(row[0] for row in found) == sorted(keys)
            assert len({row[1] for row in found}) == 1
    finally:
        stop.set()
        writer.join()
    df = load(spark, path)
    assert rows(df) == expected(path)
    with open_log(path) as log:
        last = log.put("later", b"")
    # A DataFrame stays at the moment of its first query.
    assert (df.count(), load(spark, path, fromSeq=str(last)).count()) == (20, 1)


# ---------------------------------------------------------------------- what goes wrong


def message_of(query: Callable[[], object]) -> str:
    with pytest.raises(Exception) as error:  # noqa: PT011 - Spark has many kinds
        query()
    return str(error.value)


def test_damage_is_told_with_file_and_offset_or_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = make(tmp_path / "log", numbered(6, 10), rotate_after=2)
    whole = expected(log)
    flip(data_file(log, 2), data_file(log, 2).stat().st_size // 4)
    message = message_of(lambda: load(spark, log).collect())
    assert f"CorruptFile: {data_file(log, 2)}: damaged at byte 112: a block's payload" in message
    folder = str(tmp_path / "report")
    found = rows(load(spark, log, onCorrupt="skip", report=folder))
    assert found == [row for row in whole if not 21 <= row[0] <= 30]
    [left_out] = ReadReport.load(folder).left_out
    assert (left_out.path, left_out.first, left_out.last) == (str(data_file(log, 2)), 21, 30)


def test_what_makes_no_sense_is_told_when_it_is_loaded(spark: SparkSession, tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put("a")]])
    told: dict[str, Callable[[], object]] = {
        "UsageError: /nowhere/films: there is no such file or folder": lambda: load(
            spark, "/nowhere/films"
        ),
        "UsageError: there is no option 'fromsec'; did you mean fromSeq?": lambda: load(
            spark, log, fromSec="1"
        ),
        "UsageError: column 'key' is STRING, not BINARY": lambda: (
            spark.read.format("sirius").schema("key BINARY").load(str(log)).collect()
        ),
    }
    for message, query in told.items():
        assert message in message_of(query)
