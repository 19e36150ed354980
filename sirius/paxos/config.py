"""The settings of the consensus machine. Times are seconds of a monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

from sirius.errors import UsageError


@dataclass(frozen=True, slots=True)
class PaxosConfig:
    """Everything has a bound, and every bound has its name here."""

    heartbeat_s: float = 0.075
    """How often a leader shows that it is alive."""
    election_timeout_s: float = 0.3
    """How long a leader may be silent. Each wait is drawn between this and twice this."""
    retry_s: float = 0.2
    """When a message that was not answered is sent again."""
    request_timeout_s: float = 5.0
    """When a request that was not decided is reported as unknown."""

    batch_updates_max: int = 4096
    """How many updates one Accept carries at most, unless a single request has more."""
    batch_bytes_max: int = 1024 * 1024
    pipeline_accepts_max: int = 8
    """How many Accepts may be under way."""
    pipeline_bytes_max: int = 8 * 1024 * 1024
    accept_slots_max: int = 65536
    """How far ahead of what it has decided itself an acceptor takes values."""
    accept_bytes_max: int = 64 * 1024 * 1024
    """How much it holds of what is not in its log yet."""
    intake_requests_max: int = 4096
    """How many requests wait at a leader for the pipeline."""
    intake_bytes_max: int = 32 * 1024 * 1024
    pending_requests_max: int = 4096
    """How many requests of its own a node holds until they are decided."""
    pending_bytes_max: int = 32 * 1024 * 1024
    forward_bytes_max: int = 8 * 1024 * 1024
    """How much of them may be on the way to the leader."""
    reads_max: int = 4096
    sessions_max: int = 10_000

    trim_slots_min: int = 256
    """How much more must be in the log before the journal is told that it may forget it."""

    level_slots: int = 1000
    """How close to the leader a learner must be to become a voter."""
    lease: bool = False
    """Whether reads may rely on clocks that run at the same speed, within `clock_drift_max`."""
    clock_drift_max: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s < self.election_timeout_s:
            raise UsageError(
                f"heartbeat_s = {self.heartbeat_s} must be above 0 and below "
                f"election_timeout_s = {self.election_timeout_s}"
            )
        if not 0 <= self.clock_drift_max < 0.5:
            raise UsageError(f"clock_drift_max = {self.clock_drift_max} is not in 0 to 0.5")
        for name in self.__slots__:
            if isinstance(value := getattr(self, name), int | float) and value < 0:
                raise UsageError(f"{name} = {value} is negative")

    @property
    def lease_s(self) -> float:
        """How long after it sent a heartbeat that a majority answered a leader may answer reads alone.

        A follower that answered sits still for `election_timeout_s` of its own clock.
        """
        return self.election_timeout_s * (1 - 2 * self.clock_drift_max)
