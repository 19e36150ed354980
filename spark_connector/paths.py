"""Paths as users of Spark write them."""

from __future__ import annotations

import os
from typing import Final

from sirius.errors import UsageError

_SCHEME: Final = "file:"


def local_path(path: str) -> str:
    """Return a path as the operating system knows it, from the root on."""
    if path.startswith(_SCHEME):
        path = path.removeprefix(_SCHEME)
        path = "/" + path.lstrip("/") if path.startswith("//") else path
    elif "://" in path:
        raise UsageError(
            f"{path}: a log is a folder of a file system that every machine of the cluster sees, "
            f"as in /mnt/logs/films; {path.split('://')[0]} is none"
        )
    return os.path.abspath(path)
