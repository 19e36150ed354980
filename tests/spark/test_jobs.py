"""Bulk work on Spark gives what `waltool` gives on one machine, to the byte where bytes are the result."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sirius.errors import UsageError
from sirius.wal import Op, Update
from spark_connector import jobs
from spark_connector.cli import run as main
from spark_connector.jobs.exchange import cut_up
from spark_connector.jobs.running import JobFailed, running
from tests.spark.readlogs import T0_US, data_file, expected, flip, make, numbered, open_log, write
from waltool.cli import run as waltool
from waltool.filters import Filter

HOUR_US = 3_600_000_000
PREFIXES = ("title/", "title/", "person/", "é/", "", "映画/")


def update(rng: random.Random) -> Update:
    """A put or a delete of one of few keys, now and then a control entry, seldom a key that is long."""
    number = rng.random()
    if number < 0.04:
        return Update(Op.NOOP, b"")
    if number < 0.08:
        return Update(Op.MEMBERSHIP, b"", rng.randbytes(4))
    if number < 0.12:
        return Update(Op.SESSION, b"session-%d" % rng.randrange(3), session=7, serial=1)
    key = f"{rng.choice(PREFIXES)}{rng.randrange(30)}{'x' * 90 if number > 0.97 else ''}".encode()
    if number < 0.3:
        return Update(Op.DELETE, key)
    return Update(Op.PUT, key, b"%d" % rng.randrange(3) * rng.randrange(4))


def random_log(path: Path, seed: int, *, blocks: int = 40) -> str:
    """A log of several segments with an active one; compacted in the middle of its life, so that it has holes."""
    rng = random.Random(seed)
    with open_log(path, segment_records_max=100) as log:
        for number in range(blocks):
            updates = [update(rng) for _ in range(rng.randint(1, 20))]
            write(log, updates, T0_US + number * HOUR_US)
            if number == blocks // 2:
                log.compact()
    return str(path)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Random logs of ours, one that is empty, and one in each other format."""
    root = tmp_path_factory.mktemp("logs")
    found = [random_log(root / f"log{seed}", seed) for seed in (1, 2)]
    found.append(random_log(root / "empty", 3, blocks=0))
    for kind in ("single", "ancestor-segmented"):
        options = ["--drop-control", "--truncate-times"] if kind != "single" else []
        made = str(root / kind)
        assert waltool(["convert", found[0], made, "--to", kind, *options]) == 0
        found.append(made)
    return found


def files(path: Path) -> dict[str, bytes]:
    """Every file of a log, whatever its format, but for manifests: these name the folder's place on the disk."""
    every = (each for each in (path, *path.rglob("*")) if each.is_file())
    found = [each for each in every if each.parent.name != "manifests"]
    return {str(each.relative_to(path)): each.read_bytes() for each in found}


@pytest.fixture(autouse=True)
def several_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small logs shared out to several tasks, so that what they find of a key has to be put together."""
    monkeypatch.setattr("spark_connector.reading.partitioning.PARTITION_BYTES_MIN", 1)


@pytest.fixture
def same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give new logs the same id and the same time. Hashes, which take more than 8 bytes, stay random."""
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: b"sameuids" if n == 8 else real(n))
    monkeypatch.setattr(time, "time_ns", lambda: T0_US * 1000)


class Output:
    """Runs command lines, and tells what they printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = waltool(list(arguments))
        printed = self._capsys.readouterr()
        return code, printed.out + printed.err


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    return Output(capsys)


# ---------------------------------------------------------------------- same as on one machine


def test_statistics_are_those_of_one_machine(
    spark: SparkSession, logs: list[str], output: Output
) -> None:
    for log in logs:
        assert jobs.stats(spark, log) == json.loads(output("stats", "--json", log)[1])


def test_statistics_of_a_part_are_those_of_one_machine(
    spark: SparkSession, logs: list[str], output: Output
) -> None:
    options = ["--first", "40", "--last", "300", "--key", "itl.*/1", "--top", "1", "--per", "day"]
    options += ["--prefix-separator", "1", "--until", "2023-11-16T00:30:00Z"]
    local = output("stats", "--json", *options, logs[1])
    assert local[0] == 0
    assert output("stats", "--json", "--engine", "spark", *options, logs[1]) == local


def test_prefixes_with_the_most_records_come_first_and_equal_ones_in_their_own_order(
    spark: SparkSession, tmp_path: Path, output: Output
) -> None:
    equal = "khébzafgy"
    counts = {f"{prefix}/1": 3 for prefix in equal} | {"plain": 3, "c/1": 5, "d/1": 1, "d/2": 1}
    updates = [Update(Op.PUT, key.encode()) for key, count in counts.items() for _ in range(count)]
    log = str(make(tmp_path / "log", [[each] for each in updates], rotate_after=4))
    wanted = [("c/", 5), (None, 3), *((f"{prefix}/", 3) for prefix in sorted(equal)), ("d/", 2)]
    for top in (20, 3):
        found = jobs.stats(spark, log, top=top)
        assert [(row["prefix"], row["records"]) for row in found["prefixes"]] == wanted[:top]
        assert found == json.loads(output("stats", "--json", "--top", str(top), log)[1])


def test_differences_are_those_of_one_machine(
    spark: SparkSession, logs: list[str], output: Output
) -> None:
    for a, b in ((logs[0], logs[1]), (logs[2], logs[3]), (logs[4], logs[0])):
        code, text = output("diff", "--json", a, b)
        *wanted, summary = (json.loads(line) for line in text.splitlines())
        found = jobs.diff(spark, a, b).collect()
        assert [tuple(row) for row in found] == [tuple(each.values()) for each in wanted]
        assert (code, summary["keys"]) == (1 if found else 0, len(found))


@pytest.mark.usefixtures("same_each_time")
def test_a_compacted_log_is_the_same_to_the_byte(
    spark: SparkSession, logs: list[str], output: Output, tmp_path: Path
) -> None:
    for number, log in enumerate(logs):
        ours, theirs = tmp_path / f"spark{number}", tmp_path / f"local{number}"
        outcome = jobs.compact(spark, log, str(ours))
        summary = json.loads(output("compact", "--json", log, str(theirs))[1])
        assert outcome.as_json().items() <= summary.items()
        assert files(ours) == files(theirs) != {}


@pytest.mark.usefixtures("same_each_time")
@pytest.mark.parametrize(
    "options", [["--drop-deletes"], ["--drop-deletes-older-than", "2023-11-15T12:00:00Z"]]
)
def test_deletes_go_as_on_one_machine(
    spark: SparkSession, logs: list[str], output: Output, tmp_path: Path, options: list[str]
) -> None:
    engines: tuple[list[str], ...] = ([], ["--engine", "spark"])
    made = (tmp_path / "local", tmp_path / "spark")
    for extra in (["--dry-run"], []):
        local, on_spark = (
            unlike(output("compact", "--json", *engine, *extra, *options, logs[0], str(target)))
            for engine, target in zip(engines, made, strict=True)
        )
        assert on_spark == local
        assert local["deletes_dropped"] > 0
    assert files(made[1]) == files(made[0]) != {}


@pytest.mark.deep
@pytest.mark.usefixtures("same_each_time")
@pytest.mark.parametrize("seed", range(100, 112))
def test_any_logs_give_the_results_of_one_machine(
    spark: SparkSession, output: Output, tmp_path: Path, seed: int
) -> None:
    """compact, diff, stats and the busiest keys, on random pairs of logs with random options."""
    rng = random.Random(seed)
    a, b = (
        random_log(tmp_path / name, seed * 2 + at, blocks=rng.randint(1, 60))
        for at, name in enumerate("ab")
    )
    first = rng.randint(1, 200)
    options = ["--first", str(first), "--last", str(first + rng.randint(0, 300))]
    options += ["--prefix-separator", rng.choice("/1é"), "--top", str(rng.randint(0, 5))]
    for engine in (["stats", "--json", *options, a], ["diff", "--json", a, b]):
        assert output(*engine, "--engine", "spark") == output(*engine)
    drop = rng.choice([[], ["--drop-deletes"]])
    made = [tmp_path / "spark", tmp_path / "local"]
    for target, engine in zip(made, (["--engine", "spark"], []), strict=True):
        assert output("compact", *drop, *engine, a, str(target))[0] == 0
    assert files(made[0]) == files(made[1]) != {}


def unlike(result: tuple[int, str]) -> dict[str, Any]:
    """What a command printed, without what differs from run to run."""
    found: dict[str, Any] = json.loads(result[1])
    return {name: value for name, value in found.items() if name not in ("seconds", "target")}


def test_parquet_has_the_rows_and_types_of_one_machine(
    spark: SparkSession, logs: list[str], output: Output, tmp_path: Path
) -> None:
    for number, (log, options) in enumerate(
        [(logs[0], ["--control"]), (logs[1], ["--key", "^title/"]), (logs[2], [])]
    ):
        ours, theirs = tmp_path / f"s{number}.parquet", tmp_path / f"l{number}.parquet"
        local = output("export", "--json", *options, "-o", str(theirs), log)
        on_spark = output("export", "--json", "--engine", "spark", *options, "-o", str(ours), log)
        assert unlike(local) == unlike(on_spark)
        assert pq.read_table(ours).equals(pq.read_table(theirs))
        assert {each.suffix for each in ours.iterdir()} == {".parquet"}


# ---------------------------------------------------------------------- what only Spark has


def test_the_busiest_keys_are_those_with_the_most_updates(
    spark: SparkSession, logs: list[str]
) -> None:
    rows = expected(Path(logs[1]))
    counts = Counter(row[3] for row in rows)
    last = {row[3]: (row[0], row[2] == "PUT") for row in rows}
    wanted = sorted(counts, key=lambda key: (-counts[key], key.encode()))[:7]
    found = jobs.churn(spark, logs[1], top=7).collect()
    assert [(row.key, row.updates, (row.seq, row.live)) for row in found] == [
        (key, counts[key], last[key]) for key in wanted
    ]


def test_a_state_is_what_the_updates_before_it_amount_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_log(tmp_path / "log") as log:
        write(log, [Update(Op.PUT, b"a", b"1"), Update(Op.PUT, b"b", b"1")], T0_US)
        write(log, [Update(Op.PUT, b"a", b"2"), Update(Op.DELETE, b"b")], T0_US + HOUR_US)
    path = str(tmp_path / "log")
    assert {row.key: bytes(row.body) for row in jobs.state(spark, path).collect()} == {"a": b"2"}
    before = jobs.state(spark, path, as_of=2).collect()
    assert {row.key: bytes(row.body) for row in before} == {"a": b"1", "b": b"1"}


def test_a_frame_becomes_a_log_in_the_order_of_its_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(9, "b", bytearray(b"2")), (4, "a", bytearray(b"1"))]
    jobs.import_frame(
        spark.createDataFrame(rows, "seq BIGINT, key STRING, body BINARY"), str(tmp_path / "log")
    )
    found = [(row[0], row[3], row[4]) for row in expected(tmp_path / "log")]
    assert found == [(1, "a", b"1"), (2, "b", b"2")]


# ---------------------------------------------------------------------- commands and failures


def test_commands_print_the_same_on_spark(
    spark: SparkSession, logs: list[str], output: Output
) -> None:
    diff = ["diff", "--limit", "5", logs[0], logs[1]]
    assert output(*diff, "--engine", "spark") == output(*diff)
    assert output(*diff)[0] == 1


def test_the_package_is_a_command_on_spark(
    spark: SparkSession, logs: list[str], output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    local = output("stats", logs[0])
    assert main(["stats", logs[0]]) == 0
    assert (0, capsys.readouterr().out) == local


def test_damage_is_told_in_one_line_with_file_and_offset(
    spark: SparkSession, output: Output, tmp_path: Path
) -> None:
    log = str(make(tmp_path / "log", numbered(6, 20), rotate_after=2))
    flip(data_file(tmp_path / "log", 2), 200)
    code, text = output("compact", "--engine", "spark", log, str(tmp_path / "new"))
    assert (code, text.count("\n")) == (1, 1)
    assert str(data_file(tmp_path / "log", 2)) in text
    assert "Traceback" not in text
    assert not (tmp_path / "new").exists()
    with pytest.raises(JobFailed, match="data"), running():
        jobs.export_parquet(spark, log, str(tmp_path / "new"))
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_nothing_is_written_over(spark: SparkSession, logs: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is there already"):
        jobs.export_parquet(spark, logs[0], str(tmp_path))
    with pytest.raises(UsageError, match="is there already"):
        jobs.compact(spark, logs[0], str(tmp_path))


def test_a_session_that_was_there_before_stays(spark: SparkSession) -> None:
    with running() as found:
        assert found is spark
    assert spark.range(1).count() == 1


def test_a_filter_reaches_the_function_as_well(spark: SparkSession, logs: list[str]) -> None:
    assert jobs.stats(spark, logs[0], wanted=Filter(last=10))["last"] == 10


def test_rows_of_a_key_meet_in_one_bucket_and_none_is_lost() -> None:
    hashes = np.random.default_rng(1).integers(0, 1 << 64, 1000, np.uint64)
    found = [(bucket, row) for bucket, rows in cut_up(hashes, 7) for row in rows.tolist()]
    assert sorted(row for _, row in found) == list(range(1000))
    assert {bucket for bucket, _ in found} == set(range(7))
    again = {
        row: bucket for bucket, rows in cut_up(hashes[::-1].copy(), 7) for row in rows.tolist()
    }
    assert all(again[999 - row] == bucket for bucket, row in found)
