"""Disks in memory with something on them, and how they are compared. Not a test itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from sirius.testing import MemoryFileSystem
from sirius.wal.fs import FileSystem

Tree = dict[str, bytes]


def with_files(**files: bytes) -> MemoryFileSystem:
    """A disk with these files on it, nothing pending."""
    fs = MemoryFileSystem()
    for name, data in files.items():
        fs.write_bytes(name, data)
    return fs


def create(fs: FileSystem, path: str, data: bytes) -> None:
    """Make a file whose bytes are on disk and whose name is not."""
    file = fs.open(path, "x")
    file.append([data])
    file.sync()
    file.close()


def append(fs: FileSystem, path: str, *pieces: bytes) -> None:
    """Write without syncing."""
    file = fs.open(path, "a")
    for piece in pieces:
        file.append([piece])
    file.close()


def trees(fs: MemoryFileSystem) -> list[Tree]:
    return [state.tree() for state in fs.crash_states()]


def endings(fs: MemoryFileSystem, path: str) -> list[bytes]:
    """What each crash leaves of one file."""
    return [tree[path] for tree in trees(fs)]


def assert_same(found: Iterable[object], expected: Iterable[object]) -> None:
    """Compare in any order, but count repetitions."""
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def failing(use: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the caller checks the errno
        use()
    return caught.value.errno
