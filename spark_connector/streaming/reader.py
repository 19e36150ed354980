"""The stream reader that Spark calls.

A position is `{"seq": n}`: everything up to `n` has been taken. A batch is a range of sequence numbers, which Spark
writes down before it reads it; when it is read again after a crash, it is the same range. What compaction removed
between the two times is missing the second time, as it is for whoever comes later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sirius.errors import RangeUnavailable, ResyncRequired, UsageError
from spark_connector.memory import spare_collections
from spark_connector.options import Options
from spark_connector.reading.predicate import Predicate
from spark_connector.reading.scan import Scan
from spark_connector.streaming.tails import Part, Tail, tail_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a log. One process of the query plans with it; tasks get it pickled, without what it has open."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.view != "updates":
            raise UsageError(f"a stream reads view=updates; view={options.view} is for spark.read")
        self._options = options
        self._schema = schema
        self._tail: Tail | None = tail_of(options)
        self._target: int | None = None
        """Where a query that takes what is there now ends."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tail": None}

    @property
    def tail(self) -> Tail:
        if self._tail is None:
            self._tail = tail_of(self._options)
        return self._tail

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"seq": (self._options.from_seq or 1) - 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        limit = self._options.max_records_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self.tail.last()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        after, last = start["seq"], self.tail.last()
        self._refuse_another_log(after, last)
        self._refuse_lost_deletes(after)
        end = self._bounded(last)
        if isinstance(limit, ReadMaxRows) and end > after:
            end = min(end, max(after + 1, self.tail.last_of(after, limit.max_rows)))
        return {"seq": max(after, end)}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"seq": self.tail.last()}

    def _bounded(self, last: int) -> int:
        """Return how far this query reads."""
        bounds = (self._target, self._options.to_seq, last)
        return min(bound for bound in bounds if bound is not None)

    def _refuse_another_log(self, after: int, last: int) -> None:
        """A log never shrinks; but a stream may be told to begin where its log has not got yet."""
        if last < after and after > self.initialOffset()["seq"]:
            raise RangeUnavailable(
                last + 1, after, "this stream has read it, so this is another log or an older copy"
            )

    def _refuse_lost_deletes(self, after: int) -> None:
        """Who has taken a PUT must not miss the DELETE behind it. Who begins at the beginning sees neither."""
        if 0 < after < self.tail.floor():
            raise ResyncRequired(after, self.tail.floor())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if end["seq"] <= start["seq"]:
            return []
        # After a restart this is the first look.
        self.tail.last()
        self._refuse_lost_deletes(start["seq"])
        return self.tail.parts(self._scan(start["seq"] + 1, end["seq"]))

    def _scan(self, first: int, last: int) -> Scan:
        options = self._options
        return Scan(
            self._schema,
            first,
            last,
            Predicate.asked(options),
            verify=options.verify,
            skip_corrupt=options.on_corrupt == "skip",
            batch_records=options.batch_records,
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, Part):
            yield from self.tail.read(partition)
        spare_collections()


def stream_reader_of(options: Options, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream."""
    return StreamReader(options, schema)
