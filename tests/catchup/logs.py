"""Logs in memory that a fake driver keeps: values with holes, compaction that drops deletes, segments. Not a test.

The truth is one list of updates. A log has some of them and covers all up to its tip.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sirius.catchup import Edition, SegmentOffer
from sirius.errors import InvariantViolation
from sirius.types import SegmentId, Seq


class Update(NamedTuple):
    """A PUT of a value that is its own sequence number, or a DELETE."""

    seq: int
    key: str
    is_delete: bool = False

    def __str__(self) -> str:
        return f"{self.seq}{'-' if self.is_delete else '+'}{self.key}"


@dataclass(frozen=True)
class Piece:
    """A value: updates, and the range that they cover."""

    first: Seq
    last: Seq
    updates: tuple[Update, ...]

    def __len__(self) -> int:
        return 10 + 10 * len(self.updates)

    def cut(self, first: int, last: int) -> Piece:
        if not self.first <= first <= last <= self.last:
            raise InvariantViolation(f"no {first} to {last} in {self}")
        return piece(first, last, self.updates)

    def __str__(self) -> str:
        return f"{self.first}..{self.last}[{' '.join(map(str, self.updates))}]"


def piece(first: int, last: int, updates: Iterable[Update] = ()) -> Piece:
    return Piece(
        Seq(first), Seq(last), tuple(each for each in updates if first <= each.seq <= last)
    )


def puts(first: int, last: int, key: str = "k") -> Piece:
    """A value without a hole."""
    return piece(first, last, [Update(seq, key) for seq in range(first, last + 1)])


def replay(updates: Iterable[Update]) -> dict[str, int]:
    """The state that updates lead to."""
    state: dict[str, int] = {}
    for update in updates:
        if update.is_delete:
            state.pop(update.key, None)
        else:
            state[update.key] = update.seq
    return state


@dataclass
class FakeLog:
    """What a driver has on disk."""

    updates: dict[int, Update] = field(default_factory=dict)
    tip: int = 0
    edition: Edition = field(default_factory=Edition)
    unreadable: tuple[int, int] | None = None
    files: dict[int, tuple[SegmentOffer, bytes]] = field(default_factory=dict)

    def append(self, values: Sequence[Piece]) -> None:
        for value in values:
            if value.first != self.tip + 1:
                raise InvariantViolation(f"{value} does not follow {self.tip}")
            self.updates.update((each.seq, each) for each in value.updates)
            self.tip = value.last

    def state(self) -> dict[str, int]:
        return replay(self.updates[seq] for seq in sorted(self.updates))

    def read(self, first: int, last: int, bytes_max: int) -> list[Piece] | None:
        """Values of up to three slots each; None if the first of them cannot be read."""
        found: list[Piece] = []
        while first <= min(last, self.tip) and (bytes_max > 0 or not found):
            end = min(first + 2, last, self.tip)
            if self.unreadable and self.unreadable[0] <= end and first <= self.unreadable[1]:
                break
            inside = [self.updates[seq] for seq in range(first, end + 1) if seq in self.updates]
            found.append(piece(first, end, inside))
            bytes_max -= len(found[-1])
            first = end + 1
        return found or None

    def compact(self, rng: random.Random, keep_after: int | None) -> None:
        """Drop some of what has a newer record, then deletes that nothing older is left for."""
        newest = {update.key: seq for seq, update in sorted(self.updates.items())}
        for seq, update in list(self.updates.items()):
            if newest[update.key] != seq and rng.random() < 0.7:
                del self.updates[seq]
        for seq, update in sorted(self.updates.items()):
            is_needed = any(u.key == update.key and s < seq for s, u in self.updates.items())
            is_kept = keep_after is not None and seq > keep_after
            if update.is_delete and not is_needed and not is_kept and rng.random() < 0.7:
                self.drop_delete(seq)

    def drop_delete(self, seq: int) -> None:
        del self.updates[seq]
        era, floor = self.edition
        self.edition = Edition(era + 1, max(floor, Seq(seq)))

    def raise_floor(self, floor: int) -> None:
        self.edition = self.edition._replace(floor=max(Seq(floor), self.edition.floor))

    def seal(self, first: int, last: int) -> SegmentOffer:
        """Make a segment of a part of the log."""
        inside = tuple(self.updates[seq] for seq in range(first, last + 1) if seq in self.updates)
        data = repr([tuple(each) for each in inside]).encode()
        # Never the same twice: the files go with a compaction pass, and then the era is another one.
        number = SegmentId(self.edition.era * 1000 + len(self.files) + 1)
        offer = SegmentOffer(number, Seq(first), Seq(last), len(data), zlib.crc32(data))
        self.files[number] = (offer, data)
        return offer

    def offers(self, first: int, count: int) -> list[SegmentOffer]:
        """Segments of five slots that are complete, from the first that begins at or behind a slot."""
        starts = [start for start in range(1, self.tip - 3, 5) if start >= first][:count]
        return [self.seal(start, start + 4) for start in starts]
