"""The simplest values that the machine can agree on: tuples of words, one word a slot. Beside the real blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from sirius.paxos import Configuration, Content, Request, Run
from sirius.paxos.values import PUBLISHERS
from sirius.types import Seq

NOTHING = "-"
"""The word of a no-op, and of a cancelled update."""
MARK = "|"
"""The word of a mark."""


class Word(NamedTuple):
    """What one slot holds."""

    slot: int
    text: str
    session: int = 0
    serial: int = 0
    configuration: Configuration | None = None
    is_mark: bool = False
    """Whether it says how far a publisher's session has got."""


@dataclass(frozen=True)
class Words:
    """A value. It covers `first` to `last`; slots without a word are holes, as compaction leaves them."""

    first: Seq
    last: Seq
    words: tuple[Word, ...]

    def __len__(self) -> int:
        return 10 * len(self.words)

    def __iter__(self) -> Iterator[Word]:
        return iter(self.words)

    def cut(self, first: int, last: int) -> Words:
        assert self.first <= first <= last <= self.last, "a cut lies inside"
        kept = tuple(word for word in self.words if first <= word.slot <= last)
        return Words(Seq(first), Seq(last), kept)


def words(first: int, *texts: str, session: int = 0, serial: int = 1) -> Words:
    """Make a value by hand; without a session its words belong to nobody."""
    last = first + len(texts) - 1
    made = (
        Word(first + at, text, session, serial + at if session else 0)
        for at, text in enumerate(texts)
    )
    return Words(Seq(first), Seq(last), tuple(made))


def hole(first: int, last: int) -> Words:
    return Words(Seq(first), Seq(last), ())


class WordCodec:
    """Makes `Words`; the updates of a request are strings."""

    def encode(self, first: int, requests: Sequence[Request]) -> Words:
        made: list[Word] = []
        for request in requests:
            session = request.session
            for at, update in enumerate(request.updates):
                text = NOTHING if request.cancelled else update
                made.append(Word(first + len(made), text, session, request.serial + at))
            if session >= PUBLISHERS:
                slot = first + len(made)
                made.append(Word(slot, MARK, session, request.last_serial, is_mark=True))
        assert made, "nobody proposes nothing"
        return Words(Seq(first), Seq(first + len(made) - 1), tuple(made))

    def join(self, values: Sequence[Words]) -> Words:
        return Words(
            values[0].first, values[-1].last, tuple(word for value in values for word in value)
        )

    def membership(self, slot: int, configuration: Configuration) -> Words:
        return Words(Seq(slot), Seq(slot), (Word(slot, "members", 0, 0, configuration),))

    def content(self, value: Words) -> Content:
        has_holes = len(value.words) < value.last - value.first + 1
        runs = []
        for (session, is_mark), group in groupby(value.words, key=_kind):
            end = list(group)[-1]
            if is_mark:
                runs.append(Run(session, end.serial, Seq(end.slot - 1)))
            elif session and not has_holes:
                runs.append(Run(session, end.serial, Seq(end.slot)))
        found = [word.configuration for word in value.words if word.configuration]
        return Content(tuple(runs), tuple(found), has_holes)


def _kind(word: Word) -> tuple[int, bool]:
    return word.session, word.is_mark
