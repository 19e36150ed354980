"""How far a node is on its way to being ready, in a line for people."""

from __future__ import annotations

from typing import Final

from sirius.ops.status import State, Status

EVERY_S: Final = 5.0
_UNDER_WAY: Final = (State.REPLAYING, State.CATCHING_UP)


def progress_of(status: Status) -> str:
    """Return the state, how far the node is if it is under way, and what is wrong if something is."""
    how_far = ""
    if status.state == State.REPLAYING:
        how_far = f"{status.replayed:,} records of a log up to {status.replay_total:,}"
    elif status.state == State.CATCHING_UP:
        how_far = f"at {status.applied:,} of {status.known:,}, leader: {status.leader or 'none'}"
        if total := status.catch_up_bytes_total:
            how_far += f", {status.catch_up_bytes / 1e6:,.1f} of {total / 1e6:,.1f} MB of segments"
    return ": ".join(filter(None, (status.state.value, how_far, status.problem)))


class Progress:
    """Says when there is something to say: a new state, and every few seconds while the node is under way.

    A replay of millions of records takes minutes, and a node that is silent for minutes looks like one that hangs.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._said_at = float("-inf")

    def line(self, status: Status, now: float) -> str | None:
        """Return what is to be said now, if anything. Call it again and again."""
        is_new = status.state != self._state
        is_due = status.state in _UNDER_WAY and now - self._said_at >= EVERY_S
        if not is_new and not is_due:
            return None
        self._state, self._said_at = status.state, now
        return f"{status.name}: {progress_of(status)}"
