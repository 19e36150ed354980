"""Settings whose times the tests know, whatever the defaults are. Not a test itself."""

from __future__ import annotations

from typing import Any

from sirius.paxos import PaxosConfig


def timed(**settings: Any) -> PaxosConfig:
    """Return the defaults with a heartbeat of 0.1 s and an election time-out of 0.5 s."""
    return PaxosConfig(**{"heartbeat_s": 0.1, "election_timeout_s": 0.5, **settings})
