"""What a stream follows: the folder of a log, or the nodes of a cluster.

A tail is used in two kinds of processes. The one that Spark keeps for the query asks where the log ends and shares
ranges out; there a tail keeps files or a connection open. Tasks read what they are given, and keep nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from pyspark.sql.datasource import InputPartition

from sirius.errors import LogError, UsageError
from sirius.wal import Block, LogReader
from sirius.wal.sources import kind_of
from spark_connector.endpoint import client_of
from spark_connector.options import Options
from spark_connector.paths import local_path
from spark_connector.reading.pieces import Piece
from spark_connector.reading.pinned import Pinned, pieces_of, pin_reader
from spark_connector.reading.scan import Scan

if TYPE_CHECKING:
    from sirius.transport.client import Client
    from sirius.wal.block import Ints
    from sirius.wal.index import IndexTable

_SHARE: Final = 250_000
"""How many sequence numbers a task reads at most."""


class Part(InputPartition):
    """What one task of a micro-batch reads: a range, and in the folder of a log the places where it stands."""

    def __init__(self, scan: Scan, pieces: tuple[Piece, ...] = ()) -> None:
        super().__init__(None)
        self.scan = scan
        self.pieces = pieces


def shares(scan: Scan) -> list[Scan]:
    """Share a range out by its numbers alone.

    Neither files nor cores count: a batch that is read again after rotation, compaction or a move to another machine
    has the same partitions, though there may be less in them. Sinks know rows again by where they were.
    """
    firsts = range(scan.first, scan.last + 1, _SHARE)
    return [scan.narrowed(first, first + _SHARE - 1) for first in firsts]


class Tail(Protocol):
    """A log that grows. Every call may block on the disk or the network."""

    def last(self) -> int:
        """Look again, and return the newest sequence number."""
        ...

    def floor(self) -> int:
        """Return up to where deletes may be gone, as of the last look."""
        ...

    def last_of(self, after: int, records: int) -> int:
        """Return how far a batch behind `after` goes that holds at most so many records, and at least one number."""
        ...

    def parts(self, scan: Scan) -> list[Part]:
        """Share out the range of a scan."""
        ...

    def read(self, part: Part) -> Iterator[Any]:
        """Yield Arrow batches of what a task was given."""
        ...


class FolderTail:
    """The folder of a log, live or not."""

    def __init__(self, options: Options) -> None:
        self._path = local_path(options.path)
        self._skip = options.on_corrupt == "skip"
        self._reader = _open(self._path)

    def last(self) -> int:
        return int(self._reader.refresh())

    def floor(self) -> int:
        return int(self._reader.manifest.tombstone_floor)

    def _pinned(self) -> Pinned:
        return pin_reader(self._path, self._reader)

    def last_of(self, after: int, records: int) -> int:
        last = after
        for stretch in self._pinned().stretches:
            if stretch.last > after and (table := stretch.table) is not None:
                last, records = within(table, last, records, self._numbers)
                if not records:
                    break
        return last

    def _numbers(self, first: int, last: int) -> Ints:
        """Return which sequence numbers of a range have an entry: all, if that cannot be read and need not be."""
        try:
            with self._reader.snapshot() as snapshot:
                found = [batch.seq for batch in snapshot.batches(first, last)]
        except LogError:
            if not self._skip:
                raise
            return np.arange(first, last + 1)
        return np.concatenate(found).astype(np.int64)

    def parts(self, scan: Scan) -> list[Part]:
        self._reader.refresh()
        log = self._pinned()
        if not self._skip:
            log.require_readable(scan.first, scan.last)
        return [Part(share, tuple(pieces_of(log, share))) for share in shares(scan)]

    @staticmethod
    def read(part: Part) -> Iterator[Any]:
        for piece in part.pieces:
            yield from part.scan.read(piece)


def _open(path: str) -> LogReader:
    try:
        kind = kind_of(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file or folder") from None
    if kind != "sirius":
        raise UsageError(f"{path} is a log of kind {kind}, which nobody appends to: use spark.read")
    return LogReader.open(path)


def within(
    table: IndexTable, after: int, records: int, numbers: Callable[[int, int], Ints]
) -> tuple[int, int]:
    """Return how far so many records behind `after` go in a segment, and how many of them lie behind the segment.

    Whole blocks are counted by the index. Of the first and the last, which may be cut, `numbers` tells which numbers
    of a range have an entry. So the holes of a compacted log cost no batches of their own.
    """
    table = table[table["last"] > after]
    if not len(table):
        return after, records
    last, counts = table["last"].astype(np.int64), table["count"].astype(np.int64)
    if int(table["first"][0]) <= after:
        counts[0] = len(numbers(after + 1, int(last[0])))
    whole = int(np.searchsorted(np.cumsum(counts), records, side="right"))
    left = records - int(counts[:whole].sum())
    reached = int(last[whole - 1]) if whole else after
    if whole < len(table) and left:
        reached, left = int(numbers(reached + 1, int(last[whole]))[left - 1]), 0
    return reached, left


class NodeTail:
    """What the nodes of a cluster have decided, through the client service."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client: Client | None = None
        self._floor = 0

    def last(self) -> int:
        # One connection for all looks of a query: it is over when the process is.
        self._client = self._client or client_of(self._options)
        status = self._client.status()
        self._floor = int(status["tombstone_floor"])
        return int(status["decided"])

    def floor(self) -> int:
        return self._floor

    @staticmethod
    def last_of(after: int, records: int) -> int:
        # A node does not tell where its holes are; so all numbers count.
        return after + records

    @staticmethod
    def parts(scan: Scan) -> list[Part]:
        return [Part(share) for share in shares(scan)]

    def read(self, part: Part) -> Iterator[Any]:
        with client_of(self._options) as client:
            blocks = client.tail(part.scan.first, follow=True)
            yield from part.scan.read_blocks(_upto(blocks, part.scan.last))


def _upto(blocks: Iterator[Block], last: int) -> Iterator[Block]:
    """Yield blocks until `last` is covered. A node that has not got so far yet is waited for."""
    for block in blocks:
        yield block
        if block.last >= last:
            return


def tail_of(options: Options) -> Tail:
    """Return what a stream was asked to follow."""
    if options.endpoint and options.paths:
        raise UsageError("a stream follows a path or an endpoint, not both")
    return NodeTail(options) if options.endpoint else FolderTail(options)
