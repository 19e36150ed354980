"""Which requests took effect already: the last serial of every session.

A proposer has a session, and its updates carry consecutive serials. The leader takes a request only if its first serial
follows the last one it knows of that session, in the log or on the way into it. So a request that is sent twice
takes effect once, and those of one session take effect in the order in which they were asked for.

The table is a function of the log, but not of a compacted one: an entry may have been dropped for a newer one of its
key. So the table says from where on it is **complete**: every session with an entry at or behind that slot is in it.
A hole that is learned empties it and moves that point behind the hole. A request says how far its node had
got when the session was opened: all its entries lie behind that. If the table is complete from there on and does not
have the session, the session has no entry yet. If it is not, nobody can tell, and the session is refused: its node
opens another, and reports what was under way as unknown.

**Publishers** are clients that number their updates themselves, in sessions that outlive everybody. What they sent may
be sent again after days, so theirs must not be forgotten with a hole. Behind each of their requests the log has a mark
with a key of its own for each session: compaction keeps the newest one, as it does with all keys. So their part of the
table is the same function of every log, compacted or not: the last serials of the `publishers_max` sessions that wrote
last. What is not among them counts as new.
"""

from __future__ import annotations

from typing import Final

from sirius.paxos.values import PUBLISHERS, Content, Run
from sirius.types import Seq

PUBLISHERS_MAX: Final = 65_536
"""How many publishers' sessions are remembered. Compaction keeps as many marks (`sirius.wal.compaction.plan`)."""


class Sessions:
    """The last serial of every session, and its slot; the one with the oldest slot goes first."""

    def __init__(
        self, complete_from: int, sessions_max: int, publishers_max: int = PUBLISHERS_MAX
    ) -> None:
        self.complete_from = complete_from
        self._max = sessions_max
        self._publishers_max = publishers_max
        self._last: dict[int, tuple[int, int]] = {}
        self._publishers: dict[int, Run] = {}

    def __len__(self) -> int:
        return len(self._last)

    def learn(self, content: Content, last: Seq) -> None:
        """Take note of a decided value that ends at `last`."""
        if content.has_holes:
            self.forget(last)
        for run in content.runs:
            if run.session >= PUBLISHERS:
                self._learn_publisher(run)
                continue
            self._learn(run.session, run.last_serial, run.last_slot)

    def _learn(self, session: int, serial: int, slot: int) -> None:
        self._last.pop(session, None)
        self._last[session] = (serial, slot)
        if len(self._last) > self._max:
            _, slot = self._last.pop(next(iter(self._last)))
            self.complete_from = max(self.complete_from, slot + 1)

    def _learn_publisher(self, run: Run) -> None:
        self._publishers.pop(run.session, None)
        self._publishers[run.session] = run
        if len(self._publishers) > self._publishers_max:
            del self._publishers[next(iter(self._publishers))]

    def extend(self, first: Seq, later: Sessions) -> None:
        """Take note of what another table has learned, which began with `first`: the end of this one, or before."""
        if later.complete_from > first:
            self.forget(Seq(later.complete_from - 1))
        for session, (serial, slot) in later._last.items():
            self._learn(session, serial, slot)
        for run in later._publishers.values():
            self._learn_publisher(run)

    def forget(self, last: Seq) -> None:
        """Know nothing of the nodes' sessions in front of and at `last`."""
        self._last.clear()
        self.complete_from = last + 1

    def last_serial(self, session: int, opened: int) -> int | None:
        """Return the last serial of a session, 0 if it has none yet, or None if nobody can tell any more."""
        if session >= PUBLISHERS:
            run = self.publisher(session)
            return run.last_serial if run else 0
        if found := self._last.get(session):
            return found[0]
        return 0 if opened + 1 >= self.complete_from else None

    def publisher(self, session: int) -> Run | None:
        """Return the newest entry of a publisher's session."""
        return self._publishers.get(session)
