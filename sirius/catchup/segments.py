"""Segments as files, for who is far behind.

A source offers segments, or what is complete of them. They come one after the other, each as one stream, which the
driver opens, checks and writes down (`sirius.catchup.effects`). What breaks off goes on where it stopped.

A complete segment becomes the next of the log. It fits only directly behind the log's end. It fits by the edition under
which it was *offered*: the bytes never change, so an offer is one consistent log however long the files take, and
however the source is compacted meanwhile. If a file is gone by then, the source withholds it.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

from sirius.catchup.effects import DropSegment, FetchSegment, InstallSegment
from sirius.catchup.messages import SegmentOffer, Segments, Standing
from sirius.catchup.ranges import coverage_fault
from sirius.catchup.sources import Source
from sirius.types import Seq


class Progress(NamedTuple):
    """How much of the segments that were offered has come, in bytes."""

    done: int
    total: int


class _Stage(Enum):
    """What the driver does with a segment."""

    RESTING = "resting"
    FETCHING = "fetching"
    INSTALLING = "installing"


class Transfer:
    """Segments on their way from one source."""

    def __init__(self, number: int, source: Source, answer: Segments, *, staged: bool) -> None:
        self.number = number
        self.source = source
        self.standing: Standing = answer.standing
        self._stage = _Stage.RESTING
        self._staged = staged
        self._offers = deque(answer.offers)
        self._bytes = sum(offer.bytes for offer in answer.offers)
        self._done = 0

    @property
    def offer(self) -> SegmentOffer:
        """The segment that comes now."""
        return self._offers[0]

    @property
    def progress(self) -> Progress:
        """How much is installed; for any thread."""
        return Progress(self._done, self._bytes)

    @property
    def is_resting(self) -> bool:
        """Whether the driver does nothing for it."""
        return self._stage is _Stage.RESTING

    @property
    def is_installing(self) -> bool:
        return self._stage is _Stage.INSTALLING

    def fetch(self, position: Seq) -> FetchSegment:
        """Have it sent, or the rest of it."""
        self._stage = _Stage.FETCHING
        return FetchSegment(self.number, self.offer, self.source.member, position)

    def install(self) -> InstallSegment:
        """It is here."""
        self._stage = _Stage.INSTALLING
        return InstallSegment(self.number, self.offer, self._staged)

    def rest(self) -> None:
        """The driver has stopped."""
        self._stage = _Stage.RESTING

    def next(self) -> bool:
        """The segment is installed: go on with the next one, if there is one."""
        self.rest()
        self._done += self._offers.popleft().bytes
        return bool(self._offers)

    def drop(self) -> DropSegment:
        """Give up."""
        return DropSegment(self.number, self.offer)


def offer_fault(first: int, offers: tuple[SegmentOffer, ...], tip: int) -> str | None:
    """Say what is wrong with offers behind `first`, if anything."""
    if not offers:
        return None
    if offers[0].first < first or offers[-1].last > tip or any(each.bytes < 1 for each in offers):
        return f"an offer of {offers[0].first} to {offers[-1].last} for {first} to {tip}"
    return coverage_fault(offers[0].first, offers[-1].last, offers)
