"""Giving up a damaged journal, so that its node can come back without a vote.

Nothing of a journal is salvaged. A promise or an accepted value that cannot be read was perhaps the one that mattered,
and a node that votes without it can get a second value decided (see `sirius.wal.journal`). What can be done is to
forget all of it and to say so. That takes two steps, in this order:

1. The log gets a new unique id. A journal is bound to its log's id, so this one is nobody's from here on.
2. The folder `journal` moves to `quarantine/journal-<n>`.

The node then finds an empty journal and a new life: it remembers nothing, is nobody's voter, and rejoins as a learner.
Its log is what it was. A crash between the two steps leaves a journal that still cannot be used: do it again.
"""

from __future__ import annotations

import os

from sirius.errors import CorruptFile, NotALog
from sirius.wal.frames import FILE_HEADER_BYTES, End, FileKind, diagnose, read_file_header
from sirius.wal.fs import File
from sirius.wal.journal.file import Frame, JournalWalk, Memory, Rules
from sirius.wal.journal.folder import JournalFolder
from sirius.wal.record import DEFAULT_LIMITS, Limits
from sirius.wal.repair.report import What
from sirius.wal.repair.workbench import Workbench
from sirius.wal.store import JOURNAL, Store


def journal_fault(store: Store, uid: int, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Say why the journal of the log `uid` does not open, or return None. Writes nothing."""
    path = _folder(store, limits).path
    if not store.fs.exists(path):
        return None
    try:
        file = store.fs.open(path, "r")
        try:
            _read_through(file, path, uid, limits)
        finally:
            file.close()
    except CorruptFile as error:
        return f"at byte {error.offset}: {error.reason}"
    except NotALog as error:
        return str(error)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return None


def _folder(store: Store, limits: Limits) -> JournalFolder:
    return JournalFolder(store.fs, f"{store.root}/{JOURNAL}", limits)


def _read_through(file: File, path: str, uid: int, limits: Limits) -> None:
    """Raise `CorruptFile` where `Journal.open` would."""
    header, memory = read_file_header(file, path), Memory()
    if header.kind != FileKind.JOURNAL:
        raise CorruptFile(path, 0, f"a file of kind {header.kind} is no journal")
    if header.uid != uid:
        # It came with a copy, and is set aside when it is opened.
        return

    def visit(frame: Frame, at: int) -> None:
        if problem := memory.refusal(frame):
            raise CorruptFile(path, at, problem)
        memory.take(frame)

    walk = JournalWalk(
        file=file,
        header=header,
        position=FILE_HEADER_BYTES,
        end=file.size(),
        next_first=1,
        rules=Rules.of(header, limits),
        visit=visit,
    )
    for _ in walk.chunks():
        pass
    if diagnose(walk) == End.CORRUPT:
        raise CorruptFile(path, walk.position, str(walk.fault))


def settle_journal(bench: Workbench, *, discard: bool) -> None:
    """Report a journal that does not open; with `discard`, give it up."""
    limits = bench.config.limits
    fault = journal_fault(bench.store, bench.manifest.uid, limits)
    if fault is None:
        return
    if not discard:
        bench.note(What.UNTRUSTED, JOURNAL, 0, None, fault)
        return
    place = bench.spare_place(JOURNAL)
    bench.note(What.GIVEN_UP, JOURNAL, 0, None, f"{fault}; now {place}")
    if bench.dry_run:
        return
    lock = _folder(bench.store, limits).lock()
    try:
        bench.commit(bench.manifest.at_home(bench.store.home(), int.from_bytes(os.urandom(8))))
        bench.move(JOURNAL, place)
    finally:
        lock.release()
