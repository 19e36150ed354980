"""Faults are data: what goes wrong, when, where and for how long.

A schedule is a list of them, drawn from a seed before the run begins. Each brings its own end along, so any of them can
be left out and the rest still makes sense: that is what the minimiser does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What can go wrong. Where a fault says no other, it is about the node `where`."""

    ISOLATE = "isolate"
    """Cut one node off from all others; its clock may run slow meanwhile, and the others' fast."""
    SPLIT = "split"
    """Cut some of the nodes, `names`, off from the rest."""
    ONE_WAY = "one-way"
    """What the node says is not heard; it hears everything."""
    DEAF = "deaf"
    """The node hears nothing; what it says is heard."""
    SWIZZLE = "swizzle"
    """Cut the node's links one by one, and heal them one by one in another order."""
    DROP = "drop"
    """Lose this share of all messages."""
    DUPLICATE = "duplicate"
    """Deliver this share of all messages twice."""
    DELAY = "delay"
    """Make messages take this much longer, on average: they overtake each other."""
    KILL = "kill"
    """kill -9, at the n-th call to the disk from now on, or at once. What was written stays."""
    POWER_LOSS = "power-loss"
    """Likewise, but any part of what was not synced is lost."""
    RESTART = "restart"
    """Stop the node in order, and start it again."""
    ROLLING_RESTART = "rolling-restart"
    """Restart all voters, one after the other."""
    PAUSE = "pause"
    """SIGSTOP: nothing happens, then everything at once."""
    CLOCK_SPEED = "clock-speed"
    """The clock runs faster or slower, by this share."""
    CLOCK_JUMP = "clock-jump"
    """The time of day jumps by so many seconds."""
    SLOW_DISK = "slow-disk"
    """A sync takes this long."""
    HUNG_DISK = "hung-disk"
    """No sync returns."""
    SYNC_ERROR = "sync-error"
    """A sync of the journal or of the log fails."""
    FULL_DISK = "full-disk"
    """There is hardly any room left."""
    CORRUPT_JOURNAL = "corrupt-journal"
    """Kill the node, and flip a bit in its journal while it is down."""
    CORRUPT_LOG = "corrupt-log"
    """Kill the node, and flip a bit in its log while it is down."""
    LOST_DISK = "lost-disk"
    """The node comes back with an empty disk."""
    HAND_OVER = "hand-over"
    """The leader is asked to hand over."""
    WISH = "wish"
    """The member file changes to `names` on all nodes, not at the same moment."""
    PASSIVE = "passive"
    """The member file of one node is emptied for a while."""
    COMPACT = "compact"
    """Compact the node's log, or everybody's; kill it in the middle of that if a call to the disk is named."""
    SLOW_HANDLER = "slow-handler"
    """Whoever applies what was decided takes long over it."""
    BAD_FILES = "bad-files"
    """Files that the node gives to others have a flipped bit, or this share of them cannot be read."""
    BURST = "burst"
    """Clients ask for so many times as much."""


LEADER: Final = "leader"
"""In place of a name: whoever leads when the fault comes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    at: float
    kind: Kind
    where: str = ""
    for_s: float = 0.0
    amount: float = 0.0
    """How much, of whatever the kind says."""
    at_call: int = 0
    """Which call to the disk it strikes at; 0 is at once."""
    names: tuple[str, ...] = ()
    instead: Fault | None = None
    """What comes in its place, if it stays impossible for too long."""

    def __str__(self) -> str:
        parts = [f"{self.at:7.3f} {self.kind:<15} {self.where or '-':<6}"]
        parts += [f"for {self.for_s:.2f} s"] if self.for_s else []
        parts += [f"amount {self.amount:g}"] if self.amount else []
        parts += [f"at disk call {self.at_call}"] if self.at_call else []
        parts += [" ".join(self.names)] if self.names else []
        return " ".join(parts).rstrip()
