"""A leader's pulse: heartbeats out, answers back, and what follows from them.

- **Check-quorum.** A leader that has not heard of a majority for an election time-out steps down: somebody else may
  lead.
- **Read index.** A heartbeat sent after a read was asked for, answered by a majority, proves that nobody else could
  have decided anything before the read was asked for.
- **Leases.** Who answers a heartbeat sits still for an election time-out. So until the time at which the last heartbeat
  that a majority answered was *sent*, plus that time less the drift of clocks, no other leader can exist.
"""

from __future__ import annotations

from collections import deque

from sirius.paxos.members import Configuration
from sirius.types import NodeId, Seq


class Pulse:
    """Who answered which heartbeat. The leader answers its own."""

    def __init__(self, node: NodeId, now: float) -> None:
        self._node = node
        self.number = 0
        self.sent_at = float("-inf")
        self._times: deque[tuple[int, float]] = deque()
        self._confirmed_sent = float("-inf")
        self._acked: dict[NodeId, int] = {}
        self._heard: dict[NodeId, float] = {}
        self.decided: dict[NodeId, Seq] = {}
        """How far each node knows the decisions."""
        self._began = now

    def beat(self, now: float) -> int:
        """Number a heartbeat that is sent now."""
        self.number += 1
        self.sent_at = now
        self._acked[self._node] = self.number
        self._times.append((self.number, now))
        return self.number

    def acked(self, node: NodeId, number: int, decided: Seq, now: float) -> None:
        """Take an answer."""
        self._heard[node] = now
        self._acked[node] = max(number, self._acked.get(node, 0))
        self.decided[node] = decided

    def heard(self, node: NodeId, now: float) -> None:
        """Take any other sign of life."""
        self._heard[node] = now

    def alive(self, since: float) -> set[NodeId]:
        """Return who was heard of since some time, the leader itself among them."""
        return {self._node, *(node for node, at in self._heard.items() if at >= since)}

    def has_quorum(self, configuration: Configuration, since: float) -> bool:
        """Say whether a majority was heard of since some time. At the beginning there is a time of grace."""
        return self._began >= since or configuration.is_quorum(self.alive(since))

    def confirmed(self, configuration: Configuration) -> int:
        """Return the number of the last heartbeat that a majority answered."""
        numbers = sorted(
            (self._acked.get(node, 0) for node in configuration.voter_ids), reverse=True
        )
        number = numbers[configuration.majority - 1] if numbers else 0
        while self._times and self._times[0][0] <= number:
            self._confirmed_sent = self._times.popleft()[1]
        return number

    def lease_until(self, configuration: Configuration, lease_s: float) -> float:
        """Return the time up to which no other leader can exist."""
        self.confirmed(configuration)
        return self._confirmed_sent + lease_s
