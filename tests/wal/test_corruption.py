"""Damage to a log's files: all of it is noticed, and no wrong record is ever read.

What is promised, for a log that was closed and then damaged:

- No record that is read differs from what was written, none is out of order, none is made up.
- A byte that changes anywhere, in any file, makes no record disappear silently: reading says that it cannot.
- The index is a hint: whatever happens to it, every record can still be read.
- A **sealed** segment that is cut, at any length, is noticed: the manifest knows how long it is.
- The **active** segment is different, because a file that was cut looks the same as one whose last write never reached
  the disk. Cut so that no mark is left behind the cut, it counts as a torn tail: what is read is every block that is
  whole, in order, up to the cut, and nothing says that there was more. (The same goes for damage that covers all
  marks from its first byte to the end of the file.) Other nodes know better; a log alone cannot.

`lost` below is that last exception, spelt out.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from sirius.errors import CorruptFile, CorruptLog, NotALog, RangeUnavailable
from sirius.testing import MemoryFileSystem
from sirius.testing.logs import (
    SMALL_LOG,
    Damage,
    Kind,
    damaged,
    random_damage,
    updates,
    write_log,
)
from sirius.wal import (
    CompactionPolicy,
    Durability,
    Log,
    LogConfig,
    LogReader,
    Op,
    OsFileSystem,
    Record,
    Snapshot,
    Update,
)
from sirius.wal.frames import MARK_BYTES, MARK_MAGIC, read_file_header
from tests.strides import BYTE_BY_BYTE, SOME

Refusal = (CorruptLog, NotALog, RangeUnavailable)
Read = list[Record] | None
DATA, INDEX = "log/segments/00000001/data", "log/segments/00000001/index"
SOAK = os.environ.get("SIRIUS_SOAK") == "1"


def by_log(fs: MemoryFileSystem) -> Read:
    """Open for writing and read everything; None is a refusal."""
    try:
        with Log.open("log", SMALL_LOG, fs=fs) as log:
            return list(log.records())
    except Refusal:
        return None


def by_reader(fs: MemoryFileSystem) -> Read:
    """Read everything without opening for writing."""
    try:
        with LogReader.open("log", fs=fs) as reader:
            return list(reader.snapshot().records())
    except Refusal:
        return None


def groups() -> list[list[Update]]:
    """64 records in 8 blocks."""
    one_by_one = [Update(Op.PUT, f"k{n}".encode(), b"v%d" % n, n, n) for n in range(64)]
    return [one_by_one[at : at + 8] for at in range(0, 64, 8)]


@dataclass(frozen=True)
class Original:
    """A log before the damage."""

    fs: MemoryFileSystem
    records: list[Record]

    def __post_init__(self) -> None:
        assert by_reader(self.fs) == by_log(self.fs.clone()) == self.records

    def size(self, path: str) -> int:
        return len(self.fs.read_bytes(path))

    @cached_property
    def path(self) -> str:
        """The data file of the active segment."""
        with LogReader.open("log", fs=self.fs) as reader:
            return f"log/segments/{reader.manifest.active.name}/data"

    @cached_property
    def ends(self) -> list[int]:
        """Where each block of the active segment ends."""
        with LogReader.open("log", fs=self.fs) as reader:
            table = reader.snapshot().index(reader.manifest.active)
        return [int(end) for end in table["offset"] + table["size"]]

    @cached_property
    def marks(self) -> list[int]:
        """Where each mark of the active segment begins."""
        raw = self.fs.read_bytes(self.path)
        return [at for at in range(0, len(raw), 8) if raw.startswith(MARK_MAGIC, at)]


@pytest.fixture(scope="module")
def active() -> Original:
    """A closed log whose one segment is the active one."""
    fs = MemoryFileSystem()
    return Original(fs, write_log(fs, "log", groups()))


@pytest.fixture(scope="module")
def sealed() -> Original:
    """The same records in a sealed segment, and one more in the active one."""
    fs = MemoryFileSystem()
    config = LogConfig(reserve_bytes=0, background=False, segment_records_max=64)
    return Original(fs, write_log(fs, "log", [*groups(), [Update(Op.PUT, b"more")]], config))


def byte_damages(at: int) -> list[Damage]:
    """One bit, all bits, and a zero."""
    flips = [Damage(Kind.FLIP, at, value=mask) for mask in (1 << at % 8, 0xFF)]
    return [*flips, Damage(Kind.FILL, at, value=0)]


# --- the active segment ---------------------------------------------------------------------------


def changed(original: Original, path: str, damage: Damage) -> MemoryFileSystem | None:
    fs = damaged(original.fs, path, damage)
    return None if fs.read_bytes(path) == original.fs.read_bytes(path) else fs


def check_byte(original: Original, damage: Damage) -> None:
    """No byte of the data can change so that a record is missing and nobody says so."""
    fs = changed(original, DATA, damage)
    if fs is None:
        return
    before = fs.read_bytes(DATA)
    if damage.at % 2:
        # With the index a reader need not look at the data before it is asked for it.
        fs.write_bytes(INDEX, b"")
    assert by_reader(fs) in (None, original.records), damage
    read = by_log(fs)
    assert read in (None, original.records), damage
    assert read is not None or fs.read_bytes(DATA) == before, damage


def test_every_byte_of_the_active_segment_is_guarded(active: Original) -> None:
    for at in range(0, active.size(DATA), SOME):
        check_byte(active, byte_damages(at)[at % 3])


@pytest.mark.deep
def test_every_byte_of_the_active_segment_is_guarded_in_every_way(active: Original) -> None:
    for at in range(active.size(DATA)):
        for damage in byte_damages(at):
            check_byte(active, damage)


@pytest.mark.parametrize("name", ["active", "sealed"])
def test_the_index_can_be_damaged_without_harm(name: str, request: pytest.FixtureRequest) -> None:
    original: Original = request.getfixturevalue(name)
    size = original.size(INDEX)
    damages = [byte_damages(at)[at % 3] for at in range(size)]
    damages += [Damage(Kind.CUT, at) for at in range(0, size, 5)]
    damages += [Damage(Kind.APPEND, length=n, value=n) for n in (1, 48, 96)]
    for damage in damages:
        fs = damaged(original.fs, INDEX, damage)
        assert by_reader(fs) == original.records, damage
        assert by_log(fs) == original.records, damage


def check_cut(original: Original, size: int, *, log: bool) -> None:
    fs = damaged(original.fs, DATA, Damage(Kind.CUT, size))
    whole = sum(end <= size for end in original.ends)
    wanted = original.records[: 8 * whole] if size >= 64 else None
    assert by_reader(fs) == wanted, size
    if log:
        assert by_log(fs) == wanted, size


def test_the_active_segment_cut_anywhere_is_read_up_to_the_last_whole_block(
    active: Original,
) -> None:
    for size in range(0, active.size(DATA), SOME):
        check_cut(active, size, log=size % 6 == 0)


@pytest.mark.deep
def test_the_active_segment_cut_anywhere_is_recovered_up_to_the_last_whole_block(
    active: Original,
) -> None:
    for size in range(active.size(DATA)):
        check_cut(active, size, log=True)


def test_a_damaged_segment_that_is_set_apart_keeps_its_numbers(active: Original) -> None:
    for at in range(0, active.size(DATA), 11):
        fs = damaged(active.fs, DATA, Damage(Kind.FLIP, at, value=0xFF))
        with Log.open("log", SMALL_LOG, fs=fs, on_corrupt="quarantine") as log:
            assert log.put("new", b"") == 65
            log.flush()
            assert log.record(65) is not None
            apart = log.manifest.segments[:-1]
        assert [(info.first, info.last) for info in apart] in ([], [(1, 64)])
        read = by_reader(fs)
        assert read is None if apart else read is not None and read[:-1] == active.records


def test_an_index_that_points_beyond_all_files_is_not_believed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    records = write_log(OsFileSystem(), str(log), groups())
    index = log / "segments" / "00000001" / "index"
    raw = index.read_bytes()
    for at in range(len(raw) - 48, len(raw)):
        for value in (0x80, 0xFF):
            index.write_bytes(Damage(Kind.FILL, at, value=value).apply(raw))
            with LogReader.open(str(log)) as reader:
                assert list(reader.snapshot().records()) == records


# --- a sealed segment -----------------------------------------------------------------------------


@BYTE_BY_BYTE
def test_every_byte_of_a_sealed_segment_is_guarded(sealed: Original, step: int) -> None:
    for at in range(0, sealed.size(DATA), step):
        damage = byte_damages(at)[at % 3]
        read = by_reader(damaged(sealed.fs, DATA, damage))
        assert read in (None, sealed.records), damage


@BYTE_BY_BYTE
def test_a_sealed_segment_cut_anywhere_is_noticed(sealed: Original, step: int) -> None:
    for size in range(0, sealed.size(DATA), step):
        fs = damaged(sealed.fs, DATA, Damage(Kind.CUT, size))
        assert (by_log if size % 16 else by_reader)(fs) is None, size


def test_what_follows_the_end_of_a_sealed_segment_is_not_looked_at(sealed: Original) -> None:
    fs = damaged(sealed.fs, DATA, Damage(Kind.APPEND, length=100, value=1))
    assert by_reader(fs) == by_log(fs) == sealed.records


def test_a_sealed_segment_in_the_place_of_another_is_noticed() -> None:
    fs = MemoryFileSystem()
    config = LogConfig(reserve_bytes=0, background=False, segment_records_max=8)
    records = write_log(fs, "log", groups(), config)
    paths = [f"log/segments/{number:08d}/data" for number in range(1, 8)]
    for path, other in zip(paths, reversed(paths), strict=True):
        copy = fs.clone()
        copy.write_bytes(path, fs.read_bytes(other))
        assert by_reader(copy) == (records if path == other else None)


def test_a_sealed_segment_of_another_log_is_noticed(sealed: Original) -> None:
    other = MemoryFileSystem()
    with Log.open("log", SMALL_LOG, fs=other, now_us=lambda: 7) as log:
        for group in groups():
            log.write(group)
            log.flush()
    fs = sealed.fs.clone()
    for path in (DATA, INDEX):
        fs.write_bytes(path, other.read_bytes(path))
    assert fs.read_bytes(DATA) != sealed.fs.read_bytes(DATA)
    assert len(fs.read_bytes(DATA)) == sealed.size(DATA)
    assert by_reader(fs) is None


def test_a_segment_whose_file_says_another_number_is_noticed(sealed: Original) -> None:
    fs = sealed.fs.clone()
    raw = fs.read_bytes(DATA)
    header = read_file_header(fs.open(DATA, "r"), DATA)
    fs.write_bytes(DATA, header._replace(segment=2).encode() + raw[64:])
    with pytest.raises(CorruptFile, match="segment 2") as caught:
        list(LogReader.open("log", fs=fs).snapshot().records())
    assert caught.value.offset == 0


# --- looking up one record ------------------------------------------------------------------------


def looked_up(snapshot: Snapshot, seqs: Sequence[int]) -> Iterator[tuple[int, Record | None]]:
    """Yield what a snapshot says of each number, if it does not refuse to say."""
    for seq in seqs:
        try:
            yield seq, snapshot.record(seq)
        except Refusal:
            continue


def check_lookups(original: Original, fs: MemoryFileSystem, at: int, reach: int) -> None:
    """Let a byte rot under a reader that is open, and look up what stands near."""
    block = sum(end <= at for end in original.ends)
    seqs = [seq for seq in range(1, 65) if abs((seq - 1) // 8 - block) <= reach]
    with LogReader.open("log", fs=fs) as reader:
        snapshot = reader.snapshot()
        fs.flip(DATA, at, 0xFF)
        for seq, record in looked_up(snapshot, seqs):
            assert record == original.records[seq - 1], (at, seq)
        fs.flip(DATA, at, 0xFF)


def test_a_lookup_never_returns_a_damaged_record(active: Original) -> None:
    fs = active.fs.clone()
    for at in range(0, active.size(DATA), 3):
        check_lookups(active, fs, at, reach=0)


@pytest.mark.deep
def test_no_lookup_of_any_record_returns_a_damaged_one(active: Original) -> None:
    fs = active.fs.clone()
    for at in range(active.size(DATA)):
        check_lookups(active, fs, at, reach=8)


# --- at random, after compaction ------------------------------------------------------------------


def compacted(durability: Durability) -> Original:
    """A log of many segments, some of them rewritten by compaction, closed."""
    fs = MemoryFileSystem()
    config = LogConfig(
        durability, reserve_bytes=0, background=False, segment_records_max=30, retire_after_s=0
    )
    history = updates(230, keys=60, seed=5)
    with Log.open("log", config, fs=fs) as log:
        for at in range(0, 230, 5):
            log.write(history[at : at + 5])
            log.flush()
        assert log.compact(CompactionPolicy(dead_fraction_min=0)).records_dropped
        log.retire()
        log.write(updates(5, keys=60, seed=6))
        records = list(log.records(1, log.flush()))
    return Original(fs, records)


def lost(original: Original, path: str, fs: MemoryFileSystem) -> bool:
    """Say whether damage may look like a torn tail: the active segment, and no mark is left behind."""
    if path != original.path:
        return False
    before, after = original.fs.read_bytes(path), fs.read_bytes(path)
    size = min(len(before), len(after))
    first = next((at for at in range(size) if before[at] != after[at]), size)
    behind = [at for at in original.marks if at + MARK_BYTES > first]
    return not any(before[at : at + MARK_BYTES] == after[at : at + MARK_BYTES] for at in behind)


def check_random(original: Original, seed: int) -> None:
    rng = random.Random(seed)
    path = rng.choice([path for path in original.fs.tree() if "LOCK" not in path])
    damage = random_damage(rng, original.size(path))
    fs = damaged(original.fs, path, damage)
    torn = lost(original, path, fs)
    for read in (by_reader(fs), by_log(fs)):
        told = f"seed {seed}: {path}: {damage}"
        assert read is None or read == original.records[: len(read)], told
        assert torn or read is None or len(read) == len(original.records), told


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.OS])
def test_no_damage_makes_a_log_tell_lies(durability: Durability) -> None:
    original = compacted(durability)
    for seed in range(1000):
        check_random(original, seed)


@pytest.mark.deep
@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.OS])
def test_no_damage_of_very_many_makes_a_log_tell_lies(durability: Durability) -> None:
    original = compacted(durability)
    for seed in range(1000, 2_500_000 if SOAK else 3_000):
        check_random(original, seed)
