"""A pulling machine on a bench: with sources that say what a test has them say. Not a test."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from sirius.catchup import (
    Catchup,
    CatchupConfig,
    Edition,
    Effects,
    SegmentOffer,
    Source,
    Standing,
    Start,
)
from sirius.catchup.effects import FetchSegment
from sirius.catchup.messages import Push, Range
from sirius.types import NodeId, SegmentId, Seq
from tests.catchup.logs import Piece
from tests.catchup.world import SMALL, member

ONE, TWO = member(1), member(2)
FILES = replace(SMALL, segment_slots=5)
OFFER = SegmentOffer(SegmentId(3), Seq(1), Seq(8), 100, 7)


def standing(
    tip: int = 20, *, floor: int = 0, era: int = 0, path: tuple[int, ...] = (1,)
) -> Standing:
    edition = Edition(era, Seq(floor))
    return Standing(Seq(tip), Seq(tip), edition, tuple(NodeId(node) for node in path))


class Bench:
    """A machine with two sources, of which the first is nearer, and its last effects."""

    def __init__(self, position: int = 0, config: CatchupConfig = SMALL, known: int = 0) -> None:
        self.config = replace(config, prefer="nearest", shun_s=3.0, resync_patience_s=50.0)
        start = Start(Seq(position))
        self.machine = Catchup(member(9), self.config, random.Random(1), 0.0, start)
        self.machine.set_sources([Source(ONE), Source(TWO, distance=1.0), Source(member(9))])
        self.machine.heard(Seq(known))
        self.now = 0.0
        self.out = self.tick(0.1)

    def tick(self, seconds: float) -> Effects:
        self.now += seconds
        self.out = self.machine.tick(self.now)
        return self.out

    @property
    def asked(self) -> Any:
        """The question in the last effects."""
        [(self.to, question)] = self.out.send
        return question

    def answer(self, make: type[Any], *fields: Any, sender: Any = None) -> Effects:
        """Answer the question in the last effects."""
        question = self.asked
        self.out = self.machine.step(sender or self.to, make(question.request, *fields))
        return self.out

    def give(self, *values: Piece, **kwargs: Any) -> Effects:
        first = self.asked.first
        last = values[-1].last if values else first - 1
        return self.answer(Range, first, last, values, standing(**kwargs))

    def to_whom(self) -> Any:
        """Whom the question in the last effects goes to."""
        [(to, _)] = self.out.send
        return to

    def until_asked(self) -> Any:
        for _ in range(200):
            if self.tick(0.1).send:
                return self.asked
        raise AssertionError("it never asks")

    def until_fetched(self) -> FetchSegment:
        """Let time pass until the driver is to fetch a segment."""
        for _ in range(200):
            if self.tick(0.1).segments:
                [step] = self.out.segments
                assert isinstance(step, FetchSegment), step
                return step
        raise AssertionError("nothing is fetched")


def push(bench: Bench, *values: Piece, sender: Any = ONE, **kwargs: Any) -> Effects:
    bench.out = bench.machine.step(sender, Push(values, standing(**kwargs)))
    return bench.out
