"""How far an invalidation stream has got at its receiver, and since when it says nothing any more. Pure.

A beat says: *as of then, there was nothing beyond this sequence number.* It counts once everything up to that number
was delivered; on a busy stream the number is always a little ahead. Two beats may wait for that: the first that was
not reached, so that a stream that never rests still vouches, and the newest.
"""

from __future__ import annotations

NEVER = float("-inf")


class Freshness:
    """See above. Not thread-safe: its owner has a lock."""

    def __init__(self) -> None:
        self.position: int | None = None
        """Everything up to here was delivered; None: no stream has begun."""
        self.as_of = NEVER
        """When the stream last vouched, by the owner's clock."""
        self._waiting: list[tuple[int, float]] = []

    def is_new(self, seq: int) -> bool:
        """Say whether a batch up to `seq` was not delivered before."""
        return self.position is None or seq > self.position

    def advance(self, seq: int) -> None:
        """Everything up to `seq` is delivered, and was acted on."""
        self.position = seq if self.position is None else max(seq, self.position)
        self._settle()

    def alive(self, seq: int, as_of: float) -> None:
        """Take a beat."""
        self._waiting = [*self._waiting[:1], (seq, as_of)]
        self._settle()

    def restart(self, seq: int) -> None:
        """Begin anew behind `seq`, which may be lower than before."""
        self.position = seq
        self._waiting.clear()

    def _settle(self) -> None:
        if self.position is None:
            return
        reached = [as_of for seq, as_of in self._waiting if seq <= self.position]
        self._waiting = [beat for beat in self._waiting if beat[0] > self.position]
        self.as_of = max([self.as_of, *reached])
