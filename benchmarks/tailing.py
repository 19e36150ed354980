"""A log that grows at a steady rate, and a stream that follows it: how old is the newest record when it is seen?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import updates
from sirius.wal import Durability, Log, LogConfig, Update

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TAIL_RATE = 5_000
_WRITES_PER_S = 100
_WARM_UP = 15
"""Micro-batches that do not count: the first ones compile what the others use."""
_COUNTED = 40
_PATIENCE_S = 120.0


def ages_of_newest(spark: SparkSession, path: Path) -> list[float]:
    """Follow a new log while it grows; return for each micro-batch how old its newest record was when it was done."""
    ages: list[float] = []
    enough = threading.Event()

    def look(frame: DataFrame, _: int) -> None:
        newest = frame.agg({"ts": "max"}).collect()[0][0]
        if newest is not None:
            ages.append(time.time() - newest.timestamp())
        if len(ages) >= _WARM_UP + _COUNTED:
            enough.set()

    with _growing(path), _following(spark, path, look):
        if not enough.wait(_PATIENCE_S):
            raise TimeoutError(f"{len(ages)} micro-batches in {_PATIENCE_S} s")
    return ages[_WARM_UP:]


@contextmanager
def _following(spark: SparkSession, path: Path, look: Any) -> Iterator[None]:
    frame = spark.readStream.format("sirius").load(str(path))
    writer = frame.writeStream.foreachBatch(look)
    query = writer.option("checkpointLocation", f"{path}.checkpoint").start()
    try:
        yield
    finally:
        query.stop()


@contextmanager
def _growing(path: Path) -> Iterator[None]:
    """Write as a node does that is asked for so much: small blocks, evenly."""
    stop, ready = threading.Event(), threading.Event()
    each = TAIL_RATE // _WRITES_PER_S
    blocks = _blocks(each)

    def work() -> None:
        with Log.open(str(path), LogConfig(durability=Durability.OS, reserve_bytes=0)) as log:
            started = time.monotonic()
            for number, block in enumerate(blocks, 1):
                log.write(block)
                log.flush()
                ready.set()
                if stop.wait(max(0.0, started + number / _WRITES_PER_S - time.monotonic())):
                    return

    writer = threading.Thread(target=work)
    writer.start()
    try:
        ready.wait()
        yield
    finally:
        stop.set()
        writer.join()


def _blocks(each: int) -> Iterator[list[Update]]:
    source = updates(1 << 40, 500_000)
    while True:
        yield [next(source) for _ in range(each)]
