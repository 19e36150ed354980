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

import random
from collections.abc import Callable, Iterator, Sequence
from errno import (
    EAGAIN,
    EBADF,
    EINVAL,
    EISDIR,
    ENOSPC,
    ENOTDIR,
    ENOTEMPTY,
)
from typing import get_args

from sirius.testing._disk import Disk, Slot
from sirius.testing._gate import CrashMode, Failure, Gate, Operation
from sirius.testing._inodes import Resize, Write, error
from sirius.testing._power_loss import PowerLoss
from sirius.wal.fs import Buffer, File, Lock, OpenMode


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    def __init__(self, disk: Disk, gate: Gate, number: int, path: str, mode: OpenMode) -> None:
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
            self._disk.own_file(self._number).change(Resize(size, shrinks=True))

    def allocate(self, size: int) -> None:
        with self._gate.guard:
            self._admit_change("allocate")
            self._require(self._writable, EBADF)
            self._require(size > 0, EINVAL)
            room = self._disk.room_bytes()
            self._require(room is None or size - self._size() <= room, ENOSPC)
            self._disk.own_file(self._number).change(Resize(size, shrinks=False))

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
            self._disk.own_file(self._number).change(Write(self._size(), fitting))
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
            raise error(code, self._path)


class MemoryLock:
    """A held lock of a `MemoryFileSystem`. It belongs to the inode, as `flock` does."""

    def __init__(self, gate: Gate, holders: dict[int, MemoryLock], number: int) -> None:
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
        self._disk = Disk(capacity_bytes)
        self._gate = Gate(crash_mode=crash_mode)
        self._locks: dict[int, MemoryLock] = {}
        self.crash_at = crash_at

    @classmethod
    def _holding(cls, disk: Disk) -> MemoryFileSystem:
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

    def _check_replace(self, moved: int, slot: Slot, target: str) -> None:
        present = self._disk.at(slot)
        folders = self._disk.folders
        if moved in folders and self._disk.holds(moved, slot[0]):
            raise error(EINVAL, target)
        if present is None:
            return
        if (moved in folders) != (present in folders):
            raise error(EISDIR if present in folders else ENOTDIR, target)
        if present in folders and folders[present].visible:
            raise error(ENOTEMPTY, target)

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
                raise error(ENOTEMPTY, path)
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
                raise error(EAGAIN, path)
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
        return map(self._holding, PowerLoss(disk, limit, rng).disks())

    def synced(self) -> MemoryFileSystem:
        """Return what is left if nothing pending survived: the second of `crash_states`, without the work for them."""
        with self._gate.guard:
            return self._holding(self._disk.synced())

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
            self._gate.failures.append(Failure(operation, path_contains, errno, times))

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
