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
    def changed(self) -> bool:
        """Whether anything was (or would be) written."""
        return any(item.what != What.LOST for item in self.actions)
