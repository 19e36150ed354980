"""Writing logs without Spark: columns, numbering, the commit, and what is left of jobs that did not get there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructType, TimestampType

from sirius import Sirius, SiriusConfig
from sirius.app.storage import Storage
from sirius.errors import LogError, LogLocked, NotALog, UsageError
from sirius.types import SegmentId
from sirius.wal import Log, LogReader, Manifest, OsFileSystem, Record
from sirius.wal.bulk import Part
from sirius.wal.segment import SegmentWriter
from sirius.wal.store import Store
from sirius.wal.verify.verify import verify
from spark_connector.options import Options
from spark_connector.writing import committing as committing_module
from spark_connector.writing import staging as staging_module
from spark_connector.writing import stream_writer_of, writer_of
from spark_connector.writing.columns import check_write_schema, columns_of
from spark_connector.writing.committing import Written, commit, in_order, target_of
from spark_connector.writing.log_writer import LogWriter
from spark_connector.writing.staging import PartWriter, Staging

NOW_US = 1_700_000_000_000_000


def batch(count: int = 3, start: int = 0, **columns: Any) -> Any:
    """An Arrow batch of updates."""
    numbers = range(start, start + count)
    fields = {
        "key": pa.array([f"key/{number}" for number in numbers], pa.string()),
        "body": pa.array([b"body %d" % number for number in numbers], pa.binary()),
        **columns,
    }
    return pa.record_batch(fields)


def begun(path: str, job: str) -> Staging:
    staging = Staging(path, job)
    staging.begin()
    return staging


def staged(
    staging: Staging, partition: int, *batches: Any, segment_bytes: int = 1 << 26
) -> Written:
    """What a task does."""
    writer = PartWriter(staging.task(partition, 0), segment_bytes, NOW_US)
    writer.write(batches)
    found = tuple(writer.parts), writer.records, writer.seq_first, writer.seq_last
    return Written(partition, *found)


def written(path: Path, *partitions: Sequence[Any], overwrite: bool = False, **how: Any) -> int:
    """What a job does."""
    staging = begun(str(path), "job")
    target = target_of(str(path), overwrite=overwrite)
    messages = [staged(staging, at, *batches, **how) for at, batches in enumerate(partitions)]
    return commit(target, staging, messages)


def records(path: Path) -> list[Record]:
    with LogReader.open(str(path)) as reader, reader.snapshot() as snapshot:
        return list(snapshot.records())


def bodies(path: Path) -> list[int]:
    """The numbers of the records in a log that is dense and sound in every byte."""
    report = verify(Store(OsFileSystem(), str(path)), deep=True)
    assert report.sound, report.findings
    found = records(path)
    assert [record.seq for record in found] == list(range(1, len(found) + 1))
    return [int(record.body.split()[-1]) for record in found]


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


# ---------------------------------------------------------------------- columns


def test_op_and_time_have_defaults(tmp_path: Path) -> None:
    written(tmp_path / "log", [batch(1)])
    (record,) = records(tmp_path / "log")
    assert record == (1, NOW_US, 1, "key/0", b"body 0", 0, 0)


def test_every_column_arrives(tmp_path: Path) -> None:
    time = datetime(2026, 11, 16, 12, tzinfo=UTC)
    given = batch(
        2,
        body=pa.array([b"", None], pa.binary()),
        op=pa.array(["put", "DELETE"]),
        ts=pa.array([time, time], pa.timestamp("us", "UTC")),
        key=pa.array(["títle/ü", "title/2"]),
        segment=pa.array([7, 7], pa.int32()),
    )
    written(tmp_path / "log", [given])
    micros = int(time.timestamp() * 1_000_000)
    assert records(tmp_path / "log") == [
        (1, micros, 1, "títle/ü", b"", 0, 0),
        (2, micros, 2, "title/2", b"", 0, 0),
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array(["a", None, "c"])}, "column 'key' is NULL, in row 2"),
        ({"key": pa.array(["a", "b", ""])}, "column 'key' is empty, in row 3"),
        ({"key": pa.array(["a", "b" * 40_000, "c"])}, "column 'key' has more than 32768 bytes"),
        ({"op": pa.array(["PUT", "PUT", "DROP"])}, "column 'op' is neither PUT nor DELETE"),
        ({"op": pa.array([None, "PUT", "PUT"])}, "column 'op' is NULL, in row 1"),
        ({"body": pa.array([b"", None, b""])}, "column 'body' is NULL in a PUT, in row 2"),
        ({"op": pa.array(["PUT", "DELETE", "PUT"])}, "column 'body' is not empty in a DELETE"),
    ],
)
def test_rows_that_are_no_updates_are_refused_with_their_column(
    columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        columns_of(batch(3, **columns), NOW_US)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": StringType()}, "column 'body' is missing"),
        ({"body": BinaryType()}, "column 'key' is missing"),
        (
            {"key": StringType(), "body": StringType()},
            "column 'body' must be BINARY, and is STRING: cast it, as in col('body').cast('binary')",
        ),
        (
            {"key": StringType(), "body": BinaryType(), "ts": LongType()},
            "column 'ts' must be TIMESTAMP, and is BIGINT",
        ),
        (
            {"key": StringType(), "body": BinaryType(), "colour": StringType()},
            "a log has no place for column 'colour'",
        ),
        ({"key": StringType(), "body": BinaryType(), "ts": TimestampType()}, ""),
    ],
)
def test_schemas_are_checked_before_anything_runs(
    fields: dict[str, DataType], message: str
) -> None:
    schema = StructType()
    for name, kind in fields.items():
        schema.add(name, kind)
    if not message:
        check_write_schema(schema)
        return
    with pytest.raises(UsageError) as error:
        check_write_schema(schema)
    assert message in str(error.value)


# ---------------------------------------------------------------------- order and numbers


def test_partitions_follow_each_other_whichever_was_done_first(tmp_path: Path) -> None:
    staging = begun(str(tmp_path / "log"), "job")
    late, early = staged(staging, 1, batch(4, 10)), staged(staging, 0, batch(3), batch(2, 3))
    none = staged(staging, 2)
    target = target_of(str(tmp_path / "log"), overwrite=False)
    assert commit(target, staging, [late, none, early]) == 9
    assert bodies(tmp_path / "log") == [0, 1, 2, 3, 4, 10, 11, 12, 13]


def test_many_segments_and_blocks_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "BLOCK_RECORDS", 16)
    monkeypatch.setattr(staging_module, "SEGMENT_RECORDS", 200)
    partitions = [[batch(300, 1000 * at), batch(300, 1000 * at + 300)] for at in range(3)]
    written(tmp_path / "log", *partitions, segment_bytes=10_000)
    expected = [1000 * at + number for at in range(3) for number in range(600)]
    assert bodies(tmp_path / "log") == expected
    with LogReader.open(str(tmp_path / "log")) as reader:
        assert len(reader.manifest.segments) > 9


def test_a_part_that_is_large_in_bytes_is_cut(tmp_path: Path) -> None:
    large = pa.array([b"x" * 700_000 + b" %d" % number for number in range(4)], pa.binary())
    written(tmp_path / "log", [batch(4, body=large)], segment_bytes=1_500_000)
    assert bodies(tmp_path / "log") == [0, 1, 2, 3]
    with LogReader.open(str(tmp_path / "log")) as reader:
        assert [info.records for info in reader.manifest.segments] == [2, 2, 0]


def test_a_column_of_numbers_gives_the_order_and_not_the_numbers(tmp_path: Path) -> None:
    high = batch(3, 5, seq=pa.array([70, 80, 90], pa.int64()))
    low = batch(2, seq=pa.array([3, 9], pa.int64()))
    written(tmp_path / "log", [high], [low])
    assert bodies(tmp_path / "log") == [0, 1, 5, 6, 7]


@pytest.mark.parametrize("seqs", [[[1, 3, 2]], [[1, 2, 3], [3, 4, 5]]])
def test_a_partition_that_is_not_sorted_is_refused(tmp_path: Path, seqs: list[list[int]]) -> None:
    batches = [batch(3, seq=pa.array(seq, pa.int64())) for seq in seqs]
    with pytest.raises(UsageError, match=r"column 'seq' does not go up .*save\(df, path\)"):
        written(tmp_path / "log", batches)


def test_partitions_that_overlap_are_refused() -> None:
    part = (Part("x", 1, 2),)
    with pytest.raises(UsageError, match="partitions 1 and 0 overlap between 5 and 6"):
        in_order([Written(0, part, 2, 5, 9), Written(1, part, 2, 1, 6)])


# ---------------------------------------------------------------------- where it goes


def test_a_node_starts_on_it_and_goes_on(tmp_path: Path) -> None:
    written(tmp_path / "log", [batch(500)], [batch(500, 500)])
    storage = Storage()
    with Sirius(storage, SiriusConfig(data=str(tmp_path / "log"))) as node:
        assert len(storage.values) == 1000
        seq = node.enqueue_put("key/0", b"new 0").result(10).seq
    assert seq is not None
    assert seq > 1000


def test_no_rows_make_an_empty_log_which_may_be_written_to(tmp_path: Path) -> None:
    assert written(tmp_path / "log", []) == 0
    assert bodies(tmp_path / "log") == []
    assert written(tmp_path / "log", [batch(2)]) == 2
    assert bodies(tmp_path / "log") == [0, 1]


def test_nothing_is_appended_to_a_log_with_records(tmp_path: Path) -> None:
    written(tmp_path / "log", [batch(2)])
    with pytest.raises(UsageError, match=r"holds records.*mode\(\"overwrite\"\)"):
        target_of(str(tmp_path / "log"), overwrite=False)


def test_overwriting_replaces_everything_and_makes_it_another_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, [batch(10)])
    with LogReader.open(str(path)) as reader, reader.snapshot() as before:
        written(path, [batch(3, 70)], overwrite=True)
        assert len(list(before.records())) == 10, "who reads the old one goes on"
        old = reader.manifest.uid
    assert bodies(path) == [70, 71, 72]
    with LogReader.open(str(path)) as reader:
        assert reader.manifest.uid != old
    with Log.open(path) as log:
        assert log.next_seq == 4
    assert names(tmp_path) == ["log"]


def test_overwriting_many_times_keeps_what_was_there_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    for number in range(3):
        written(path, [batch(2, number)], overwrite=True)
    assert len(names(path / "segments")) == 6
    later = os.stat(path).st_mtime + 10_000
    monkeypatch.setattr("sirius.wal.bulk.time.time", lambda: later)
    written(path, [batch(2, 9)], overwrite=True)
    assert bodies(path) == [9, 10]
    assert len(names(path / "segments")) == 4, "those of this one and of the last before it"


def test_a_log_that_somebody_has_open_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, [batch(2)])
    with Log.open(path), pytest.raises(LogLocked):
        written(path, [batch(3)], overwrite=True)
    assert bodies(path) == [0, 1]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_log_is_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(NotALog, match="it is left alone"):
        target_of(str(tmp_path), overwrite=overwrite)
    with pytest.raises(UsageError, match="is a file"):
        target_of(str(tmp_path / "thesis.txt"), overwrite=overwrite)


def test_a_log_that_came_up_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    staging = begun(str(path), "slow")
    target = target_of(str(path), overwrite=False)
    mine = staged(staging, 0, batch(2, 50))
    other = begun(str(path), "fast")
    commit(target, other, [staged(other, 0, batch(2))])
    with pytest.raises((LogError, FileNotFoundError)):
        commit(target, staging, [mine])
    assert bodies(path) == [0, 1]


def test_a_job_is_not_emptied_while_it_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs overwrite a log; one cleans up after the other just when that one moves its segments in."""
    path = tmp_path / "log"
    written(path, [batch(2)])
    target = target_of(str(path), overwrite=True)
    slow, fast = begun(str(path), "slow"), begun(str(path), "fast")
    mine = staged(slow, 0, batch(3, 50))
    unlink, went = os.unlink, list[Path]()

    def unlink_late(name: Any, **how: Any) -> None:
        if str(name) == "data" and not went:
            went.append(path)
            with suppress(OSError):
                commit(target, slow, [mine])
        unlink(name, **how)

    monkeypatch.setattr(os, "unlink", unlink_late)
    commit(target, fast, [staged(fast, 0, batch(4, 70))])
    assert went
    assert bodies(path) == [70, 71, 72, 73]
    assert names(tmp_path) == ["log"]


# ---------------------------------------------------------------------- jobs that did not get there


class Killed(BaseException):
    """As good as kill -9: nothing is cleaned up."""


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("step", ["seal_part", "rename", "create", "commit", "second commit"])
def test_a_job_that_is_killed_shows_nothing_and_the_next_one_removes_its_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, overwrite: bool
) -> None:
    path = tmp_path / "log"
    if overwrite:
        written(path, [batch(4)])

    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    def die_later(store: Store, manifest: Manifest) -> None:
        if len(manifest.segments) > 2:
            raise Killed
        commit_manifest(store, manifest)

    commit_manifest = Store.commit
    places: dict[str, tuple[Any, str, Any]] = {
        "seal_part": (committing_module, "seal_part", die),
        "rename": (os, "rename", die),
        "create": (SegmentWriter, "create", die),
        "commit": (Store, "commit", die),
        "second commit": (Store, "commit", die_later),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*places[step])
        with pytest.raises(Killed):
            written(path, [batch(2, 30)], [batch(2, 40)], overwrite=overwrite)
    assert path.exists() == overwrite
    if overwrite:
        assert bodies(path) == [0, 1, 2, 3]
        with Log.open(path) as log:
            assert log.next_seq == 5
    staging = begun(str(path), "next")
    target = target_of(str(path), overwrite=True)
    commit(target, staging, [staged(staging, 0, batch(1, 8))])
    assert bodies(path) == [8]
    assert names(tmp_path) == ["log"]


def test_an_aborted_job_leaves_nothing(tmp_path: Path) -> None:
    options = Options(paths=(str(tmp_path / "log"),))
    writer = LogWriter(options, overwrite=False)
    writer.write(iter([batch(3)]))
    assert names(tmp_path) != []
    writer.abort([None])
    assert names(tmp_path) == []


def test_a_task_of_a_job_that_was_given_up_leaves_nothing(tmp_path: Path) -> None:
    """Spark does not wait for such tasks: one may write on, another may only begin."""
    writer = LogWriter(Options(paths=(str(tmp_path / "log"),)), overwrite=False)

    def batches() -> Iterator[Any]:
        yield batch(3)
        writer.abort([None])
        yield batch(3, 3)

    writer.write(batches())
    assert names(tmp_path) == []
    with pytest.raises(LogError, match="this one was given up"):
        writer.write(iter([batch(3)]))
    assert names(tmp_path) == []


def test_what_is_written_while_a_job_is_given_up_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LogWriter(Options(paths=(str(tmp_path / "log"),)), overwrite=False)
    unlink, late = os.unlink, list[Exception]()
    writer.write(iter([batch(3)]))

    def unlink_late(name: Any, **how: Any) -> None:
        try:
            writer.write(iter([batch(3)]))
        except LogError as error:
            late.append(error)
        unlink(name, **how)

    monkeypatch.setattr(os, "unlink", unlink_late)
    writer.abort([None])
    assert late
    assert names(tmp_path) == []


def test_a_commit_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = LogWriter(Options(paths=(str(tmp_path / "log"),)), overwrite=False)
    message = writer.write(iter([batch(3)]))
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "in the way").touch()
    with pytest.raises(LogError, match="cannot be made"):
        writer.commit([message])
    assert names(tmp_path) == ["log"]
    writer.abort([message])


# ---------------------------------------------------------------------- what is asked for


def test_a_log_is_not_written_to_a_place_that_only_looks_like_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="s3a is none"):
        LogWriter(Options(paths=("s3a://bucket/films",)), overwrite=False)
    assert names(tmp_path) == []


SCHEMA = StructType().add("key", StringType()).add("body", BinaryType())


@pytest.mark.parametrize(
    ("options", "overwrite", "message"),
    [
        (Options(endpoint=("a:1",), paths=("x",)), False, "give one of them"),
        (Options(endpoint=("a:1",)), True, "cannot be overwritten"),
    ],
)
def test_a_cluster_is_no_folder(options: Options, overwrite: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        writer_of(options, SCHEMA, overwrite=overwrite)


def test_a_stream_goes_to_a_cluster_and_is_known_by_a_name() -> None:
    with pytest.raises(UsageError, match="endpoint"):
        stream_writer_of(Options(paths=("x",)), SCHEMA, overwrite=False, checkpoint="c")
    with pytest.raises(UsageError, match="txnId or checkpointLocation"):
        stream_writer_of(Options(endpoint=("a:1",)), SCHEMA, overwrite=False, checkpoint=None)


def test_a_segment_keeps_the_id_that_it_was_given(tmp_path: Path) -> None:
    """Ids go on where the old log's ended: a crash in the middle must not look like a lost manifest."""
    path = tmp_path / "log"
    written(path, [batch(2)])
    written(path, [batch(2)], overwrite=True)
    with LogReader.open(str(path)) as reader:
        assert [info.id for info in reader.manifest.segments] == [SegmentId(3), SegmentId(4)]
