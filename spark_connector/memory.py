"""Memory in Spark's Python workers, which take in and give out some MiB at a time, again and again."""

from __future__ import annotations

from typing import Final

_KEPT_BYTES: Final = 31 << 20


def keep_memory() -> None:
    """Have memory that is freed kept for what comes next: new memory costs more than what is done in it.

    The C library returns pieces to the system at once unless it has seen one as large being freed, up to 32 MiB.
    """
    bytearray(_KEPT_BYTES)
