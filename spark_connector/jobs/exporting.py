"""A log as Parquet, written by tasks: a folder of files with the rows and columns of `waltool export -o x.parquet`.

Files follow each other in the order of the log. The folder appears when all of them are on disk, or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from sirius.errors import UsageError
from sirius.wal import Batch, OsFileSystem
from sirius.wal.fs import remove_tree
from spark_connector.jobs.exchange import Part, first_round, parts_of
from spark_connector.jobs.tables import state
from spark_connector.paths import local_path
from spark_connector.reading.pinned import pin
from waltool.exporting import writing
from waltool.filters import Filter
from waltool.source import open_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITING: Final = ".writing"


def export_parquet(spark: SparkSession, log: str, out: str, *, wanted: Filter | None = None) -> int:
    """Write records into a new folder of Parquet files; return how many. Control entries only if `wanted` says so."""
    wanted = wanted or Filter()
    with open_source(local_path(log)) as source:
        first, last = wanted.bounds(source)
    parts = parts_of(spark, pin(log), first, last, bodies=True)
    with _new_folder(out) as folder:
        records = first_round(spark, parts, _Exported(wanted, folder)).sum()
        if not parts:
            # A folder without a file would have no columns.
            _write(folder, 0, ())
    return int(records)


def export_state(
    spark: SparkSession, log: str, out: str, as_of: int | datetime | None = None
) -> int:
    """Write the newest value of every key, now or at a moment, into a new folder of Parquet files; return how many."""
    with _new_folder(out) as folder:
        state(spark, log, as_of).write.mode("overwrite").parquet(folder)
        return spark.read.parquet(folder).count()


@dataclass(frozen=True)
class _Exported:
    """Writes a part as a file."""

    wanted: Filter
    folder: str

    def __call__(self, part: Part) -> Iterator[int]:
        yield _write(self.folder, part.number, map(self.wanted.apply, part.batches()))


def _write(folder: str, number: int, batches: Iterable[Batch]) -> int:
    """Write a file under a name of this attempt: a task may run twice, also at once."""
    records, draft = 0, f"{folder}/.{uuid4().hex}"
    with open(draft, "xb") as stream:
        with writing("parquet", stream) as writer:
            for batch in batches:
                writer.write(batch)
                records += len(batch)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, f"{folder}/part-{number:05d}.parquet")
    return records


@contextmanager
def _new_folder(path: str) -> Iterator[str]:
    """Make a folder below another name; it gets its own at the end."""
    fs, target = OsFileSystem(), local_path(path)
    building = target + _WRITING
    for name in (target, building):
        if os.path.lexists(name):
            raise UsageError(f"{name} is there already; this job writes a new folder only")
    os.mkdir(building)
    try:
        yield building
        for name in os.listdir(building):
            if name.startswith("."):
                # Of an attempt that failed, or came second.
                os.remove(f"{building}/{name}")
        fs.sync_dir(building)
        fs.replace(building, target)
        fs.sync_dir(os.path.dirname(target))
    except BaseException:
        remove_tree(fs, building)
        raise
