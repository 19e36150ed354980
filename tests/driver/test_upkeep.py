"""Compaction while the node runs: it comes again and again, and ends with the node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sirius.driver.upkeep import Upkeep
from sirius.errors import LogFailed, NodeError
from sirius.testing import MemoryFileSystem
from sirius.wal import CompactionPolicy, CompactionResult, Log, LogConfig
from tests.driver.waiting import Threads, until

CONFIG = LogConfig(reserve_bytes=0, background=False, retire_after_s=0, segment_records_max=10)
EAGER = CompactionPolicy(dead_fraction_min=0)


class Compactions:
    """Stands before a log, and does something else at a pass if it is told to."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.instead: Callable[..., CompactionResult] | None = None
        self.told = 0

    def compact(self, policy: CompactionPolicy, **arguments: Any) -> CompactionResult:
        return (self.instead or self.log.compact)(policy, **arguments)

    def retire(self) -> int:
        return self.log.retire()

    def tell(self) -> None:
        self.told += 1


@pytest.fixture
def compactions() -> Iterator[Compactions]:
    with Log.open("/log", CONFIG, fs=MemoryFileSystem()) as log:
        for number in range(100):
            log.put("k", b"%d" % number)
            log.flush()
        yield Compactions(log)


def upkeep(compactions: Compactions, interval_s: float | None) -> Upkeep:
    return Upkeep(lambda: compactions, lambda: EAGER, compactions.tell, interval_s)  # type: ignore[arg-type, return-value]


def segments(compactions: Compactions) -> int:
    return sum(info.bytes for info in compactions.log.manifest.segments)


def test_a_pass_comes_after_each_interval(compactions: Compactions) -> None:
    before, works = segments(compactions), upkeep(compactions, 0.01)
    works.start()
    until(lambda: works.passes >= 2)
    works.close()
    assert segments(compactions) < before
    assert compactions.told >= 2
    assert (works.problem, works.last is None) == (None, False)
    assert works.last_s >= 0


def test_without_an_interval_only_whoever_asks_gets_a_pass(compactions: Compactions) -> None:
    before, works = segments(compactions), upkeep(compactions, None)
    works.start()
    assert works.passes == 0
    works.run()
    assert (works.passes, compactions.told) == (1, 1)
    assert segments(compactions) < before
    works.close()


@pytest.mark.parametrize("error", [LogFailed("broken"), OSError(5, "broken"), ValueError("broken")])
def test_a_pass_that_fails_is_said_and_tried_again(
    compactions: Compactions, error: Exception
) -> None:
    failed = threading.Event()

    def fail(*_: Any, **__: Any) -> CompactionResult:
        failed.set()
        raise error

    compactions.instead = fail
    works = upkeep(compactions, 0.005)
    works.start()
    assert failed.wait(30)
    until(lambda: works.problem)
    assert works.problem is not None
    assert "broken" in works.problem
    assert works.passes == 0
    compactions.instead = None
    until(lambda: works.passes)
    assert works.problem is None
    works.close()


def test_a_pass_that_fails_half_way_tells_of_what_it_changed(compactions: Compactions) -> None:
    """Segments that were swapped before stay swapped, and whoever feeds followers must hear of it."""

    def half(*_: Any, **__: Any) -> CompactionResult:
        raise LogFailed("half-way")

    compactions.instead = half
    with pytest.raises(LogFailed, match="half-way"):
        upkeep(compactions, None).run()
    assert compactions.told == 1


def test_an_error_of_the_pass_is_not_hidden_by_that_of_telling(compactions: Compactions) -> None:
    def half(*_: Any, **__: Any) -> CompactionResult:
        raise LogFailed("half-way")

    def out_of_order() -> None:
        raise NodeError("the node's disk is out of order")

    compactions.instead = half
    works = Upkeep(lambda: compactions, lambda: EAGER, out_of_order, None)  # type: ignore[arg-type, return-value]
    with pytest.raises(LogFailed, match="half-way"):
        works.run()


def test_closing_ends_a_pass_under_way(compactions: Compactions) -> None:
    began = threading.Event()

    def endless(
        policy: CompactionPolicy, *, should_stop: Callable[[], bool], **_: Any
    ) -> CompactionResult:
        began.set()
        until(should_stop, "the word to stop")
        return compactions.log.compact(policy, should_stop=should_stop)

    compactions.instead = endless
    works = upkeep(compactions, 0.001)
    works.start()
    assert began.wait(30)
    with Threads() as threads:
        threads.start(works.close)
    assert not works._thread.is_alive()


def test_closing_does_not_wait_for_the_interval(compactions: Compactions) -> None:
    works = upkeep(compactions, 3600)
    works.start()
    with Threads() as threads:
        threads.start(works.close)


def test_passes_of_several_threads_come_one_after_the_other(compactions: Compactions) -> None:
    works = upkeep(compactions, 0.001)
    works.start()
    with Threads() as threads:
        for _ in range(4):
            threads.start(works.run)
    works.close()
    assert works.problem is None
    assert [record.body for record in compactions.log.records()][-1] == b"99"
