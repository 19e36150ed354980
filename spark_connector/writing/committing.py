"""The end of a writing job, on the driver: what all tasks have written becomes one log, or nothing does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from sirius.errors import NotALog, UsageError
from sirius.types import SegmentId
from sirius.wal import LogReader
from sirius.wal.bulk import Part, Place, found_log, replace_log, seal_part
from sirius.wal.fs import OsFileSystem
from sirius.wal.manifest import SegmentInfo
from sirius.wal.store import PARTS, Store
from spark_connector.writing.staging import Staging


class Written(NamedTuple):
    """What one task has written."""

    partition: int
    parts: tuple[Part, ...]
    records: int
    seq_first: int | None = None
    seq_last: int | None = None


class Target(NamedTuple):
    """A place for a log, and whether there is one by now."""

    path: str
    is_log: bool


def target_of(path: str, *, overwrite: bool) -> Target:
    """Say what is at a path; raise if it must not be written to. What is written is always a whole log."""
    store = Store(OsFileSystem(), path)
    if not os.path.lexists(path):
        return Target(path, False)
    if not os.path.isdir(path):
        raise UsageError(f"{path} is a file")
    names = os.listdir(path)
    if not names:
        return Target(path, False)
    if not store.is_log() or set(names) - PARTS:
        raise NotALog(f"{path} is not empty, and no Sirius log: it is left alone")
    if not overwrite and _holds_records(store):
        raise UsageError(
            f"{path} is a log that holds records: nothing is appended to it, since a node may have it open. "
            'Write a new log, replace this one with mode("overwrite"), or publish with option("endpoint", …)'
        )
    return Target(path, True)


def _holds_records(store: Store) -> bool:
    with LogReader.open(store.root) as reader:
        return reader.last > 0


def in_order(written: Sequence[Written]) -> list[Written]:
    """Return what tasks have written in the order of the log: by `seq` if they have it, else by partition."""
    found = [each for each in written if each.records]
    if any(each.seq_first is None for each in found):
        return sorted(found, key=lambda each: each.partition)
    found.sort(key=lambda each: each.seq_first or 0)
    for one, two in pairwise(found):
        if (one.seq_last or 0) >= (two.seq_first or 0):
            raise UsageError(
                f"column 'seq': partitions {one.partition} and {two.partition} overlap between "
                f"{two.seq_first} and {one.seq_last}; write with spark_connector.writing.save(df, path), or "
                'with repartitionByRange("seq").sortWithinPartitions("seq")'
            )
    return found


def commit(target: Target, staging: Staging, written: Sequence[Written]) -> int:
    """Make what was written the log at a path; return how many records it has."""
    parts = _placed(in_order(written))

    def seal(first: SegmentId, uid: int) -> list[tuple[str, SegmentInfo]]:
        places = [Place(SegmentId(first + at), uid, start) for at, (_, start) in enumerate(parts)]
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            sealed = pool.map(seal_part, [part for part, _ in parts], places)
            return list(zip([part.folder for part, _ in parts], sealed, strict=True))

    if target.is_log:
        count = replace_log(target.path, seal)
        staging.clear()
    else:
        Path(staging.folder).mkdir(parents=True, exist_ok=True)
        count = found_log(str(staging.folder), target.path, seal)
    staging.clear_others()
    return count


def _placed(written: Sequence[Written]) -> list[tuple[Part, int]]:
    """Return all parts in order, each with its first sequence number."""
    parts = [part for each in written for part in each.parts]
    starts = accumulate((part.records for part in parts), initial=1)
    return list(zip(parts, starts, strict=False))
