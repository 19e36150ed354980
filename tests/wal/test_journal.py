"""The acceptor's memory: what it takes, what it refuses, what it gives back, and how it fails."""

from __future__ import annotations

import errno
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from sirius.errors import (
    CorruptFile,
    DiskFull,
    InvalidRecord,
    InvariantViolation,
    LogClosed,
    LogFailed,
    LogLocked,
    UsageError,
)
from sirius.testing import MemoryFileSystem
from sirius.types import NO_BALLOT, Ballot
from sirius.wal import Durability, Limits, OsFileSystem
from sirius.wal.journal.file import NOTE_BYTES_MAX, Frame, Kind
from sirius.wal.journal.journal import NOTES_MAX, Journal
from tests.wal.journals import (
    FOLDER,
    PATH,
    UID,
    B,
    State,
    new_disk,
    opened,
    slots_of,
    state_of,
    values,
)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return new_disk()


@pytest.fixture(params=list(Durability))
def durability(request: pytest.FixtureRequest) -> Durability:
    return Durability(request.param)


# --- bytes


GOLDEN = {
    Frame(Kind.PROMISE, Ballot(1, 2)): (
        "534a524e 2bec3c19"  # magic "SJRN", checksum of the 40 bytes that follow, begun with the salt
        "01000000 00000000"  # kind, bytes of the payload
        "0100000000000000 0200000000000000"  # round, node
        "3412000000000000"  # own offset
        "00000000 00000000"  # checksum of the payload, reserved
    ),
    Frame(Kind.BALLOT, Ballot(3, 4)): (
        "534a524e 06104992 02000000 00000000 0300000000000000 0400000000000000"
        "3412000000000000 00000000 00000000"
    ),
    Frame.trim(9): (
        "534a524e 31b425df 04000000 08000000 0000000000000000 0000000000000000"
        "3412000000000000 77cb2f87 00000000"
        "0900000000000000"  # the decided point
    ),
    Frame.note(b"key", b"value"): (
        "534a524e 53849074 05000000 0c000000 0000000000000000 0000000000000000"
        "3412000000000000 ba41d59d 00000000"
        "03000000 6b6579 76616c7565 00000000"  # bytes of the key, key, value, zeroes
    ),
}


@pytest.mark.parametrize("frame", GOLDEN)
def test_the_bytes_of_a_frame_never_change(frame: Frame) -> None:
    assert b"".join(frame.encode(0x1234, salt=0xABCD)) == bytes.fromhex(GOLDEN[frame])


def test_an_accepted_block_stands_in_its_frame_as_it_came() -> None:
    block = values(1, 3, "a")
    raw = b"".join(Frame(Kind.ACCEPT, Ballot(5, 6), block.raw).encode(0x1234, salt=0xABCD))
    head = struct.pack("<IIQQQII", 3, len(block), 5, 6, 0x1234, crc32c(block.raw), 0)
    assert raw == b"SJRN" + crc32c(head, 0xABCD).to_bytes(4, "little") + head + block.raw


# --- what is put in comes back


def test_a_new_journal_remembers_nothing(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        assert state_of(journal) == State(NO_BALLOT, NO_BALLOT, 0, {}, {})
        assert journal.fresh


def test_everything_survives_closing(fs: MemoryFileSystem, durability: Durability) -> None:
    with opened(fs, durability) as journal:
        journal.promise(B[2])
        journal.use_ballot(B[4])
        journal.accept(B[3], values(1, 4, "a"))
        journal.accept(B[3], values(7, 9, "b"))
        journal.note(b"incarnation", b"\x00\xff")
        journal.note(b"", b"")
        journal.trim(2)
        before = state_of(journal)
    assert before.promised == B[3]
    assert sorted(before.slots) == [3, 4, 7, 8, 9]
    assert before.slots[4] == (B[3], b"a:4")
    assert before.notes == {b"incarnation": b"\x00\xff", b"": b""}
    with opened(fs, durability) as journal:
        assert state_of(journal) == before
        assert not journal.fresh


def test_a_later_note_replaces_an_earlier_one(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.note(b"k", b"first")
        journal.flush()
        journal.note(b"k", b"second")
        assert journal.notes == {b"k": b"second"}
    with opened(fs) as journal:
        assert journal.notes == {b"k": b"second"}


def test_the_bytes_of_a_block_are_kept_as_they_came(fs: MemoryFileSystem) -> None:
    block = values(5, 9, "a")
    with opened(fs) as journal:
        journal.accept(B[1], block)
        assert journal.accepted(5, 9) == [(B[1], block)]
        assert block.raw in fs.read_bytes(PATH)


def test_real_files_with_a_thread(tmp_path: Path, durability: Durability) -> None:
    folder = tmp_path / "journal"
    with Journal.open(folder, uid=UID, durability=durability) as journal:
        for slot in range(1, 50):
            journal.accept(B[1], values(slot, slot, "a"))
            if slot % 7 == 0:
                journal.sync()
        assert journal.flush(timeout_s=60) == 49
        before = state_of(journal)
    with Journal.open(folder, uid=UID, durability=durability) as journal:
        assert state_of(journal) == before
        assert len(before.slots) == 49


def test_the_mode_may_change_between_openings(fs: MemoryFileSystem) -> None:
    for number, durability in enumerate([*Durability, *Durability], start=1):
        with opened(fs, durability) as journal:
            assert len(slots_of(journal)) == number - 1
            journal.accept(B[1], values(number, number, "a"))


# --- overlapping values


def test_a_later_value_takes_the_place_of_the_slots_it_covers(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.accept(B[1], values(1, 10, "a"))
        journal.accept(B[2], values(4, 6, "b"))
        journal.accept(B[3], values(6, 12, "c"))
        ranges = [(ballot, block.first, block.last) for ballot, block in journal.accepted(1, 99)]
        assert ranges == [(B[1], 1, 3), (B[2], 4, 5), (B[3], 6, 12)]
        slots = slots_of(journal)
    assert slots[3] == (B[1], b"a:3")
    assert slots[5] == (B[2], b"b:5")
    assert slots[6] == (B[3], b"c:6")
    with opened(fs) as journal:
        assert slots_of(journal) == slots


@pytest.mark.parametrize(("first", "last"), [(3, 3), (2, 5), (1, 99), (5, 4), (7, 9), (10, 11)])
def test_a_part_is_cut_out(fs: MemoryFileSystem, first: int, last: int) -> None:
    with opened(fs) as journal:
        journal.accept(B[1], values(2, 6, "a"))
        journal.accept(B[1], values(9, 10, "b"))
        wanted = [slot for slot in (2, 3, 4, 5, 6, 9, 10) if first <= slot <= last]
        assert list(slots_of(journal, first, last)) == wanted


def test_values_that_wait_are_made_durable_before_they_are_told(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        ticket = journal.accept(B[1], values(1, 1, "a"))
        assert journal.durable < ticket
        assert slots_of(journal) == {1: (B[1], b"a:1")}
        assert journal.durable == ticket


# --- what an acceptor without bugs never asks for


def test_a_lower_promise_is_a_bug(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.promise(B[4])
        journal.promise(B[4])
        with pytest.raises(InvariantViolation, match="below the promise"):
            journal.promise(B[3])
        assert journal.promised == B[4]


def test_to_accept_below_the_promise_is_a_bug(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.promise(B[4])
        with pytest.raises(InvariantViolation, match="below the promise"):
            journal.accept(B[3], values(1, 1, "a"))
        assert slots_of(journal) == {}


def test_to_accept_is_to_promise(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.accept(B[5], values(1, 1, "a"))
        with pytest.raises(InvariantViolation):
            journal.promise(B[4])
    with opened(fs) as journal:
        assert journal.promised == B[5]


@pytest.mark.parametrize("again", [3, 4])
def test_a_ballot_is_never_used_twice(fs: MemoryFileSystem, again: int) -> None:
    with opened(fs) as journal:
        journal.use_ballot(B[4])
    with opened(fs) as journal:
        assert journal.highest_ballot == B[4]
        with pytest.raises(InvariantViolation, match="was used"):
            journal.use_ballot(B[again])
        journal.use_ballot(B[5])


def test_ballots_are_ordered_by_round_then_node(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        for ballot in (Ballot(1, 9), Ballot(2, 1), Ballot(2, 2), Ballot(2**64 - 1, 2**64 - 1)):
            journal.promise(ballot)
    with opened(fs) as journal:
        assert journal.promised == Ballot(2**64 - 1, 2**64 - 1)


@pytest.mark.parametrize("ballot", [Ballot(2**64, 0), Ballot(0, 2**64), Ballot(-1, 0)])
def test_a_ballot_that_does_not_fit_is_refused(fs: MemoryFileSystem, ballot: Ballot) -> None:
    with opened(fs) as journal, pytest.raises(UsageError):
        journal.promise(ballot)


def test_what_could_not_be_read_again_is_not_taken(fs: MemoryFileSystem) -> None:
    limits = Limits(block_bytes_max=1000)
    with Journal.open(FOLDER, uid=UID, fs=fs, limits=limits, background=False) as journal:
        with pytest.raises(InvalidRecord, match="limit"):
            journal.accept(B[1], values(1, 20, "a"))
        with pytest.raises(UsageError, match="note"):
            journal.note(b"k", bytes(NOTE_BYTES_MAX))
        journal.note(b"k", bytes(NOTE_BYTES_MAX - 1))
        for number in range(NOTES_MAX - 1):
            journal.note(number.to_bytes(2), b"")
        with pytest.raises(UsageError, match="notes"):
            journal.note(b"one more", b"")
        journal.note(b"k", b"again")
        notes = dict(journal.notes)
    with Journal.open(FOLDER, uid=UID, fs=fs, limits=limits, background=False) as journal:
        assert dict(journal.notes) == notes


# --- tickets and groups


def test_a_group_is_one_write_and_one_sync(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        before = len(fs.operations)
        for slot in range(1, 65):
            journal.accept(B[1], values(slot, slot, "a"))
        assert len(fs.operations) == before
        journal.sync()
        assert [name for name, _ in fs.operations[before:]] == ["append", "sync", "append"]


def test_in_mode_os_a_group_is_one_write(fs: MemoryFileSystem) -> None:
    with opened(fs, Durability.OS) as journal:
        before = len(fs.operations)
        journal.promise(B[1])
        journal.accept(B[1], values(1, 1, "a"))
        journal.sync()
        assert [name for name, _ in fs.operations[before:]] == ["append"]


def test_tickets_increase_and_become_durable_in_order(fs: MemoryFileSystem) -> None:
    told: list[int] = []
    with opened(fs) as journal:
        journal.on_durable(told.append)
        tickets = [journal.promise(B[1]), journal.use_ballot(B[1]), journal.note(b"k", b"v")]
        assert (journal.durable, told) == (0, [])
        assert journal.sync() == tickets[-1]
        tickets += [journal.accept(B[1], values(1, 1, "a")), journal.trim(1)]
        assert journal.flush() == tickets[-1] == journal.durable
        assert journal.flush() == tickets[-1]
        assert told == [tickets[2], tickets[4]]
    assert tickets == sorted(set(tickets))


def test_the_thread_tells_what_is_durable(tmp_path: Path) -> None:
    done = threading.Event()
    told: list[int] = []
    threads: set[threading.Thread] = set()

    def tell(ticket: int) -> None:
        told.append(ticket)
        threads.add(threading.current_thread())
        if ticket == 200:
            done.set()

    with Journal.open(tmp_path / "journal", uid=UID) as journal:
        journal.on_durable(tell)
        for _ in range(200):
            journal.promise(B[1])
            journal.sync()
        assert done.wait(60)
    assert told == sorted(set(told))
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_too_much_waiting_is_written_without_being_asked(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sirius.wal.journal.journal._WAITING_BYTES_MAX", 10_000)
    with opened(fs) as journal:
        for slot in range(1, 100):
            ticket = journal.accept(B[1], values(slot, slot, "a", size=500))
            assert ticket == slot
            assert ticket - journal.durable < 20


# --- whose journal it is


def test_one_process_at_a_time(fs: MemoryFileSystem) -> None:
    with opened(fs), pytest.raises(LogLocked):
        opened(fs)
    opened(fs).close()


def test_another_logs_journal_is_set_aside(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.promise(B[3])
    kept = fs.read_bytes(PATH)
    with opened(fs, uid=UID + 1) as journal:
        assert journal.fresh
        assert journal.promised == NO_BALLOT
        assert fs.read_bytes(f"{PATH}.foreign-{UID:016x}") == kept
        journal.promise(B[1])
    with opened(fs, uid=UID + 1) as journal:
        assert (journal.fresh, journal.promised) == (False, B[1])


def test_a_journal_that_was_opened_and_not_written_is_still_fresh(fs: MemoryFileSystem) -> None:
    opened(fs).close()
    with opened(fs) as journal:
        assert journal.fresh


@pytest.mark.parametrize(
    "remember",
    [
        lambda journal: journal.promise(B[1]),
        lambda journal: journal.use_ballot(B[1]),
        lambda journal: journal.accept(NO_BALLOT, values(1, 1, "a")),
        lambda journal: journal.note(b"", b""),
        lambda journal: journal.trim(1),
    ],
)
def test_whatever_is_remembered_ends_freshness(
    fs: MemoryFileSystem, remember: Callable[[Journal], int]
) -> None:
    with opened(fs) as journal:
        remember(journal)
    with opened(fs) as journal:
        assert not journal.fresh


def test_a_closed_journal_takes_nothing(fs: MemoryFileSystem) -> None:
    journal = opened(fs)
    journal.close()
    journal.close()
    with pytest.raises(LogClosed):
        journal.promise(B[1])


# --- failing


@pytest.mark.parametrize("operation", ["append", "sync"])
def test_a_failed_write_stops_the_journal_for_good(fs: MemoryFileSystem, operation: str) -> None:
    journal = opened(fs)
    journal.promise(B[1])
    journal.flush()
    journal.promise(B[2])
    fs.fail("append" if operation == "append" else "sync", PATH, errno.EIO)
    with pytest.raises(LogFailed) as caught:
        journal.flush()
    assert not isinstance(caught.value, DiskFull)
    assert journal.durable == 1
    journal.resume()
    calls: list[Callable[[], int]] = [lambda: journal.promise(B[3]), journal.sync, journal.flush]
    for call in calls:
        with pytest.raises(LogFailed):
            call()
    done = len(fs.operations)
    journal.close()
    assert fs.operations[done:] == []
    with opened(fs) as again:
        assert again.promised == B[1]


def test_a_disk_that_cannot_sync_is_noticed_when_opening(fs: MemoryFileSystem) -> None:
    opened(fs).close()
    fs.fail("sync", PATH, errno.EIO)
    with pytest.raises(LogFailed):
        opened(fs)


def test_a_failed_sync_is_heard_by_who_waits_for_the_thread(fs: MemoryFileSystem) -> None:
    journal = Journal.open(FOLDER, uid=UID, fs=fs)
    fs.fail("sync", PATH, errno.EIO)
    journal.promise(B[1])
    with pytest.raises(LogFailed, match="not retried"):
        journal.flush(timeout_s=60)
    assert isinstance(journal.failure, LogFailed)
    journal.close()


def test_a_full_disk_takes_the_group_back(fs: MemoryFileSystem, durability: Durability) -> None:
    journal = opened(fs, durability)
    journal.promise(B[1])
    journal.accept(B[1], values(1, 3, "a"))
    acknowledged = journal.flush()
    before = state_of(journal)
    size = len(fs.read_bytes(PATH))
    fs.capacity_bytes = fs.used_bytes + 100
    journal.promise(B[2])
    journal.note(b"k", b"v")
    void = journal.accept(B[2], values(1, 2, "b"))
    with pytest.raises(DiskFull):
        journal.flush()
    with pytest.raises(DiskFull):
        journal.promise(B[3])
    assert journal.durable == acknowledged
    assert len(fs.read_bytes(PATH)) == size
    fs.capacity_bytes = None
    assert journal.resume() == void
    assert state_of(journal) == before
    assert journal.promise(B[2]) > void
    journal.close()
    with opened(fs, durability) as journal:
        assert state_of(journal) == before._replace(promised=B[2])


def test_what_is_not_even_queued_when_the_disk_fills_up_is_void_as_well(
    fs: MemoryFileSystem,
) -> None:
    with opened(fs) as journal:
        journal.promise(B[1])
        journal._commits.fail(DiskFull("no room for the group before"))
        journal.resume()
        journal.flush()
        assert journal.promised == NO_BALLOT
    with opened(fs) as journal:
        assert journal.fresh


def test_a_full_disk_does_not_undo_what_was_synced(fs: MemoryFileSystem) -> None:
    journal = opened(fs)
    fs.capacity_bytes = fs.used_bytes + 48
    ticket = journal.promise(B[1])
    assert journal.flush() == ticket
    journal.promise(B[2])
    with pytest.raises(DiskFull):
        journal.flush()
    journal.close()
    with opened(fs.kill()) as journal:
        assert journal.promised == B[1]


def test_rot_that_is_met_while_reading_stops_the_journal(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.accept(B[1], values(1, 3, "a"))
        journal.flush()
        fs.flip(PATH, fs.read_bytes(PATH).index(b"a:2"))
        with pytest.raises(CorruptFile):
            journal.accepted(1, 3)
        with pytest.raises(CorruptFile):
            journal.promise(B[2])


# --- trimming


def test_what_is_trimmed_is_not_told_any_more(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.accept(B[1], values(1, 10, "a"))
        journal.trim(4)
        assert list(slots_of(journal)) == [5, 6, 7, 8, 9, 10]
        journal.accept(B[2], values(2, 5, "b"))
        journal.trim(3)
        assert slots_of(journal, 1, 6) == {5: (B[2], b"b:5"), 6: (B[1], b"a:6")}
        assert journal.trimmed_to == 4
        before = state_of(journal)
    with opened(fs) as journal:
        assert state_of(journal) == before


def test_the_file_is_replaced_when_most_of_it_is_dead(
    fs: MemoryFileSystem, durability: Durability
) -> None:
    with opened(fs, durability) as journal:
        journal.trim_bytes_min = 20_000
        journal.use_ballot(B[9])
        journal.note(b"k", b"v")
        sizes = []
        for slot in range(1, 200):
            journal.accept(B[1], values(slot, slot, "a", size=1000))
            journal.trim(max(slot - 5, 0))
            journal.flush()
            sizes.append(len(fs.read_bytes(PATH)))
        assert max(sizes) < 35_000
        assert min(sizes[50:]) < 10_000
        before = state_of(journal)
        assert list(before.slots) == list(range(195, 200))
        assert f"{PATH}.tmp" not in fs.tree()
    with opened(fs, durability) as journal:
        assert state_of(journal) == before


def test_a_journal_below_the_threshold_is_left_alone(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        for slot in range(1, 20):
            journal.accept(B[1], values(slot, slot, "a", size=1000))
        journal.trim(19)
        journal.flush()
        assert len(fs.read_bytes(PATH)) > 19_000


def test_overlapping_values_survive_the_replacement(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.accept(B[1], values(1, 10, "a"))
        journal.accept(B[2], values(3, 5, "b"))
        journal.accept(B[3], values(5, 8, "c"))
        journal.promise(B[6])
        journal.trim(1)
        before = state_of(journal)
        journal.trim_bytes_min = 0
        for _ in range(100):
            journal.promise(B[6])
            journal.flush()
        assert len(fs.read_bytes(PATH)) < 5000
        assert state_of(journal) == before
    with opened(fs) as journal:
        assert state_of(journal) == before


def test_a_replacement_for_which_there_is_no_room_waits(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.trim_bytes_min = 1000
        journal.note(b"k", bytes(5000))
        for slot in range(1, 11):
            journal.accept(B[1], values(slot, slot, "a", size=1000))
        journal.flush()
        fs.capacity_bytes = fs.used_bytes + 2000
        journal.trim(10)
        journal.flush()
        before = state_of(journal)
        assert journal.failure is None
        assert f"{PATH}.tmp" not in fs.tree()
        fs.capacity_bytes = None
        for _ in range(30):
            journal.promise(B[1])
            journal.flush()
        assert len(fs.read_bytes(PATH)) < 8000
        assert state_of(journal) == before


def test_a_file_that_was_not_finished_is_rubbish(fs: MemoryFileSystem) -> None:
    opened(fs).close()
    fs.write_bytes(f"{PATH}.tmp", b"half")
    opened(fs).close()
    assert f"{PATH}.tmp" not in fs.tree()


def test_a_failed_replacement_stops_the_journal(fs: MemoryFileSystem) -> None:
    journal = opened(fs)
    journal.trim_bytes_min = 0
    fs.fail("sync_dir", FOLDER, errno.ENOSPC)
    journal.promise(B[1])
    with pytest.raises(LogFailed) as caught:
        journal.flush()
    assert not isinstance(caught.value, DiskFull)
    journal.close()
    with opened(fs.kill()) as journal:
        assert journal.promised == B[1]


def test_a_folder_that_cannot_be_made_is_a_failure_of_ours() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("log")
    fs.fail("mkdir", FOLDER, errno.ENOSPC)
    with pytest.raises(DiskFull):
        opened(fs)


def test_the_name_of_a_new_folder_is_synced(fs: MemoryFileSystem) -> None:
    Journal.open(FOLDER + "/", uid=UID, fs=fs, background=False).close()
    assert fs.operations[2:4] == [("mkdir", FOLDER), ("sync_dir", "log")]


def test_the_default_file_system_is_the_real_one(tmp_path: Path) -> None:
    Journal.open(tmp_path / "journal", uid=UID).close()
    assert OsFileSystem().listdir(str(tmp_path / "journal")) == ["LOCK", "journal"]
