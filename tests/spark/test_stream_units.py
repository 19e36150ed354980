"""Streams without Spark: positions, limits, and what a micro-batch reads."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sirius.errors import RangeUnavailable, ResyncRequired, SiriusError, UsageError
from sirius.testing.logs import updates
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Log, LogConfig, LogReader, Op, Update
from sirius.wal.index import INDEX_ENTRY
from spark_connector.options import Options
from spark_connector.schema import schema_of
from spark_connector.streaming import tails
from spark_connector.streaming.reader import StreamReader
from spark_connector.streaming.tails import within

SMALL = LogConfig(reserve_bytes=0, segment_bytes_max=4096)


def reader_of(path: Path, **options: Any) -> StreamReader:
    return StreamReader(Options(paths=(str(path),), **options), schema_of(("seq", "key")))


def write(path: Path, count: int, seed: int = 0) -> int:
    with Log.open(str(path), SMALL) as log:
        for at in range(0, count, 10):
            log.write(updates(min(10, count - at), keys=20, seed=seed + at))
            log.flush()
        return int(log.durable_seq)


def take(reader: StreamReader, start: int, end: int) -> list[int]:
    """What a micro-batch reads, as tasks do: through a reader that was pickled."""
    parts = reader.partitions({"seq": start}, {"seq": end})
    in_task = pickle.loads(pickle.dumps((reader, list(parts))))
    batches = [batch for part in in_task[1] for batch in in_task[0].read(part)]
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def all_of(path: Path) -> list[int]:
    with LogReader.open(str(path)) as reader, reader.snapshot() as snapshot:
        return [record.seq for batch in snapshot.batches() for record in batch.updates().records()]


def drain(reader: StreamReader, limit: int, start: int = 0) -> list[list[int]]:
    """Take everything there is, batch by batch."""
    batches = []
    while (end := reader.latestOffset({"seq": start}, ReadMaxRows(limit))["seq"]) > start:
        batches.append(take(reader, start, end))
        start = end
    return batches


def test_a_stream_begins_at_the_beginning_or_where_it_is_told(tmp_path: Path) -> None:
    write(tmp_path, 30)
    assert reader_of(tmp_path).initialOffset() == {"seq": 0}
    assert reader_of(tmp_path, from_seq=12).initialOffset() == {"seq": 11}


def test_what_is_appended_shows_at_the_next_look(tmp_path: Path) -> None:
    first = write(tmp_path, 30)
    reader = reader_of(tmp_path)
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == {"seq": first}
    second = write(tmp_path, 200, seed=1)
    assert reader.latestOffset({"seq": first}, ReadAllAvailable()) == {"seq": second}
    assert take(reader, first, second) == [seq for seq in all_of(tmp_path) if seq > first]


def test_batches_are_bounded_and_together_they_are_the_log(tmp_path: Path) -> None:
    write(tmp_path, 300)
    batches = drain(reader_of(tmp_path), 37)
    assert max(map(len, batches)) <= 37
    assert [seq for batch in batches for seq in batch] == all_of(tmp_path)


def test_the_holes_of_a_compacted_log_cost_no_batches(tmp_path: Path) -> None:
    write(tmp_path, 2000)
    with Log.open(str(tmp_path), SMALL) as log:
        log.rotate()
        log.compact(CompactionPolicy(dead_fraction_min=0))
    left = all_of(tmp_path)
    batches = drain(reader_of(tmp_path), 10)
    assert [seq for batch in batches for seq in batch] == left
    assert len(batches) < len(left) / 10 + 10


def test_a_batch_that_was_planned_is_read_while_its_segments_are_replaced(tmp_path: Path) -> None:
    last = write(tmp_path, 400)
    reader = reader_of(tmp_path)
    parts = list(reader.partitions({"seq": 0}, {"seq": last}))
    before = all_of(tmp_path)
    with Log.open(str(tmp_path), SMALL) as log:
        log.rotate()
        log.compact(CompactionPolicy(dead_fraction_min=0))
    assert len(all_of(tmp_path)) < len(before)
    batches = [batch for part in parts for batch in reader.read(part)]
    assert [seq for batch in batches for seq in batch.column("seq").to_pylist()] == before


def test_partitions_go_by_numbers_alone_whatever_becomes_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink knows rows of a batch that is replayed by their partition: none may move to another."""
    monkeypatch.setattr(tails, "_SHARE", 150)
    last = write(tmp_path, 400)

    def partitions() -> list[set[int]]:
        reader = reader_of(tmp_path)
        parts = reader.partitions({"seq": 20}, {"seq": last})
        batches = [list(reader.read(part)) for part in parts]
        return [{seq for each in found for seq in each["seq"].to_pylist()} for found in batches]

    before = partitions()
    with Log.open(str(tmp_path), SMALL) as log:
        log.rotate()
        log.compact(CompactionPolicy(dead_fraction_min=0))
    after = partitions()
    assert sum(map(len, after)) < sum(map(len, before)) / 2
    assert [len(found) for found in before] == [150, 150, 80]
    assert [found <= was for found, was in zip(after, before, strict=True)] == [True] * 3
    # Also if nothing is left of one.
    assert after[0] == set()


def test_what_is_there_now_is_a_fixed_end(tmp_path: Path) -> None:
    last = write(tmp_path, 30)
    reader = reader_of(tmp_path)
    reader.prepareForTriggerAvailableNow()
    write(tmp_path, 30)
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == {"seq": last}
    assert reader.latestOffset({"seq": last}, ReadAllAvailable()) == {"seq": last}


def test_to_seq_ends_a_stream(tmp_path: Path) -> None:
    write(tmp_path, 30)
    reader = reader_of(tmp_path, to_seq=17)
    assert reader.latestOffset({"seq": 0}, ReadAllAvailable()) == {"seq": 17}


def test_another_log_under_the_same_name_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, 30)
    reader = reader_of(tmp_path)
    with pytest.raises(RangeUnavailable, match="another log or an older copy"):
        reader.latestOffset({"seq": 900}, ReadAllAvailable())


def test_a_stream_may_begin_where_the_log_has_not_got_yet(tmp_path: Path) -> None:
    write(tmp_path, 30)
    reader = reader_of(tmp_path, from_seq=1000)
    assert reader.latestOffset({"seq": 999}, ReadAllAvailable()) == {"seq": 999}


def test_nothing_new_is_no_partition(tmp_path: Path) -> None:
    write(tmp_path, 30)
    assert reader_of(tmp_path).partitions({"seq": 30}, {"seq": 30}) == []


def test_damage_ends_the_stream_or_is_left_out(tmp_path: Path) -> None:
    last = write(tmp_path, 300)
    data = sorted((tmp_path / "segments").glob("*/data"))[0]
    raw = bytearray(data.read_bytes())
    raw[len(raw) // 2] ^= 1
    data.write_bytes(raw)
    with pytest.raises(SiriusError, match=str(data)):
        take(reader_of(tmp_path), 0, last)
    left = take(reader_of(tmp_path, on_corrupt="skip"), 0, last)
    assert 0 < len(left) < len(range(last))
    assert left == sorted(set(left))
    batches = drain(reader_of(tmp_path, on_corrupt="skip"), 7)
    assert [seq for batch in batches for seq in batch] == left


def test_conditions_pick_rows_of_a_stream(tmp_path: Path) -> None:
    last = write(tmp_path, 200)
    with LogReader.open(str(tmp_path)) as reader, reader.snapshot() as snapshot:
        records = list(snapshot.records())
    key = records[0].key
    wanted = [each.seq for each in records if each.key == key and each.op == Op.PUT]
    options: dict[str, Any] = {"key": key, "op": "put"}
    assert 1 < len(wanted) < 50
    assert take(reader_of(tmp_path, **options), 0, last) == wanted
    with LogReader.open(str(tmp_path)) as reader, reader.snapshot() as snapshot:
        scan = reader_of(tmp_path, **options)._scan(1, last)
        sent = [batch for batch in scan.read_blocks(snapshot.blocks())]
    assert [seq for batch in sent for seq in batch["seq"].to_pylist()] == wanted


def test_a_stream_that_would_miss_deletes_is_told_to_begin_anew(tmp_path: Path) -> None:
    """A table that has the PUT would have it for ever."""
    with Log.open(str(tmp_path), SMALL) as log:
        log.write([Update(Op.PUT, b"a", b"1"), Update(Op.PUT, b"b", b"1")])
        reader = reader_of(tmp_path)
        log.rotate()
        log.write([Update(Op.DELETE, b"a")])
        log.rotate()
        last = int(log.write([Update(Op.PUT, b"c", b"1"), Update(Op.PUT, b"d", b"1")]))
        log.flush()
        # The PUT goes first, and then what deleted it.
        log.compact(CompactionPolicy(dead_fraction_min=0))
        log.compact(CompactionPolicy(dead_fraction_min=0, drop_deletes_upto=Seq(10)))
        assert log.tombstone_floor == 3
        for look in (
            lambda: reader.latestOffset({"seq": 2}, ReadAllAvailable()),
            lambda: reader_of(tmp_path).partitions({"seq": 2}, {"seq": last}),
        ):
            with pytest.raises(ResyncRequired, match="position 2 is below the tombstone floor 3"):
                look()
        assert take(reader_of(tmp_path), 0, last) == [2, 4, 5]
        assert take(reader_of(tmp_path), 3, last) == [4, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "state"}, "a stream reads view=updates"),
        ({"endpoint": ("127.0.0.1:1",)}, "a path or an endpoint, not both"),
    ],
)
def test_what_a_stream_cannot_do_is_told(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    write(tmp_path, 3)
    with pytest.raises(UsageError, match=message):
        reader_of(tmp_path, **options)


def test_a_stream_needs_a_log_that_can_grow(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        reader_of(tmp_path / "nowhere")
    with pytest.raises(SiriusError, match="is not a log"):
        reader_of(tmp_path)


@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_limits_counted_by_the_index_are_exact(rng: random.Random, limit: int) -> None:
    """Against a list of records: blocks of any size, with holes anywhere."""
    table, seqs, at = [], [], 1
    for _ in range(rng.randrange(1, 8)):
        span = rng.randrange(1, 12)
        there = sorted(rng.sample(range(at, at + span), rng.randrange(span + 1)))
        table.append((at, at + span - 1, 0, 0, len(there), 0, 0))
        seqs += there
        at += span
    index = np.array(table, INDEX_ENTRY)
    after = rng.randrange(at)
    behind = [seq for seq in seqs if seq > after]

    def numbers(first: int, last: int) -> Any:
        return np.array([seq for seq in seqs if first <= seq <= last])

    reached, left = within(index, after, limit, numbers)
    taken = [seq for seq in behind if seq <= reached]
    assert taken == behind[:limit]
    assert left == limit - len(taken)
    assert reached > after or not [row for row in table if row[1] > after]
