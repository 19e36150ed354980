"""A node's status: one moment, as plain data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """What a node is doing."""

    REPLAYING = "replaying"
    """The log is being handed to the handler. Reads would see an old state."""
    CATCHING_UP = "catching_up"
    """Replayed, and on its way to where the cluster is."""
    READY = "ready"
    """It has caught up once since it started. It may fall behind again: see `lag` and `staleness_s`."""
    HANDLER_STOPPED = "handler_stopped"
    """The handler failed. The node goes on voting and keeping the log; its state does not change any more."""
    DISK_TROUBLE = "disk_trouble"
    """The disk failed or is full. The node neither votes nor leads, and tries again from time to time."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """How the link to another node is."""

    name: str
    connected: bool
    sent_frames: int = 0
    sent_bytes: int = 0
    dropped: int = 0
    """Messages that did not fit, or that waited for an attempt to connect which failed."""
    sent_messages: int = 0
    waiting: int = 0
    """Messages that have not been sent yet."""
    connects: int = 0
    """How often the link was opened; more than once: it was lost in between."""
    failures: int = 0
    """How often it could not be opened, or was lost."""
    round_trip_s: float | None = None
    """How long the node took for its last answer to a heartbeat; only a leader knows."""
    error: str | None = None
    """Why it was lost last; None once it has stood for a while again."""


@dataclass(frozen=True, slots=True)
class Status:
    """See `Sirius.status`. Sequence numbers are of the last entry concerned; 0 means none."""

    name: str
    state: State
    problem: str | None
    """What is wrong, in a sentence, if something is."""
    role: str
    """leader, voter, learner, follower, or passive."""
    leader: str | None
    cluster: str
    node_id: str
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    wished: tuple[str, ...] | None
    decided: int
    """This node's log has everything up to here."""
    known: int
    """The highest entry that this node has heard of."""
    durable: int
    applied: int
    """The handler has seen everything up to here."""
    lag: int
    """How many entries the handler is behind what is known."""
    staleness_s: float
    replayed: int
    replay_total: int
    ballot: tuple[int, int]
    outstanding: int
    backlog_bytes: int
    handler_busy_s: float
    handler_exceptions: int
    log_bytes: int
    segments: int
    tombstone_floor: int
    source: str | None
    """The node whose stream brings what is new, on a follower."""
    followers: dict[str, int]
    """The nodes that take updates from this one, and how far each is."""
    peers: tuple[PeerStatus, ...] = ()
    members_problem: str | None = None
    """What is wrong with the member file; the last good one is in force."""
    elections: int = 0
    """How often this node has seen the leadership change since it started."""
    leader_since_s: float | None = None
    """For how long this node has known the present leader."""
    boot_s: float | None = None
    """How long it took from the start until the node was ready; None: it is not yet."""
    replay_s: float | None = None
    """The part of it that the replay took; None: it is not over yet."""
    consensus_bytes: int = 0
    """Memory held for values and requests that are not decided, or not in the log, yet."""
    repeated_accepts: int = 0
    """How often a value had to be sent again because a majority did not answer in time."""
    catch_up_window: int = 0
    """How many entries this node asks a source for at once."""
    compactions: int = 0
    """How many compaction passes were finished since the start."""
    compaction_s: float = 0.0
    """How long the last one took."""
    compaction_began_at: float | None = None
    """When the last one began, in seconds since 1970; it may still run."""
    compaction_problem: str | None = None
    """Why the last one failed, if it did."""

    catch_up_bytes: int = 0
    """How much has come of the segments that this node takes as files, because it is far behind."""
    catch_up_bytes_total: int = 0
    """How much they have in all; 0: none are being taken."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON. A staleness that nobody knows is None, since JSON has no infinity."""
        values = asdict(self)
        if math.isinf(self.staleness_s):
            values["staleness_s"] = None
        return values
