"""What a repair did, or would do, or could not do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """What repair did, or would do, or could not do."""

    MANIFEST = "manifest made anew"
    ENTRY = "manifest entry corrected"
    INDEX = "index made anew"
    TAIL = "torn tail cut off"
    SET_APART = "set apart"
    TAKEN_BACK = "taken back from quarantine"
    REWRITTEN = "written anew"
    EMPTIED = "replaced by an empty one"
    HOLE = "lost, and accepted as a hole"
    LOST = "lost; left as it is"
    KEPT = "kept for study"
    UNTRUSTED = "damaged; left as it is, and the node must not vote"
    GIVEN_UP = "damaged and given up; the node rejoins as a learner"


@dataclass(frozen=True, slots=True)
class Action:
    """One line of a report. `path` is relative to the log's folder; no `last` means that it is unknown."""

    what: What
    path: str
    first: int
    last: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did (or, as a dry run, would do), in order."""

    path: str
    dry_run: bool
    actions: tuple[Action, ...]

    @property
    def lost(self) -> list[tuple[int, int | None]]:
        """Ranges that cannot be proven and were left alone: ask a peer, or repair again and accept the loss."""
        return [(item.first, item.last) for item in self.actions if item.what == What.LOST]

    @property
    def holes(self) -> list[tuple[int, int | None]]:
        """Ranges that cannot be proven and were given up."""
        return [(item.first, item.last) for item in self.actions if item.what == What.HOLE]

    @property
    def journal(self) -> What | None:
        """What became of a damaged journal (`UNTRUSTED` or `GIVEN_UP`), or None if there is none."""
        bad = (What.UNTRUSTED, What.GIVEN_UP)
        return next((item.what for item in self.actions if item.what in bad), None)

    @property
    def changed(self) -> bool:
        """Whether anything was (or would be) written."""
        return any(item.what not in (What.LOST, What.UNTRUSTED) for item in self.actions)
