"""What tasks leave behind, and where: parts of a log that is not there yet.

Beside the log's folder, `films`, a job has one of its own, `.films.sirius-<job>`. A task writes its parts below it, in
folders that name its partition and attempt. Which of them count is what the messages of the finished tasks say; all
else goes, with the folder, when the job ends. A job that was killed leaves its folder; the next one that commits
removes it.

Spark does not wait for the tasks of a job that it gives up. So the job's folder is made once, on the driver, and taken
away in one step: a task that is late finds no place to write to, and leaves nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from sirius.errors import LogError, UsageError
from sirius.wal.block import Block
from sirius.wal.bulk import FRONT, Part
from spark_connector.memory import keep_memory
from spark_connector.writing.columns import Columns, columns_of
from spark_connector.writing.encoding import encode

BLOCK_RECORDS: Final = 4096
BLOCK_BYTES: Final = 1 << 20
SEGMENT_RECORDS: Final = 1_000_000
_MARK: Final = ".sirius-"
_GONE: Final = ".gone"


@dataclass(frozen=True, slots=True)
class Staging:
    """The folder of one job, beside the log."""

    path: str
    job: str

    @property
    def folder(self) -> Path:
        return self._beside(self.job)

    def _beside(self, job: str) -> Path:
        target = Path(self.path)
        return target.parent / f".{target.name}{_MARK}{job}"

    @property
    def _parts(self) -> Path:
        return self.folder / "parts"

    def begin(self) -> None:
        """Make the folder."""
        self._parts.mkdir(parents=True)

    def task(self, partition: int, attempt: int) -> Path:
        """The folder of one attempt at a partition."""
        return self._parts / f"{partition:06d}-{attempt}"

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Say what it means if something is missing of what this job has written."""
        try:
            yield
        except FileNotFoundError as error:
            if not str(error.filename).startswith(str(self.folder)):
                raise
            raise LogError(
                f"{self.path}: what this job had written so far is gone. Another job wrote this log in the meantime, "
                "or this one was given up. One job a log: of two at a time only one gets through"
            ) from error

    def clear(self) -> None:
        """Remove all that this job has left."""
        self._remove(self.folder)

    def clear_others(self) -> None:
        """Remove what jobs left that were killed; one that is at work on the same log fails by it, as it should."""
        target = Path(self.path)
        for found in target.parent.glob(f".{target.name}{_MARK}*"):
            if found != self.folder:
                self._remove(found)

    def _remove(self, folder: Path) -> None:
        """Remove a job's folder. Whoever is at work there has to fail whole: what he moves into the log while the
        folder is emptied would be emptied there, and what he makes anew would stay. So all is out of his reach first.
        """
        gone = self._beside(f"{self.job}{_GONE}")
        with suppress(OSError):
            folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


@dataclass(slots=True)
class PartWriter:
    """Writes the parts of one task. Entries are numbered from 1 on; where they stand in the log is not known yet."""

    folder: Path
    segment_bytes: int
    now_us: int
    parts: list[Part] = field(default_factory=list)
    records: int = 0
    seq_first: int | None = None
    seq_last: int | None = None
    _file: BinaryIO | None = None
    _size: int = 0
    _began: int = 1

    def write(self, batches: Iterable[Any]) -> None:
        """Write Arrow batches, and close the last part."""
        self.folder.mkdir()
        keep_memory()
        try:
            for batch in batches:
                if len(batch):
                    self._add(columns_of(batch, self.now_us))
        finally:
            self._close()

    def _add(self, columns: Columns) -> None:
        self._check_order(columns)
        for low, high in columns.cuts(BLOCK_RECORDS, BLOCK_BYTES):
            block = encode(columns, low, high, self.records + 1)
            if self._is_full(block):
                self._close()
            self._append(block)

    def _check_order(self, columns: Columns) -> None:
        seq = columns.seq
        if seq is None:
            return
        ascending = bool((seq[1:] > seq[:-1]).all())
        if not ascending or (self.seq_last is not None and seq[0] <= self.seq_last):
            raise UsageError(
                "column 'seq' does not go up from row to row in every partition: write with "
                "spark_connector.writing.save(df, path), or sort with "
                'repartitionByRange("seq").sortWithinPartitions("seq"), or drop the column'
            )
        self.seq_first = int(seq[0]) if self.seq_first is None else self.seq_first
        self.seq_last = int(seq[-1])

    def _is_full(self, block: Block) -> bool:
        over = self._size + len(block) > self.segment_bytes
        return self._file is not None and (
            over or self.records - self._began + 1 + block.count > SEGMENT_RECORDS
        )

    def _append(self, block: Block) -> None:
        if self._file is None:
            folder = self.folder / f"{len(self.parts):06d}"
            folder.mkdir()
            self._file = open(folder / "data", "wb", buffering=0)  # noqa: SIM115 (until the part is full)
            self._size = self._file.write(bytes(FRONT))
            self._began = self.records + 1
        _write_all(self._file, block.raw)
        self._size += len(block)
        self.records += block.count

    def _close(self) -> None:
        if self._file is not None:
            folder = os.path.dirname(self._file.name)
            self._file.close()
            self._file = None
            self.parts.append(Part(folder, self._began, self.records - self._began + 1))


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all of it: a raw file may take less at a time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
