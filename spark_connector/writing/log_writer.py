"""`df.write.format("sirius").save(path)`: a DataFrame becomes a log."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from typing import Any, cast

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_connector.options import Options
from spark_connector.paths import local_path
from spark_connector.writing.committing import Written, commit, target_of
from spark_connector.writing.staging import PartWriter, Staging


class Message(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, written: Written) -> None:
        self.written = written


class LogWriter(DataSourceArrowWriter):
    """Writes one log. Made once on the driver, and pickled: the job's id and time are the same everywhere."""

    def __init__(self, options: Options, *, overwrite: bool) -> None:
        path = local_path(options.path)
        self._target = target_of(path, overwrite=overwrite)
        self._staging = Staging(path, uuid.uuid4().hex)
        self._segment_bytes = options.segment_bytes
        self._now_us = time.time_ns() // 1000
        self._staging.begin()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a task: stage one partition."""
        partition, attempt = task_ids()
        folder = self._staging.task(partition, attempt)
        writer = PartWriter(folder, self._segment_bytes, self._now_us)
        with self._staging.kept():
            writer.write(iterator)
        seqs = writer.seq_first, writer.seq_last
        return Message(Written(partition, tuple(writer.parts), writer.records, *seqs))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: make it the log."""
        written = [cast("Message", message).written for message in messages if message]
        try:
            with self._staging.kept():
                commit(self._target, self._staging, written)
        except BaseException:
            self._staging.clear()
            raise

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's
        """On the driver: some task failed. Messages of others tell less than the job's own folder."""
        self._staging.clear()


def task_ids() -> tuple[int, int]:
    """Return the partition and the attempt of this task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0, os.getpid()
    return context.partitionId(), context.taskAttemptId()
