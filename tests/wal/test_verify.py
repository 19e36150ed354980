"""Verification: every flipped byte is found, checking goes on behind damage, and nothing is ever raised."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.errors import NotALog, SiriusError
from sirius.types import SegmentId
from sirius.wal import (
    CompactionPolicy,
    Durability,
    Log,
    LogConfig,
    LogReader,
    Manifest,
    Op,
    OsFileSystem,
    Record,
    Update,
    encode,
)
from sirius.wal.block import HEADER, Header
from sirius.wal.store import Store
from sirius.wal.verify.verify import Finding, Report, Severity, verify
from tests.strides import BYTE_BY_BYTE

CONFIG = LogConfig(
    durability=Durability.FSYNC, background=False, segment_records_max=4, reserve_bytes=0
)


def check(path: Path, *, deep: bool = False, live: bool = False) -> Report:
    return verify(Store(OsFileSystem(), str(path)), deep=deep, live=live)


def updates(n: int) -> list[Update]:
    return [Update(Op.PUT, b"key/%d" % n, b"body %d" % n)] * (1 + n % 2)


def write(path: Path, count: int = 5, config: LogConfig = CONFIG) -> Path:
    """Make a log of `count` blocks of one or two records: 7 records in 2 segments, by default."""
    with Log.open(path, config, now_us=lambda: 1_000_000) as log:
        for n in range(count):
            log.write(updates(n))
            log.flush()
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "log")


def records_of(path: Path) -> list[Record] | None:
    """Return what a reader gets, or None if it is refused."""
    try:
        with LogReader.open(str(path)) as reader:
            return list(reader.snapshot().records())
    except (SiriusError, OSError):
        return None


def data(log: Path, segment: int) -> Path:
    return log / "segments" / f"{segment:08d}" / "data"


def frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield offset and magic of every frame of a data file."""
    raw, at = path.read_bytes(), 64
    while at < len(raw):
        magic = raw[at : at + 4]
        yield at, magic
        at += 48 if magic == b"SMRK" else Header._make(HEADER.unpack_from(raw, at)).size


def places(path: Path, magic: bytes) -> list[int]:
    return [at for at, found in frames(path) if found == magic]


def flip(path: Path, offset: int, bits: int = 0x01) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= bits
    path.write_bytes(raw)


def shown(report: Report) -> list[str]:
    return [f"{f.severity} {f.path} {f.offset} {f.what}" for f in report.findings]


def one(report: Report) -> Finding:
    assert len(report.findings) == 1, shown(report)
    return report.findings[0]


# ---------------------------------------------------------------------- sound logs


def test_a_sound_log_has_no_findings(log: Path) -> None:
    for deep in (False, True):
        report = check(log, deep=deep)
        assert report.findings == []
        assert report.sound
        assert (report.segments, report.blocks, report.records) == (2, 5, 7)
        files = [*log.glob("segments/*/data"), *log.glob("segments/*/index")]
        assert report.bytes == sum(path.stat().st_size for path in files)


def test_progress_ends_where_it_should(log: Path) -> None:
    steps: list[tuple[int, int]] = []
    verify(
        Store(OsFileSystem(), str(log)), progress=lambda done, total: steps.append((done, total))
    )
    size = sum(path.stat().st_size for path in log.glob("segments/*/data"))
    assert steps[-1] == (size, size)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_a_compacted_log_is_sound_and_its_history_is_noted(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", CONFIG) as log:
        for n in range(20):
            log.put(f"key/{n % 3}", b"x")
        log.flush()
        log.compact(CompactionPolicy(dead_fraction_min=0.0))
        report = check(tmp_path / "log", deep=True, live=True)
    assert report.sound
    assert report.findings
    assert {f.severity for f in report.findings} == {Severity.NOTE}
    assert all("kept for readers of manifest" in f.what for f in report.findings)


@pytest.mark.parametrize("durability", list(Durability))
def test_a_log_of_any_durability_is_sound(durability: Durability, tmp_path: Path) -> None:
    config = LogConfig(durability=durability, segment_records_max=4, reserve_bytes=0)
    assert check(write(tmp_path / "log", config=config), deep=True).findings == []


@pytest.mark.parametrize("name", ["nowhere", "folder"])
def test_what_is_no_log_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(NotALog):
        check(tmp_path / name)


# ---------------------------------------------------------------------- every byte


@BYTE_BY_BYTE
def test_every_flipped_byte_of_the_data_is_found(tmp_path: Path, step: int) -> None:
    log = write(tmp_path / "log", 4)
    records = records_of(log)
    harmless = 0
    for segment in (1, 2):
        path = data(log, segment)
        whole = path.read_bytes()
        for offset in range(0, len(whole), step):
            flip(path, offset, 1 << offset % 8)
            report = check(log)
            if report.sound:
                # Only the last mark may go without loss: nothing that it vouched for is gone.
                found = one(report)
                assert "torn tail of 48 bytes" in found.what
                assert segment == 2
                assert offset >= len(whole) - 48
                assert records_of(log) == records
                harmless += 1
            path.write_bytes(whole)
    assert harmless == sum(offset >= len(whole) - 48 for offset in range(0, len(whole), step))
    assert check(log).findings == []


def test_every_flipped_byte_of_an_index_or_a_manifest_is_found(tmp_path: Path) -> None:
    log = write(tmp_path / "log", 4)
    paths = [*log.glob("segments/*/index"), *log.glob("manifests/*")]
    assert len(paths) == 4
    for path in paths:
        whole = path.read_bytes()
        for offset in range(0, len(whole), 5):
            flip(path, offset, 1 << offset % 8)
            found = check(log).findings[0]
            is_active_index = path.parent.name == "00000002"
            assert found.severity == (Severity.WARNING if is_active_index else Severity.ERROR)
            assert found.path == str(path.relative_to(log))
            path.write_bytes(whole)


MUTATIONS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.binary(max_size=20), st.booleans()),
    min_size=1,
    max_size=4,
)


def mutate(log: Path, mutations: Sequence[tuple[int, int, bytes, bool]]) -> None:
    """Overwrite parts of files, or cut files off."""
    paths = sorted(path for path in log.rglob("*") if path.is_file() and path.stat().st_size)
    for which, where, patch, cut in mutations:
        path = paths[which % len(paths)]
        raw = path.read_bytes()
        at = where % (len(raw) + 1)
        path.write_bytes(raw[:at] + patch + (b"" if cut else raw[at + len(patch) :]))


@settings(max_examples=100, deadline=None)
@given(MUTATIONS)
def test_damage_is_never_raised_and_never_missed(
    tmp_path_factory: pytest.TempPathFactory, mutations: list[tuple[int, int, bytes, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    log = write(folder / "log", 3)
    records = records_of(log)
    mutate(log, mutations)
    report = check(log, deep=True)
    if not report.findings:
        assert records_of(log) == records
    shutil.rmtree(folder)


# ---------------------------------------------------------------------- going on behind damage


def test_a_damaged_record_is_named_and_the_rest_is_checked(log: Path) -> None:
    path = data(log, 1)
    flip(path, path.read_bytes().index(b"body 1"))
    report = check(log)
    assert shown(report) == [
        "error segments/00000001/data 288 a block's payload checksum does not match; "
        "2 to 3 cannot be read; damaged of these: 2"
    ]
    assert (report.blocks, report.records) == (4, 5)


def test_damage_to_headers_is_passed_over_frame_by_frame(log: Path) -> None:
    path = data(log, 1)
    first, second, _ = places(path, b"SBLK")
    flip(path, first + 20)
    mark = next(at for at in places(path, b"SMRK") if at > second)
    flip(path, mark + 30)
    report = check(log)
    assert shown(report) == [
        f"error segments/00000001/data {first} the block header's checksum does not match; "
        "1 cannot be read",
        f"error segments/00000001/data {mark} "
        "a mark fails its checksum or stands in the wrong place",
    ]
    assert (report.segments, report.blocks, report.records) == (2, 4, 6)


def test_damage_up_to_the_end_of_a_segment(log: Path) -> None:
    path = data(log, 1)
    last = places(path, b"SBLK")[-1]
    path.write_bytes(path.read_bytes()[:last] + bytes(path.stat().st_size - last))
    report = check(log)
    assert one(report).what == "no block begins here; 4 cannot be read"
    assert report.records == 6


def test_a_mark_behind_the_last_block_is_checked_too(log: Path) -> None:
    path = data(log, 1)
    last, mark = places(path, b"SBLK")[-1], places(path, b"SMRK")[-1]
    flip(path, last + 120)
    flip(path, mark + 20)
    assert [finding.offset for finding in check(log).findings] == [last, mark]


def test_a_damaged_segment_does_not_hide_the_next(log: Path) -> None:
    flip(data(log, 1), 3)
    flip(data(log, 2), places(data(log, 2), b"SBLK")[0] + 70)
    report = check(log)
    assert [f.path for f in report.findings] == ["segments/00000001/data", "segments/00000002/data"]
    assert report.findings[0].offset == 0
    assert report.count(Severity.ERROR) == 2


def test_a_torn_tail_is_a_warning_and_for_a_live_log_a_note(log: Path) -> None:
    with data(log, 2).open("ab") as file:
        file.write(encode(8, updates(8), 0).raw[:90])
    torn = one(check(log))
    assert (torn.severity, torn.what[:24]) == (Severity.WARNING, "a torn tail of 90 bytes ")
    live = one(check(log, live=True))
    assert live.severity == Severity.NOTE
    assert live.what == "90 bytes of a write that is going on"
    with Log.open(log, CONFIG):
        pass
    assert check(log).findings == []


def test_behind_damage_a_torn_tail_is_judged_by_the_last_good_mark(log: Path) -> None:
    path = data(log, 2)
    first, second = places(path, b"SBLK")
    end = next(at for at in places(path, b"SMRK") if at > second)
    unfinished = bytes(64) + encode(8, updates(8), 0).raw
    path.write_bytes(path.read_bytes()[:end] + unfinished)
    flip(path, first)
    severities = [(finding.offset, finding.severity) for finding in check(log).findings]
    assert severities == [(first, Severity.ERROR), (end, Severity.WARNING)]


# ---------------------------------------------------------------------- files and manifests


def remove_segment(log: Path) -> None:
    shutil.rmtree(data(log, 1).parent)


def remove_active_segment(log: Path) -> None:
    shutil.rmtree(data(log, 2).parent)


def remove_index(log: Path) -> None:
    (data(log, 1).parent / "index").unlink()


def cut_at_a_frame(log: Path) -> None:
    path = data(log, 1)
    path.write_bytes(path.read_bytes()[: places(path, b"SBLK")[-1]])


def extend(log: Path) -> None:
    with data(log, 1).open("ab") as file:
        file.write(b"more")


def swap_in_another_segment(log: Path) -> None:
    other = write(log.parent / "other")
    raw = data(other, 1).read_bytes()
    data(log, 2).write_bytes(raw)


def folder_for_file(log: Path) -> None:
    data(log, 1).unlink()
    data(log, 1).mkdir()


def half_an_index_entry(log: Path) -> None:
    with (data(log, 2).parent / "index").open("ab") as file:
        file.write(b"\0" * 20)


def index_ahead_of_the_data(log: Path) -> None:
    with (data(log, 2).parent / "index").open("ab") as file:
        file.write(b"\0" * 48)


def rewrite_manifest(log: Path, change: Callable[[Manifest], Manifest]) -> None:
    store = Store(OsFileSystem(), str(log))
    path = Path(store.manifest_path(store.versions()[0]))
    path.write_bytes(change(store.load()).encode())


def another_index_checksum(log: Path) -> None:
    def change(manifest: Manifest) -> Manifest:
        first, second = manifest.segments
        return replace(manifest, segments=(replace(first, index_crc=7), second))

    rewrite_manifest(log, change)


def used_segment_id(log: Path) -> None:
    rewrite_manifest(log, lambda manifest: replace(manifest, next_segment=SegmentId(1)))


def stranger(log: Path) -> None:
    (log / "notes.txt").write_text("mine")


def crashed_build(log: Path) -> None:
    (log / "segments" / "00000009.tmp").mkdir()


def crashed_commit(log: Path) -> None:
    (log / "manifests" / "0000000003.tmp").write_bytes(b"half")


def renamed_manifest(log: Path) -> None:
    (log / "manifests" / "0000000002").rename(log / "manifests" / "0000000003")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (remove_segment, "error segments/00000001/data None missing; 1 to 4 cannot be read"),
        (
            remove_active_segment,
            "error segments/00000002/data None missing; what begins at 5 cannot be read",
        ),
        (
            remove_index,
            "error segments/00000001/index None missing; every reader builds it anew in memory",
        ),
        (
            cut_at_a_frame,
            "error segments/00000001/data None bytes: the file has 520, the manifest says 744",
        ),
        (
            extend,
            "warning segments/00000001/data 744 4 bytes behind the end that the manifest names",
        ),
        (swap_in_another_segment, "error segments/00000002/data 0 the file says"),
        (
            folder_for_file,
            "error segments/00000001/data None it cannot be read: Is a directory",
        ),
        (
            index_ahead_of_the_data,
            "warning segments/00000002/index 96 the index does not match the data",
        ),
        (
            another_index_checksum,
            "error segments/00000001/index None its checksum is not the one that the manifest holds",
        ),
        (used_segment_id, "error manifests/0000000002 None manifest 2: "),
        (stranger, "note notes.txt None not a part of the log"),
        (
            crashed_build,
            "warning segments/00000009.tmp None left by a crash",
        ),
        (crashed_commit, "warning manifests/0000000003.tmp None left by a crash"),
        (
            renamed_manifest,
            "error manifests/0000000003 None the file says that it is version 2",
        ),
    ],
)
def test_what_is_wrong_with_files(damage: Callable[[Path], None], expected: str, log: Path) -> None:
    damage(log)
    assert shown(check(log))[0].startswith(expected)


def test_half_an_index_entry_of_the_active_segment_is_ordinary(log: Path) -> None:
    half_an_index_entry(log)
    assert check(log).findings == []


def test_the_index_of_a_live_log_may_be_ahead_of_what_was_read(log: Path) -> None:
    index_ahead_of_the_data(log)
    assert check(log, live=True).findings == []


def test_what_a_live_writer_may_be_making_is_a_note(log: Path) -> None:
    crashed_build(log)
    assert one(check(log, live=True)).severity == Severity.NOTE


def test_without_its_newest_manifest_the_one_before_is_checked(log: Path) -> None:
    flip(log / "manifests" / "0000000002", 100)
    report = check(log)
    assert shown(report) == [
        "error manifests/0000000002 0 the manifest's checksum does not match",
        "warning segments/00000002 None no manifest that can be read names it; "
        "one that cannot be may",
    ]
    assert report.segments == 1, "the manifest before knew of one segment"


def test_without_any_manifest_that_can_be_read_there_is_nothing_to_check(log: Path) -> None:
    for path in (log / "manifests").iterdir():
        flip(path, 100)
    report = check(log)
    assert [f.severity for f in report.findings] == [Severity.ERROR] * 2
    assert report.segments == 0


def test_a_quarantined_segment_is_an_error(log: Path) -> None:
    with Log.open(log, CONFIG) as writer:
        writer.quarantine(SegmentId(1), "rust")
    assert one(check(log)).what == "quarantined: 1 to 4 cannot be read: rust"


def test_what_a_log_may_hold_is_no_stranger(log: Path) -> None:
    for name in ("journal", "quarantine"):
        (log / name).mkdir()
    (log / "RESERVE").touch()
    assert check(log).findings == []
