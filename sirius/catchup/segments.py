"""Segments as files, for who is far behind.

A source offers segments, or what is complete of them. They come one after the other, each in parts. Several parts are
asked for at a time, so that nobody waits while one is on its way; what is asked for and not written yet is bounded,
and with it the memory at both ends. Parts that overtake others wait for them. When nothing comes any more, everything
behind what came is asked for again.

The driver checks what comes, and makes a complete segment the next of the log. A segment fits only directly behind the
log's end. It fits by the edition under which it was *offered*: the bytes never change, so an offer is one consistent
log however long the files take, and however the source is compacted meanwhile. If a file is gone by then, the source
says that it is unavailable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sirius.catchup.config import CatchupConfig
from sirius.catchup.context import Context
from sirius.catchup.effects import DropSegment, InstallSegment, SegmentStep, WritePart
from sirius.catchup.messages import FilePart, PullFile, SegmentOffer, Segments, Standing
from sirius.catchup.ranges import coverage_fault
from sirius.catchup.sources import Source
from sirius.paxos.members import Member
from sirius.types import Seq


class Progress(NamedTuple):
    """How much of the segments that were offered has come, in bytes."""

    done: int
    total: int


class _Asked(NamedTuple):
    """A part under way: where it begins in the offer, how long it is, since when."""

    offset: int
    length: int
    at: float


class Transfer:
    """Segments on their way from one source."""

    def __init__(
        self, number: int, context: Context, source: Source, answer: Segments, *, staged: bool
    ) -> None:
        self.number = number
        self.source = source
        self.standing: Standing = answer.standing
        self.is_installing = False
        self._context = context
        self._staged = staged
        self._offers = deque(answer.offers)
        self._bytes = sum(offer.bytes for offer in answer.offers)
        self._part_bytes_max = self._config.file_bytes_max
        self._heard_at = context.now
        self._begin()

    def _begin(self) -> None:
        self._asked: dict[int, _Asked] = {}
        self._arrived: dict[int, bytes] = {}
        """Parts, by where they begin, in front of which something is missing."""
        self._next = self._taken = 0
        """Up to where parts were asked for, and were handed to the driver."""
        self._unwritten = 0

    @property
    def _config(self) -> CatchupConfig:
        return self._context.config

    @property
    def offer(self) -> SegmentOffer:
        """The segment that comes now."""
        return self._offers[0]

    @property
    def progress(self) -> Progress:
        """How far all of it is."""
        left = sum(offer.bytes for offer in self._offers)
        return Progress(self._bytes - left + self._taken, self._bytes)

    # ------------------------------------------------------------------ asking

    def questions(
        self, next_request: Callable[[], int], bytes_max: int, position: Seq
    ) -> Iterator[PullFile]:
        """Yield what to ask now: as many parts as may be under way, as long as there is something left to ask for."""
        while self._next < self.offer.bytes and self._under_way < self._config.file_parts_max:
            request, offset = next_request(), self._next
            length = min(self.offer.bytes - offset, bytes_max, self._part_bytes_max)
            self._asked[request] = _Asked(offset, length, self._context.now)
            self._next += length
            if len(self._asked) == 1:
                self._heard_at = self._context.now
            yield PullFile(request, self.offer.id, self.offer.offset + offset, length, position)

    @property
    def _under_way(self) -> int:
        return len(self._asked) + len(self._arrived) + self._unwritten

    def is_asked(self, sender: Member, request: int) -> bool:
        """Say whether an answer is one to a question that is under way."""
        return sender == self.source.member and request in self._asked

    @property
    def is_lost(self) -> bool:
        """Whether nothing comes any more. While something is being written nothing may have been asked for."""
        silent_s = self._context.now - self._heard_at
        return bool(self._asked) and silent_s >= self._config.request_timeout_s

    def ask_again(self) -> None:
        """Forget what was asked for and what came out of order."""
        self._asked.clear()
        self._arrived.clear()
        self._next = self._taken

    # ------------------------------------------------------------------ answers

    def is_prompt(self, request: int) -> bool:
        return self._context.now - self._asked[request].at <= self._config.request_timeout_s / 2

    def part(self, answer: FilePart) -> list[SegmentStep] | None:
        """Take a part that was asked for; None if it is not that."""
        asked = self._asked.pop(answer.request)
        place = (self.offer.id, self.offer.offset + asked.offset)
        if (answer.segment, answer.offset) != place or not 0 < len(answer.data) <= asked.length:
            return None
        self._heard_at = self._context.now
        self._arrived[asked.offset] = answer.data
        steps = list(self._in_order())
        if len(answer.data) < asked.length:
            # The source gives less at a time: what was to follow begins elsewhere now.
            self._part_bytes_max = len(answer.data)
            self.ask_again()
        if self._taken == self.offer.bytes:
            self.is_installing = True
            steps.append(InstallSegment(self.number, self.offer, self._staged))
        return steps

    def _in_order(self) -> Iterator[SegmentStep]:
        while (data := self._arrived.pop(self._taken, None)) is not None:
            yield WritePart(self.number, self.offer, self._taken, data)
            self._taken += len(data)
            self._unwritten += 1

    # ------------------------------------------------------------------ the driver's word

    def written(self) -> None:
        """One more part is written."""
        self._unwritten -= 1
        self._heard_at = self._context.now

    def next(self) -> bool:
        """The segment is installed: go on with the next one, if there is one."""
        self.is_installing = False
        self._offers.popleft()
        self._begin()
        return bool(self._offers)

    def drop(self) -> list[SegmentStep]:
        """Give up."""
        return [DropSegment(self.number, self.offer)]


def offer_fault(first: int, offers: tuple[SegmentOffer, ...], tip: int) -> str | None:
    """Say what is wrong with offers behind `first`, if anything."""
    if not offers:
        return None
    if offers[0].first < first or offers[-1].last > tip or any(each.bytes < 1 for each in offers):
        return f"an offer of {offers[0].first} to {offers[-1].last} for {first} to {tip}"
    return coverage_fault(offers[0].first, offers[-1].last, offers)
