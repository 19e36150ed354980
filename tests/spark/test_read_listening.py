"""Tasks that Spark does not hear to the end: it has rows enough, as for `show()`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import TaskContext

from tests.spark.killing import ROOT
from tests.spark.readlogs import make, numbered, reader_for

TASK = """
import os, sys
from pyspark import TaskContext
from tests.spark.readlogs import reader_for

TaskContext._taskContext = TaskContext()
reader = reader_for(sys.argv[1])
for partition in reader.partitions():
    for batch in reader.read(partition):
        os.write(1, b"rows")
"""


def test_a_task_that_nobody_hears_ends_without_a_word(tmp_path: Path) -> None:
    log = make(tmp_path / "log", numbered(2, 10))
    command = [sys.executable, "-c", TASK, str(log)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as task:
        assert task.stdout is not None
        assert task.stderr is not None
        task.stdout.close()
        said = task.stderr.read()
    assert (task.returncode, said) == (-signal.SIGPIPE, b"")


def test_a_task_that_is_heard_to_the_end_leaves_the_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make(tmp_path / "log", numbered(2, 10))
    reader = reader_for(log)
    before = signal.getsignal(signal.SIGPIPE)
    assert before != signal.SIG_DFL
    [partition] = reader.partitions()
    for _ in reader.read(partition):
        assert signal.getsignal(signal.SIGPIPE) == before, "this is no task"
    monkeypatch.setattr(TaskContext, "get", object)
    for _ in reader.read(partition):
        assert signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGPIPE) == before


def test_a_task_that_is_not_heard_to_the_end_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that failed while it waited closes the reader; Spark's daemon then writes what is left in its buffer."""
    before = signal.getsignal(signal.SIGPIPE)
    monkeypatch.setattr(TaskContext, "get", object)
    reader = reader_for(make(tmp_path / "log", numbered(2, 10)))
    batches = reader.read(reader.partitions()[0])
    next(batches)
    try:
        batches.close()  # type: ignore[attr-defined]
        assert signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGPIPE, before)
