"""The disk in memory: killed, stopped at a point, failing, full and rotting."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import get_args

import pytest

from sirius.testing import CrashMode, MemoryFileSystem, Operation, SimulatedCrash
from sirius.wal.fs import File
from tests.testing.disks import append, assert_same, create, endings, failing, trees, with_files

# --- kill -9


def test_kill_keeps_what_was_visible_and_still_not_durable() -> None:
    fs = with_files(a=b"a")
    append(fs, "a", b"x")
    create(fs, "b", b"b")
    before = trees(fs)
    after = fs.kill()
    assert after.tree() == {"a": b"ax", "b": b"b"}
    assert trees(after) == before
    after.sync_dir("")
    after.open("a", "r").sync()
    assert trees(after) == [{"a": b"ax", "b": b"b"}]


def test_kill_takes_handles_and_locks_along() -> None:
    fs = with_files(a=b"a")
    lock, file = fs.lock("LOCK"), fs.open("a", "a")
    after = fs.kill()
    uses: list[Callable[[], object]] = [
        lambda: file.read(0, 1),
        lambda: file.append([b"x"]),
        lambda: file.truncate(0),
        lambda: file.allocate(1),
        file.sync,
        file.size,
        lambda: fs.open("a", "r"),
        lambda: fs.remove("a"),
    ]
    for use in uses:
        with pytest.raises(OSError, match="Bad file") as caught:
            use()
        assert caught.value.errno == errno.EBADF
    held = after.lock("LOCK")
    lock.release()
    file.close()
    with pytest.raises(BlockingIOError):
        after.lock("LOCK")
    held.release()
    assert after.tree() == {"LOCK": b"", "a": b"a"}


# --- stopping at a point


def script(fs: MemoryFileSystem) -> None:
    """Every numbered call once, and some others."""
    fs.mkdir("d")
    file = fs.open("d/a", "x")
    file.append([b"abcd"])
    file.truncate(3)
    file.allocate(5)
    file.sync()
    fs.replace("d/a", "b")
    fs.sync_dir("d")
    fs.rmdir("d")
    fs.listdir("")
    fs.open("b", "r").read(0, 1)
    fs.remove("b")


SCRIPT = [
    ("mkdir", "d"),
    ("open", "d/a"),
    ("append", "d/a"),
    ("truncate", "d/a"),
    ("allocate", "d/a"),
    ("sync", "d/a"),
    ("replace", "d/a -> b"),
    ("sync_dir", "d"),
    ("rmdir", "d"),
    ("remove", "b"),
]


def test_operations_lists_the_calls_that_change_something() -> None:
    fs = MemoryFileSystem()
    script(fs)
    assert fs.operations == SCRIPT
    assert not fs.crashed


@pytest.mark.parametrize("number", range(1, len(SCRIPT) + 1))
def test_a_crash_stops_before_the_nth_call(number: int) -> None:
    fs = MemoryFileSystem(crash_at=number)
    with pytest.raises(SimulatedCrash, match=f"call {number};"):
        script(fs)
    assert fs.crashed
    assert fs.operations == SCRIPT[:number]
    before = [{}, {}, {"d/a": b""}, {"d/a": b"abcd"}, {"d/a": b"abc"}, *[{"d/a": b"abc\0\0"}] * 2]
    trees_before = [*before, *[{"b": b"abc\0\0"}] * 3]
    assert fs.tree() == trees_before[number - 1]


@pytest.mark.parametrize(("mode", "left"), [("before", b"ab"), ("partial", b"abcd")])
def test_a_crash_may_leave_half_an_append(mode: CrashMode, left: bytes) -> None:
    fs = with_files(a=b"ab")
    fs.crash_at, fs.crash_mode = 1, mode
    with pytest.raises(SimulatedCrash):
        append(fs, "a", b"cdef")
    assert fs.kill().tree() == {"a": left}
    if mode == "partial":
        assert_same(endings(fs, "a"), [b"abcd", b"ab", b"abc", b"abc\0", b"ab\0\0"])


def test_a_partial_crash_leaves_other_calls_undone() -> None:
    fs = MemoryFileSystem(crash_at=1, crash_mode="partial")
    with pytest.raises(SimulatedCrash):
        fs.mkdir("d")
    assert not fs.kill().exists("d")


def test_after_a_crash_every_call_raises_and_cleaning_up_is_harmless() -> None:
    fs = with_files(a=b"a")
    file, lock = fs.open("a", "a"), fs.lock("LOCK")
    fs.crash_at = 1
    with pytest.raises(SimulatedCrash):
        file.sync()
    uses: list[Callable[[], object]] = [
        lambda: file.read(0, 1),
        file.size,
        file.sync,
        file.forget,
        lambda: file.append([b"x"]),
        lambda: fs.open("a", "r"),
        lambda: fs.listdir(""),
        lambda: fs.exists("a"),
        lambda: fs.lock("LOCK"),
        lambda: fs.identity("a"),
        lambda: fs.remove("a"),
    ]
    for use in uses:
        with pytest.raises(SimulatedCrash):
            use()
    file.close()
    lock.release()
    assert fs.operations == [("sync", "a")]
    assert fs.kill().tree() == {"LOCK": b"", "a": b"a"}


def test_a_crash_is_not_an_exception_that_code_may_swallow() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_a_crash_cannot_be_set_in_the_past() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("d")
    for number in (0, 1):
        with pytest.raises(ValueError, match="above 1"):
            fs.crash_at = number
    with pytest.raises(ValueError, match="above 0"):
        MemoryFileSystem(crash_at=0)


# --- failing


def test_a_failure_hits_the_operation_on_the_path_so_many_times() -> None:
    fs = with_files(ab=b"1", cd=b"2")
    fs.fail("remove", "b", errno.EIO, times=2)
    assert failing(lambda: fs.remove("ab")) == errno.EIO
    fs.remove("cd")
    fs.replace("ab", "b")
    assert failing(lambda: fs.remove("b")) == errno.EIO
    fs.remove("b")
    assert (
        fs.operations
        == [("remove", "ab"), ("remove", "cd"), ("replace", "ab -> b")] + [("remove", "b")] * 2
    )


def test_every_operation_can_fail_and_then_does_nothing() -> None:
    fs = with_files(a=b"abc")
    fs.mkdir("d")
    file = fs.open("a", "a")
    uses: dict[Operation, Callable[[], object]] = {
        "open": lambda: fs.open("new", "x"),
        "read": lambda: file.read(0, 1),
        "append": lambda: file.append([b"x"]),
        "truncate": lambda: file.truncate(0),
        "allocate": lambda: file.allocate(9),
        "sync": file.sync,
        "forget": file.forget,
        "size": file.size,
        "replace": lambda: fs.replace("a", "b"),
        "remove": lambda: fs.remove("a"),
        "mkdir": lambda: fs.mkdir("e"),
        "rmdir": lambda: fs.rmdir("d"),
        "listdir": lambda: fs.listdir(""),
        "exists": lambda: fs.exists("a"),
        "isdir": lambda: fs.isdir("a"),
        "sync_dir": lambda: fs.sync_dir(""),
        "lock": lambda: fs.lock("LOCK"),
        "identity": lambda: fs.identity("a"),
    }
    assert tuple(uses) == get_args(Operation)
    for operation, use in uses.items():
        fs.fail(operation, "", errno.EIO)
        assert failing(use) == errno.EIO
    assert fs.tree() == {"a": b"abc"}
    assert fs.listdir("") == ["a", "d"]


def test_an_unknown_operation_cannot_fail() -> None:
    with pytest.raises(ValueError, match="fsync"):
        MemoryFileSystem().fail("fsync", "", errno.EIO)  # type: ignore[arg-type]


def with_failed_sync() -> tuple[MemoryFileSystem, File]:
    fs = with_files(a=b"ab")
    file = fs.open("a", "a")
    file.append([b"cd"])
    fs.fail("sync", "a", errno.EIO)
    assert failing(file.sync) == errno.EIO
    return fs, file


def test_after_a_failed_sync_the_bytes_are_read_and_never_saved() -> None:
    fs, file = with_failed_sync()
    assert file.read(0, 9) == b"abcd"
    assert_same(endings(fs, "a"), [b"ab\0\0", b"ab"])
    file.sync()
    assert file.read(0, 9) == b"abcd"
    assert fs.kill().tree() == {"a": b"abcd"}
    assert endings(fs, "a") == [b"ab\0\0"]


def test_after_a_failed_sync_later_bytes_are_saved() -> None:
    fs, file = with_failed_sync()
    file.append([b"ef"])
    file.sync()
    assert file.read(0, 9) == b"abcdef"
    assert endings(fs, "a") == [b"ab\0\0ef"]


def test_after_a_failed_sync_forgetting_shows_the_disk() -> None:
    _, file = with_failed_sync()
    file.append([b"ef"])
    file.forget()
    assert (file.read(0, 9), file.size()) == (b"ab\0\0ef", 6)


def test_after_a_failed_sync_and_a_good_one_forgetting_shows_the_disk() -> None:
    _, file = with_failed_sync()
    file.sync()
    file.forget()
    assert file.read(0, 9) == b"ab\0\0"


def test_after_a_failed_sync_a_truncation_takes_the_lost_bytes_back() -> None:
    fs, file = with_failed_sync()
    file.truncate(2)
    file.append([b"EF"])
    file.sync()
    file.forget()
    assert file.read(0, 9) == b"abEF"
    assert endings(fs, "a") == [b"abEF"]


def test_a_failed_sync_of_one_file_leaves_others_alone() -> None:
    fs, _ = with_failed_sync()
    fs.write_bytes("b", b"")
    append(fs, "b", b"x")
    fs.open("b", "r").sync()
    assert all(tree["b"] == b"x" for tree in trees(fs))


def test_after_a_failed_sync_dir_the_names_are_still_pending() -> None:
    fs = MemoryFileSystem()
    create(fs, "a", b"abc")
    fs.fail("sync_dir", "", errno.EIO)
    assert failing(lambda: fs.sync_dir("")) == errno.EIO
    assert trees(fs) == [{"a": b"abc"}, {}]


# --- full


def test_an_append_beyond_the_capacity_is_partly_written() -> None:
    fs = MemoryFileSystem(capacity_bytes=5)
    file = fs.open("a", "x")
    file.append([b"abc"])
    assert failing(lambda: file.append([b"d", b"efg"])) == errno.ENOSPC
    assert (file.read(0, 9), fs.used_bytes) == (b"abcde", 5)
    assert failing(lambda: file.append([b"x"])) == errno.ENOSPC
    assert file.size() == 5
    file.append([])


def test_room_is_given_back() -> None:
    fs = MemoryFileSystem(capacity_bytes=6)
    a, b = fs.open("a", "x"), fs.open("b", "x")
    a.append([b"aaa"])
    b.append([b"bbb"])
    assert failing(lambda: a.append([b"x"])) == errno.ENOSPC
    b.truncate(1)
    a.append([b"aa"])
    assert failing(lambda: a.append([b"x"])) == errno.ENOSPC
    fs.replace("b", "a")
    assert fs.used_bytes == 1
    fs.remove("a")
    assert fs.used_bytes == 0
    fs.open("c", "x").append([b"cccccc"])


def test_allocation_takes_room_at_once_or_not_at_all() -> None:
    fs = MemoryFileSystem(capacity_bytes=6)
    file = fs.open("a", "x")
    file.append([b"ab"])
    assert failing(lambda: file.allocate(7)) == errno.ENOSPC
    assert file.size() == 2
    file.allocate(6)
    assert fs.used_bytes == 6
    assert failing(lambda: fs.open("b", "x").append([b"x"])) == errno.ENOSPC
    file.allocate(3)


def test_the_capacity_can_change() -> None:
    fs = MemoryFileSystem(capacity_bytes=2)
    file = fs.open("a", "x")
    assert failing(lambda: file.append([b"abcd"])) == errno.ENOSPC
    fs.capacity_bytes = None
    file.append([b"cd"])
    fs.capacity_bytes = 1
    assert failing(lambda: file.append([b"efghij"])) == errno.ENOSPC
    assert file.read(0, 9) == b"abcd"


def test_half_an_append_at_a_crash_keeps_to_the_capacity() -> None:
    fs = MemoryFileSystem(capacity_bytes=1, crash_at=2, crash_mode="partial")
    file = fs.open("a", "x")
    with pytest.raises(SimulatedCrash):
        file.append([b"abcd"])
    assert fs.tree() == {"a": b"a"}


# --- rot


def rotten(damage: Callable[[MemoryFileSystem], None]) -> bytes:
    """The file after damage, which must be the same on disk and in memory."""
    fs = with_files(a=b"abcdef")
    damage(fs)
    assert endings(fs, "a") == [fs.read_bytes("a")]
    return fs.read_bytes("a")


def test_rot() -> None:
    assert rotten(lambda fs: fs.flip("a", 1)) == b"accdef"
    assert rotten(lambda fs: fs.flip("a", 0)) == b"`bcdef"
    assert rotten(lambda fs: fs.flip("a", 5, 0x80)) == b"abcde\xe6"
    assert rotten(lambda fs: fs.overwrite("a", 4, b"XY")) == b"abcdXY"
    assert rotten(lambda fs: fs.cut("a", 2)) == b"ab"
    assert rotten(lambda fs: fs.zero("a", 1, 3)) == b"a\0\0\0ef"
    assert rotten(lambda fs: fs.swap("a", 0, 4, 2)) == b"efcdab"


def test_rot_reaches_what_is_pending() -> None:
    fs = with_files(a=b"ab")
    append(fs, "a", b"cd")
    fs.overwrite("a", 1, b"XY")
    assert_same(endings(fs, "a"), [b"aXYd", b"aX", b"aXY", b"aXY\0", b"aX\0\0"])
    fs.cut("a", 3)
    assert_same(endings(fs, "a"), [b"aXY", b"aX", b"aX\0"])
    fs.cut("a", 1)
    assert endings(fs, "a") == [b"a"]


def test_a_cut_reaches_a_pending_size() -> None:
    fs = with_files(a=b"ab")
    fs.open("a", "a").allocate(9)
    fs.cut("a", 4)
    assert endings(fs, "a") == [b"ab\0\0", b"ab"]


def test_rot_outside_the_file_is_refused() -> None:
    fs = with_files(a=b"abcdef")
    uses: list[Callable[[], object]] = [
        lambda: fs.flip("a", 6),
        lambda: fs.flip("a", -1),
        lambda: fs.overwrite("a", 5, b"XY"),
        lambda: fs.cut("a", 7),
        lambda: fs.zero("a", 0, 7),
        lambda: fs.swap("a", 0, 5, 2),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="outside its 6 bytes"):
            use()
    with pytest.raises(ValueError, match="overlap"):
        fs.swap("a", 0, 1, 2)
    assert fs.tree() == {"a": b"abcdef"}


def test_rot_spares_the_states_taken_before() -> None:
    fs = with_files(a=b"abc")
    copy, states = fs.clone(), list(fs.crash_states())
    fs.flip("a", 0)
    assert copy.tree() == states[0].tree() == {"a": b"abc"}
