"""The acceptor's memory on disk.

A Paxos acceptor may say "I promise" or "I accepted" only when it can no longer forget it, and a node may begin phase 1
with a ballot only when it can never use that ballot again. The bytes are drawn in `sirius.wal.journal.file`; this
module is what a driver calls.

**Asking and knowing.** `promise`, `use_ballot`, `accept`, `note` and `trim` put one frame each into the open group and
return its ticket. `sync` starts a group commit: one write, one sync. Replies wait until `durable`, the highest ticket
that is safe, has reached their ticket; `on_durable` says when. Tickets become durable in order, so a crash leaves the
state after some call, never with a gap, and not before the last durable one:

    ========  ===================================================================================
    fsync     durable is on disk: nothing is lost while the disk keeps what it synced
    os        durable is written: nothing is lost if the process dies, the last seconds if the machine does
    memory    written behind by the thread, and durable when written
    ========  ===================================================================================

**Torn tail or corruption.** Whatever lies behind the last mark and does not parse was being written when the crash
came. Its ticket was not durable, no reply left, so nobody relies on it: it is cut off. Damage in front of a mark is
another matter. Somebody may have been told of a promise or a value that cannot be read any more. A node that went on
without it could promise a lower ballot, or report nothing for a slot that is decided, and a second value would be
decided. So `open` raises `CorruptFile`, and the node must not vote until it has rejoined as a learner: a missing answer
costs one vote, a wrong one costs agreement. In mode `os` each group ends with a mark that was not synced, which by the
rules of `sirius.wal.frames` is enough to tell a damaged group from an unfinished one.

**Failing.** A failed write or sync is never retried: the journal stops. On a full disk the write was taken back; the
tickets above `durable` are void for good, and after `resume` the journal goes on from what is durable.

**Fresh.** A journal belongs to one log, by its unique id. A copied log has a new id, so the journal that came along is
set aside and the copy begins with an empty one, as does a node that lost its disk. `fresh` says so: a node that was a
voter before must then rejoin as a learner, and should say in its first note what it has decided to be.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain
from types import MappingProxyType, TracebackType
from typing import Final, Self

from sirius.errors import (
    CorruptFile,
    DiskFull,
    InvalidRecord,
    InvariantViolation,
    LogError,
    UsageError,
)
from sirius.types import Ballot, Seq
from sirius.wal.block import Block
from sirius.wal.commit import GroupCommit
from sirius.wal.config import Durability
from sirius.wal.frames import FileHeader, FileKind, Mode
from sirius.wal.fs import FileSystem, OsFileSystem
from sirius.wal.journal.file import (
    Frame,
    JournalFile,
    Kind,
    Memory,
    block_fault,
)
from sirius.wal.journal.folder import JournalFolder
from sirius.wal.journal.pvalues import PValues, Span
from sirius.wal.record import DEFAULT_LIMITS, Limits

TRIM_BYTES_MIN: Final = 8 * 1024 * 1024
NOTES_MAX: Final = 1024
_WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
_U64: Final = 1 << 64
_log = logging.getLogger("sirius.wal")


class Journal:
    """An acceptor's promises, ballots, accepted values and notes. One process at a time.

    One thread calls it, the driver's; only `durable` and `failure` are for any. Nothing but `flush`, `accepted`,
    `close` and, without a thread, `sync` waits for the disk, unless more than 64 MiB are waiting already.
    """

    def __init__(
        self,
        folder: JournalFolder,
        uid: int,
        durability: Durability,
        now_us: Callable[[], int],
        background: bool,
    ) -> None:
        self._folder = folder
        self._durability = durability
        self._mode = Mode.FSYNC if durability == Durability.FSYNC else Mode.OS
        self._now_us = now_us
        self._saved = Memory()
        self._pvalues = PValues()
        self._values = threading.Lock()
        """Held while places of values change, and while values are read from them."""
        self._held = folder.lock()
        try:
            self._file = self._recover(uid)
        except BaseException:
            self._held.release()
            raise
        self._closed = False
        self._fresh = not len(self._pvalues) and self._saved == Memory()
        self._asked = self._saved.copy()
        self._waiting: list[Frame] = []
        self._waiting_bytes = 0
        self._ticket = 0
        self._rewrite_above = 0
        self.trim_bytes_min = TRIM_BYTES_MIN
        """The file is replaced when more than this, and more than half of it, is dead."""
        self._threaded = background and durability != Durability.OS
        self._commits = GroupCommit[list[Frame]](
            folder.path,
            self._write,
            start=0,
            pending_bytes_max=_WAITING_BYTES_MAX,
            background=self._threaded,
        )

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        uid: int,
        fs: FileSystem | None = None,
        durability: Durability = Durability.FSYNC,
        limits: Limits = DEFAULT_LIMITS,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        background: bool = True,
    ) -> Journal:
        """Open the journal of the log with unique id `uid`; what is missing is made.

        Raises `CorruptFile` if something that may have been acknowledged cannot be read: then this node must not vote.
        """
        home = JournalFolder(fs or OsFileSystem(), os.fspath(folder).rstrip("/"), limits)
        home.lay_out()
        return cls(home, uid, durability, now_us, background)

    def _recover(self, uid: int) -> JournalFile:
        self._folder.discard()
        file = self._folder.find(uid)
        if file is None:
            file, _ = self._build(uid, 1)
            self._folder.publish()
            return file
        try:
            file.recover(self._recall, self._mode)
        except BaseException:
            file.abandon()
            raise
        return file

    def _recall(self, frame: Frame, at: int) -> None:
        if problem := self._saved.refusal(frame):
            raise CorruptFile(self._folder.path, at, problem)
        self._remember(frame, at)

    def _remember(self, frame: Frame, at: int) -> None:
        self._saved.take(frame)
        if frame.kind == Kind.ACCEPT:
            self._pvalues.put(frame.span(at))
        elif frame.kind == Kind.TRIM:
            self._pvalues.forget(frame.decided)

    # ------------------------------------------------------------------ state

    @property
    def fresh(self) -> bool:
        """Whether the journal was empty when it was opened: this node remembers nothing."""
        return self._fresh

    @property
    def promised(self) -> Ballot:
        """The highest ballot promised, asked for at least; (0, 0) if none."""
        return self._asked.promised

    @property
    def highest_ballot(self) -> Ballot:
        """The highest ballot that this node ever meant to use; (0, 0) if none."""
        return self._asked.highest

    @property
    def trimmed_to(self) -> Seq:
        """Up to here values were forgotten, because they are decided and in the log."""
        return Seq(self._asked.trimmed)

    @property
    def notes(self) -> Mapping[bytes, bytes]:
        return MappingProxyType(self._asked.notes)

    @property
    def durable(self) -> int:
        """The highest ticket that is as safe as the mode promises."""
        return self._commits.durable

    @property
    def failure(self) -> LogError | None:
        """Why the journal takes nothing more, if it does not."""
        return self._commits.failure

    def on_durable(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called with `durable` after each group, on the thread that wrote it.

        It must not block, nor call the journal.
        """
        self._commits.on_durable = callback

    # ------------------------------------------------------------------ asking

    def promise(self, ballot: Ballot) -> int:
        """Promise not to take part below `ballot`, which is not below the present promise."""
        return self._ask(Frame(Kind.PROMISE, _checked(ballot)))

    def use_ballot(self, ballot: Ballot) -> int:
        """Note a ballot before phase 1; it must be above every one that was noted before."""
        return self._ask(Frame(Kind.BALLOT, _checked(ballot)))

    def accept(self, ballot: Ballot, block: Block) -> int:
        """Accept the values of `block`, whose checksums were verified, under a ballot not below the promise.

        It takes the place of what was accepted for the same slots before.
        """
        if fault := block_fault(block.header, block.raw, self._folder.limits):
            raise InvalidRecord(fault)
        return self._ask(Frame(Kind.ACCEPT, _checked(ballot), block.raw))

    def note(self, key: bytes, value: bytes) -> int:
        """Remember a small fact; a later note with the same key replaces it."""
        if key not in self._asked.notes and len(self._asked.notes) >= NOTES_MAX:
            raise UsageError(f"there are {NOTES_MAX} notes already")
        return self._ask(Frame.note(key, value))

    def trim(self, decided: int) -> int:
        """Forget values up to `decided`, which must be durable in the log. It needs no sync of its own."""
        return self._ask(Frame.trim(decided))

    def _ask(self, frame: Frame) -> int:
        self._commits.check()
        if problem := self._asked.refusal(frame):
            raise InvariantViolation(problem)
        self._asked.take(frame)
        self._waiting.append(frame)
        self._waiting_bytes += frame.size
        self._ticket += 1
        ticket = self._ticket
        if self._waiting_bytes > _WAITING_BYTES_MAX:
            self.sync()
        return ticket

    def sync(self) -> int:
        """Have all that was asked for made durable, as one group; return the ticket to wait for.

        With a thread this only wakes it; without one the work is done before it returns.
        """
        with self._commits.changed:
            self._commits.wait_for_room()
            if self._waiting:
                self._commits.queue(self._waiting, self._waiting_bytes, self._ticket)
                self._waiting, self._waiting_bytes = [], 0
        if not self._threaded:
            self._commits.commit()
        return self._ticket

    def flush(self, timeout_s: float | None = None) -> int:
        """Return, with `durable`, once all that was asked for is durable; or raise what became of it."""
        self.sync()
        return self._commits.flush(timeout_s)

    def resume(self) -> int:
        """Go on after a full disk, from what is durable; what was asked for above that is forgotten.

        Returns the last ticket given so far: those above the present `durable`, up to this one, are void, and the
        replies that wait for them must be dropped.
        """
        if isinstance(self.failure, DiskFull):
            self._asked = self._saved.copy()
            self._waiting, self._waiting_bytes = [], 0
            self._commits.resume(self.durable)
        return self._ticket

    # ------------------------------------------------------------------ values

    def accepted(self, first: int, last: int) -> list[tuple[Ballot, Block]]:
        """Return what was accepted for the slots `first` to `last` above `trimmed_to`, in order.

        Each slot that has a value appears once, with the one of the highest ballot; blocks are cut to fit. What is
        still waiting is flushed before, so all that is returned is durable. Reads the file.
        """
        self.flush()
        with self._values:
            return [self._value(span) for span in self._pvalues.within(first, last)]

    def _value(self, span: Span) -> tuple[Ballot, Block]:
        try:
            frame = self._file.read(span.offset)
        except CorruptFile as error:
            self._commits.fail(error)
            raise
        return frame.ballot, Block.trusted(bytes(frame.payload)).cut(span.first, span.last)

    # ------------------------------------------------------------------ writing, one group at a time

    def _write(self, groups: list[list[Frame]]) -> None:
        frames = list(chain.from_iterable(groups))
        fsync = self._durability == Durability.FSYNC
        offsets = self._file.append(frames, None if fsync else self._mode)
        if fsync:
            self._file.sync()
            self._mark()
        with self._values:
            for frame, at in zip(frames, offsets, strict=True):
                self._remember(frame, at)
            if self._is_wasteful():
                self._rewrite()

    def _mark(self) -> None:
        try:
            self._file.mark(self._mode)
        except DiskFull as error:
            # The group is safe without it, and the next one brings another.
            _log.warning("%s: no room for a mark: %s", self._folder.path, error)

    def _is_wasteful(self) -> bool:
        size = self._file.size
        dead = size - self._pvalues.bytes
        return dead > self.trim_bytes_min and 2 * dead > size > self._rewrite_above

    def _rewrite(self) -> None:
        """Put a file that holds only what is alive in the place of the present one."""
        old = self._file
        try:
            new, pvalues = self._build(old.header.uid, old.header.segment + 1)
        except DiskFull as error:
            _log.warning("%s; the journal keeps its old file for now", error)
            self._rewrite_above = old.size + self.trim_bytes_min
            self._folder.discard()
            return
        self._folder.publish()
        self._file, self._pvalues, self._rewrite_above = new, pvalues, 0
        old.abandon()

    def _build(self, uid: int, number: int) -> tuple[JournalFile, PValues]:
        """Finish a file, not published yet, that holds what is alive."""
        header = FileHeader(FileKind.JOURNAL, number, uid, 1, self._now_us())
        new = self._folder.begin(header)
        try:
            pvalues = self._copy_to(new)
            new.finish(self._mode)
        except BaseException:
            new.abandon()
            raise
        return new, pvalues

    def _copy_to(self, new: JournalFile) -> PValues:
        """Copy values, in the order in which they were accepted, then the rest. Memory: one block."""
        pvalues = PValues()
        pvalues.forget(self._saved.trimmed)
        for offset in sorted({span.offset for span in self._pvalues}):
            frame = self._file.read(offset)
            (at,) = new.append([frame])
            pvalues.put(frame.span(at))
        new.append(self._saved.frames())
        return pvalues

    def check(self) -> None:
        """Raise if what is kept in memory contradicts itself."""
        with self._values:
            self._pvalues.check()

    # ------------------------------------------------------------------ closing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what is waiting, leave a synced mark at the end, and unlock. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.failure is None:
                self.sync()
        finally:
            self._shut()

    def _shut(self) -> None:
        try:
            if self._commits.close():
                # Only the mark may want for room; what was written is on disk by then.
                with suppress(DiskFull):
                    self._file.finish(self._mode)
        finally:
            self._file.abandon()
            self._held.release()


def _checked(ballot: Ballot) -> Ballot:
    if not (0 <= ballot.round < _U64 and 0 <= ballot.node < _U64):
        raise UsageError(f"{ballot} does not fit into 64 bits each")
    return ballot
