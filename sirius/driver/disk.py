"""A node's folder: the log, and beside it the acceptor journal."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from sirius.errors import LogError, SiriusError
from sirius.wal import Log, LogConfig
from sirius.wal.journal import Journal
from sirius.wal.store import JOURNAL


@dataclass(frozen=True, slots=True)
class Disk:
    """Both, open."""

    log: Log
    journal: Journal

    @classmethod
    def open(cls, folder: str | os.PathLike[str], config: LogConfig) -> Disk:
        """Open them; what is missing is made."""
        log = Log.open(folder, config)
        try:
            journal = Journal.open(
                os.path.join(log.path, JOURNAL),
                uid=log.manifest.uid,
                durability=config.durability,
                limits=config.limits,
            )
        except BaseException:
            log.close()
            raise
        return cls(log, journal)

    @property
    def failure(self) -> LogError | None:
        """Why nothing more can be written, if so."""
        return self.journal.failure or self.log.failure

    def close(self) -> None:
        """Close both; the first error that comes up is raised once both are closed."""
        try:
            self.journal.close()
        except BaseException:
            with suppress(SiriusError, OSError):
                self.log.close()
            raise
        self.log.close()
