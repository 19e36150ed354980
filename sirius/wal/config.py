"""Settings of a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sirius.errors import UsageError
from sirius.wal.record import Limits


class Durability(StrEnum):
    """When an appended block counts as written.

    ========  ==========================================  =======================================
    mode      an append is done when                      what may be lost
    ========  ==========================================  =======================================
    fsync     it is on disk                               nothing
    os        the operating system has it                 the last seconds, if the machine loses power;
                                                          nothing if only the process dies
    memory    it is in memory                             the last moments, if the process dies
    ========  ==========================================  =======================================
    """

    FSYNC = "fsync"
    OS = "os"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of a log. The defaults are meant to be right."""

    durability: Durability = Durability.FSYNC
    segment_bytes_max: int = 128 * 1024 * 1024
    segment_records_max: int = 1_000_000
    pending_bytes_max: int = 64 * 1024 * 1024
    """Appends wait when more than this is waiting for the disk."""
    retire_after_s: float = 600.0
    """How long a segment that compaction replaced stays for readers of older manifests."""
    reserve_bytes: int = 32 * 1024 * 1024
    """Room kept on the disk so that compaction can still work when the disk is full."""
    linger_s: float = 0.0
    """How long appended blocks wait for more before they are written in the background, unless somebody flushes. A node
    whose journal has them on disk already saves syncs by it."""
    background: bool = True
    """Sync in a thread of its own. Without it `flush` does the work in the caller's thread."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("segment_bytes_max", "segment_records_max", "pending_bytes_max"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
