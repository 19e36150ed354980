"""The replica: what is decided, in slot order.

It takes decided values strictly in order, so there is nothing to buffer: a leader's commanders decide in order, a
follower takes up to the decided point what it accepted under the leader's own ballot, and everything else comes by
catch-up, which brings ranges from the first missing slot on.
"""

from __future__ import annotations

from sirius.errors import InvariantViolation
from sirius.paxos.members import Configuration
from sirius.paxos.sessions import Sessions
from sirius.paxos.values import Codec, Content, Value
from sirius.types import Seq


class Replica:
    """The decided prefix: how far it goes, whose requests are in it, and who votes behind it."""

    def __init__(
        self,
        codec: Codec,
        decided: Seq,
        configuration: Configuration | None,
        sessions: Sessions,
    ) -> None:
        self._codec = codec
        self.decided = decided
        """Everything up to here is decided, and known."""
        self.known = decided
        """The highest slot of which this node has heard that it is decided."""
        self.configuration = configuration
        self.sessions = sessions

    @property
    def is_behind(self) -> bool:
        return self.known > self.decided

    def hear(self, decided: int) -> None:
        """Somebody says that everything up to here is decided."""
        if decided > self.known:
            self.known = Seq(decided)

    def jump(self, decided: Seq, configuration: Configuration | None, sessions: Sessions) -> None:
        """Know everything up to `decided` at once, from a log that somebody else has read."""
        self.decided = decided
        self.hear(decided)
        self.sessions = sessions
        self.configuration = configuration or self.configuration

    def decide(self, value: Value) -> Content:
        """Take the next decided value."""
        if value.first != self.decided + 1:
            raise InvariantViolation(
                f"slots {value.first} to {value.last} cannot follow {self.decided}"
            )
        content = self._codec.content(value)
        self.decided = value.last
        self.hear(value.last)
        self.sessions.learn(content, value.last)
        if content.configuration is not None:
            self.configuration = content.configuration
        return content
