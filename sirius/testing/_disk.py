"""The disk in memory: inodes by number, names by folder, copied on write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from errno import (
    EBUSY,
    EEXIST,
    EINVAL,
    EISDIR,
    ENOENT,
    ENOTDIR,
)
from typing import TypeAlias

from sirius.testing._inodes import FileNode, error
from sirius.testing._names import ROOT, Entry, FolderNode, NameChange, Names, reachable

Slot: TypeAlias = tuple[int, str]


class Disk:
    """All inodes and the pending changes of names. Knows nothing of faults, handles or threads."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.files: dict[int, FileNode] = {}
        self.folders: dict[int, FolderNode] = {ROOT: FolderNode(None, {}, {})}
        self.changes: list[NameChange] = []
        self.last_number = ROOT
        self.open_counts: dict[int, int] = {}
        self._owner = object()

    def copy(self) -> Disk:
        """Return a disk that shares every inode until either of the two writes to it."""
        self._owner = object()
        disk = Disk(self.capacity_bytes)
        disk.files = dict(self.files)
        disk.folders = dict(self.folders)
        disk.changes = list(self.changes)
        disk.last_number = self.last_number
        return disk

    def own_file(self, number: int) -> FileNode:
        """Return a file's node for writing."""
        node = self.files[number]
        if node.owner is not self._owner:
            node = self.files[number] = node.copy(self._owner)
        return node

    def own_folder(self, number: int) -> FolderNode:
        node = self.folders[number]
        if node.owner is not self._owner:
            node = self.folders[number] = node.copy(self._owner)
        return node

    # -- paths

    def find(self, path: str) -> int:
        """Return the inode number of a path."""
        return self._descend(_parts(path), path)

    def find_file(self, path: str) -> int:
        number = self.find(path)
        if number in self.folders:
            raise error(EISDIR, path)
        return number

    def find_folder(self, path: str) -> int:
        number = self.find(path)
        if number not in self.folders:
            raise error(ENOTDIR, path)
        return number

    def find_or_none(self, path: str) -> int | None:
        try:
            return self.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def slot(self, path: str) -> Slot:
        """Return where the path's name is, or would be."""
        parts = _parts(path)
        if not parts:
            raise error(EBUSY, path)
        folder = self._descend(parts[:-1], path)
        if folder not in self.folders:
            raise error(ENOTDIR, path)
        return folder, parts[-1]

    def free_slot(self, path: str) -> Slot:
        if not _parts(path):
            raise error(EEXIST, path)
        slot = self.slot(path)
        if self.at(slot) is not None:
            raise error(EEXIST, path)
        return slot

    def at(self, slot: Slot) -> int | None:
        folder, name = slot
        return self.folders[folder].visible.get(name)

    def _descend(self, parts: Sequence[str], path: str) -> int:
        number = ROOT
        for part in parts:
            if number not in self.folders:
                raise error(ENOTDIR, path)
            below = self.folders[number].visible.get(part)
            if below is None:
                raise error(ENOENT, path)
            number = below
        return number

    def walk(self, number: int = ROOT, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield path and number of every file below a folder, in order."""
        for name, below in sorted(self.folders[number].visible.items()):
            if below in self.folders:
                yield from self.walk(below, f"{prefix}{name}/")
            else:
                yield prefix + name, below

    # -- room

    def used_bytes(self) -> int:
        return sum(len(self.files[number].visible) for _, number in self.walk())

    def room_bytes(self) -> int | None:
        """Return what may still be written, or None for any amount."""
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - self.used_bytes())

    # -- changes of names

    def create_file(self, slot: Slot) -> int:
        number = self._new_number()
        self.files[number] = FileNode(self._owner, bytearray(), bytearray())
        self._record(Entry(*slot, None, number))
        return number

    def create_folder(self, slot: Slot) -> int:
        number = self._new_number()
        self.folders[number] = FolderNode(self._owner, {}, {})
        self._record(Entry(*slot, None, number))
        return number

    def unlink(self, slot: Slot) -> None:
        self._record(Entry(*slot, self.at(slot), None))

    def rename(self, source: Slot, target: Slot) -> None:
        number = self.at(source)
        self._record(Entry(*source, number, None), Entry(*target, self.at(target), number))

    def holds(self, outer: int, inner: int) -> bool:
        """Say whether folder `inner` is `outer` or below it."""
        return inner in reachable(self.visible_names(), (outer,))

    def _new_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def _record(self, *entries: Entry) -> None:
        for entry in entries:
            names = self.own_folder(entry.folder).visible
            if entry.after is None:
                del names[entry.name]
            else:
                names[entry.name] = entry.after
        self.changes.append(NameChange(entries))

    # -- durability of names

    def visible_names(self) -> Names:
        return {number: folder.visible for number, folder in self.folders.items()}

    def durable_names(self) -> Names:
        return {number: folder.durable for number, folder in self.folders.items()}

    def synced(self) -> Disk:
        """Return a disk that holds what is durable here, and nothing else."""
        names = self.durable_names()
        disk = Disk(self.capacity_bytes)
        disk.last_number = self.last_number
        for number in reachable(names):
            if number in names:
                disk.folders[number] = FolderNode(None, names[number], names[number])
            else:
                disk.files[number] = FileNode.settled(bytearray(self.files[number].durable))
        return disk

    def sync_folder(self, number: int) -> None:
        self._settle(lambda change: change.touches(number))

    def sync_slot(self, slot: Slot) -> None:
        marker = NameChange((Entry(*slot, None, None),))
        self._settle(marker.shares_entry)

    def _settle(self, wanted: Callable[[NameChange], bool]) -> None:
        """Make the wanted changes durable, with the earlier ones that they build upon."""
        chosen = self._with_forerunners(wanted)
        names = self._settled_names(chosen)
        if names is None:
            chosen = range(max(chosen) + 1)
            names = self._replayed_names(chosen)
        for number, durable in names.items():
            if durable is not self.folders[number].durable:
                self.own_folder(number).durable = durable
        freed = any(self.changes[at].frees() for at in chosen)
        self.changes = [c for at, c in enumerate(self.changes) if at not in chosen]
        if freed:
            self._collect()

    def _with_forerunners(self, wanted: Callable[[NameChange], bool]) -> Sequence[int]:
        chosen: list[int] = []
        for at in reversed(range(len(self.changes))):
            change = self.changes[at]
            if wanted(change) or any(self.changes[c].shares_entry(change) for c in chosen):
                chosen.append(at)
        return chosen[::-1]

    def _settled_names(self, chosen: Sequence[int]) -> Names | None:
        names: Names | None = self.durable_names()
        for at in chosen:
            names = names and self.changes[at].apply(names)
        return names

    def _replayed_names(self, chosen: Sequence[int]) -> Names:
        names = self.durable_names()
        for at in chosen:
            names = self.changes[at].apply(names) or names
        return names

    def _collect(self) -> None:
        """Drop the inodes that no name, pending change or open handle refers to."""
        pending = (number for change in self.changes for number in change.numbers())
        roots = (ROOT, *self.open_counts, *pending)
        alive = reachable(self.visible_names(), roots) | reachable(self.durable_names(), roots)
        self.files = {n: node for n, node in self.files.items() if n in alive}
        self.folders = {n: node for n, node in self.folders.items() if n in alive}


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise error(EINVAL, path)
    return parts
