"""What the log relies on, asked of the real file system and of the one in memory."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sirius.testing import MemoryFileSystem
from sirius.wal.fs import FileSystem, OpenMode, OsFileSystem, remove_tree


@pytest.fixture(params=["os", "memory"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    return OsFileSystem() if request.param == "os" else MemoryFileSystem()


@pytest.fixture
def root(fs: FileSystem, tmp_path: Path) -> str:
    """A fresh folder's path, which both systems take."""
    if isinstance(fs, MemoryFileSystem):
        fs.mkdir("disk")
        return "disk"
    return str(tmp_path)


def put(fs: FileSystem, path: str, data: bytes = b"") -> None:
    file = fs.open(path, "x")
    file.append([data])
    file.close()


def get(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path, "r")
    try:
        return file.read(0, file.size() + 1)
    finally:
        file.close()


# --- files


def test_a_new_file_is_empty(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    assert (file.size(), file.read(0, 10)) == (0, b"")
    file.close()
    assert get(fs, f"{root}/a") == b""


def test_appends_follow_each_other(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    file.append([b"one", bytearray(b"two"), memoryview(b"xthreex")[1:-1]])
    file.append([])
    file.append([b""])
    file.append([b"four"])
    assert (file.size(), file.read(0, 99)) == (15, b"onetwothreefour")
    file.close()


def test_appending_to_an_existing_file_begins_at_its_end(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"old")
    file = fs.open(f"{root}/a", "a")
    file.append([b"new"])
    file.close()
    assert get(fs, f"{root}/a") == b"oldnew"


def test_two_handles_append_after_each_other(fs: FileSystem, root: str) -> None:
    first, second = fs.open(f"{root}/a", "x"), fs.open(f"{root}/a", "a")
    for handle, data in ((first, b"1"), (second, b"22"), (first, b"333")):
        handle.append([data])
    assert second.read(0, 9) == b"122333"
    first.close()
    second.close()


def test_an_append_may_have_1500_buffers(fs: FileSystem, root: str) -> None:
    buffers = [b"%05d" % number for number in range(1500)]
    file = fs.open(f"{root}/a", "x")
    file.append(buffers)
    assert file.read(0, 7500) == b"".join(buffers)
    assert file.size() == 7500
    file.close()


def test_an_append_takes_its_own_copy(fs: FileSystem, root: str) -> None:
    buffer = bytearray(b"abc")
    file = fs.open(f"{root}/a", "x")
    file.append([buffer])
    buffer[:] = b"xyz"
    assert file.read(0, 3) == b"abc"
    file.close()


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(0, 6, b"abcdef"), (2, 3, b"cde"), (4, 9, b"ef"), (6, 1, b""), (99, 1, b""), (3, 0, b"")],
)
def test_a_read_is_short_only_at_the_end(
    fs: FileSystem, root: str, offset: int, length: int, expected: bytes
) -> None:
    put(fs, f"{root}/a", b"abcdef")
    file = fs.open(f"{root}/a", "r")
    assert file.read(offset, length) == expected
    file.close()


def test_reads_give_bytes_that_later_writes_leave_alone(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    file.append([b"abc"])
    seen = file.read(0, 3)
    file.truncate(0)
    file.append([b"xyz"])
    assert type(seen) is bytes
    assert seen == b"abc"
    file.close()


def test_a_reader_sees_what_is_appended_later(fs: FileSystem, root: str) -> None:
    writer = fs.open(f"{root}/a", "x")
    reader = fs.open(f"{root}/a", "r")
    writer.append([b"abc"])
    assert reader.read(0, 9) == b"abc"
    writer.append([b"def"])
    assert (reader.size(), reader.read(2, 9)) == (6, b"cdef")
    writer.close()
    reader.close()


def test_a_reader_keeps_reading_after_the_name_was_removed(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"abc")
    reader = fs.open(f"{root}/a", "r")
    fs.remove(f"{root}/a")
    fs.sync_dir(root)
    put(fs, f"{root}/a", b"another")
    assert (reader.size(), reader.read(0, 9)) == (3, b"abc")
    reader.close()


def test_a_reader_keeps_reading_after_the_name_was_replaced(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"old")
    put(fs, f"{root}/b", b"new")
    reader = fs.open(f"{root}/a", "r")
    fs.replace(f"{root}/b", f"{root}/a")
    fs.sync_dir(root)
    assert reader.read(0, 9) == b"old"
    reader.close()


def test_a_handle_follows_its_file_through_a_rename(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    fs.replace(f"{root}/a", f"{root}/b")
    file.append([b"abc"])
    file.close()
    assert get(fs, f"{root}/b") == b"abc"


def test_truncate_cuts_and_appending_goes_on_from_there(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    file.append([b"abcdef"])
    file.truncate(2)
    assert (file.size(), file.read(0, 9)) == (2, b"ab")
    file.append([b"X"])
    assert file.read(0, 9) == b"abX"
    file.close()


def test_truncate_beyond_the_end_fills_with_zeroes(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    file.append([b"ab"])
    file.truncate(4)
    assert file.read(0, 9) == b"ab\0\0"
    file.close()


def test_allocate_grows_and_never_shrinks(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    file.append([b"ab"])
    file.allocate(4)
    assert file.read(0, 9) == b"ab\0\0"
    file.allocate(1)
    assert file.size() == 4
    file.close()


def test_syncing_and_forgetting_leave_the_content_alone(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    file.append([b"abc"])
    file.forget()
    assert file.read(0, 9) == b"abc"
    file.sync()
    file.forget()
    assert file.read(0, 9) == b"abc"
    file.close()
    reader = fs.open(f"{root}/a", "r")
    reader.sync()
    reader.close()


def test_closing_twice_is_harmless(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    file.close()
    file.close()


def test_a_closed_file_cannot_be_used(fs: FileSystem, root: str) -> None:
    file = fs.open(f"{root}/a", "x")
    file.close()
    uses: list[Callable[[], object]] = [
        lambda: file.read(0, 1),
        lambda: file.append([b"x"]),
        file.sync,
        lambda: file.truncate(0),
        lambda: file.allocate(1),
        file.size,
    ]
    for use in uses:
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_a_reader_cannot_write(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"abc")
    reader = fs.open(f"{root}/a", "r")
    uses: list[Callable[[], object]] = [
        lambda: reader.append([b"x"]),
        lambda: reader.truncate(0),
        lambda: reader.allocate(9),
    ]
    for use in uses:
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is checked
            use()
        assert caught.value.errno in (errno.EBADF, errno.EINVAL)
    assert reader.read(0, 9) == b"abc"
    reader.close()


def test_a_read_in_front_of_the_file_is_refused(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"abc")
    file = fs.open(f"{root}/a", "r")
    with pytest.raises(OSError, match="Invalid argument"):
        file.read(-1, 2)
    file.close()


def test_reads_and_appends_from_two_threads(fs: FileSystem, root: str) -> None:
    writer, reader = fs.open(f"{root}/a", "x"), fs.open(f"{root}/a", "r")

    def write() -> None:
        for _ in range(300):
            writer.append([b"ab", b"cd"])
            writer.sync()

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive():
        size = reader.size()
        assert reader.read(0, size) == (b"abcd" * 300)[:size]
    thread.join()
    assert reader.size() == 1200
    writer.close()
    reader.close()


# --- opening


@pytest.mark.parametrize("mode", ["r", "a"])
def test_opening_needs_the_file(fs: FileSystem, root: str, mode: OpenMode) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/a", mode)
    assert not fs.exists(f"{root}/a")


def test_a_new_file_needs_a_new_name(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"abc")
    fs.mkdir(f"{root}/d")
    for name in ("a", "d"):
        with pytest.raises(FileExistsError):
            fs.open(f"{root}/{name}", "x")
    assert get(fs, f"{root}/a") == b"abc"


def test_a_new_file_needs_its_folder(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/none/b", "x")
    with pytest.raises(NotADirectoryError):
        fs.open(f"{root}/a/b", "x")


def test_a_folder_cannot_be_opened_to_append(fs: FileSystem, root: str) -> None:
    with pytest.raises(IsADirectoryError):
        fs.open(root, "a")


def test_a_folder_has_nothing_to_read(fs: FileSystem, root: str) -> None:
    with pytest.raises(IsADirectoryError):
        fs.open(root, "r").read(0, 1)


# --- names


def test_listdir_is_sorted_and_has_files_and_folders(fs: FileSystem, root: str) -> None:
    for name in ("b", "c", "a10", "a9"):
        put(fs, f"{root}/{name}")
    fs.mkdir(f"{root}/aa")
    put(fs, f"{root}/aa/inner")
    assert fs.listdir(root) == ["a10", "a9", "aa", "b", "c"]


def test_listdir_needs_a_folder(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a")
    with pytest.raises(NotADirectoryError):
        fs.listdir(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.listdir(f"{root}/none")


def test_exists_and_isdir(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a")
    paths = (root, f"{root}/a", f"{root}/none", f"{root}/none/b", f"{root}/a/b")
    assert [fs.exists(path) for path in paths] == [True, True, False, False, False]
    assert [fs.isdir(path) for path in paths] == [True, False, False, False, False]


def test_remove(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a")
    put(fs, f"{root}/b")
    fs.remove(f"{root}/a")
    assert fs.listdir(root) == ["b"]


def test_remove_needs_a_file(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    with pytest.raises(FileNotFoundError):
        fs.remove(f"{root}/none")
    with pytest.raises(IsADirectoryError):
        fs.remove(f"{root}/d")
    assert fs.isdir(f"{root}/d")


def test_mkdir_needs_a_new_name_in_a_folder(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    put(fs, f"{root}/a")
    for name in ("d", "a"):
        with pytest.raises(FileExistsError):
            fs.mkdir(f"{root}/{name}")
    with pytest.raises(FileNotFoundError):
        fs.mkdir(f"{root}/none/d")
    with pytest.raises(NotADirectoryError):
        fs.mkdir(f"{root}/a/d")


def test_rmdir_needs_an_empty_folder(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    put(fs, f"{root}/d/a")
    with pytest.raises(OSError, match="not empty") as caught:
        fs.rmdir(f"{root}/d")
    assert caught.value.errno == errno.ENOTEMPTY
    fs.remove(f"{root}/d/a")
    fs.rmdir(f"{root}/d")
    assert fs.listdir(root) == []
    with pytest.raises(FileNotFoundError):
        fs.rmdir(f"{root}/d")


def test_rmdir_refuses_a_file(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a")
    with pytest.raises(NotADirectoryError):
        fs.rmdir(f"{root}/a")


def test_remove_tree(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    fs.mkdir(f"{root}/d/e")
    put(fs, f"{root}/d/e/a")
    put(fs, f"{root}/d/b")
    put(fs, f"{root}/c")
    for path in (f"{root}/d", f"{root}/none", f"{root}/c"):
        remove_tree(fs, path)
    assert fs.listdir(root) == []


# --- renames


def test_replace_moves_a_file(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"abc")
    fs.replace(f"{root}/a", f"{root}/b")
    assert fs.listdir(root) == ["b"]
    assert get(fs, f"{root}/b") == b"abc"


def test_replace_takes_the_place_of_a_file(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"new")
    put(fs, f"{root}/b", b"old")
    fs.replace(f"{root}/a", f"{root}/b")
    assert fs.listdir(root) == ["b"]
    assert get(fs, f"{root}/b") == b"new"


def test_replace_by_itself_changes_nothing(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"abc")
    fs.mkdir(f"{root}/d")
    put(fs, f"{root}/d/b", b"def")
    fs.replace(f"{root}/a", f"{root}/a")
    fs.replace(f"{root}/d", f"{root}/d")
    assert (get(fs, f"{root}/a"), get(fs, f"{root}/d/b")) == (b"abc", b"def")


def test_replace_moves_between_folders(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    put(fs, f"{root}/a", b"abc")
    fs.replace(f"{root}/a", f"{root}/d/a")
    assert fs.listdir(root) == ["d"]
    assert get(fs, f"{root}/d/a") == b"abc"


def test_replace_moves_a_folder_with_all_in_it(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    put(fs, f"{root}/d/a", b"abc")
    fs.replace(f"{root}/d", f"{root}/e")
    assert fs.listdir(root) == ["e"]
    assert get(fs, f"{root}/e/a") == b"abc"


def test_replace_puts_a_folder_over_an_empty_one_only(fs: FileSystem, root: str) -> None:
    for name in ("d", "empty", "full"):
        fs.mkdir(f"{root}/{name}")
    put(fs, f"{root}/d/a", b"abc")
    put(fs, f"{root}/full/b")
    with pytest.raises(OSError, match="not empty") as caught:
        fs.replace(f"{root}/d", f"{root}/full")
    assert caught.value.errno == errno.ENOTEMPTY
    fs.replace(f"{root}/d", f"{root}/empty")
    assert fs.listdir(root) == ["empty", "full"]
    assert get(fs, f"{root}/empty/a") == b"abc"


def test_replace_does_not_mix_files_and_folders(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    put(fs, f"{root}/a")
    with pytest.raises(IsADirectoryError):
        fs.replace(f"{root}/a", f"{root}/d")
    with pytest.raises(NotADirectoryError):
        fs.replace(f"{root}/d", f"{root}/a")
    assert fs.listdir(root) == ["a", "d"]


def test_replace_needs_source_and_folder(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.replace(f"{root}/none", f"{root}/b")
    with pytest.raises(FileNotFoundError):
        fs.replace(f"{root}/a", f"{root}/none/b")
    assert fs.listdir(root) == ["a"]


def test_a_folder_does_not_go_into_itself(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    fs.mkdir(f"{root}/d/e")
    with pytest.raises(OSError, match="Invalid argument"):
        fs.replace(f"{root}/d", f"{root}/d/e/f")


# --- folders on disk, locks, identity


def test_sync_dir_needs_a_folder(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a")
    fs.sync_dir(root)
    with pytest.raises(FileNotFoundError):
        fs.sync_dir(f"{root}/none")
    with pytest.raises(NotADirectoryError):
        fs.sync_dir(f"{root}/a")
    assert fs.listdir(root) == ["a"]


def test_a_lock_is_held_once_even_within_one_process(fs: FileSystem, root: str) -> None:
    lock = fs.lock(f"{root}/LOCK")
    assert fs.exists(f"{root}/LOCK")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/LOCK")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/LOCK")
    lock.release()
    fs.lock(f"{root}/LOCK").release()


def test_releasing_twice_does_not_release_the_next_holder(fs: FileSystem, root: str) -> None:
    first = fs.lock(f"{root}/LOCK")
    first.release()
    second = fs.lock(f"{root}/LOCK")
    first.release()
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/LOCK")
    second.release()


def test_locks_of_two_files_do_not_meet(fs: FileSystem, root: str) -> None:
    locks = [fs.lock(f"{root}/one"), fs.lock(f"{root}/two")]
    for lock in locks:
        lock.release()


def test_a_lock_leaves_the_content_alone(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/LOCK", b"abc")
    fs.lock(f"{root}/LOCK").release()
    assert get(fs, f"{root}/LOCK") == b"abc"


def test_a_lock_needs_its_folder(fs: FileSystem, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        fs.lock(f"{root}/none/LOCK")
    with pytest.raises(IsADirectoryError):
        fs.lock(root)


def test_identity_follows_the_file_and_not_the_name(fs: FileSystem, root: str) -> None:
    put(fs, f"{root}/a", b"same")
    put(fs, f"{root}/b", b"same")
    a, b = fs.identity(f"{root}/a"), fs.identity(f"{root}/b")
    assert a != b
    fs.replace(f"{root}/a", f"{root}/c")
    assert (fs.identity(f"{root}/c"), fs.identity(f"{root}/b")) == (a, b)


def test_identity_of_a_folder(fs: FileSystem, root: str) -> None:
    fs.mkdir(f"{root}/d")
    before = fs.identity(f"{root}/d")
    put(fs, f"{root}/d/a")
    fs.replace(f"{root}/d", f"{root}/e")
    assert fs.identity(f"{root}/e") == before != fs.identity(root)
    with pytest.raises(FileNotFoundError):
        fs.identity(f"{root}/d")
