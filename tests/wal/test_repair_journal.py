"""A damaged journal: it is never mended, and given up only by whoever says so."""

from __future__ import annotations

import pytest

from sirius.errors import CorruptFile, LogLocked
from sirius.testing import MemoryFileSystem, SimulatedCrash
from sirius.types import Ballot
from sirius.wal import Log, LogConfig, Record, RepairReport, Update, encode, repair
from sirius.wal.journal import Journal
from sirius.wal.record import Op
from sirius.wal.repair.report import What
from sirius.wal.store import Store

ROOT = "log"
JOURNAL = f"{ROOT}/journal/journal"
CONFIG = LogConfig(background=False, reserve_bytes=0, segment_records_max=4)


def made() -> MemoryFileSystem:
    """A log of three segments with the journal of a member that has promised and accepted."""
    fs = MemoryFileSystem()
    with Log.open(ROOT, CONFIG, fs=fs) as log:
        for number in range(10):
            log.put(f"key/{number}", b"body")
            log.flush()
    with open_journal(fs) as journal:
        journal.promise(Ballot(3, 1))
        journal.accept(Ballot(3, 1), encode(11, [Update(Op.PUT, b"k", b"v")], ts_us=7))
        journal.sync()
        journal.promise(Ballot(4, 2))
        journal.sync()
    # All that is long ago.
    for folder in (ROOT, f"{ROOT}/journal", f"{ROOT}/manifests", f"{ROOT}/segments"):
        fs.sync_dir(folder)
    return fs


def open_journal(fs: MemoryFileSystem) -> Journal:
    uid = Store(fs, ROOT).load().uid
    return Journal.open(f"{ROOT}/journal", uid=uid, fs=fs, background=False)


def damaged() -> MemoryFileSystem:
    fs = made()
    fs.flip(JOURNAL, 120)
    with pytest.raises(CorruptFile):
        open_journal(fs)
    return fs


def fixed(
    fs: MemoryFileSystem, *, discard_journal: bool = False, dry_run: bool = False
) -> RepairReport:
    return repair(ROOT, fs=fs, config=CONFIG, discard_journal=discard_journal, dry_run=dry_run)


def records(fs: MemoryFileSystem) -> list[Record]:
    with Log.open(ROOT, CONFIG, fs=fs) as log:
        return list(log.records())


def test_a_damaged_journal_is_reported_and_left_alone() -> None:
    fs = damaged()
    tree = fs.tree()
    report = fixed(fs)
    assert [(item.what, item.path) for item in report.actions] == [(What.UNTRUSTED, "journal")]
    assert "at byte" in report.actions[0].detail
    assert (report.journal, report.changed) == (What.UNTRUSTED, False)
    assert fs.tree() == tree


def test_one_that_is_given_up_is_kept_for_study_and_the_node_remembers_nothing() -> None:
    fs = damaged()
    before, uid, raw = records(fs), Store(fs, ROOT).load().uid, fs.read_bytes(JOURNAL)
    report = fixed(fs, discard_journal=True)
    assert (report.journal, report.changed) == (What.GIVEN_UP, True)
    assert "now quarantine/journal-1" in report.actions[0].detail
    assert fs.read_bytes(f"{ROOT}/quarantine/journal-1/journal") == raw
    assert Store(fs, ROOT).load().uid != uid
    assert records(fs) == before
    with open_journal(fs) as journal:
        assert journal.fresh
        assert journal.promised == Ballot(0, 0)
    assert fixed(fs, discard_journal=True).actions == ()


def test_put_back_by_hand_it_is_a_strangers() -> None:
    fs = made()
    whole = fs.read_bytes(JOURNAL)
    fs.flip(JOURNAL, 120)
    fixed(fs, discard_journal=True)
    fs.mkdir(f"{ROOT}/journal")
    fs.write_bytes(JOURNAL, whole)
    with open_journal(fs) as journal:
        assert journal.fresh


def test_a_whole_journal_is_not_given_up() -> None:
    fs = made()
    tree = fs.tree()
    assert fixed(fs, discard_journal=True).actions == ()
    assert fs.tree() == tree
    with open_journal(fs) as journal:
        assert journal.promised == Ballot(4, 2)


def test_a_torn_tail_is_no_damage() -> None:
    fs = made()
    fs.write_bytes(JOURNAL, fs.read_bytes(JOURNAL) + b"\x07" * 30)
    assert fixed(fs, discard_journal=True).actions == ()
    with open_journal(fs) as journal:
        assert not journal.fresh


def test_nor_is_a_strangers_journal_that_came_with_a_copy() -> None:
    fs = damaged()
    fs.copy_tree(ROOT, "copy")
    Log.open("copy", CONFIG, fs=fs).close()
    assert repair("copy", fs=fs, config=CONFIG).actions == ()


def test_repair_and_the_node_agree_on_every_byte() -> None:
    """Whatever keeps the journal from opening is reported, and nothing else."""
    pristine, refused = made(), 0
    for offset in range(len(pristine.read_bytes(JOURNAL))):
        fs = pristine.clone()
        fs.flip(JOURNAL, offset, 0x41)
        report = fixed(fs, dry_run=True)
        try:
            open_journal(fs).close()
        except CorruptFile:
            refused += 1
            assert report.journal == What.UNTRUSTED, offset
        else:
            assert report.journal is None, offset
    assert refused > 100


def test_a_journal_that_is_open_is_not_given_up() -> None:
    fs = made()
    with open_journal(fs):
        fs.flip(JOURNAL, 120)
        with pytest.raises(LogLocked):
            fixed(fs, discard_journal=True)
    assert fs.exists(JOURNAL)


def test_a_dry_run_changes_nothing() -> None:
    fs = damaged()
    tree = fs.tree()
    report = fixed(fs, discard_journal=True, dry_run=True)
    assert fs.tree() == tree
    assert fixed(fs, discard_journal=True).actions == report.actions


def test_a_crash_on_the_way_leaves_no_journal_that_votes() -> None:
    fs = damaged()
    before = records(fs)
    begun, whole = len(fs.operations), fs.clone()
    fixed(whole, discard_journal=True)
    for call in range(begun + 1, len(whole.operations) + 1):
        crashing = fs.clone()
        crashing.crash_at = call
        with pytest.raises(SimulatedCrash):
            fixed(crashing, discard_journal=True)
        for left in [*crashing.crash_states(6, seed=call), crashing.kill()]:
            again = left.clone()
            try:
                with open_journal(left) as journal:
                    assert journal.fresh
            except CorruptFile:
                fixed(again, discard_journal=True)
                with open_journal(again) as journal:
                    assert journal.fresh
                assert again.exists(f"{ROOT}/quarantine/journal-1/journal")
            assert records(left) == before
