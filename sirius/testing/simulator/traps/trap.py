"""One trap: what replaces what, and how long it takes until somebody notices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from sirius.testing.simulator.simulation import Result, run


class Patch(NamedTuple):
    """A method of a class or a function of a module, and the buggy one that takes its place."""

    owner: Any
    name: str
    bug: Any


@dataclass(frozen=True, slots=True)
class Trap:
    """A bug that is put back. Entering it changes the real classes, leaving it restores them."""

    number: str
    """As in the list of what must never happen; a letter tells variants apart."""
    name: str
    what: str
    patches: tuple[Patch, ...]

    @contextmanager
    def sprung(self) -> Iterator[None]:
        """Have the bug in the code for a while."""
        before = [(patch, vars(patch.owner)[patch.name]) for patch in self.patches]
        try:
            for owner, name, bug in self.patches:
                setattr(owner, name, bug)
            yield
        finally:
            for patch, original in before:
                setattr(patch.owner, patch.name, original)


class Catch(NamedTuple):
    """The first run in which a trap was noticed, and how many runs that took."""

    seeds: int
    result: Result


def hunt(trap: Trap, seeds: Iterable[int]) -> Catch | None:
    """Run seeds with a trap until one of them breaks a promise."""
    with trap.sprung():
        for count, seed in enumerate(seeds, 1):
            result = run(seed)
            if result.violation is not None:
                return Catch(count, result)
    return None
