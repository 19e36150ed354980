"""Commanders: phase 2. Each gets one value accepted by a majority; together they are the leader's pipeline.

Several are under way at once, bounded in number and bytes, and they decide in slot order: one that has its majority
waits for those in front of it. A value that changes the voters travels alone: nothing is proposed behind it
before it is decided, and then its own configuration counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from sirius.paxos.config import PaxosConfig
from sirius.paxos.members import Configuration
from sirius.paxos.values import Value
from sirius.types import NodeId


@dataclass(slots=True)
class Commander:
    """One value under way."""

    value: Value
    sent_at: float
    also: Sequence[Configuration] = ()
    """Of these, too, a majority has to accept it."""
    votes: set[NodeId] = field(default_factory=set)

    def is_accepted(self, configuration: Configuration) -> bool:
        """Say whether majorities have accepted it."""
        return all(each.is_quorum(self.votes) for each in (configuration, *self.also))


class Pipeline:
    """The commanders of one leader, in slot order."""

    def __init__(self, config: PaxosConfig, next_slot: int) -> None:
        self._accepts_max = config.pipeline_accepts_max
        self._bytes_max = config.pipeline_bytes_max
        self._under_way: deque[Commander] = deque()
        self.bytes = 0
        self.next_slot = next_slot

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def has_room(self) -> bool:
        return len(self._under_way) < self._accepts_max and (
            self.bytes < self._bytes_max or not self._under_way
        )

    def begin(self, value: Value, now: float, also: Sequence[Configuration] = ()) -> None:
        self._under_way.append(Commander(value, now, also))
        self.bytes += len(value)
        self.next_slot = value.last + 1

    @property
    def newest(self) -> Commander:
        """The one that was begun last."""
        return self._under_way[-1]

    def vote(self, node: NodeId, first: int, last: int) -> None:
        """Count a vote; for a value that is not under way any more it means nothing."""
        for commander in self._under_way:
            if commander.value.first == first and commander.value.last == last:
                commander.votes.add(node)
                return

    def pop_decided(self, configuration: Configuration) -> Value | None:
        """Take out the first value, if a majority has accepted it."""
        if self._under_way and self._under_way[0].is_accepted(configuration):
            value = self._under_way.popleft().value
            self.bytes -= len(value)
            return value
        return None

    def overdue(self, now: float, retry_s: float) -> list[Commander]:
        """Return those whose Accept should be sent again to whoever has not voted, and note that it is."""
        overdue = [each for each in self._under_way if now - each.sent_at >= retry_s]
        for commander in overdue:
            commander.sent_at = now
        return overdue
