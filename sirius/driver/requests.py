"""What was asked of the engine and is not answered yet: a token for each request, and who waits for it.

A request of the engine is a whole batch of callers' updates, or one batch of a client, or a read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from sirius.driver.acks import Ack, complete, fail
from sirius.driver.applier import Answered, Applier
from sirius.driver.calls import numbered
from sirius.driver.inbox import Asked, Inbox, size_of
from sirius.errors import OutcomeUnknown, ReadFailed, RequestRejected
from sirius.ops.recorder import Recorder
from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Answer, Done, ReadAt, Rejected, Unknown
from sirius.wal import Update


class _Asked(NamedTuple):
    acks: list[Ack]
    size: int
    at: float


class _Published(NamedTuple):
    outcome: asyncio.Future[int]
    size: int


class _Read(NamedTuple):
    ack: Ack
    key: str


class Requests:
    """The book of tokens. The loop's alone."""

    def __init__(
        self,
        inbox: Inbox,
        applier: Applier,
        config: PaxosConfig,
        *,
        ack_applied: bool,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._inbox = inbox
        self._applier = applier
        self._config = config
        self._ack_applied = ack_applied
        self._tokens = count(1)
        self._asked: dict[int, _Asked] = {}
        self._published: dict[int, _Published] = {}
        self._reads: dict[int, _Read] = {}
        self._bytes = 0
        self._answered: list[Answered] = []

    @property
    def are_waiting(self) -> bool:
        """Whether updates wait for their answer."""
        return bool(self._asked or self._published)

    @property
    def has_room(self) -> bool:
        """Whether the engine can take another batch, and the handler is not too far behind."""
        config = self._config
        return (
            self._fits(max(config.batch_bytes_max, self._inbox.next_size))
            and len(self._asked) + len(self._published) < config.pending_requests_max
            and not self._applier.is_behind
        )

    def _fits(self, size: int) -> bool:
        """One that is greater than all the room there is goes alone."""
        return not self._bytes or self._bytes + size <= self._config.pending_bytes_max

    # ------------------------------------------------------------------ asking

    def take(self) -> tuple[int, list[Update], int] | None:
        """Take a batch from the inbox; return its token, its updates and their size."""
        asked = self._inbox.take(self._config.batch_updates_max, self._config.batch_bytes_max)
        return self._batch(asked) if asked else None

    def _batch(self, asked: list[Asked]) -> tuple[int, list[Update], int]:
        updates = [each.update for each in asked]
        size = sum(map(size_of, updates))
        token = next(self._tokens)
        self._asked[token] = _Asked([each.ack for each in asked], size, time.monotonic())
        if self._recorder is not None:
            self._recorder.batch(len(asked))
        self._bytes += size
        return token, updates, size

    def publish(self, updates: Sequence[Update], outcome: asyncio.Future[int]) -> tuple[int, int]:
        """Note a batch of a client; return its token and its size."""
        size = sum(map(size_of, updates))
        token = next(self._tokens)
        self._published[token] = _Published(outcome, size)
        self._bytes += size
        return token, size

    def read(self, key: str, ack: Ack) -> int:
        """Note a read; return its token."""
        token = next(self._tokens)
        self._reads[token] = _Read(ack, key)
        return token

    # ------------------------------------------------------------------ answers

    def answer(self, answer: Answer) -> None:
        """Tell whoever asked."""
        if (asked := self._asked.pop(answer.token, None)) is not None:
            self._bytes -= asked.size
            # Of the acks of a batch the last is told last; until then it counts.
            asked.acks[-1].add_done_callback(
                lambda _: self._inbox.release(len(asked.acks), asked.size)
            )
            if self._recorder is not None and isinstance(answer, Done):
                self._recorder.decided(time.monotonic() - asked.at)
            self._answer_callers(asked.acks, answer)
        elif (published := self._published.pop(answer.token, None)) is not None:
            self._bytes -= published.size
            _answer_publisher(published.outcome, answer)
        elif (read := self._reads.pop(answer.token, None)) is not None:
            self._answer_read(read, answer)

    def _answer_callers(self, acks: list[Ack], answer: Answer) -> None:
        if not isinstance(answer, Done):
            fail(acks, _error(answer))
            return
        first = answer.last - len(acks) + 1
        if self._ack_applied:
            self._answered.append(Answered(first, acks))
        else:
            complete(acks, numbered(range(first, answer.last + 1)))

    def _answer_read(self, read: _Read, answer: Answer) -> None:
        if isinstance(answer, ReadAt):
            self._applier.get(read.key, read.ack, answer.slot)
        else:
            fail([read.ack], ReadFailed(_reason(answer)))

    def take_answered(self) -> list[Answered]:
        """Return those who are told when their updates are applied."""
        answered, self._answered = self._answered, []
        return answered

    def lose(self, why: str) -> None:
        """Nobody will answer what is under way."""
        for token in [*self._asked, *self._published, *self._reads]:
            self.answer(Unknown(token, why))


def _answer_publisher(outcome: asyncio.Future[int], answer: Answer) -> None:
    if outcome.done():
        return
    if isinstance(answer, Done):
        outcome.set_result(answer.last)
    else:
        outcome.set_exception(_error(answer))


def _error(answer: Answer) -> Exception:
    if isinstance(answer, Rejected):
        return RequestRejected(answer.reason)
    return OutcomeUnknown(_reason(answer))


def _reason(answer: Answer) -> str:
    return "" if isinstance(answer, Done | ReadAt) else answer.reason
