"""A full disk: how it is named, and the room kept aside so that compaction can still work."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sirius.errors import DiskFull
from sirius.wal.fs import FileSystem, is_full

_log = logging.getLogger("sirius.wal")


@contextmanager
def naming_full(what: str) -> Iterator[None]:
    """Let a full disk be known as `DiskFull`, in the words of whoever wanted the room."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise DiskFull(what) from error
        raise


class Reserve:
    """A file of a given size whose only use is that it can be given back."""

    def __init__(self, fs: FileSystem, path: str, size: int) -> None:
        self._fs = fs
        self._path = path
        self._size = size
        self._take()

    def _take(self) -> None:
        try:
            self._grow()
        except OSError as error:
            _log.warning("%s: no room for a reserve of %d bytes: %s", self._path, self._size, error)

    def _grow(self) -> None:
        if not self._size:
            return
        file = self._fs.open(self._path, "a" if self._fs.exists(self._path) else "x")
        try:
            if file.size() < self._size:
                file.allocate(self._size)
        finally:
            file.close()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Give the room away for a while, and take it back as far as the disk allows."""
        if self._fs.exists(self._path):
            self._fs.remove(self._path)
        try:
            yield
        finally:
            self._take()
