"""Memory in Spark's Python workers, which take in and give out some MiB at a time, again and again."""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Final

_DAEMON: Final = "pyspark.daemon"
_KEPT_BYTES: Final = 31 << 20


def keep_memory() -> None:
    """Have memory that is freed kept for what comes next: new memory costs more than what is done in it.

    The C library returns pieces to the system at once unless it has seen one as large being freed, up to 32 MiB.
    """
    bytearray(_KEPT_BYTES)


def spare_collections() -> None:
    """Have Spark's worker, if this is one, leave out of its garbage collections what it has loaded by now.

    Spark's daemon collects all garbage after every task and every step of planning. Some sixty thousand objects,
    modules and what is in them, are looked at each time and never freed, which takes as long as reading some hundred
    thousand records. In a process that is not a worker nothing is done.
    """
    if in_worker():
        _freeze()


def in_worker() -> bool:
    """Say whether this process was forked by Spark's daemon."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON


@cache
def _freeze() -> None:
    # Once a process: what a later query leaves behind is to be freed.
    gc.collect()
    gc.freeze()
