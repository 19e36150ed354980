"""Files on their way: a call that another thread may end, and files that are given in pieces."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sirius.catchup.messages import PullFile
from sirius.driver import files
from sirius.driver.files import Call, Giving
from sirius.driver.pacing import Pace
from sirius.errors import (
    BadMessage,
    LogError,
    NodeClosed,
    NodeError,
    Overloaded,
    SiriusError,
    TransportError,
    Unreachable,
)
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.types import NodeId, SegmentId, Seq
from sirius.wal import Log, LogConfig
from tests.driver.waiting import DEADLINE_S

QUESTION = PullFile(SegmentId(1), 0, 1000, Seq(5))
ENVELOPE = Envelope(7, 1, Member(NodeId(2), "b"), NodeId(1), QUESTION)


# ---------------------------------------------------------------------- taken


class FakeReader:
    """An open stream that brings three bytes, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.closed = 0

    def read_into(self, buffer: memoryview) -> int:
        if self.failure:
            raise self.failure
        buffer[:3] = b"abc"
        return 3

    def close(self) -> None:
        self.closed += 1


def test_a_call_asks_its_question_and_hands_on_what_comes() -> None:
    asked: list[Envelope] = []
    reader = FakeReader()

    def open_reader(envelope: Envelope) -> FakeReader:
        asked.append(envelope)
        return reader

    call, buffer = Call(open_reader, ENVELOPE), bytearray(10)
    rest = QUESTION._replace(offset=400, bytes=600)
    call.ask(rest)
    assert asked == [ENVELOPE._replace(message=rest)]
    assert call.read_into(memoryview(buffer)) == 3
    assert bytes(buffer[:3]) == b"abc"
    call.close()
    assert reader.closed == 1


def test_a_call_that_was_ended_before_it_began_asks_nobody() -> None:
    def open_reader(envelope: Envelope) -> FakeReader:
        raise AssertionError(f"nobody is to be asked: {envelope}")

    call = Call(open_reader, ENVELOPE)
    call.close()
    with pytest.raises(Unreachable, match="nobody needs this file any more"):
        call.ask(QUESTION)


def test_a_call_that_is_ended_while_it_connects_closes_what_it_gets() -> None:
    connecting, goes_on = threading.Event(), threading.Event()
    reader = FakeReader()

    def open_reader(_: Envelope) -> FakeReader:
        connecting.set()
        assert goes_on.wait(DEADLINE_S)
        return reader

    call = Call(open_reader, ENVELOPE)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(call.ask, QUESTION)
        assert connecting.wait(DEADLINE_S)
        call.close()
        goes_on.set()
        with pytest.raises(Unreachable, match="nobody needs"):
            asking.result(DEADLINE_S)
    assert reader.closed == 1


def first_of(call: Call) -> None:
    call.ask(QUESTION)
    call.read_into(memoryview(bytearray(10)))


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        (Unreachable("silence"), Unreachable),
        (Overloaded("8 files are on their way"), Unreachable),
        (NodeClosed("it goes"), Unreachable),
        (BadMessage("nonsense"), BadMessage),
        (LogError("no such segment"), TransportError),
        (NodeError("not of this cluster"), TransportError),
    ],
    ids=lambda each: each.__class__.__name__ if isinstance(each, Exception) else "",
)
@pytest.mark.parametrize("when", ["asking", "reading"])
def test_what_a_node_says_means_to_come_back_or_to_do_without(
    told: SiriusError, heard: type[SiriusError], when: str
) -> None:
    """Whoever reads a stream knows two kinds of failure: see `sirius.taking.Stream`."""

    def open_reader(_: Envelope) -> FakeReader:
        if when == "asking":
            raise told
        return FakeReader(told)

    with pytest.raises(SiriusError, match=str(told)) as caught:
        first_of(Call(open_reader, ENVELOPE))
    assert type(caught.value) is heard


# ---------------------------------------------------------------------- given


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with Log.open(tmp_path / "log", LogConfig(background=False, reserve_bytes=0)) as opened:
        for at in range(100):
            opened.put(f"key/{at}", b"body %d" % at)
        opened.flush()
        yield opened


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(2) as made:
        yield made


def whole(log: Log) -> PullFile:
    """A question for all of the log's first segment."""
    with log.snapshot() as snapshot:
        part = next(snapshot.parts(1))
    return PullFile(part.segment, part.offset, part.bytes, Seq(0))


async def all_of(pieces: AsyncIterator[bytes]) -> list[bytes]:
    return [piece async for piece in pieces]


def given(giving: Giving, question: PullFile, is_busy: bool = False) -> list[bytes]:
    return asyncio.run(all_of(giving.pieces(question, lambda: is_busy)))


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_a_file_is_given_piece_by_piece(
    log: Log, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(files, "_PIECE_BYTES", size)
    giving, question = Giving(lambda: log, pool, 1), whole(log)
    pieces = given(giving, question)
    assert b"".join(pieces) == log.read_raw(question.segment, question.offset, question.bytes)
    assert {len(piece) for piece in pieces[:-1]} <= {size}
    assert giving.under_way == 0


@pytest.mark.parametrize("change", [{"segment": SegmentId(99)}, {"bytes": 1 << 20}], ids=str)
def test_what_is_not_there_cannot_be_given(
    log: Log, pool: ThreadPoolExecutor, change: dict[str, Any]
) -> None:
    giving = Giving(lambda: log, pool, 1)
    with pytest.raises(LogError, match="segment"):
        given(giving, whole(log)._replace(**change))
    assert giving.under_way == 0


def test_files_that_are_given_at_a_time_are_bounded(log: Log, pool: ThreadPoolExecutor) -> None:
    giving, question = Giving(lambda: log, pool, 1), whole(log)

    async def test() -> None:
        async with aclosing(_generator(giving, question)) as first:
            assert await anext(first)
            assert giving.under_way == 1
            with pytest.raises(Overloaded, match="1 files are on their way"):
                await all_of(giving.pieces(question, lambda: False))
        assert giving.under_way == 0, "who hangs up makes room"
        assert await all_of(giving.pieces(question, lambda: False))

    asyncio.run(test())


def _generator(giving: Giving, question: PullFile) -> Any:
    return giving.pieces(question, lambda: False)


def test_pieces_wait_while_there_is_other_work(
    log: Log, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(files, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    giving, question = Giving(lambda: log, pool, 1), whole(log)
    giving._pace = Pace(1.0)
    given(giving, question)
    assert not waits
    count = len(given(giving, question, is_busy=True))
    # Nobody really slept, so each has to wait for all before it: that of the last turn, and a thousand seconds each.
    assert len(waits) == count > 3
    assert [round(each - waits[0], -3) for each in waits[:3]] == [0, 1000, 2000]


def test_nobody_waits_for_a_read_that_failed_after_the_reader_left(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The piece that was read ahead is not there: asyncio complains of errors that nobody has looked at."""
    question = whole(log)
    beyond = question._replace(bytes=2 * question.bytes)
    monkeypatch.setattr(files, "_PIECE_BYTES", question.bytes)
    complaints: list[dict[str, Any]] = []

    async def test(pool: ThreadPoolExecutor) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
        async with aclosing(_generator(Giving(lambda: log, pool, 1), beyond)) as pieces:
            assert await anext(pieces)
        await asyncio.get_running_loop().run_in_executor(pool, lambda: None)

    with ThreadPoolExecutor(1) as one_thread:  # What it is given last it does last.
        asyncio.run(test(one_thread))
    gc.collect()
    assert not complaints
