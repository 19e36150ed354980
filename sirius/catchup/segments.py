"""Whole segments as files, for who is far behind.

A source offers sealed segments; they come one after the other, each in parts, in order; a lost part is asked for
again from where the file ends. The driver checks a complete file and makes it the next segment of the log. A segment
fits only directly behind the log's end. It fits by the edition under which it was *offered*: a segment's bytes never
change, so an offer is one consistent log however long the files take, and however the source is compacted meanwhile.
If a file is gone by then, the source says that it is unavailable.
"""

from __future__ import annotations

from collections import deque

from sirius.catchup.effects import DropSegment, InstallSegment, SegmentStep, WritePart
from sirius.catchup.messages import FilePart, PullFile, SegmentOffer, Segments, Standing
from sirius.catchup.ranges import coverage_fault
from sirius.catchup.sources import Source
from sirius.types import Seq


class Transfer:
    """Segments on their way from one source."""

    def __init__(self, source: Source, answer: Segments, *, staged: bool) -> None:
        self.source = source
        self.standing: Standing = answer.standing
        self.is_installing = False
        self._staged = staged
        self._offers = deque(answer.offers)
        self._offset = 0

    @property
    def offer(self) -> SegmentOffer:
        """The segment that comes now."""
        return self._offers[0]

    def question(self, request: int, bytes_max: int, position: Seq) -> PullFile:
        """Return what to ask next."""
        rest = self.offer.bytes - self._offset
        return PullFile(request, self.offer.id, self._offset, min(rest, bytes_max), position)

    def part(self, asked: PullFile, answer: FilePart) -> list[SegmentStep] | None:
        """Take the next part; None if it is not what was asked for."""
        if (answer.segment, answer.offset) != (asked.segment, asked.offset):
            return None
        if not 0 < len(answer.data) <= asked.bytes_max:
            return None
        steps: list[SegmentStep] = [WritePart(self.offer, answer.offset, answer.data)]
        self._offset += len(answer.data)
        if self._offset == self.offer.bytes:
            self.is_installing = True
            steps.append(InstallSegment(self.offer, self._staged))
        return steps

    def next(self) -> bool:
        """The segment is installed: go on with the next one, if there is one."""
        self.is_installing = False
        self._offers.popleft()
        self._offset = 0
        return bool(self._offers)

    def drop(self) -> list[SegmentStep]:
        """Give up."""
        return [DropSegment(self.offer)]


def offer_fault(first: int, offers: tuple[SegmentOffer, ...], tip: int) -> str | None:
    """Say what is wrong with offers behind `first`, if anything."""
    if not offers:
        return None
    if offers[0].first < first or offers[-1].last > tip or any(each.bytes < 1 for each in offers):
        return f"an offer of {offers[0].first} to {offers[-1].last} for {first} to {tip}"
    return coverage_fault(offers[0].first, offers[-1].last, offers)
