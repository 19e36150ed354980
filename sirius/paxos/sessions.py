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
"""

from __future__ import annotations

from sirius.paxos.values import Content
from sirius.types import Seq


class Sessions:
    """The last serial of every session, and its slot; the one with the oldest slot goes first."""

    def __init__(self, complete_from: int, sessions_max: int) -> None:
        self.complete_from = complete_from
        self._max = sessions_max
        self._last: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._last)

    def learn(self, content: Content, last: Seq) -> None:
        """Take note of a decided value that ends at `last`."""
        if content.has_holes:
            self.forget(last)
            return
        for run in content.runs:
            self._last.pop(run.session, None)
            self._last[run.session] = (run.last_serial, run.last_slot)
        while len(self._last) > self._max:
            _, slot = self._last.pop(next(iter(self._last)))
            self.complete_from = max(self.complete_from, slot + 1)

    def forget(self, last: Seq) -> None:
        """Know nothing of what is in front of and at `last`."""
        self._last.clear()
        self.complete_from = last + 1

    def last_serial(self, session: int, opened: int) -> int | None:
        """Return the last serial of a session, 0 if it has none yet, or None if nobody can tell any more."""
        if found := self._last.get(session):
            return found[0]
        return 0 if opened + 1 >= self.complete_from else None
