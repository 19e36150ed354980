"""Logs to read from: `sirius.wal.sources`, and what only an operator asks of a log's files."""

from __future__ import annotations

import fcntl
import os

from sirius.wal.sources import (
    AncestorSource,
    SingleSource,
    SiriusSource,
    Source,
    kind_of,
    open_source,
)
from sirius.wal.store import LOCK

__all__ = [
    "AncestorSource",
    "SingleSource",
    "SiriusSource",
    "Source",
    "file_size",
    "is_live",
    "kind_of",
    "open_source",
]


def is_live(path: str) -> bool:
    """Say whether a process has the log open for writing.

    The shared lock is held for an instant only, but a writer that starts in that instant is refused.
    """
    try:
        fd = os.open(f"{path}/{LOCK}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def file_size(path: str) -> int:
    """Return a file's size; one that is not there takes no room."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
