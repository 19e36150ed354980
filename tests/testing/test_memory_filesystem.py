"""The disk in memory: identities, copies, inodes, threads."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Iterator

import pytest

from sirius.testing import MemoryFileSystem, SimulatedCrash
from tests.testing.disks import append, assert_same, create, failing, trees, with_files


def test_identity_survives_kill_and_crash() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("d")
    create(fs, "d/a", b"a")
    fs.sync_dir("d")
    fs.sync_dir("")
    numbers = fs.identity("d"), fs.identity("d/a")
    for after in (next(fs.crash_states()), fs.kill()):
        assert (after.identity("d"), after.identity("d/a")) == numbers
        create(after, "new", b"")
        assert after.identity("new") not in numbers


def test_identity_is_given_once() -> None:
    fs = MemoryFileSystem()
    seen = []
    for _ in range(3):
        create(fs, "a", b"")
        seen.append(fs.identity("a"))
        fs.remove("a")
        fs.sync_dir("")
    assert len(set(seen)) == 3


def test_a_copied_tree_has_new_identities_and_is_on_disk() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("d")
    fs.mkdir("d/e")
    create(fs, "d/e/a", b"abc")
    create(fs, "d/b", b"b")
    fs.copy_tree("d", "copy")
    fs.copy_tree("d/b", "c")
    files = {"c": b"b", "copy/b": b"b", "copy/e/a": b"abc"}
    assert fs.tree() == files | {"d/b": b"b", "d/e/a": b"abc"}
    assert trees(fs)[1] == files
    for a, b in (("d", "copy"), ("d/e", "copy/e"), ("d/e/a", "copy/e/a"), ("d/b", "c")):
        assert fs.identity(a) != fs.identity(b)
    with pytest.raises(FileExistsError):
        fs.copy_tree("d", "copy")


def test_a_clone_has_everything_and_goes_its_own_way() -> None:
    fs = with_files(a=b"a")
    append(fs, "a", b"x")
    fs.lock("LOCK")
    fs.fail("mkdir", "", errno.EIO)
    fs.crash_at = 3
    copy = fs.clone()
    assert trees(copy) == trees(fs)
    for system in (copy, fs):
        with pytest.raises(BlockingIOError):
            system.lock("LOCK")
        assert failing(lambda system=system: system.mkdir("d")) == errno.EIO  # type: ignore[misc]
        with pytest.raises(SimulatedCrash):
            system.remove("a")
        assert system.operations == [("append", "a"), ("mkdir", "d"), ("remove", "a")]
    copy.overwrite("a", 0, b"C")
    fs.overwrite("a", 1, b"F")
    assert (copy.read_bytes("a"), fs.read_bytes("a")) == (b"Cx", b"aF")


def test_write_bytes_is_on_disk_whatever_was_pending() -> None:
    fs = with_files(a=b"old")
    append(fs, "a", b"x")
    fs.write_bytes("a", b"new")
    assert trees(fs) == [{"a": b"new"}]
    fs.remove("a")
    fs.write_bytes("a", b"newer")
    assert trees(fs) == [{"a": b"newer"}]
    with pytest.raises(FileNotFoundError):
        fs.write_bytes("none/a", b"")


def test_the_root_has_many_names_and_stays() -> None:
    fs = with_files(a=b"a")
    assert fs.listdir("") == fs.listdir("/") == fs.listdir(".") == ["a"]
    assert fs.read_bytes("/a") == fs.read_bytes("./a") == fs.read_bytes("//a") == b"a"
    with pytest.raises(FileExistsError):
        fs.mkdir("")
    with pytest.raises(FileExistsError):
        fs.open("/", "x")
    for use in (lambda: fs.rmdir(""), lambda: fs.replace("", "b"), lambda: fs.replace("a", "")):
        assert failing(use) == errno.EBUSY
    assert failing(lambda: fs.exists("../a")) == errno.EINVAL


def test_inodes_without_a_name_are_dropped_once_nobody_needs_them() -> None:
    fs = MemoryFileSystem()
    held = fs.open("held", "x")
    held.append([b"abc"])
    fs.remove("held")
    for _ in range(100):
        create(fs, "a", bytes(1000))
        fs.remove("a")
        fs.sync_dir("")
    assert held.read(0, 9) == b"abc"
    held.close()
    create(fs, "a", b"")
    fs.remove("a")
    fs.sync_dir("")
    assert not fs._disk.files


def test_inodes_with_a_pending_name_are_kept() -> None:
    fs = with_files(old=b"")
    fs.mkdir("d")
    fs.sync_dir("")
    create(fs, "d/a", b"abc")
    fs.remove("d/a")
    fs.remove("old")
    fs.sync_dir("")
    assert_same(trees(fs), [{}, {"d/a": b"abc"}])


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_calls_from_threads_do_not_tear() -> None:
    fs = with_files(a=b"")
    pieces = [b"%03d" % number * 10 for number in range(4)]

    def work(piece: bytes) -> None:
        file = fs.open("a", "a")
        for _ in range(500):
            file.append([piece])

    threads = [threading.Thread(target=work, args=(piece,)) for piece in pieces]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = fs.read_bytes("a")
    assert_same((content[at : at + 30] for at in range(0, len(content), 30)), pieces * 500)
