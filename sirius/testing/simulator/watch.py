"""Watches that a node which is good for nothing does not stand in the way of others. By the node's own clock.

Who has heard nobody for one and a half election time-outs does not lead (check of the quorum), nor does whoever waits
as long for a disk that hangs; and who has heard nobody begins no ballot (pre-vote). Where there is one voter there is
nobody to hear.
"""

from __future__ import annotations

from sirius.engine import Engine
from sirius.testing.simulator.truth import Violation
from sirius.types import NO_BALLOT


class Watch:
    """One node's, in all its lives. L is the promise that it watches."""

    def __init__(self, name: str, election_timeout_s: float) -> None:
        self._name = name
        self._patience_s = 1.5 * election_timeout_s
        self._heard_at = 0.0
        self._hangs_since: float | None = None
        self._ballot = NO_BALLOT

    def begin(self, engine: Engine, now: float) -> None:
        """A life begins."""
        self._heard_at = now
        self._hangs_since = None
        self._ballot = engine.journal.highest_ballot

    def heard(self, now: float) -> None:
        """Something came from another node."""
        self._heard_at = now

    def synced(self) -> None:
        """The disk did what it was asked for."""
        self._hangs_since = None

    def look(self, engine: Engine, now: float, *, disk_hangs: bool) -> None:
        """To be called often, before a tick rather than behind it."""
        self._check_disk(engine, now, disk_hangs)
        configuration = engine.machine.configuration
        if configuration is not None and len(configuration.voters) > 1:
            self._check_silence(engine, now - self._heard_at)
        self._ballot = engine.journal.highest_ballot

    def _check_disk(self, engine: Engine, now: float, disk_hangs: bool) -> None:
        if not disk_hangs or not engine.waits_for_journal:
            self._hangs_since = None
            return
        if self._hangs_since is None:
            self._hangs_since = now
        hung_s = now - self._hangs_since
        if engine.machine.is_leader and hung_s > self._patience_s:
            raise Violation(f"L: {self._name} leads, and its disk has hung for {hung_s:.2f} s")

    def _check_silence(self, engine: Engine, silent_s: float) -> None:
        if silent_s <= self._patience_s:
            return
        if engine.machine.is_leader:
            raise Violation(f"L: {self._name} leads, and has heard nobody for {silent_s:.2f} s")
        if engine.journal.highest_ballot > self._ballot:
            raise Violation(
                f"L: {self._name} runs for leader, and has heard nobody for {silent_s:.2f} s"
            )
