"""The settings of catch-up. Times are seconds of a monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sirius.errors import UsageError

_PAIRS = (
    ("window_slots_min", "window_slots_max"),
    ("window_bytes_min", "window_bytes_max"),
    ("retry_s", "backoff_s_max"),
    ("keepalive_s", "stream_timeout_s"),
    ("here_s", "region_timeout_s"),
)
"""The first of each must be above 0, and the second not below it."""


@dataclass(frozen=True, slots=True)
class CatchupConfig:
    """Everything has a bound, and every bound has its name here."""

    interval_s: float = 1.0
    """How often a round of pulling begins. Each wait is drawn between half of this and one and a half times this."""
    gap_patience_s: float = 0.05
    """How long a slot that others know may be missing before a round begins early."""
    request_timeout_s: float = 2.0
    """When a request that was not answered is given up. An answer in half the time is a prompt one."""
    retry_s: float = 0.2
    """The wait after a first failure; it doubles with each further one."""
    backoff_s_max: float = 10.0
    shun_s: float = 5.0
    """How long a source that could not help is passed over while there are others."""
    prefer: Literal["random", "nearest"] = "random"
    """Which source a round begins with: any, as in the paper, or one of the nearest. With "nearest" a stream is left
    for one from nearer by, once that answers."""
    attempts_max: int = 4
    """How often a source that cannot be replaced by another (a resync, a file) is asked in vain."""

    window_slots_min: int = 256
    """How many slots are asked for at first. Doubles with each full and prompt answer, halves with each loss."""
    window_slots_max: int = 65536
    window_bytes_min: int = 64 * 1024
    window_bytes_max: int = 8 * 1024 * 1024

    segment_slots: int = 50_000
    """Who is further behind than this asks for segments as files; 0: never."""
    segments_max: int = 64
    """How many segments are offered at a time."""
    files_max: int = 8
    """To how many nodes a source sends files at a time. Others are told to come back."""

    range_slots_max: int = 65536
    """How much a source puts into one answer, however much was asked for. One value always fits."""
    range_bytes_max: int = 8 * 1024 * 1024
    reads_max: int = 8
    """How many reads a source has under way. Who comes then is told to come back in `busy_retry_s`."""
    busy_retry_s: float = 0.2
    cache_slots_max: int = 65536
    """How much of the newest a source keeps in memory, so that it need not read."""
    cache_bytes_max: int = 16 * 1024 * 1024

    subscribers_max: int = 256
    push_slots_max: int = 65536
    """How much may be pushed to a subscriber that it has not confirmed. Beyond that it has to pull."""
    push_bytes_max: int = 8 * 1024 * 1024
    keepalive_s: float = 0.5
    stream_timeout_s: float = 2.0
    """How long either end of a stream may be silent."""

    followers_max: int = 4096
    follower_timeout_s: float = 3600.0
    """How long deletes are kept for a follower that is not heard of any more."""
    hops_max: int = 8
    """How many nodes a chain of followers has at most, the primary included."""

    path_timeout_s: float = 10.0
    """How long a node counts as a follower of one of which it hears nothing."""

    here_s: float = 1.0
    """How often nodes of one region tell each other how far they are."""
    region_timeout_s: float = 3.0
    """How long a node of the region may be silent before others count it out."""
    region_patience_s: float = 5.0
    """How long nothing may come although there is more, before a node looks elsewhere."""
    region_nodes_max: int = 1024
    resync_patience_s: float = 10.0
    """How long a node that is below the tombstone floor of one source waits for another that has the deletes, and for
    how long it does not try again to take the whole log from a source with which that has failed."""

    def __post_init__(self) -> None:
        for low, high in _PAIRS:
            if not 0 < getattr(self, low) <= getattr(self, high):
                raise UsageError(
                    f"{low} = {getattr(self, low)} must be above 0 and at most "
                    f"{high} = {getattr(self, high)}"
                )
        for name in self.__slots__:
            value = getattr(self, name)
            least = 0 if name in ("segment_slots", "gap_patience_s") else 1e-9
            if isinstance(value, int | float) and value < least:
                raise UsageError(f"{name} = {value} is too small")
