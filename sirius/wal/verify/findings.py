"""What a check of a log finds, and the notes that are taken on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from sirius.wal.record import Limits


class Severity(StrEnum):
    """How bad a finding is.

    ========  ===============================================================================
    error     a promise of the log is broken: data, or an index that was on disk, is damaged
    warning   what a crash leaves and opening the log for writing puts right, such as a torn tail
    note      worth knowing, and in order
    ========  ===============================================================================
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `path` is relative to the log's folder."""

    severity: Severity
    path: str
    offset: int | None
    what: str


@dataclass(slots=True)
class Report:
    """What a check found, and how much it looked at."""

    findings: list[Finding] = field(default_factory=list)
    segments: int = 0
    blocks: int = 0
    records: int = 0
    bytes: int = 0

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def sound(self) -> bool:
        """Whether no error was found."""
        return self.count(Severity.ERROR) == 0


@dataclass(slots=True)
class Notes:
    """The report as it grows, and the wishes of whoever asked for it."""

    root: str
    deep: bool
    live: bool
    limits: Limits
    progress: Callable[[int, int], None]
    report: Report = field(default_factory=Report)
    bytes_done: int = 0
    bytes_total: int = 0

    def find(self, severity: Severity, path: str, offset: int | None, what: str) -> None:
        inside = path.removeprefix(f"{self.root}/")
        self.report.findings.append(Finding(severity, inside, offset, what))

    def error(self, path: str, offset: int | None, what: str) -> None:
        self.find(Severity.ERROR, path, offset, what)

    def move_to(self, done: int) -> None:
        """Say how many bytes of data were read so far."""
        self.bytes_done = done
        self.progress(done, max(self.bytes_total, done))


def span(first: int, last: int) -> str:
    """Name a range of sequence numbers."""
    return str(first) if first == last else f"{first} to {last}"
