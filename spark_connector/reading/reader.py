"""The reader that Spark calls: plans on the driver, reads in tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sirius.errors import UsageError
from spark_connector.memory import spare_collections
from spark_connector.options import Options
from spark_connector.reading import report
from spark_connector.reading.listening import while_spark_listens
from spark_connector.reading.partitioning import Choice, cores, share_out
from spark_connector.reading.pieces import Piece
from spark_connector.reading.pinned import Pinned, pieces_of, pin
from spark_connector.reading.predicate import Predicate
from spark_connector.reading.scan import LeftOut, Reading, Scan
from spark_connector.reading.views import live_rows, range_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

_PUSHDOWN: Final = "data_source_pushdown_filters.py"


@dataclass(frozen=True)
class Share:
    """What one task reads of one log: ranges differ from log to log."""

    scan: Scan
    pieces: tuple[Piece, ...]


class LogPartition(InputPartition):
    """What one task reads."""

    def __init__(self, number: int, shares: Sequence[Share]) -> None:
        super().__init__(number)
        self.number = number
        self.shares = tuple(shares)


class LogReaderForSpark(DataSourceReader):
    """Reads logs. Made on the driver; tasks get it pickled, as it was before `partitions` was called."""

    def __init__(self, options: Options, schema: StructType) -> None:
        if not options.paths:
            raise UsageError("no path was given: load(path) needs the folder of a log")
        self.options = options
        self.schema = schema
        self.predicate = Predicate.asked(options)

    def partitions(self) -> list[InputPartition]:
        """Fix every log as it is now, and share out what has to be read of them."""
        reading = Reading()
        plans = [self._plan(pin(path), reading) for path in self.options.paths]
        if self.options.report is not None:
            report.begin(self.options.report, reading)
        spare_collections()
        return self._shared(plans)

    def _plan(self, log: Pinned, reading: Reading) -> tuple[Scan, list[Choice]]:
        first, last = range_of(log, self.options)
        scan = Scan(
            self.schema,
            first,
            last,
            self.predicate,
            self.options.verify,
            self.options.on_corrupt == "skip",
            self.options.batch_records,
        )
        _heed_damage(log, scan, reading)
        live = None
        if self.options.view != "updates":
            live = live_rows(log, scan, self.options, reading)
        stretches = {stretch.segment: stretch for stretch in log.stretches}
        pieces = pieces_of(log, scan, live)
        return scan, [(stretches[piece.segment], piece) for piece in pieces]

    @staticmethod
    def _shared(plans: Sequence[tuple[Scan, list[Choice]]]) -> list[InputPartition]:
        scans = {choice[0].log: scan for scan, chosen in plans for choice in chosen}
        shared = share_out([choice for _, chosen in plans for choice in chosen], cores())
        return [
            LogPartition(number, [Share(scans[piece.log], (piece,)) for piece in pieces])
            for number, pieces in enumerate(shared)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition as Arrow record batches."""
        if not isinstance(partition, LogPartition):
            # What Spark makes of no partition at all.
            return
        reading = Reading()
        with while_spark_listens():
            for share in partition.shares:
                for piece in share.pieces:
                    yield from share.scan.read(piece, reading)
        if self.options.report is not None:
            report.note(self.options.report, partition.number, reading)
        spare_collections()


class PushingReader(LogReaderForSpark):
    """The same, where filters of queries are to reach the log."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        pushed, others = Predicate.of(filters)
        self.predicate &= pushed
        spare_collections()
        return iter(others)


def _heed_damage(log: Pinned, scan: Scan, reading: Reading) -> None:
    """Raise for what is known to be damaged, or note that it is left out."""
    if not scan.skip_corrupt:
        log.require_readable(scan.first, scan.last)
    for each in log.unreadable:
        if each.first <= scan.last and each.last >= scan.first:
            scan.leave_out(LeftOut(log.path, 0, each.reason, each.first, each.last), reading)


def reader_of(options: Options, schema: StructType) -> DataSourceReader:
    """Return the reader of a load.

    Filters are taken from Spark only where a load asks for it. Spark 4.3 keeps one plan for each load, and overwrites
    it whenever it pushes a filter: later uses of the same DataFrame, with another filter or none that can be pushed,
    would silently be answered by that plan, and so would two uses in one query.

    A reader that has `pushFilters` makes every read fail in a session that does not let filters through, and nothing
    says beforehand which kind of session this is. But only one that does asks for a reader in order to push filters.
    """
    pushing = options.push_filters and _is_called_by(sys._getframe(), _PUSHDOWN)
    return (PushingReader if pushing else LogReaderForSpark)(options, schema)


def _is_called_by(frame: FrameType | None, name: str) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.endswith(name):
            return True
        frame = frame.f_back
    return False
