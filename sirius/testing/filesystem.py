"""A disk in memory that can crash, fill up, rot and misbehave.

Theory of operation
===================

Files and folders are inodes; a folder maps names to inode numbers. Each inode has two states:

- the *visible* one is what a running process sees: every call so far has taken effect;
- the *durable* one is what is on the platter for certain.

Between the two lie the *pending* changes. A write or resize of a file is pending until `File.sync`
of that file. A change of names (create, rename, remove, mkdir, rmdir) is pending until `sync_dir`
of a folder that it touches. Nothing else makes a change durable: syncing a file does not save its
name, as POSIX allows and as no log should rely on, although some file systems are kinder.

What a power loss leaves
------------------------

`crash_states` enumerates it. For every file, any subset of its pending changes reached the disk,
because the system writes pages back when and in which order it likes:

- a lost write in front of one that survived reads as zeroes, for the size came with the latter;
- the last write that survived may be torn: it stops at a sector boundary or in its middle, or
  reads as zeroes from there on (from its very beginning, too: a size saved ahead of its bytes). Of
  a long write only the outermost boundaries are tried.

For names, any subset of the pending changes survived that could have been made in that order: a
file cannot be renamed that was not created, a folder that still holds a name cannot be removed.
A rename is one change even between two folders, so that syncing either folder saves both names.
Where the changes that `sync_dir` saves could not stand alone (a folder emptied by renames, then
removed), all pending changes before them are saved along, as a journal does. A file whose folder
has lost its own name is gone with it.

Two states are the same when paths, bytes and inode numbers are; each is yielded once.

What kill -9 leaves
-------------------

The visible state, with the same changes still pending: the machine went on, only the process is
gone, and with it its locks and handles.

What a failed sync leaves
-------------------------

The writes that it should have saved stay readable, but their pages count as clean and will never
be written: a later sync succeeds without them. Only the size is still to be saved, so on disk they
read as zeroes. `File.forget` drops the pages and shows that truth; the size stays, as it does on
Linux. A failed `sync_dir` leaves the names pending, and a later one may save them.

How it is cheap
---------------

Inodes are copied on write. A copy of the whole disk shares all of them with the original, and
takes a fresh owner's mark, as does the original: whoever writes to an inode that does not bear its
own mark copies that inode first. A crash state therefore costs a few dictionaries.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from errno import (
    EAGAIN,
    EBADF,
    EBUSY,
    EEXIST,
    EINVAL,
    EISDIR,
    ENOENT,
    ENOSPC,
    ENOTDIR,
    ENOTEMPTY,
)
from functools import partial
from typing import Literal, TypeAlias, get_args

from sirius.wal.fs import Buffer, File, Lock, OpenMode

CrashMode = Literal["before", "partial"]
Operation = Literal[
    "open",
    "read",
    "append",
    "truncate",
    "allocate",
    "sync",
    "forget",
    "size",
    "replace",
    "remove",
    "mkdir",
    "rmdir",
    "listdir",
    "exists",
    "isdir",
    "sync_dir",
    "lock",
    "identity",
]

_SECTOR_BYTES = 512
_BOUNDARIES_MAX = 16
_ROOT = 1
# Beyond so many outcomes of one file, or of all names, a limited enumeration draws a sample.
_OUTCOMES_MAX = 4096
_SHARED_BYTES_MAX = 4 << 20


class SimulatedCrash(BaseException):
    """The process died at this call. Not an `Exception`, so that no handler mistakes it for one."""


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Write:
    """Bytes put at an offset."""

    offset: int
    data: bytes

    @property
    def start(self) -> int:
        return self.offset

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    def apply(self, content: bytearray, base: int = 0) -> None:
        """Change `content`, which begins at offset `base` of the file."""
        at = self.offset - base
        content.extend(bytes(max(0, at - len(content))))
        content[at : at + len(self.data)] = self.data

    def tears(self) -> list[tuple[int, bool]]:
        """Return how it may be torn: bytes kept, and whether zeroes follow up to its length."""
        first = (self.offset // _SECTOR_BYTES + 1) * _SECTOR_BYTES
        boundaries = list(range(first - self.offset, len(self.data), _SECTOR_BYTES))
        if len(boundaries) > _BOUNDARIES_MAX:
            half = _BOUNDARIES_MAX // 2
            boundaries = boundaries[:half] + boundaries[-half:]
        cuts = sorted({len(self.data) // 2, *boundaries} - {0})
        return [(0, True), *itertools.product(cuts, (False, True))]

    def torn(self, kept: int, zero_filled: bool) -> _Write:
        tail = bytes(len(self.data) - kept) if zero_filled else b""
        return _Write(self.offset, self.data[:kept] + tail)

    def without_data(self) -> _Resize:
        """Return what is left of it once its pages are lost: the size."""
        return _Resize(self.end, shrinks=False)

    def overwritten(self, offset: int, data: bytes) -> _Write:
        """Return it with its share of a rotten range."""
        content = bytearray(self.data)
        _overlay(content, offset - self.offset, data)
        return _Write(self.offset, bytes(content))

    def cut(self, size: int) -> _Write | None:
        return _Write(self.offset, self.data[: size - self.offset]) if self.offset < size else None


@dataclass(frozen=True, slots=True)
class _Resize:
    """A new size: truncation cuts or grows, allocation only grows."""

    size: int
    shrinks: bool

    @property
    def start(self) -> int:
        return self.size

    def apply(self, content: bytearray, base: int = 0) -> None:
        size = self.size - base
        content.extend(bytes(max(0, size - len(content))))
        if self.shrinks:
            del content[size:]

    def without_data(self) -> _Resize:
        return self

    def cut(self, size: int) -> _Resize:
        return replace(self, size=min(size, self.size))


_FileChange: TypeAlias = _Write | _Resize


def _overlay(content: bytearray, at: int, data: bytes) -> None:
    """Put `data` over `content` at a place that may stick out on either side."""
    first, last = max(at, 0), min(at + len(data), len(content))
    if first < last:
        content[first:last] = data[first - at : last - at]


class _FileNode:
    """A file's two states and what lies between them."""

    __slots__ = ("durable", "owner", "pending", "visible")

    def __init__(self, owner: object, visible: bytearray, durable: bytearray) -> None:
        self.owner = owner
        self.visible = visible
        self.durable = durable
        self.pending: list[_FileChange] = []

    @classmethod
    def settled(cls, content: bytearray) -> _FileNode:
        """Return a node that nobody owns, on disk as it is."""
        return cls(None, content, content)

    def copy(self, owner: object) -> _FileNode:
        node = _FileNode(owner, bytearray(self.visible), bytearray(self.durable))
        node.pending = list(self.pending)
        return node

    def is_settled(self) -> bool:
        return not self.pending and (self.visible is self.durable or self.visible == self.durable)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(memoryview(self.visible)[offset : offset + length])

    def change(self, change: _FileChange) -> None:
        change.apply(self.visible)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()

    def fail_sync(self) -> None:
        self.pending = [change.without_data() for change in self.pending]

    def forget(self) -> None:
        self.visible = bytearray(self.durable)
        for change in self.pending:
            change.apply(self.visible)

    def reset(self, data: bytes) -> None:
        self.visible, self.durable, self.pending = bytearray(data), bytearray(data), []

    def overwrite(self, offset: int, data: bytes) -> None:
        _overlay(self.visible, offset, data)
        _overlay(self.durable, offset, data)
        self.pending = [
            change.overwritten(offset, data) if isinstance(change, _Write) else change
            for change in self.pending
        ]

    def cut(self, size: int) -> None:
        del self.visible[size:]
        del self.durable[size:]
        cut = (change.cut(size) for change in self.pending)
        self.pending = [change for change in cut if change is not None]


class _FileOutcomes:
    """What may be left of one file: a common beginning, and the endings known so far.

    The first ending is "everything survived". The others are known from the start, or where they
    are too many for a sample, as they are drawn.
    """

    def __init__(self, node: _FileNode, limit: int | None) -> None:
        self._pending = node.pending
        self._base = min([len(node.durable), *(change.start for change in node.pending)])
        self._prefix = bytes(node.durable[: self._base])
        self._rest = node.durable[self._base :]
        self._tails: list[bytes] = []
        self._places: dict[bytes, int] = {}
        self._nodes: dict[int, _FileNode] = {}
        self._add(node.pending)
        self.nothing = self._add([])
        self.is_complete = limit is None or _survivors_max(node.pending) <= _OUTCOMES_MAX
        if self.is_complete:
            for survivors in _survivors(node.pending):
                self._add(survivors)

    def __len__(self) -> int:
        return len(self._tails)

    def draw(self, rng: random.Random) -> int:
        if self.is_complete:
            return rng.randrange(len(self))
        return self._add(_draw_survivors(self._pending, rng))

    def node(self, pick: int) -> _FileNode:
        """Return a file with one of the endings, shared by the states that pick it."""
        if pick not in self._nodes:
            if len(self._nodes) * len(self._prefix) > _SHARED_BYTES_MAX:
                self._nodes.clear()
            content = bytearray(self._prefix)
            content += self._tails[pick]
            self._nodes[pick] = _FileNode.settled(content)
        return self._nodes[pick]

    def _add(self, survivors: Iterable[_FileChange]) -> int:
        content = bytearray(self._rest)
        for change in survivors:
            change.apply(content, self._base)
        tail = bytes(content)
        place = self._places.setdefault(tail, len(self._tails))
        if place == len(self._tails):
            self._tails.append(tail)
        return place


def _survivors_max(changes: Sequence[_FileChange]) -> int:
    """Return a bound on how many possibilities `_survivors` yields."""
    tears_max = max((len(change.tears()) for change in _writes(changes)), default=0)
    return int(2 ** len(changes)) * (1 + tears_max)


def _survivors(changes: Sequence[_FileChange]) -> Iterator[list[_FileChange]]:
    """Yield the changes of a file that a crash may leave, in every combination."""
    for kept in itertools.product((True, False), repeat=len(changes)):
        alive = list(itertools.compress(changes, kept))
        yield alive
        for last in _writes(alive)[-1:]:
            for tear in last.tears():
                yield _with_torn(alive, last, tear)


def _draw_survivors(changes: Sequence[_FileChange], rng: random.Random) -> list[_FileChange]:
    chance = rng.choice((0.1, 0.5, 0.9))
    alive = [change for change in changes if rng.random() < chance]
    writes = _writes(alive)
    if not writes or rng.random() < 0.5:
        return alive
    return _with_torn(alive, writes[-1], rng.choice(writes[-1].tears()))


def _writes(changes: Iterable[_FileChange]) -> list[_Write]:
    return [change for change in changes if isinstance(change, _Write)]


def _with_torn(alive: list[_FileChange], last: _Write, tear: tuple[int, bool]) -> list[_FileChange]:
    torn = last.torn(*tear)
    return [torn if change is last else change for change in alive]


# --- names ----------------------------------------------------------------------------------------

# Folder number -> name -> inode number. A file's number is never a key of the outer one.
_Names: TypeAlias = dict[int, dict[str, int]]


class _FolderNode:
    """A folder's two states. What lies between is kept for all folders in one list: see `_Disk`."""

    __slots__ = ("durable", "owner", "visible")

    def __init__(self, owner: object, visible: dict[str, int], durable: dict[str, int]) -> None:
        self.owner = owner
        self.visible = visible
        self.durable = durable

    def copy(self, owner: object) -> _FolderNode:
        return _FolderNode(owner, dict(self.visible), dict(self.durable))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One name's change from one inode number to another; None is no inode."""

    folder: int
    name: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class _NameChange:
    """One entry created or removed, or the two entries of a rename: source, then target."""

    entries: tuple[_Entry, ...]

    def touches(self, folder: int) -> bool:
        return any(entry.folder == folder for entry in self.entries)

    def shares_entry(self, other: _NameChange) -> bool:
        pairs = itertools.product(self.entries, other.entries)
        return any(a.folder == b.folder and a.name == b.name for a, b in pairs)

    def frees(self) -> bool:
        return any(entry.before is not None for entry in self.entries)

    def numbers(self) -> Iterator[int]:
        for entry in self.entries:
            yield from (n for n in (entry.folder, entry.before, entry.after) if n is not None)

    def apply(self, names: _Names) -> _Names | None:
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

    def _possible(self, names: _Names, entry: _Entry) -> bool:
        present = names[entry.folder].get(entry.name)
        is_rename = len(self.entries) > 1
        if entry.after is None:
            return present == entry.before and (is_rename or not names.get(present or 0))
        if present is None:
            return True
        return is_rename and _may_replace(names, entry.after, present)

    def _connected(self, names: _Names) -> bool:
        """Say whether a rename between folders put its entry where a path leads."""
        source, target = self.entries[0].folder, self.entries[-1].folder
        return source == target or target in _reachable(names)


def _may_replace(names: _Names, moved: int, present: int) -> bool:
    if moved in names or present in names:
        return moved in names and present in names and not names[present]
    return True


def _reachable(names: _Names, roots: Iterable[int] = (_ROOT,)) -> dict[int, None]:
    """Return the numbers of all inodes at and below `roots`, in a fixed order."""
    found: dict[int, None] = {}
    waiting = list(roots)
    while waiting:
        number = waiting.pop()
        if number not in found:
            found[number] = None
            waiting.extend(names.get(number, {}).values())
    return found


def _fingerprint(names: _Names, numbers: Iterable[int]) -> tuple[object, ...]:
    return tuple((n, tuple(sorted(names[n].items()))) for n in sorted(numbers) if n in names)


def _name_outcomes(
    names: _Names, changes: Sequence[_NameChange], limit: int | None
) -> list[_Names] | None:
    """Return what pending changes may make of the durable `names`; None is too many to sample."""
    touched = {entry.folder for change in changes for entry in change.entries}
    found = {_fingerprint(names, touched): names}
    for change in changes:
        for base in list(found.values()):
            if (after := change.apply(base)) is not None:
                found.setdefault(_fingerprint(after, touched), after)
        if limit is not None and len(found) > _OUTCOMES_MAX:
            return None
    return list(found.values())


def _draw_names(names: _Names, changes: Sequence[_NameChange], rng: random.Random) -> _Names:
    chance = rng.choice((0.1, 0.5, 0.9))
    for change in changes:
        if rng.random() < chance:
            names = change.apply(names) or names
    return names


# --- the disk -------------------------------------------------------------------------------------

_Slot: TypeAlias = tuple[int, str]


class _Disk:
    """All inodes and the pending changes of names. Knows nothing of faults, handles or threads."""

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.files: dict[int, _FileNode] = {}
        self.folders: dict[int, _FolderNode] = {_ROOT: _FolderNode(None, {}, {})}
        self.changes: list[_NameChange] = []
        self.last_number = _ROOT
        self.open_counts: dict[int, int] = {}
        self._owner = object()

    def copy(self) -> _Disk:
        """Return a disk that shares every inode until either of the two writes to it."""
        self._owner = object()
        disk = _Disk(self.capacity_bytes)
        disk.files = dict(self.files)
        disk.folders = dict(self.folders)
        disk.changes = list(self.changes)
        disk.last_number = self.last_number
        return disk

    def own_file(self, number: int) -> _FileNode:
        """Return a file's node for writing."""
        node = self.files[number]
        if node.owner is not self._owner:
            node = self.files[number] = node.copy(self._owner)
        return node

    def own_folder(self, number: int) -> _FolderNode:
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
            raise _error(EISDIR, path)
        return number

    def find_folder(self, path: str) -> int:
        number = self.find(path)
        if number not in self.folders:
            raise _error(ENOTDIR, path)
        return number

    def find_or_none(self, path: str) -> int | None:
        try:
            return self.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def slot(self, path: str) -> _Slot:
        """Return where the path's name is, or would be."""
        parts = _parts(path)
        if not parts:
            raise _error(EBUSY, path)
        folder = self._descend(parts[:-1], path)
        if folder not in self.folders:
            raise _error(ENOTDIR, path)
        return folder, parts[-1]

    def free_slot(self, path: str) -> _Slot:
        if not _parts(path):
            raise _error(EEXIST, path)
        slot = self.slot(path)
        if self.at(slot) is not None:
            raise _error(EEXIST, path)
        return slot

    def at(self, slot: _Slot) -> int | None:
        folder, name = slot
        return self.folders[folder].visible.get(name)

    def _descend(self, parts: Sequence[str], path: str) -> int:
        number = _ROOT
        for part in parts:
            if number not in self.folders:
                raise _error(ENOTDIR, path)
            below = self.folders[number].visible.get(part)
            if below is None:
                raise _error(ENOENT, path)
            number = below
        return number

    def walk(self, number: int = _ROOT, prefix: str = "") -> Iterator[tuple[str, int]]:
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

    def create_file(self, slot: _Slot) -> int:
        number = self._new_number()
        self.files[number] = _FileNode(self._owner, bytearray(), bytearray())
        self._record(_Entry(*slot, None, number))
        return number

    def create_folder(self, slot: _Slot) -> int:
        number = self._new_number()
        self.folders[number] = _FolderNode(self._owner, {}, {})
        self._record(_Entry(*slot, None, number))
        return number

    def unlink(self, slot: _Slot) -> None:
        self._record(_Entry(*slot, self.at(slot), None))

    def rename(self, source: _Slot, target: _Slot) -> None:
        number = self.at(source)
        self._record(_Entry(*source, number, None), _Entry(*target, self.at(target), number))

    def holds(self, outer: int, inner: int) -> bool:
        """Say whether folder `inner` is `outer` or below it."""
        return inner in _reachable(self.visible_names(), (outer,))

    def _new_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def _record(self, *entries: _Entry) -> None:
        for entry in entries:
            names = self.own_folder(entry.folder).visible
            if entry.after is None:
                del names[entry.name]
            else:
                names[entry.name] = entry.after
        self.changes.append(_NameChange(entries))

    # -- durability of names

    def visible_names(self) -> _Names:
        return {number: folder.visible for number, folder in self.folders.items()}

    def durable_names(self) -> _Names:
        return {number: folder.durable for number, folder in self.folders.items()}

    def sync_folder(self, number: int) -> None:
        self._settle(lambda change: change.touches(number))

    def sync_slot(self, slot: _Slot) -> None:
        marker = _NameChange((_Entry(*slot, None, None),))
        self._settle(marker.shares_entry)

    def _settle(self, wanted: Callable[[_NameChange], bool]) -> None:
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

    def _with_forerunners(self, wanted: Callable[[_NameChange], bool]) -> Sequence[int]:
        chosen: list[int] = []
        for at in reversed(range(len(self.changes))):
            change = self.changes[at]
            if wanted(change) or any(self.changes[c].shares_entry(change) for c in chosen):
                chosen.append(at)
        return chosen[::-1]

    def _settled_names(self, chosen: Sequence[int]) -> _Names | None:
        names: _Names | None = self.durable_names()
        for at in chosen:
            names = names and self.changes[at].apply(names)
        return names

    def _replayed_names(self, chosen: Sequence[int]) -> _Names:
        names = self.durable_names()
        for at in chosen:
            names = self.changes[at].apply(names) or names
        return names

    def _collect(self) -> None:
        """Drop the inodes that no name, pending change or open handle refers to."""
        pending = (number for change in self.changes for number in change.numbers())
        roots = (_ROOT, *self.open_counts, *pending)
        alive = _reachable(self.visible_names(), roots) | _reachable(self.durable_names(), roots)
        self.files = {n: node for n, node in self.files.items() if n in alive}
        self.folders = {n: node for n, node in self.folders.items() if n in alive}


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _error(EINVAL, path)
    return parts


# --- power loss -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Space:
    """One outcome for the names, ready to be shared by many states."""

    folders: dict[int, _FolderNode]
    settled: dict[int, _FileNode]
    dirty: tuple[int, ...]


# Which space, and for each dirty file of it which outcome.
_Pick: TypeAlias = tuple[int, tuple[int, ...]]


class _PowerLoss:
    """Everything that a power loss at one moment can leave of a disk."""

    def __init__(self, disk: _Disk, limit: int | None, rng: random.Random) -> None:
        self._disk = disk
        self._limit = limit
        self._rng = rng
        self._outcomes: dict[int, _FileOutcomes] = {}
        self._spaces: list[_Space] = []
        self._places: dict[tuple[object, ...], int] = {}
        self._durable_names = disk.durable_names()
        self._add_space(disk.visible_names())
        self._nothing_space = self._add_space(self._durable_names)
        outcomes = _name_outcomes(self._durable_names, disk.changes, limit)
        self._has_all_names = outcomes is not None
        for names in outcomes or []:
            self._add_space(names)

    def disks(self) -> Iterator[_Disk]:
        picks = dict.fromkeys((self._everything(), self._nothing()))
        yield from map(self._build, itertools.islice(picks, self._limit))
        if self._limit is None or self._is_small(self._limit):
            yield from (self._build(pick) for pick in self._all() if pick not in picks)
        else:
            yield from map(self._build, self._draw(picks, self._limit))

    def _add_space(self, names: _Names) -> int:
        reachable = _reachable(names)
        key = _fingerprint(names, reachable)
        place = self._places.setdefault(key, len(self._spaces))
        if place == len(self._spaces):
            self._spaces.append(self._space(names, reachable))
        return place

    def _space(self, names: _Names, reachable: Iterable[int]) -> _Space:
        space = _Space({}, {}, tuple(n for n in sorted(reachable) if self._is_dirty(n)))
        for number in reachable:
            if number in names:
                space.folders[number] = _FolderNode(None, names[number], names[number])
            elif number not in self._outcomes:
                space.settled[number] = self._disk.files[number]
        return space

    def _is_dirty(self, number: int) -> bool:
        if number in self._outcomes:
            return True
        node = self._disk.files.get(number)
        if node is None or node.is_settled():
            return False
        self._outcomes[number] = _FileOutcomes(node, self._limit)
        return True

    def _everything(self) -> _Pick:
        return 0, (0,) * len(self._spaces[0].dirty)

    def _nothing(self) -> _Pick:
        outcomes = self._outcomes_in(self._nothing_space)
        return self._nothing_space, tuple(outcome.nothing for outcome in outcomes)

    def _outcomes_in(self, place: int) -> list[_FileOutcomes]:
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
        return self._add_space(_draw_names(self._durable_names, self._disk.changes, self._rng))

    def _build(self, pick: _Pick) -> _Disk:
        at, tails = pick
        space = self._spaces[at]
        disk = _Disk(self._disk.capacity_bytes)
        disk.last_number = self._disk.last_number
        disk.folders = dict(space.folders)
        disk.files = dict(space.settled)
        for number, tail in zip(space.dirty, tails, strict=True):
            disk.files[number] = self._outcomes[number].node(tail)
        return disk


# --- faults ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Failure:
    operation: str
    path_contains: str
    errno: int
    times: int

    def hits(self, operation: str, path: str) -> bool:
        wanted = self.operation == operation and self.path_contains in path
        return wanted and self.times > 0


@dataclass(slots=True)
class _Gate:
    """Every call passes here under the guard: some are numbered, some fail, one may be the last."""

    guard: threading.RLock = field(default_factory=threading.RLock)
    operations: list[tuple[str, str]] = field(default_factory=list)
    failures: list[_Failure] = field(default_factory=list)
    crash_at: int | None = None
    crash_mode: CrashMode = "before"
    crashed: bool = False
    dead: bool = False

    def copy(self) -> _Gate:
        failures = [replace(failure) for failure in self.failures]
        return replace(
            self, guard=threading.RLock(), operations=list(self.operations), failures=failures
        )

    def admit(self, operation: Operation, path: str) -> None:
        """Let a call pass that changes nothing."""
        self._refuse_the_dead(operation, path)
        self._fail(operation, path)

    def admit_change(
        self, operation: Operation, path: str, partly: Callable[[], object] | None = None
    ) -> None:
        """Let a call pass that changes something; `partly` does half of it."""
        self._refuse_the_dead(operation, path)
        self.operations.append((operation, path))
        if len(self.operations) == self.crash_at:
            self.crashed = True
            if partly is not None and self.crash_mode == "partial":
                partly()
            self._refuse_the_dead(operation, path)
        self._fail(operation, path)

    def _refuse_the_dead(self, operation: str, path: str) -> None:
        if self.dead:
            raise _error(EBADF, path)
        if self.crashed:
            raise SimulatedCrash(f"crashed at call {self.crash_at}; {operation} {path!r}")

    def _fail(self, operation: str, path: str) -> None:
        for failure in self.failures:
            if failure.hits(operation, path):
                failure.times -= 1
                raise _error(failure.errno, path)


# --- the public face ------------------------------------------------------------------------------


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    def __init__(self, disk: _Disk, gate: _Gate, number: int, path: str, mode: OpenMode) -> None:
        self._disk = disk
        self._gate = gate
        self._number = number
        self._path = path
        self._writable = mode != "r"
        self._is_open = True
        disk.open_counts[number] = disk.open_counts.get(number, 0) + 1

    def read(self, offset: int, length: int) -> bytes:
        with self._gate.guard:
            self._admit("read")
            self._require(offset >= 0 and length >= 0, EINVAL)
            return self._disk.files[self._number].read(offset, length)

    def append(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        with self._gate.guard:
            self._admit_change("append", lambda: self._write(data[: len(data) // 2]))
            self._require(self._writable, EBADF)
            self._require(self._write(data) == len(data), ENOSPC)

    def sync(self) -> None:
        with self._gate.guard:
            self._require(self._is_open, EBADF)
            try:
                self._admit_change("sync")
            except OSError:
                self._disk.own_file(self._number).fail_sync()
                raise
            self._disk.own_file(self._number).sync()

    def forget(self) -> None:
        with self._gate.guard:
            self._admit("forget")
            self._disk.own_file(self._number).forget()

    def truncate(self, size: int) -> None:
        with self._gate.guard:
            self._admit_change("truncate")
            self._require(self._writable and size >= 0, EINVAL)
            self._disk.own_file(self._number).change(_Resize(size, shrinks=True))

    def allocate(self, size: int) -> None:
        with self._gate.guard:
            self._admit_change("allocate")
            self._require(self._writable, EBADF)
            self._require(size > 0, EINVAL)
            room = self._disk.room_bytes()
            self._require(room is None or size - self._size() <= room, ENOSPC)
            self._disk.own_file(self._number).change(_Resize(size, shrinks=False))

    def size(self) -> int:
        with self._gate.guard:
            self._admit("size")
            return self._size()

    def close(self) -> None:
        with self._gate.guard:
            if self._is_open:
                self._is_open = False
                counts = self._disk.open_counts
                counts[self._number] -= 1
                if not counts[self._number]:
                    del counts[self._number]

    def _size(self) -> int:
        return len(self._disk.files[self._number].visible)

    def _write(self, data: bytes) -> int:
        """Write what there is room for, and return how much that was."""
        fitting = data[: self._disk.room_bytes()]
        if fitting:
            self._disk.own_file(self._number).change(_Write(self._size(), fitting))
        return len(fitting)

    def _admit(self, operation: Operation) -> None:
        self._require(self._is_open, EBADF)
        self._gate.admit(operation, self._path)

    def _admit_change(
        self, operation: Operation, partly: Callable[[], object] | None = None
    ) -> None:
        self._require(self._is_open, EBADF)
        self._gate.admit_change(operation, self._path, partly)

    def _require(self, condition: bool, code: int) -> None:
        if not condition:
            raise _error(code, self._path)


class MemoryLock:
    """A held lock of a `MemoryFileSystem`. It belongs to the inode, as `flock` does."""

    def __init__(self, gate: _Gate, holders: dict[int, MemoryLock], number: int) -> None:
        self._gate = gate
        self._holders = holders
        self._number = number
        holders[number] = self

    def release(self) -> None:
        with self._gate.guard:
            if self._holders.get(self._number) is self:
                del self._holders[self._number]


class MemoryFileSystem:
    """A `FileSystem` in memory, with the means to make it fail. See the module for the theory.

    Paths are separated by "/"; "", "." and "/" all name the root. Every call is atomic to other
    threads.

    The calls that change something (`append`, `truncate`, `allocate`, `sync`, `replace`, `remove`,
    `mkdir`, `rmdir`, `sync_dir` and `open` with "x") are numbered from 1 and listed in `operations`
    as (name, path), a `replace` as "source -> target". `lock` may make its file unnumbered: no
    crash point is lost by that, for a crash just before the next numbered call is the same.

    The methods for tests (`kill`, `crash_states`, `clone`, `tree`, rot and the like) work at any
    time, also after a crash.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        crash_at: int | None = None,
        crash_mode: CrashMode = "before",
    ) -> None:
        self._disk = _Disk(capacity_bytes)
        self._gate = _Gate(crash_mode=crash_mode)
        self._locks: dict[int, MemoryLock] = {}
        self.crash_at = crash_at

    @classmethod
    def _holding(cls, disk: _Disk) -> MemoryFileSystem:
        system = cls()
        system._disk = disk
        return system

    # -- the protocol

    def open(self, path: str, mode: OpenMode) -> File:
        with self._gate.guard:
            if mode == "x":
                self._gate.admit_change("open", path)
                number = self._disk.create_file(self._disk.free_slot(path))
            else:
                self._gate.admit("open", path)
                number = self._disk.find_file(path)
            return MemoryFile(self._disk, self._gate, number, path, mode)

    def replace(self, source: str, target: str) -> None:
        with self._gate.guard:
            self._gate.admit_change("replace", f"{source} -> {target}")
            moved = self._disk.find(source)
            slot_from, slot_to = self._disk.slot(source), self._disk.slot(target)
            if slot_from != slot_to:
                self._check_replace(moved, slot_to, target)
                self._disk.rename(slot_from, slot_to)

    def _check_replace(self, moved: int, slot: _Slot, target: str) -> None:
        present = self._disk.at(slot)
        folders = self._disk.folders
        if moved in folders and self._disk.holds(moved, slot[0]):
            raise _error(EINVAL, target)
        if present is None:
            return
        if (moved in folders) != (present in folders):
            raise _error(EISDIR if present in folders else ENOTDIR, target)
        if present in folders and folders[present].visible:
            raise _error(ENOTEMPTY, target)

    def remove(self, path: str) -> None:
        with self._gate.guard:
            self._gate.admit_change("remove", path)
            self._disk.find_file(path)
            self._disk.unlink(self._disk.slot(path))

    def mkdir(self, path: str) -> None:
        with self._gate.guard:
            self._gate.admit_change("mkdir", path)
            self._disk.create_folder(self._disk.free_slot(path))

    def rmdir(self, path: str) -> None:
        with self._gate.guard:
            self._gate.admit_change("rmdir", path)
            number = self._disk.find_folder(path)
            slot = self._disk.slot(path)
            if self._disk.folders[number].visible:
                raise _error(ENOTEMPTY, path)
            self._disk.unlink(slot)

    def listdir(self, path: str) -> list[str]:
        with self._gate.guard:
            self._gate.admit("listdir", path)
            return sorted(self._disk.folders[self._disk.find_folder(path)].visible)

    def exists(self, path: str) -> bool:
        with self._gate.guard:
            self._gate.admit("exists", path)
            return self._disk.find_or_none(path) is not None

    def isdir(self, path: str) -> bool:
        with self._gate.guard:
            self._gate.admit("isdir", path)
            return self._disk.find_or_none(path) in self._disk.folders

    def sync_dir(self, path: str) -> None:
        with self._gate.guard:
            self._gate.admit_change("sync_dir", path)
            self._disk.sync_folder(self._disk.find_folder(path))

    def lock(self, path: str) -> Lock:
        with self._gate.guard:
            self._gate.admit("lock", path)
            if self._disk.find_or_none(path) is None:
                self._disk.create_file(self._disk.free_slot(path))
            number = self._disk.find_file(path)
            if number in self._locks:
                raise _error(EAGAIN, path)
            return MemoryLock(self._gate, self._locks, number)

    def identity(self, path: str) -> int:
        with self._gate.guard:
            self._gate.admit("identity", path)
            return self._disk.find(path)

    # -- crashing

    @property
    def operations(self) -> list[tuple[str, str]]:
        """The numbered calls so far, the one that crashed included."""
        return list(self._gate.operations)

    @property
    def crash_at(self) -> int | None:
        """The number of the call that crashes; counted from 1, and not to be in the past."""
        return self._gate.crash_at

    @crash_at.setter
    def crash_at(self, number: int | None) -> None:
        done = len(self._gate.operations)
        if number is not None and number <= done:
            raise ValueError(f"crash_at must be above {done}, the calls made so far: {number}")
        self._gate.crash_at = number

    @property
    def crash_mode(self) -> CrashMode:
        """Whether nothing ("before") or, of an append, half ("partial") is done by then."""
        return self._gate.crash_mode

    @crash_mode.setter
    def crash_mode(self, mode: CrashMode) -> None:
        self._gate.crash_mode = mode

    @property
    def crashed(self) -> bool:
        """Whether `crash_at` was reached; every call of the protocol raises from then on."""
        return self._gate.crashed

    def kill(self) -> MemoryFileSystem:
        """Return what kill -9 leaves; this one and its handles are dead from now on.

        Numbering starts anew. Failures that were set and not met are dropped.
        """
        with self._gate.guard:
            self._gate.dead = True
            return self._holding(self._disk.copy())

    def crash_states(
        self, limit: int | None = None, *, seed: int | random.Random = 0
    ) -> Iterator[MemoryFileSystem]:
        """Yield what a power loss at this moment may leave, each state once.

        First comes "everything survived", then "nothing pending survived", then all others; where
        there are more than `limit`, a seeded sample of them. The states are independent of each
        other and of this file system, which goes on unharmed. The work without a limit is
        exponential in the number of pending changes.
        """
        rng = seed if isinstance(seed, random.Random) else random.Random(seed)
        with self._gate.guard:
            disk = self._disk.copy()
        return map(self._holding, _PowerLoss(disk, limit, rng).disks())

    def clone(self) -> MemoryFileSystem:
        """Return an independent copy of everything: pending changes, locks, faults to come.

        The handles and held locks stay with the original; who wants the lock of a clone kills it.
        """
        with self._gate.guard:
            system = self._holding(self._disk.copy())
            system._gate = self._gate.copy()
            system._locks = dict(self._locks)
            return system

    # -- failing

    def fail(self, operation: Operation, path_contains: str, errno: int, times: int = 1) -> None:
        """Make the next `times` calls of an operation fail on paths that contain a string.

        A handle's path is the one that it was opened by. A failing call does nothing, except that
        a failing `sync` loses the writes it should have saved.
        """
        if operation not in get_args(Operation):
            raise ValueError(f"no such operation: {operation!r}")
        with self._gate.guard:
            self._gate.failures.append(_Failure(operation, path_contains, errno, times))

    @property
    def capacity_bytes(self) -> int | None:
        """What all files that have a name may hold together; None is without bound."""
        return self._disk.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int | None) -> None:
        self._disk.capacity_bytes = capacity_bytes

    @property
    def used_bytes(self) -> int:
        """What counts against `capacity_bytes`."""
        with self._gate.guard:
            return self._disk.used_bytes()

    # -- rotting: on the disk and in memory at once, pending or not

    def flip(self, path: str, offset: int, mask: int = 0x01) -> None:
        """Invert the bits of `mask` in one byte."""
        with self._gate.guard:
            byte = self._rotting(path, offset, 1)[0]
            self.overwrite(path, offset, bytes([byte ^ mask]))

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Put `data` over what is there; it must lie within the file."""
        with self._gate.guard:
            self._rotting(path, offset, len(data))
            self._disk.own_file(self._disk.find_file(path)).overwrite(offset, bytes(data))

    def cut(self, path: str, size: int) -> None:
        """Lose the file's end."""
        with self._gate.guard:
            self._rotting(path, size, 0)
            self._disk.own_file(self._disk.find_file(path)).cut(size)

    def zero(self, path: str, offset: int, length: int) -> None:
        """Turn a range into zeroes."""
        self.overwrite(path, offset, bytes(length))

    def swap(self, path: str, offset_a: int, offset_b: int, length: int) -> None:
        """Exchange two ranges that do not overlap, as blocks that were written to wrong places."""
        with self._gate.guard:
            if abs(offset_a - offset_b) < length:
                raise ValueError(f"ranges overlap: {offset_a}, {offset_b}, {length} bytes each")
            a, b = (self._rotting(path, at, length) for at in (offset_a, offset_b))
            self.overwrite(path, offset_a, b)
            self.overwrite(path, offset_b, a)

    def _rotting(self, path: str, offset: int, length: int) -> bytes:
        """Return the range's bytes; rot outside the file would be a test that tests nothing."""
        content = self.read_bytes(path)
        if offset < 0 or length < 0 or offset + length > len(content):
            raise ValueError(f"{path}: {offset}+{length} is outside its {len(content)} bytes")
        return content[offset : offset + length]

    # -- looking, and setting the scene

    def read_bytes(self, path: str) -> bytes:
        """Return a file's visible content."""
        with self._gate.guard:
            return bytes(self._disk.files[self._disk.find_file(path)].visible)

    def write_bytes(self, path: str, data: bytes) -> None:
        """Give a file, made if need be, a content that is on disk as if it had always been."""
        with self._gate.guard:
            number = self._disk.find_or_none(path)
            if number is None:
                number = self._disk.create_file(self._disk.free_slot(path))
            self._disk.own_file(self._disk.find_file(path)).reset(data)
            self._disk.sync_slot(self._disk.slot(path))

    def copy_tree(self, source: str, target: str) -> None:
        """Copy a file or folder to a new name, on disk at once; the copies are new inodes."""
        with self._gate.guard:
            slot = self._disk.free_slot(target)
            number = self._disk.find(source)
            if number not in self._disk.folders:
                self.write_bytes(target, self.read_bytes(source))
                return
            names = sorted(self._disk.folders[number].visible)
            self._disk.create_folder(slot)
            self._disk.sync_slot(slot)
            for name in names:
                self.copy_tree(f"{source}/{name}", f"{target}/{name}")

    def tree(self) -> dict[str, bytes]:
        """Return the visible content of every file by its path from the root."""
        with self._gate.guard:
            return {path: bytes(self._disk.files[n].visible) for path, n in self._disk.walk()}
