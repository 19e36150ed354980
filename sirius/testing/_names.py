"""Names of the disk in memory: pending changes to folders, and which of them may have survived."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sirius.testing._inodes import OUTCOMES_MAX

ROOT = 1


# Folder number -> name -> inode number. A file's number is never a key of the outer one.
Names: TypeAlias = dict[int, dict[str, int]]


class FolderNode:
    """A folder's two states. What lies between is kept for all folders in one list: see `Disk`."""

    __slots__ = ("durable", "owner", "visible")

    def __init__(self, owner: object, visible: dict[str, int], durable: dict[str, int]) -> None:
        self.owner = owner
        self.visible = visible
        self.durable = durable

    def copy(self, owner: object) -> FolderNode:
        return FolderNode(owner, dict(self.visible), dict(self.durable))


@dataclass(frozen=True, slots=True)
class Entry:
    """One name's change from one inode number to another; None is no inode."""

    folder: int
    name: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class NameChange:
    """One entry created or removed, or the two entries of a rename: source, then target."""

    entries: tuple[Entry, ...]

    def touches(self, folder: int) -> bool:
        return any(entry.folder == folder for entry in self.entries)

    def shares_entry(self, other: NameChange) -> bool:
        pairs = itertools.product(self.entries, other.entries)
        return any(a.folder == b.folder and a.name == b.name for a, b in pairs)

    def frees(self) -> bool:
        return any(entry.before is not None for entry in self.entries)

    def numbers(self) -> Iterator[int]:
        for entry in self.entries:
            yield from (n for n in (entry.folder, entry.before, entry.after) if n is not None)

    def apply(self, names: Names) -> Names | None:
        """Return `names` after the change, or None where it could not have been made."""
        if not all(self._possible(names, entry) for entry in self.entries):
            return None
        result = dict(names)
        for entry in self.entries:
            folder = result[entry.folder] = dict(result[entry.folder])
            if entry.after is None:
                del folder[entry.name]
            else:
                folder[entry.name] = entry.after
        return result if self._connected(result) else None

    def _possible(self, names: Names, entry: Entry) -> bool:
        present = names[entry.folder].get(entry.name)
        is_rename = len(self.entries) > 1
        if entry.after is None:
            return present == entry.before and (is_rename or not names.get(present or 0))
        if present is None:
            return True
        return is_rename and _may_replace(names, entry.after, present)

    def _connected(self, names: Names) -> bool:
        """Say whether a rename between folders put its entry where a path leads."""
        source, target = self.entries[0].folder, self.entries[-1].folder
        return source == target or target in reachable(names)


def _may_replace(names: Names, moved: int, present: int) -> bool:
    if moved in names or present in names:
        return moved in names and present in names and not names[present]
    return True


def reachable(names: Names, roots: Iterable[int] = (ROOT,)) -> dict[int, None]:
    """Return the numbers of all inodes at and below `roots`, in a fixed order."""
    found: dict[int, None] = {}
    waiting = list(roots)
    while waiting:
        number = waiting.pop()
        if number not in found:
            found[number] = None
            waiting.extend(names.get(number, {}).values())
    return found


def fingerprint(names: Names, numbers: Iterable[int]) -> tuple[object, ...]:
    return tuple((n, tuple(sorted(names[n].items()))) for n in sorted(numbers) if n in names)


def name_outcomes(
    names: Names, changes: Sequence[NameChange], limit: int | None
) -> list[Names] | None:
    """Return what pending changes may make of the durable `names`; None is too many to sample."""
    touched = {entry.folder for change in changes for entry in change.entries}
    found = {fingerprint(names, touched): names}
    for change in changes:
        for base in list(found.values()):
            if (after := change.apply(base)) is not None:
                found.setdefault(fingerprint(after, touched), after)
        if limit is not None and len(found) > OUTCOMES_MAX:
            return None
    return list(found.values())


def draw_names(names: Names, changes: Sequence[NameChange], rng: random.Random) -> Names:
    chance = rng.choice((0.1, 0.5, 0.9))
    for change in changes:
        if rng.random() < chance:
            names = change.apply(names) or names
    return names
