"""The journal's folder: how one file takes another's place, and whose journal it is.

::

    LOCK                          held by the one process that votes
    journal                       the journal
    journal.tmp                   being built; rubbish after a crash
    journal.foreign-00c0ffee…     came with a copy of the log: another node's memory, set aside
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sirius.errors import CorruptFile, LogLocked, NotALog
from sirius.wal.frames import FileHeader, FileKind, read_file_header
from sirius.wal.fs import File, FileSystem, Lock
from sirius.wal.journal.file import JournalFile, failing_as_log
from sirius.wal.record import DEFAULT_LIMITS, Limits

_log = logging.getLogger("sirius.wal")


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """Where a journal's files are, and how one takes another's place."""

    fs: FileSystem
    root: str
    limits: Limits = DEFAULT_LIMITS

    @property
    def path(self) -> str:
        return f"{self.root}/journal"

    @property
    def _building(self) -> str:
        return f"{self.path}.tmp"

    def lay_out(self) -> None:
        """Make the folder if it is not there."""
        if self.fs.isdir(self.root):
            return
        parent, _, _ = self.root.rpartition("/")
        with failing_as_log(self.root):
            self.fs.mkdir(self.root)
            self.fs.sync_dir(parent or ".")

    def lock(self) -> Lock:
        try:
            return self.fs.lock(f"{self.root}/LOCK")
        except BlockingIOError:
            raise LogLocked(f"{self.root} is open in another place") from None

    def find(self, uid: int) -> JournalFile | None:
        """Open the journal of the log `uid` as the disk holds it. One of another log is set aside."""
        if not self.fs.exists(self.path):
            return None
        with failing_as_log(self.path, final=True):
            file = self.fs.open(self.path, "a")
            try:
                file.sync()
                file.forget()
                header = self._header(file)
            except BaseException:
                file.close()
                raise
        if header.uid == uid:
            return JournalFile(file, self.path, header, self.limits)
        file.close()
        self._set_aside(header.uid)
        return None

    def _header(self, file: File) -> FileHeader:
        try:
            header = read_file_header(file, self.path)
        except NotALog as error:
            raise CorruptFile(self.path, 0, str(error)) from None
        if header.kind != FileKind.JOURNAL:
            raise CorruptFile(self.path, 0, f"a file of kind {header.kind} is no journal")
        return header

    def _set_aside(self, uid: int) -> None:
        aside = f"{self.path}.foreign-{uid:016x}"
        _log.warning("%s belongs to another log and is kept as %s", self.path, aside)
        with failing_as_log(self.path, final=True):
            self.fs.replace(self.path, aside)
            self.fs.sync_dir(self.root)

    def begin(self, header: FileHeader) -> JournalFile:
        """Start a new file beside the present one."""
        self.discard()
        with failing_as_log(self._building):
            file = self.fs.open(self._building, "x")
            journal = JournalFile(file, self.path, header, self.limits)
        try:
            journal.write([header.encode()])
        except BaseException:
            journal.abandon()
            raise
        return journal

    def discard(self) -> None:
        """Remove what was begun and not finished."""
        with failing_as_log(self._building):
            if self.fs.exists(self._building):
                self.fs.remove(self._building)

    def publish(self) -> None:
        """Put a finished file in the place of the present one. When this returns it is so, for good.

        A failure is final whatever it was, for nobody knows which file has the name now.
        """
        with failing_as_log(self.path, final=True):
            self.fs.sync_dir(self.root)
            self.fs.replace(self._building, self.path)
            self.fs.sync_dir(self.root)
