"""What is left of a journal after damage and after crashes: the right state, or a refusal."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy

import pytest
from crc32c import crc32c
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sirius.errors import CorruptFile, DiskFull
from sirius.testing import CrashMode, MemoryFileSystem, SimulatedCrash
from sirius.types import NO_BALLOT, Ballot
from sirius.wal import Block, Durability, FileSystem, Update, encode
from sirius.wal.frames import FileHeader, FileKind, Mark, Mode
from sirius.wal.record import Op
from tests.wal.journals import (
    CALLS,
    GROUPS,
    PATH,
    STATES,
    UID,
    B,
    Call,
    Model,
    State,
    disk_with,
    new_disk,
    opened,
    state_of,
    values,
)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return new_disk()


@pytest.fixture(params=list(Durability))
def durability(request: pytest.FixtureRequest) -> Durability:
    return Durability(request.param)


# --- damage


def life(durability: Durability, uid: int = UID) -> tuple[bytes, list[int]]:
    """The bytes of a journal whose process was killed, and where each group began."""
    fs = new_disk()
    journal = opened(fs, durability, uid)
    starts = []
    for group in GROUPS:
        starts.append(len(fs.read_bytes(PATH)))
        for call in group:
            call.make(journal)
        journal.flush()
    return fs.read_bytes(PATH), starts


def state_in(fs: FileSystem, durability: Durability = Durability.FSYNC) -> State:
    with opened(fs, durability) as journal:
        return state_of(journal)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flip_in_any_byte_is_found(durability: Durability, mask: int) -> None:
    raw, _ = life(durability)
    last_mark = len(raw) - 48
    assert state_in(disk_with(raw), durability) == STATES[-1]
    for offset in range(len(raw)):
        fs = disk_with(raw)
        fs.flip(PATH, offset, mask)
        if offset < last_mark:
            with pytest.raises(CorruptFile):
                opened(fs, durability)
            assert fs.read_bytes(PATH)[offset] == raw[offset] ^ mask, "damage must not be tidied up"
        else:
            assert state_in(fs, durability) == STATES[-1]


@pytest.mark.parametrize("length", [8, 48, 112, 512])
def test_zeroes_anywhere_are_found(durability: Durability, length: int) -> None:
    raw, _ = life(durability)
    for offset in range(0, len(raw) - 48 - length, 8):
        if raw[offset : offset + length].strip(b"\0"):
            fs = disk_with(raw)
            fs.zero(PATH, offset, length)
            with pytest.raises(CorruptFile):
                opened(fs, durability)


def test_frames_that_stand_in_each_others_place_are_found(fs: MemoryFileSystem) -> None:
    with opened(fs) as journal:
        journal.promise(B[1])
        journal.promise(B[2])
        journal.flush()
    fs.swap(PATH, 112, 160, 48)
    with pytest.raises(CorruptFile, match="wrong place"):
        opened(fs)


@pytest.mark.parametrize("other", ["another log's", "an earlier"])
def test_a_frame_of_another_file_is_no_frame(fs: MemoryFileSystem, other: str) -> None:
    same_log = other == "an earlier"
    raw, starts = life(Durability.FSYNC, UID if same_log else UID + 1)
    with opened(fs) as journal:
        journal.trim_bytes_min = 0 if same_log else 10**6
        for call in GROUPS[0]:
            call.make(journal)
        journal.flush()
        for _ in range(5):
            journal.promise(B[1])
        journal.flush()
    mine = fs.read_bytes(PATH)
    at = starts[0] if not same_log else mine.index(b"SJRN")
    stray = raw[raw.index(b"SJRN") :][:48]
    assert mine[at : at + 4] == stray[:4]
    assert mine[at : at + 48] != stray
    fs.overwrite(PATH, at, stray)
    with pytest.raises(CorruptFile):
        opened(fs)


def test_a_file_that_is_no_journal_is_not_taken_for_an_empty_one() -> None:
    for raw in (b"", b"SIRIUSWL", b"rubbish" * 99):
        with pytest.raises(CorruptFile):
            opened(disk_with(raw))


def test_a_journal_cut_at_any_byte_of_its_last_group(durability: Durability) -> None:
    raw, starts = life(durability)
    before = len(CALLS) - len(GROUPS[-1])
    for size in range(starts[-1], len(raw) + 1):
        found = state_in(disk_with(raw[:size]), durability)
        assert found in STATES[before:]
        assert (found == STATES[-1]) == (size >= len(raw) - 48)


@pytest.mark.parametrize("mode", [Durability.FSYNC, Durability.OS])
def test_in_mode_os_a_whole_frame_behind_damage_is_not_guessed_about(mode: Durability) -> None:
    fs = new_disk()
    with opened(fs, mode) as journal:
        journal.promise(B[1])
        journal.promise(B[2])
        journal.flush()
        raw = fs.read_bytes(PATH)[: 64 + 48 + 48 + 48]
    damaged = disk_with(raw)
    damaged.flip(PATH, 64 + 48 + 20)
    if mode == Durability.FSYNC:
        assert state_in(damaged, mode).promised == NO_BALLOT
    else:
        with pytest.raises(CorruptFile):
            opened(damaged, mode)


def test_a_journal_that_was_refused_is_not_locked() -> None:
    raw, _ = life(Durability.FSYNC)
    fs = disk_with(raw)
    fs.flip(PATH, 100)
    with pytest.raises(CorruptFile):
        opened(fs)
    fs.flip(PATH, 100)
    assert state_in(fs) == STATES[-1]


@pytest.mark.parametrize("tail", [bytes(1), bytes(7), bytes(4096), b"SJRN" * 20, b"SMRK" * 30])
def test_rubbish_behind_the_last_group_is_cut_off(durability: Durability, tail: bytes) -> None:
    raw, _ = life(durability)
    fs = disk_with(raw + tail)
    assert state_in(fs, durability) == STATES[-1]
    kept, behind = fs.read_bytes(PATH)[: len(raw)], fs.read_bytes(PATH)[len(raw) :]
    assert kept == raw
    assert behind.startswith(b"SMRK")
    assert len(behind) % 48 == 0


def test_bytes_inside_a_value_prove_nothing(fs: MemoryFileSystem) -> None:
    raw, _ = life(Durability.FSYNC)
    stowaway = Update(Op.PUT, b"k" * 8, raw)
    with opened(fs) as journal:
        journal.promise(B[1])
        journal.flush()
        size = len(fs.read_bytes(PATH))
        journal.accept(B[1], encode(1, [stowaway], ts_us=7))
        journal.flush()
    torn = fs.read_bytes(PATH)[: size + 48 + 64 + 48 + 8 + len(raw) - 1]
    assert torn.endswith(raw[:-1])
    assert state_in(disk_with(torn)) == State(B[1], NO_BALLOT, 0, {}, {})


# --- frames that no version of ours wrote, although their checksums are right


def forged(*frames: bytes) -> MemoryFileSystem:
    """A journal of frames (from byte 8 on, payload included), whose checksums are put right, and a synced mark."""
    header = FileHeader(FileKind.JOURNAL, 1, UID, 1, 0)
    raw = header.encode()
    for frame in frames:
        crc = crc32c(frame[:40], crc32c(header.encode()))
        raw += b"SJRN" + crc.to_bytes(4, "little") + frame
    return disk_with(raw + Mark(Mode.FSYNC, True, 0, UID, 1, len(raw), 0).encode())


def frame(
    kind: int, payload: bytes = b"", length: int | None = None, round: int = 1, at: int = 64
) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack("<IIQQQII", kind, size, round, 2, at, crc32c(payload), 0) + payload


def test_a_forged_frame_is_believed_when_it_makes_sense() -> None:
    assert state_in(forged(frame(1))).promised == Ballot(1, 2)
    assert list(state_in(forged(frame(3, values(4, 5, "a").raw))).slots) == [4, 5]
    assert state_in(forged(frame(5, b"\1\0\0\0kvvv"))).notes == {b"k": b"vvv"}


NONSENSE = {
    "kind 0": frame(0),
    "kind 6": frame(6),
    "a promise with a payload": frame(1, bytes(8)),
    "a long trim": frame(4, bytes(16)),
    "a short trim": frame(4),
    "a huge note": frame(5, length=2**32 - 1),
    "a key longer than its note": frame(5, b"\5\0\0\0kvvv"),
    "no block": frame(3, bytes(64)),
    "less than a block's header": frame(3, values(1, 1, "a").raw[:56]),
    "more than a block": frame(3, values(1, 1, "a").raw + bytes(8)),
    "a huge block": frame(3, length=2**32 - 1),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_a_forged_frame_that_makes_no_sense_is_refused(what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile):
            opened(forged(NONSENSE[what]))
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (frame(1, round=2), frame(1, at=112)),
        (frame(1, round=2), frame(3, values(1, 1, "a").raw, at=112)),
        (frame(2, round=2), frame(2, round=2, at=112)),
    ],
    ids=["promise", "accept", "ballot"],
)
def test_a_file_in_which_a_promise_goes_back_is_refused(before: bytes, after: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"below|was used"):
        opened(forged(before, after))


# --- crashes


def run(fs: MemoryFileSystem, durability: Durability, replacing: bool) -> int:
    """Live through `GROUPS`, up to the crash; return how many calls were durable by then."""
    journal = opened(fs, durability)
    try:
        if replacing:
            journal.trim_bytes_min = 0
        for group in GROUPS:
            for call in group:
                call.make(journal)
            journal.flush()
        journal.close()
    except SimulatedCrash:
        pass
    return journal.durable


def crashes(durability: Durability, replacing: bool) -> Iterator[tuple[MemoryFileSystem, int]]:
    """Every point at which the process may die, with the number of calls that were durable."""
    whole = new_disk()
    run(whole, durability, replacing)
    for number in range(2, len(whole.operations) + 1):
        modes: tuple[CrashMode, ...] = ("before", "partial")
        for mode in modes:
            fs = new_disk()
            fs.crash_at, fs.crash_mode = number + 1, mode
            try:
                durable = run(fs, durability, replacing)
            except SimulatedCrash:
                durable = 0
            yield fs, durable


def goes_on(fs: MemoryFileSystem, durability: Durability) -> None:
    """What was recovered can be written to, and is found again."""
    with opened(fs, durability) as journal:
        before = state_of(journal)
        journal.promise(B[9])
    assert state_in(fs, durability) == before._replace(promised=B[9])


@pytest.mark.parametrize("replacing", [False, True])
def test_no_crash_loses_what_was_durable(replacing: bool) -> None:
    count = 0
    for crashed, durable in crashes(Durability.FSYNC, replacing):
        for state in [*crashed.crash_states(60), crashed.kill()]:
            count += 1
            assert state_in(state.clone()) in STATES[durable:]
            goes_on(state, Durability.FSYNC)
    assert count > 300


@pytest.mark.parametrize("durability", [Durability.OS, Durability.MEMORY])
@pytest.mark.parametrize("replacing", [False, True])
def test_in_mode_os_no_kill_loses_anything(durability: Durability, replacing: bool) -> None:
    for crashed, durable in crashes(durability, replacing):
        killed = crashed.kill()
        assert state_in(killed, durability) in STATES[durable:]
        goes_on(killed, durability)


@pytest.mark.parametrize("replacing", [False, True])
def test_in_mode_os_a_power_loss_leaves_a_prefix_or_is_found(replacing: bool) -> None:
    outcomes = set()
    for crashed, _ in crashes(Durability.OS, replacing):
        for state in crashed.crash_states(60):
            try:
                assert state_in(state, Durability.OS) in STATES
                outcomes.add("prefix")
            except CorruptFile:
                outcomes.add("found")
    assert "prefix" in outcomes


def test_a_crash_during_recovery_loses_nothing() -> None:
    raw, _ = life(Durability.FSYNC)
    for torn in (raw[:-1], raw[:-60], raw + b"SJRN"):
        wanted = STATES[-1] if len(torn) > len(raw) - 48 else None
        for number in range(1, 9):
            fs = disk_with(torn)
            fs.crash_at = number + len(fs.operations)
            with suppress(SimulatedCrash):
                opened(fs).close()
            for state in fs.crash_states(60):
                found = state_in(state)
                assert found in (STATES[-2], STATES[-3], STATES[-1])
                assert wanted in (None, found)


def test_a_crash_while_a_foreign_journal_is_set_aside() -> None:
    raw, _ = life(Durability.FSYNC, uid=UID + 1)
    for number in range(1, 14):
        fs = disk_with(raw)
        fs.crash_at = number + len(fs.operations)
        with suppress(SimulatedCrash):
            opened(fs).close()
        for state in fs.crash_states(60):
            with opened(state) as journal:
                assert journal.fresh
            assert state.read_bytes(f"{PATH}.foreign-{UID + 1:016x}") == raw


# --- a random life against the model


class RandomLife(RuleBasedStateMachine):
    """Calls in any order, with crashes in between. `history[0]` is durable, the last one is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.fs = new_disk()
        self.journal = opened(self.fs)
        self.model = Model()
        self.history = [Model()]
        self.tags = 0

    def ask(self, name: str, *args: Ballot | Block | bytes | int) -> None:
        call = Call(name, args)
        call.make(self.journal)
        call.make(self.model)
        self.history.append(deepcopy(self.model))

    def raised(self, by: int) -> Ballot:
        round, node = self.model.promised
        return Ballot(round + by // 2, node + by % 2)

    @rule(by=st.integers(0, 3))
    def promise(self, by: int) -> None:
        self.ask("promise", self.raised(by))

    @rule(by=st.integers(1, 3))
    def use_ballot(self, by: int) -> None:
        highest = self.model.highest
        self.ask("use_ballot", Ballot(highest.round + by // 2, highest.node + 1))

    @rule(by=st.integers(0, 3), first=st.integers(1, 25), length=st.integers(1, 12))
    def accept(self, by: int, first: int, length: int) -> None:
        self.tags += 1
        block = values(first, first + length - 1, f"{self.tags}", size=self.tags % 3 * 50)
        self.ask("accept", self.raised(by), block)

    @rule(key=st.binary(max_size=1), value=st.binary(max_size=9))
    def note(self, key: bytes, value: bytes) -> None:
        self.ask("note", key, value)

    @rule(ahead=st.integers(-1, 6))
    def trim(self, ahead: int) -> None:
        self.ask("trim", max(0, self.model.trimmed + ahead))

    @rule(bytes_min=st.sampled_from([0, 500, 10**6]))
    def choose_when_to_replace(self, bytes_min: int) -> None:
        self.journal.trim_bytes_min = bytes_min

    @rule()
    def flush(self) -> None:
        self.journal.flush()
        self.history = [deepcopy(self.model)]

    @rule()
    def read(self) -> None:
        assert state_of(self.journal) == self.model.state()
        self.history = [deepcopy(self.model)]

    @precondition(lambda self: len(self.history) > 1)
    @rule(room=st.integers(0, 47))
    def fill_the_disk(self, room: int) -> None:
        self.fs.capacity_bytes = self.fs.used_bytes + room
        with pytest.raises(DiskFull):
            self.journal.flush()
        self.fs.capacity_bytes = None
        self.journal.resume()
        self.go_back_to(self.history[0])

    @rule()
    def close(self) -> None:
        self.journal.close()
        self.journal = opened(self.fs)
        assert state_of(self.journal) == self.model.state()
        self.history = [deepcopy(self.model)]

    @rule()
    def kill(self) -> None:
        self.reopen(self.fs.kill())

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        states = list(self.fs.crash_states(12, seed=seed))
        self.reopen(random.Random(seed).choice(states))

    def reopen(self, fs: MemoryFileSystem) -> None:
        self.fs, self.journal = fs, opened(fs)
        found = state_of(self.journal)
        possible = [model for model in self.history if model.state() == found]
        assert possible, f"{found} is not among {[model.state() for model in self.history]}"
        self.go_back_to(possible[-1])

    def go_back_to(self, model: Model) -> None:
        self.model = deepcopy(model)
        self.history = [deepcopy(model)]

    @invariant()
    def agrees(self) -> None:
        asked = self.model.state()
        journal = self.journal
        assert (journal.promised, journal.highest_ballot) == (asked.promised, asked.highest)
        assert (journal.trimmed_to, dict(journal.notes)) == (asked.trimmed, asked.notes)
        journal.check()


RandomLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_a_random_life = RandomLife.TestCase
