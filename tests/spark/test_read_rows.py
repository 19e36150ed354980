"""Rows as Arrow batches: what is in them, and that nobody reads over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from sirius.errors import CorruptLog, UsageError
from sirius.wal import Op, Update
from spark_connector.options import Options
from spark_connector.reading.reader import LogReaderForSpark
from spark_connector.reading.rows import op_names
from spark_connector.reading.scan import Scan
from spark_connector.schema import OPS, schema_of
from tests.spark.readlogs import (
    T0_US,
    Row,
    batches,
    delete,
    expected,
    make,
    numbered,
    put,
    read,
    reader_for,
)


def test_every_update_with_all_its_columns(tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put("a", b"1"), delete("b")], [put("é", b"")]], rotate_after=1)
    assert read(log) == [
        (1, T0_US, "PUT", "a", b"1", 1),
        (2, T0_US, "DELETE", "b", None, 1),
        (3, T0_US + 1_000_000, "PUT", "é", b"", 2),
    ]


def test_batches_have_the_schema_that_spark_demands(tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put("a", b"1")]])
    [batch] = batches(reader_for(log))
    assert batch.schema.equals(to_arrow_schema(schema_of(), timezone="UTC"))
    assert batch.validate(full=True) is None


def test_a_schema_of_the_users_may_leave_nullability_open(tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put("a", b"1")]])
    schema = StructType([StructField("seq", LongType(), nullable=True)])
    [batch] = batches(LogReaderForSpark(Options(paths=(str(log),)), schema))
    assert batch.schema == pa.schema([pa.field("seq", pa.int64(), nullable=True)])


def test_columns_come_in_the_order_asked_for_and_no_others(tmp_path: Path) -> None:
    log = make(tmp_path / "log", [[put("a", b"1"), put("b", b"2")]])
    assert read(log, columns="key,seq") == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 1000])
def test_names_of_operations(count: int) -> None:
    ops = np.random.default_rng(count).integers(1, 3, count, np.uint8)
    found = op_names(ops)
    assert found.validate(full=True) is None
    assert found.to_pylist() == [OPS[Op(op)] for op in ops.tolist()]


@pytest.mark.parametrize("op", [0, 3, 255])
def test_an_operation_without_a_name_is_damage(op: int) -> None:
    with pytest.raises(CorruptLog, match="neither PUT nor DELETE"):
        op_names(np.array([1, op, 2], np.uint8))


def test_control_entries_never_show(tmp_path: Path) -> None:
    control = [Update(Op.NOOP, b""), Update(Op.MEMBERSHIP, b"voters", b"x")]
    log = make(tmp_path / "log", [[put("a"), *control, put("b")], control])
    assert read(log, columns="seq,key") == [(1, "a"), (4, "b")]


@pytest.mark.parametrize("view", ["updates", "state", "changes"])
def test_a_log_with_nothing_in_it(tmp_path: Path, view: str) -> None:
    assert read(make(tmp_path / "log", []), view=view) == []


def test_what_spark_makes_of_no_partitions_is_read_as_nothing(tmp_path: Path) -> None:
    from pyspark.sql.datasource import InputPartition

    reader = reader_for(make(tmp_path / "log", []))
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_lone_writes_become_large_batches(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(300, 1))
    [batch] = batches(reader_for(log))
    assert batch.num_rows == 300
    assert read(log) == expected(log)


def test_a_large_block_is_cut_to_the_size_asked_for(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(1, 25))
    assert [batch.num_rows for batch in batches(reader_for(log, batchRecords="10"))] == [10, 10, 5]
    assert read(log, batchRecords="10") == expected(log)


def test_rows_of_numbers_come_in_larger_batches_than_those_with_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connector.reading.partitioning.PARTITION_BYTES_MIN", 1 << 30)
    log = make(tmp_path / "log", numbered(34, 1000))
    for columns, wanted in (
        ("seq,ts,op,segment", [34_000]),
        ("seq,key", [32_000, 2000]),
        ("body", [32_000, 2000]),
    ):
        found = batches(reader_for(log, columns=columns))
        assert [batch.num_rows for batch in found] == wanted
    assert read(log, columns="seq,op") == [(row[0], row[2]) for row in expected(log)]


def test_columns_outlive_the_buffer_that_they_were_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connector.reading.files._CHUNK_BYTES", 4096)
    monkeypatch.setattr("spark_connector.reading.files._BUFFERS", [])
    log = make(tmp_path / "log", numbered(50, 40))
    for columns, at in (("op", 2), ("seq", 0), ("ts", 1), ("key", 3)):
        found = batches(reader_for(log, columns=columns))
        # What is numbers alone, and an operation is, is put together again over the chunks of a file.
        assert (len(found) > 5) == (columns == "key")
        rows = [value for batch in found for value in batch.column(0).cast(pa.string()).to_pylist()]
        wanted = pa.array([row[at] for row in expected(log)])
        if columns == "ts":
            wanted = wanted.cast(pa.timestamp("us", "UTC"))
        assert rows == wanted.cast(pa.string()).to_pylist()


def test_rows_of_numbers_are_joined_over_the_chunks_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connector.reading.files._CHUNK_BYTES", 4096)
    monkeypatch.setattr("spark_connector.reading.files._BUFFERS", [])
    log = make(tmp_path / "log", numbered(50, 40), rotate_after=30)
    found = batches(reader_for(log, columns="seq,op,segment", batchRecords="500"))
    assert [batch.num_rows for batch in found] == [480, 480, 240, 480, 320]
    wanted = [(row[0], row[2], row[5]) for row in expected(log)]
    assert read(log, columns="seq,op,segment", batchRecords="500") == wanted


def test_rows_of_numbers_do_not_wait_for_many_mib_of_bodies(tmp_path: Path) -> None:
    """Who wants ten rows, or stops at some, should not have to read gigabytes first."""
    log = make(tmp_path / "log", [[put(f"key{n}", bytes(4 << 20))] for n in range(20)])
    found = batches(reader_for(log, columns="seq"))
    assert [seq for batch in found for seq in batch["seq"].to_pylist()] == list(range(1, 21))
    assert max(batch.num_rows for batch in found) == 7


def test_conditions_on_numbers_where_nothing_else_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that only a condition looks at are there for it; a condition on the key has keys to look at."""
    monkeypatch.setattr("spark_connector.reading.files._CHUNK_BYTES", 4096)
    monkeypatch.setattr("spark_connector.reading.files._BUFFERS", [])
    log = make(tmp_path / "log", numbered(50, 40), rotate_after=30)
    everything = expected(log)
    since = T0_US + 10_000_000
    cases: list[tuple[dict[str, str], Callable[[Row], bool]]] = [
        ({"op": "delete"}, lambda row: row[2] == "DELETE"),
        ({"fromSeq": "77", "toSeq": "1777"}, lambda row: 77 <= row[0] <= 1777),
        ({"since": "2023-11-14T22:13:30Z"}, lambda row: row[1] >= since),
        ({"key": "key3"}, lambda row: row[3] == "key3"),
        ({"view": "changes"}, lambda row: row[0] > 1993),
    ]
    for options, wanted in cases:
        found = read(log, columns="segment", **options)
        assert found == [(row[5],) for row in everything if wanted(row)]
        assert found


def test_large_bodies(tmp_path: Path) -> None:
    body = bytes(range(256)) * 4096
    log = make(tmp_path / "log", [[put("a", body), put("b", body[1:])], [put("c", body)]] * 3)
    assert [len(row[0]) for row in read(log, columns="body")] == [
        1 << 20,
        (1 << 20) - 1,
        1 << 20,
    ] * 3
    assert read(log) == expected(log)


def test_large_bodies_make_batches_of_fewer_rows(tmp_path: Path) -> None:
    """So memory is bounded by bytes, whatever the rows are: a task holds a chunk of the file and a batch of it."""
    log = make(tmp_path / "log", numbered(100, 10, body=20_000))
    found = batches(reader_for(log))
    assert sum(batch.num_rows for batch in found) == 1000
    assert sum(batch.nbytes for batch in found) > 12 << 20
    assert max(batch.nbytes for batch in found) <= 4 << 20


def test_batches_stay_what_they_are_when_reading_goes_on(tmp_path: Path) -> None:
    """The file is read into one buffer again and again: nothing of a batch may point there."""
    log = make(tmp_path / "log", numbered(24, 100, body=6000), rotate_after=12)
    assert sum(batch.nbytes for batch in batches(reader_for(log))) > 10 << 20
    assert read(log) == expected(log)


def test_a_range_is_cut_to_the_record(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(6, 10), rotate_after=2)
    everything = expected(log)
    assert read(log, fromSeq="7", toSeq="33") == [row for row in everything if 7 <= row[0] <= 33]
    assert read(log, fromSeq="61") == []
    assert read(log, toSeq="600") == everything


def test_a_scan_can_be_pickled_and_used_on_its_own(tmp_path: Path) -> None:
    import pickle

    from spark_connector.reading.pinned import pieces_of, pin

    log = pin(str(make(tmp_path / "log", numbered(4, 10), rotate_after=2)))
    scan = Scan(schema_of(("seq",)), first=5, last=24)
    pieces = pickle.loads(pickle.dumps((scan, pieces_of(log, scan))))
    found = [batch for piece in pieces[1] for batch in pieces[0].read(piece)]
    assert [seq for batch in found for seq in batch["seq"].to_pylist()] == list(range(5, 25))


def test_a_load_needs_a_path() -> None:
    with pytest.raises(UsageError, match="no path was given"):
        LogReaderForSpark(Options(), schema_of())
