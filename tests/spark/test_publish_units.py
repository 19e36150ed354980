"""Publishing without Spark and without a cluster: what is reported."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sirius.errors import InvariantViolation, UsageError
from sirius.wal import Op, Update
from spark_connector.options import Options
from spark_connector.writing.publishing import (
    Message,
    Published,
    Publisher,
    PublishFailed,
    StreamPublisher,
    report,
    runs_by_seq,
    updates_of,
)


def test_the_report_says_which_partitions_are_through_and_up_to_where() -> None:
    messages = [Message(Published(2, 5, 17)), None, Message(Published(0, 3, 9))]
    assert report(messages) == (
        "8 records; partitions that are through: 0 (3 records, to 9), 2 (5 records, to 17); 1 of 3 are not"
    )
    assert "through: none; 1 of 1 are not" in report([None])


def test_batches_become_updates() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array([b"1", None], pa.binary()),
            "op": pa.array(["PUT", "DELETE"]),
            "key": pa.array(["a", "ü"]),
        }
    )
    empty = batch.slice(0, 0)
    expected = [Update(Op.PUT, b"a", b"1"), Update(Op.DELETE, "ü".encode())]
    assert list(updates_of([batch, empty])) == expected


def test_a_partition_that_did_not_get_through_says_how_to_go_on() -> None:
    options = Options(endpoint=("films1.invalid:7400",), txn_id="load")
    batch = pa.record_batch({"key": pa.array(["a"]), "body": pa.array([b""], pa.binary())})
    with pytest.raises(PublishFailed, match=r"partition 0: at least 0 records.*txnId='load'"):
        Publisher(options).write(iter([batch]))


def test_a_stream_that_does_not_know_its_batch_publishes_nothing() -> None:
    with pytest.raises(InvariantViolation, match="which micro-batch"):
        StreamPublisher(Options(endpoint=("a:1",)), "name").write(iter([]))


def test_to_give_up_is_to_do_nothing() -> None:
    StreamPublisher(Options(endpoint=("a:1",)), "name").abort([None], 5)
    Publisher(Options(endpoint=("a:1",))).abort([None])


def numbered(*seqs: int) -> pa.RecordBatch:
    keys = [f"k{seq}" for seq in seqs]
    bodies = pa.array([b""] * len(seqs), pa.binary())
    return pa.record_batch({"seq": pa.array(seqs, pa.int64()), "key": keys, "body": bodies})


def serials(*batches: pa.RecordBatch, first: int = 1) -> dict[int, str]:
    """The serial of each key."""
    return {
        serial + at: update.key.decode()
        for serial, updates in runs_by_seq(batches, first)
        for at, update in enumerate(updates)
    }


def test_rows_of_a_log_keep_their_serials_when_compaction_takes_some_of_them() -> None:
    before = serials(numbered(4, 5, 6), numbered(7, 9, 10))
    after = serials(numbered(5, 9), numbered(10))
    assert set(before.values()) == {"k4", "k5", "k6", "k7", "k9", "k10"}
    assert after.items() <= before.items()
    assert list(after.values()) == ["k5", "k9", "k10"]
    later = serials(numbered(12), first=(1 << 32) + 1)
    assert min(later) > max(before)
    high = (7 << 32) + 5
    assert serials(numbered(high), first=1) == {6: f"k{high}"}, "there is room for four billion"


@pytest.mark.parametrize("seqs", [[(3, 2)], [(3, 3)], [(3, 4), (4, 5)]])
def test_rows_that_cannot_be_told_apart_are_refused(seqs: list[tuple[int, ...]]) -> None:
    with pytest.raises(UsageError, match="column 'seq' does not go up"):
        serials(*(numbered(*each) for each in seqs))
