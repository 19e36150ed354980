"""Files on their way between nodes, each as a stream of its own: those that are taken, and those that are given."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from typing import Final, Protocol

from sirius.catchup.messages import PullFile
from sirius.driver.pacing import Pace
from sirius.errors import (
    LogError,
    NodeClosed,
    Overloaded,
    SiriusError,
    TransportError,
    Unreachable,
)
from sirius.paxos.messages import Envelope
from sirius.taking import Interrupted, Refused, Stream, Taken, Withheld
from sirius.types import SegmentId
from sirius.wal import Log

_log = logging.getLogger("sirius.node")

_PIECE_BYTES: Final = 1024 * 1024
"""What travels in one message. More is slower: what a cache holds is copied for next to nothing."""


class FileStream(Stream, Protocol):
    """A stream that can be ended."""

    def close(self) -> None:
        """End it, from any thread: also one that is being read, or has not begun."""
        ...


class Reader(Protocol):
    """An open stream: see `sirius.transport.fetching`."""

    def read_into(self, buffer: memoryview) -> int: ...
    def close(self) -> None: ...


class Call:
    """A file that another node gives. It is opened by the thread that reads it."""

    def __init__(self, open_reader: Callable[[Envelope], Reader], envelope: Envelope) -> None:
        self._open = open_reader
        self._envelope = envelope
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._closed = False

    def ask(self, question: PullFile) -> None:
        """Part of `Stream`."""
        self._fail_if_closed()
        with _failing_as_streams_do():
            reader = self._open(self._envelope._replace(message=question))
        with self._lock:
            self._reader = reader
        if self._closed:
            reader.close()
        self._fail_if_closed()

    def read_into(self, buffer: memoryview) -> int:
        """Part of `Stream`."""
        with _failing_as_streams_do():
            return self._reader.read_into(buffer) if self._reader is not None else 0

    def close(self) -> None:
        """Part of `FileStream`."""
        with self._lock:
            self._closed, reader = True, self._reader
        if reader is not None:
            reader.close()

    def _fail_if_closed(self) -> None:
        if self._closed:
            raise Unreachable("nobody needs this file any more")


@contextmanager
def _failing_as_streams_do() -> Iterator[None]:
    """What the other node says of itself, in the words of `Stream`: it may be asked again, or it does not give this."""
    try:
        yield
    except TransportError:
        raise
    except (NodeClosed, Overloaded) as error:
        raise Unreachable(str(error)) from None
    except SiriusError as error:
        raise TransportError(str(error)) from None


def use(stream: FileStream, work: Callable[[Stream], Taken]) -> Taken:
    """On the files' thread: do work with a stream, and end it."""
    with closing(stream):
        return work(stream)


def tell_of(outcome: Taken) -> None:
    """Log what is out of the ordinary. Damage is; a stream that breaks off happens."""
    if isinstance(outcome, Refused | Interrupted | Withheld):
        level = logging.WARNING if isinstance(outcome, Refused) else logging.INFO
        what = type(outcome).__name__.lower()
        _log.log(level, "a segment from another node was %s: %s", what, outcome.reason)


class Giving:
    """Files for others: a bounded number at a time, all together not too fast. On the thread of one asyncio loop."""

    def __init__(self, log: Callable[[], Log], pool: Executor, files_max: int) -> None:
        self._log = log
        self._pool = pool
        self._files_max = files_max
        self._pace = Pace()
        self.under_way = 0

    async def pieces(self, question: PullFile, is_busy: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield what was asked for. Unchecked: whoever takes it checks every block, and would have to in any case."""
        if self.under_way >= self._files_max:
            raise Overloaded(f"{self.under_way} files are on their way from here")
        self.under_way += 1
        try:
            async for data in self._read_ahead(question):
                now = asyncio.get_running_loop().time()
                if (wait_s := self._pace.wait_s(now, len(data), is_busy=is_busy())) > 0.0:
                    await asyncio.sleep(wait_s)
                yield data
        finally:
            self.under_way -= 1

    async def _read_ahead(self, question: PullFile) -> AsyncIterator[bytes]:
        """Read the next piece while one is on its way."""
        segment, offset, size, _ = question
        loop, log, end = asyncio.get_running_loop(), self._log(), offset + size
        ahead = None
        for at in range(offset, end, _PIECE_BYTES):
            length = min(_PIECE_BYTES, end - at)
            reading = loop.run_in_executor(self._pool, _read, log, segment, at, length)
            # Nobody may be there any more to hear that it failed.
            reading.add_done_callback(lambda read: read.cancelled() or read.exception())
            if ahead is not None:
                yield await ahead
            ahead = reading
        if ahead is not None:
            yield await ahead


def _read(log: Log, segment: SegmentId, offset: int, length: int) -> bytes:
    try:
        data = log.read_raw(segment, offset, length)
    except OSError as error:
        raise LogError(f"segment {segment} cannot be read: {error}") from None
    if len(data) < length:
        raise LogError(f"segment {segment} ends before byte {offset + length}")
    return data
