"""Room kept aside on the disk, so that compaction can still work when the disk is full."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sirius.wal.fs import FileSystem

_log = logging.getLogger("sirius.wal")


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
    def lent(self, wanted: bool) -> Iterator[None]:
        """Give the room away for a while, if wanted, and take it back as far as the disk allows."""
        if wanted and self._fs.exists(self._path):
            self._fs.remove(self._path)
        try:
            yield
        finally:
            if wanted:
                self._take()
