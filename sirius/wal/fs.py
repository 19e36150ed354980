"""The one seam between the log and the disk.

Everything that the log asks of a disk goes through `FileSystem` and `File`. `OsFileSystem` is the real one;
`sirius.testing.MemoryFileSystem` is one that can crash, fill up and rot, and both pass the same conformance suite.

What the log relies on, and no more:

- `File.append` makes bytes visible to every reader at once, durable only after `File.sync`;
- `FileSystem.replace` is atomic, durable only after `FileSystem.sync_dir` of the folder;
- the same holds for a name that was created or removed.

Failures are plain `OSError`s with their `errno`; the layer above turns them into errors of ours.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from typing import Literal, Protocol

Buffer = bytes | bytearray | memoryview
OpenMode = Literal["r", "a", "x"]

_IOV_MAX = 512
_FLAGS: dict[OpenMode, int] = {
    "r": os.O_RDONLY,
    "a": os.O_RDWR | os.O_APPEND,
    "x": os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL,
}


class File(Protocol):
    """An open file. Reads may come from any thread; one thread at a time writes."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all of `buffers` at the end of the file, as one piece where the system allows."""
        ...

    def sync(self) -> None:
        """Return once the file's bytes and size are on disk."""
        ...

    def forget(self) -> None:
        """Drop cached pages, so that the next read shows what the disk holds. Best effort."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def allocate(self, size: int) -> None:
        """Reserve disk room so that the file is at least `size` bytes long."""
        ...

    def size(self) -> int:
        """Return the file's present size."""
        ...

    def close(self) -> None:
        """Release the file. Closing twice is harmless."""
        ...


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Give the lock back. Releasing twice is harmless."""
        ...


class FileSystem(Protocol):
    """The calls that the log makes about names."""

    def open(self, path: str, mode: OpenMode) -> File:
        """Open for reading ("r"), for appending ("a": must exist), or as a new file ("x")."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Rename `source` to `target`, atomically; a file at `target` is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def mkdir(self, path: str) -> None:
        """Create a folder whose parent exists."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Say whether a file or folder of that name is there."""
        ...

    def isdir(self, path: str) -> bool:
        """Say whether a folder of that name is there."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return once the names in a folder are on disk."""
        ...

    def lock(self, path: str) -> Lock:
        """Take the exclusive lock of a file, made if need be. Raise BlockingIOError if it is held."""
        ...

    def identity(self, path: str) -> int:
        """Return a number that a copy of the file or folder would not share (the inode)."""
        ...


class OsFile:
    """A file descriptor with positioned reads and appended writes."""

    _fd = -1

    def __init__(self, path: str, flags: int) -> None:
        self._fd = -1
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length and (data := os.pread(self._fd, length - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def append(self, buffers: Sequence[Buffer]) -> None:
        for at in range(0, len(buffers), _IOV_MAX):
            self._write_all(buffers[at : at + _IOV_MAX])

    def _write_all(self, buffers: Sequence[Buffer]) -> None:
        wanted = sum(memoryview(buffer).nbytes for buffer in buffers)
        written = os.writev(self._fd, buffers)
        if written < wanted:
            rest = memoryview(b"".join(buffers))[written:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def sync(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        os.fdatasync(self._fd)

    def forget(self) -> None:
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # A reader that is dropped half-way must not leak its descriptor.
        self.close()


class OsLock:
    """A lock by `flock`: unlike `lockf` it also holds between two openers in one process."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            self._fd = -1
            raise

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # Closing alone would leave it to whoever was forked meanwhile.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


class OsFileSystem:
    """The operating system's files."""

    def open(self, path: str, mode: OpenMode) -> File:
        return OsFile(path, _FLAGS[mode])

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def isdir(self, path: str) -> bool:
        return os.path.isdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        return OsLock(path)

    def identity(self, path: str) -> int:
        return os.stat(path).st_ino


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a folder and all below it; what is gone already is fine."""
    try:
        if not fs.isdir(path):
            fs.remove(path)
            return
        for name in fs.listdir(path):
            remove_tree(fs, f"{path}/{name}")
        fs.rmdir(path)
    except FileNotFoundError:
        return


def is_full(error: OSError) -> bool:
    """Say whether a failure means that there is no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
