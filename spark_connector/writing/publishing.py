"""DataFrames and streams to a cluster, through the client service; run again, nothing takes effect twice.

Each partition has a session of its own, and a row's place in its partition is its serial: consensus takes each serial
of a session once (`sirius.paxos.sessions`). So whatever is sent again, by the client, by a task that Spark tries again,
by a job that was killed and is run again under the same `txnId`, changes nothing about what is in the log already. It
follows that a partition has to have the same rows in the same order each time: see docs/spark.md.

In a stream the serial begins with the number of the micro-batch. A batch that Spark replays after a restart has the
serials that it had before. If rows have a column `seq`, as those of a log's stream do, that is what a row is known by
in its partition, and not its place: compaction may have removed rows of the batch in between.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

import numpy as np
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from sirius.errors import InvariantViolation, SiriusError, UsageError
from sirius.wal import Op, Update
from spark_connector.endpoint import client_of
from spark_connector.options import Options
from spark_connector.writing.columns import Columns, columns_of
from spark_connector.writing.log_writer import task_ids

_log = logging.getLogger("sirius.spark")
_BATCH_ID: Final = "streaming.sql.batchId"
"""Under this name Spark tells tasks which micro-batch they work on."""
_ROWS_BITS: Final = 32
_OPS: Final = {int(Op.PUT): Op.PUT, int(Op.DELETE): Op.DELETE}


class PublishFailed(SiriusError):
    """A partition did not get through. The message says how far it got, and what to do."""


class Published(NamedTuple):
    """What became of one partition."""

    partition: int
    records: int
    last: int | None
    """The sequence number of its last record."""


class Message(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, published: Published) -> None:
        self.published = published


def updates_of(batches: Iterable[Any]) -> Iterator[Update]:
    """Return the updates of Arrow batches."""
    for columns in _columns(batches):
        yield from _updates(columns, 0, len(columns))


def _columns(batches: Iterable[Any]) -> Iterator[Columns]:
    return (columns_of(batch, 0) for batch in batches if len(batch))


def _updates(columns: Columns, low: int, high: int) -> Iterator[Update]:
    ops = map(_OPS.__getitem__, columns.ops[low:high].tolist())
    return map(Update, ops, columns.keys.slices(low, high), columns.bodies.slices(low, high))


Run = tuple[int, Iterable[Update]]
"""Updates with consecutive serials, and the first of these."""


def runs_by_seq(batches: Iterable[Any], first: int) -> Iterator[Run]:
    """Return the updates of Arrow batches that have a column `seq`, numbered by it from `first` on."""
    base, last = None, -1
    for columns in _columns(batches):
        seq = columns.seq
        if seq is None:
            raise InvariantViolation("there is no column seq")
        if seq[0] <= last or not bool((seq[1:] > seq[:-1]).all()):
            raise UsageError(
                "column 'seq' does not go up from row to row in every partition: by it a row is known that is sent "
                "again. Leave the stream in its order, or drop the column: then a row is known by its place"
            )
        last = int(seq[-1])
        # What changes it is that a log gets past a multiple of four billion within one batch.
        base = int(seq[0]) >> _ROWS_BITS << _ROWS_BITS if base is None else base
        edges = [0, *(np.flatnonzero(np.diff(seq) != 1) + 1).tolist(), len(seq)]
        for low, high in pairwise(edges):
            yield first + int(seq[low]) - base, _updates(columns, low, high)


def publish(options: Options, name: str, runs: Iterable[Run]) -> Published:
    """In a task: publish one partition of what is known by a name."""
    partition, _ = task_ids()
    records, last = 0, None
    try:
        with client_of(options) as client:
            for count, last in client.runs(runs, f"{name}/{partition}"):  # noqa: B007 (the last one counts)
                records += count
    except SiriusError as error:
        raise _stuck(partition, records, last, name, error) from error
    return Published(partition, records, last)


def _stuck(
    partition: int, records: int, last: int | None, name: str, error: SiriusError
) -> PublishFailed:
    return PublishFailed(
        f"partition {partition}: at least {records} records are in the log"
        f"{f', up to sequence number {last}' if last else ''}; then: {error}. "
        f"Run it again with txnId={name!r} to go on: what is in the log does not take effect again"
    )


class Publisher(DataSourceArrowWriter):
    """Publishes a batch. Made once on the driver, and pickled: all tasks know the job by the same name."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._name = options.txn_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a task."""
        return Message(publish(self._options, self._name, [(1, updates_of(iterator))]))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: all partitions are through."""
        _log.info("txnId=%s is through: %s", self._name, report(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: what is in the log stays there."""
        _log.error("txnId=%s is not through: %s", self._name, report(messages))


class StreamPublisher(DataSourceStreamArrowWriter):
    """Publishes the micro-batches of a stream that is known by `name`; `by_seq` if its rows have a column `seq`."""

    def __init__(self, options: Options, name: str, *, by_seq: bool = False) -> None:
        self._options = options
        self._name = name
        self._by_seq = by_seq

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a task. Serials of earlier batches are all in the log: Spark begins with one when the last one is done."""
        first = (_batch_id() << _ROWS_BITS) + 1
        if self._by_seq:
            return Message(publish(self._options, self._name, runs_by_seq(iterator, first)))
        return Message(publish(self._options, self._name, [(first, updates_of(iterator))]))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """On the driver: all partitions of the batch are through."""
        _log.debug("batch %d of %s is through: %s", batchId, self._name, report(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """On the driver: what is in the log stays there. Spark says this also of batches that were committed."""
        _log.warning("batch %d of %s is given up: %s", batchId, self._name, report(messages))


def _batch_id() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    found = context.getLocalProperty(_BATCH_ID) if context else None
    if found is None:
        raise InvariantViolation(f"Spark does not say which micro-batch this is: no {_BATCH_ID}")
    return int(found)


def report(messages: Iterable[WriterCommitMessage | None]) -> str:
    """Say which partitions are through, and up to where."""
    told = list(messages)
    through = sorted(cast("Message", message).published for message in told if message)
    records = sum(each.records for each in through)
    lines = [f"{each.partition} ({each.records} records, to {each.last})" for each in through]
    missing = len(told) - len(through)
    return (
        f"{records} records; partitions that are through: {', '.join(lines) or 'none'}; "
        f"{missing} of {len(told)} are not"
    )
