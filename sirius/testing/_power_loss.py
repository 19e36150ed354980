"""Everything that a power loss can leave of a disk in memory."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from sirius.testing._disk import Disk
from sirius.testing._inodes import FileNode, FileOutcomes
from sirius.testing._names import (
    FolderNode,
    Names,
    draw_names,
    fingerprint,
    name_outcomes,
    reachable,
)


@dataclass(frozen=True, slots=True)
class _Space:
    """One outcome for the names, ready to be shared by many states."""

    folders: dict[int, FolderNode]
    settled: dict[int, FileNode]
    dirty: tuple[int, ...]


# Which space, and for each dirty file of it which outcome.
_Pick: TypeAlias = tuple[int, tuple[int, ...]]


class PowerLoss:
    """Everything that a power loss at one moment can leave of a disk."""

    def __init__(self, disk: Disk, limit: int | None, rng: random.Random) -> None:
        self._disk = disk
        self._limit = limit
        self._rng = rng
        self._outcomes: dict[int, FileOutcomes] = {}
        self._spaces: list[_Space] = []
        self._places: dict[tuple[object, ...], int] = {}
        self._durable_names = disk.durable_names()
        self._add_space(disk.visible_names())
        self._nothing_space = self._add_space(self._durable_names)
        outcomes = name_outcomes(self._durable_names, disk.changes, limit)
        self._has_all_names = outcomes is not None
        for names in outcomes or []:
            self._add_space(names)

    def disks(self) -> Iterator[Disk]:
        picks = dict.fromkeys((self._everything(), self._nothing()))
        yield from map(self._build, itertools.islice(picks, self._limit))
        if self._limit is None or self._is_small(self._limit):
            yield from (self._build(pick) for pick in self._all() if pick not in picks)
        else:
            yield from map(self._build, self._draw(picks, self._limit))

    def _add_space(self, names: Names) -> int:
        found = reachable(names)
        key = fingerprint(names, found)
        place = self._places.setdefault(key, len(self._spaces))
        if place == len(self._spaces):
            self._spaces.append(self._space(names, found))
        return place

    def _space(self, names: Names, numbers: Iterable[int]) -> _Space:
        space = _Space({}, {}, tuple(n for n in sorted(numbers) if self._is_dirty(n)))
        for number in numbers:
            if number in names:
                space.folders[number] = FolderNode(None, names[number], names[number])
            elif number not in self._outcomes:
                space.settled[number] = self._disk.files[number]
        return space

    def _is_dirty(self, number: int) -> bool:
        if number in self._outcomes:
            return True
        node = self._disk.files.get(number)
        if node is None or node.is_settled():
            return False
        self._outcomes[number] = FileOutcomes(node, self._limit)
        return True

    def _everything(self) -> _Pick:
        return 0, (0,) * len(self._spaces[0].dirty)

    def _nothing(self) -> _Pick:
        outcomes = self._outcomes_in(self._nothing_space)
        return self._nothing_space, tuple(outcome.nothing for outcome in outcomes)

    def _outcomes_in(self, place: int) -> list[FileOutcomes]:
        return [self._outcomes[number] for number in self._spaces[place].dirty]

    def _is_small(self, limit: int) -> bool:
        """Say whether all states are known, and not more than the limit."""
        if not self._has_all_names or not all(o.is_complete for o in self._outcomes.values()):
            return False
        places = range(len(self._spaces))
        return sum(math.prod(map(len, self._outcomes_in(place))) for place in places) <= limit

    def _all(self) -> Iterator[_Pick]:
        for place in range(len(self._spaces)):
            ranges = [range(len(outcome)) for outcome in self._outcomes_in(place)]
            yield from ((place, tails) for tails in itertools.product(*ranges))

    def _draw(self, seen: dict[_Pick, None], limit: int) -> Iterator[_Pick]:
        """Yield distinct picks up to the limit; the bound on tries matters only near exhaustion."""
        for _ in range(64 * limit):
            if len(seen) >= limit:
                return
            pick = self._draw_one()
            if pick not in seen:
                seen[pick] = None
                yield pick

    def _draw_one(self) -> _Pick:
        place = self._extreme_or(self._nothing_space, self._draw_space)
        outcomes = self._outcomes_in(place)
        draws = (self._extreme_or(o.nothing, partial(o.draw, self._rng)) for o in outcomes)
        return place, tuple(draws)

    def _extreme_or(self, nothing: int, draw: Callable[[], int]) -> int:
        """Draw an outcome; all and nothing come often, as faults hide in their mixtures."""
        drawn = self._rng.randrange(4)
        return (0, nothing)[drawn] if drawn < 2 else draw()

    def _draw_space(self) -> int:
        if self._has_all_names:
            return self._rng.randrange(len(self._spaces))
        return self._add_space(draw_names(self._durable_names, self._disk.changes, self._rng))

    def _build(self, pick: _Pick) -> Disk:
        at, tails = pick
        space = self._spaces[at]
        disk = Disk(self._disk.capacity_bytes)
        disk.last_number = self._disk.last_number
        disk.folders = dict(space.folders)
        disk.files = dict(space.settled)
        for number, tail in zip(space.dirty, tails, strict=True):
            disk.files[number] = self._outcomes[number].node(tail)
        return disk
