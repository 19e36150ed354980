"""The settings of a `NearCache`, checked, and what it counts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sirius.errors import UsageError


class OnStale(StrEnum):
    """What a cache does when its stream has not vouched for it for longer than `max_staleness_s`.

    ======  ====================================================================================
    serve   goes on as if nothing had happened
    bypass  asks the loader for every read; entries stay, and count again when the stream is back
    flush   drops everything, asks the loader for every read and keeps nothing until then
    ======  ====================================================================================
    """

    SERVE = "serve"
    BYPASS = "bypass"
    FLUSH = "flush"


def size_of(value: Any) -> int:
    """How many bytes a value takes: the length of bytes and texts; of other things only the outermost object's."""
    return len(value) if isinstance(value, bytes | str) else sys.getsizeof(value)


@dataclass(frozen=True, slots=True)
class Settings:
    """See `NearCache`."""

    max_entries: int = 10_000
    max_bytes: int | None = None
    ttl_s: float | None = None
    negative_ttl_s: float | None = None
    max_staleness_s: float | None = None
    on_stale: OnStale = OnStale.BYPASS
    size_of: Callable[[Any], int] = size_of

    def __post_init__(self) -> None:
        for name in ("max_entries", "max_bytes"):
            _check_whole(name, getattr(self, name), name != "max_entries")
        for name in ("ttl_s", "negative_ttl_s", "max_staleness_s"):
            _check_time(name, getattr(self, name))

    @property
    def is_timed(self) -> bool:
        """Whether a hit depends on the time."""
        return (self.ttl_s, self.negative_ttl_s, self.stale_after_s) != (None, None, None)

    @property
    def stale_after_s(self) -> float | None:
        """After how long without a word entries do not count any more; None: they always do."""
        return None if self.on_stale == OnStale.SERVE else self.max_staleness_s


def _check_whole(name: str, value: Any, may_be_none: bool) -> None:
    if value is None and may_be_none:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise UsageError(f"{name} is a whole number above 0, not {value!r}")


def _check_time(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise UsageError(f"{name} is a number of seconds above 0, not {value!r}")


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a cache has done since it was made; `entries` and `bytes` are of now."""

    name: str
    entries: int = 0
    bytes: int = 0
    """Of keys and values, if `max_bytes` is set; else 0."""
    hits: int = 0
    misses: int = 0
    loads: int = 0
    """Loads that were begun. Readers who waited for somebody else's load count as misses alone."""
    load_errors: int = 0
    load_s: float = 0.0
    """How long all loads took together."""
    invalidations: int = 0
    """Keys that were invalidated, cached or not."""
    dropped: int = 0
    """Entries that were dropped by an invalidation, a gap or `clear`."""
    gaps: int = 0
    """How often the stream could not go on where it was, and everything was dropped."""
    evictions: int = 0
    bypasses: int = 0
    """Misses because the stream was cut for too long."""
    stale_fills_refused: int = 0
    """Loads that were overtaken by an invalidation of their key, so that nothing was kept of them."""

    @property
    def hit_rate(self) -> float:
        """Hits as a part of all reads; 0 if there was none."""
        reads = self.hits + self.misses
        return self.hits / reads if reads else 0.0
