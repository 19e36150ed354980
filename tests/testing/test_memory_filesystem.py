"""The disk in memory: what a crash may leave of it, and every way in which it misbehaves."""

from __future__ import annotations

import errno
import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirius.testing import CrashMode, MemoryFileSystem, Operation, SimulatedCrash
from sirius.wal.fs import File, FileSystem

Tree = dict[str, bytes]


def with_files(**files: bytes) -> MemoryFileSystem:
    """A disk with these files on it, nothing pending."""
    fs = MemoryFileSystem()
    for name, data in files.items():
        fs.write_bytes(name, data)
    return fs


def create(fs: FileSystem, path: str, data: bytes) -> None:
    """Make a file whose bytes are on disk and whose name is not."""
    file = fs.open(path, "x")
    file.append([data])
    file.sync()
    file.close()


def append(fs: FileSystem, path: str, *pieces: bytes) -> None:
    """Write without syncing."""
    file = fs.open(path, "a")
    for piece in pieces:
        file.append([piece])
    file.close()


def trees(fs: MemoryFileSystem) -> list[Tree]:
    return [state.tree() for state in fs.crash_states()]


def endings(fs: MemoryFileSystem, path: str) -> list[bytes]:
    """What each crash leaves of one file."""
    return [tree[path] for tree in trees(fs)]


def assert_same(found: Iterable[object], expected: Iterable[object]) -> None:
    """Compare in any order, but count repetitions."""
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


# --- power loss: files


def test_nothing_pending_leaves_one_state() -> None:
    assert trees(with_files(a=b"abc")) == [{"a": b"abc"}]
    assert trees(MemoryFileSystem()) == [{}]


def test_everything_comes_first_and_nothing_second() -> None:
    fs = with_files(a=b"a", b=b"b")
    append(fs, "a", b"xx")
    append(fs, "b", b"yy")
    create(fs, "c", b"c")
    assert trees(fs)[:2] == [{"a": b"axx", "b": b"byy", "c": b"c"}, {"a": b"a", "b": b"b"}]


def test_an_unsynced_append_may_be_lost_torn_or_zero() -> None:
    fs = with_files(a=b"")
    append(fs, "a", b"pq")
    assert_same(endings(fs, "a"), [b"pq", b"", b"p", b"p\0", b"\0\0"])


def test_any_subset_of_appends_survives_and_gaps_are_zero() -> None:
    fs = with_files(a=b"-")
    append(fs, "a", b"pq", b"rs")
    both = [b"-pqrs", b"-pqr", b"-pqr\0", b"-pq\0\0"]
    first = [b"-pq", b"-p", b"-p\0", b"-\0\0"]
    second = [b"-\0\0rs", b"-\0\0r", b"-\0\0r\0", b"-\0\0\0\0"]
    assert_same(endings(fs, "a"), [*both, *first, *second, b"-"])


def test_a_write_is_torn_at_sectors_of_the_file_and_in_its_middle() -> None:
    data = bytes(1 + at % 255 for at in range(1100))
    fs = with_files(a=bytes(500))
    append(fs, "a", data)
    expected = [data, b"", bytes(1100)]
    for kept in (12, 524, 550, 1036):
        expected += [data[:kept], data[:kept] + bytes(1100 - kept)]
    assert_same(endings(fs, "a"), [bytes(500) + tail for tail in expected])


def test_of_a_long_write_only_the_outermost_sectors_are_torn() -> None:
    fs = with_files(a=b"")
    append(fs, "a", b"x" * 512 * 100)
    unfilled = {len(content) for content in endings(fs, "a") if b"\0" not in content}
    sectors = [*range(1, 9), 50, *range(92, 100)]
    assert unfilled == {0, 512 * 100, *(512 * sector for sector in sectors)}


def test_an_unsynced_truncation_may_be_lost_before_a_later_append() -> None:
    fs = with_files(a=b"abcd")
    file = fs.open("a", "a")
    file.truncate(2)
    file.append([b"X"])
    assert_same(endings(fs, "a"), [b"abX", b"abcd", b"ab", b"abXd", b"ab\0", b"ab\0d"])


def test_an_unsynced_allocation_may_be_lost() -> None:
    fs = with_files(a=b"ab")
    fs.open("a", "a").allocate(4)
    assert endings(fs, "a") == [b"ab\0\0", b"ab"]


def test_synced_bytes_stay() -> None:
    fs = with_files(a=b"")
    file = fs.open("a", "a")
    file.append([b"pq"])
    file.truncate(1)
    file.append([b"r"])
    file.sync()
    assert endings(fs, "a") == [b"pr"]
    file.append([b"s"])
    assert_same(endings(fs, "a"), [b"prs", b"pr", b"pr\0"])


def test_a_sync_saves_the_file_and_no_other() -> None:
    fs = with_files(a=b"", b=b"")
    append(fs, "a", b"p")
    append(fs, "b", b"q")
    fs.open("a", "r").sync()
    assert_same(trees(fs), [{"a": b"p", "b": tail} for tail in (b"q", b"", b"\0")])


def test_the_end_of_a_large_file_is_all_that_varies() -> None:
    large = bytes(3 << 20)
    fs = with_files(a=large)
    append(fs, "a", b"pq", b"rs")
    found = [content.removeprefix(large) for content in endings(fs, "a")]
    assert len(set(found)) == len(found) == 13
    assert found[:2] == [b"pqrs", b""]


def test_pending_files_multiply() -> None:
    fs = with_files(a=b"", b=b"")
    append(fs, "a", b"p")
    append(fs, "b", b"q")
    assert_same(
        trees(fs),
        [{"a": a, "b": b} for a in (b"p", b"", b"\0") for b in (b"q", b"", b"\0")],
    )


# --- power loss: names


def test_a_synced_file_without_its_name_may_be_absent() -> None:
    fs = MemoryFileSystem()
    create(fs, "a", b"abc")
    assert trees(fs) == [{"a": b"abc"}, {}]
    fs.sync_dir("")
    assert trees(fs) == [{"a": b"abc"}]


def test_a_synced_name_of_an_unsynced_file() -> None:
    fs = MemoryFileSystem()
    fs.open("a", "x").append([b"p"])
    fs.sync_dir("")
    assert_same(endings(fs, "a"), [b"p", b"", b"\0"])


def test_a_removed_name_may_come_back() -> None:
    fs = with_files(a=b"abc")
    fs.remove("a")
    assert trees(fs) == [{}, {"a": b"abc"}]
    fs.sync_dir("")
    assert trees(fs) == [{}]


def test_a_rename_is_all_or_nothing_and_needs_its_file() -> None:
    fs = with_files(m=b"old")
    create(fs, "tmp", b"new")
    fs.replace("tmp", "m")
    assert trees(fs) == [{"m": b"new"}, {"m": b"old"}, {"m": b"old", "tmp": b"new"}]


def test_each_of_two_renames_may_be_lost() -> None:
    fs = with_files(m=b"0", t1=b"1", t2=b"2")
    fs.replace("t1", "m")
    fs.replace("t2", "m")
    assert_same(
        trees(fs),
        [
            {"m": b"2"},
            {"m": b"0", "t1": b"1", "t2": b"2"},
            {"m": b"1", "t2": b"2"},
            {"m": b"2", "t1": b"1"},
        ],
    )


def test_a_rename_between_folders_is_one_change() -> None:
    for synced, survivors in (("", 1), ("d", 1), (None, 2)):
        fs = with_files(a=b"abc")
        fs.mkdir("d")
        fs.sync_dir("")
        fs.replace("a", "d/b")
        if synced is not None:
            fs.sync_dir(synced)
        assert trees(fs) == [{"d/b": b"abc"}, {"a": b"abc"}][:survivors]


def test_a_rename_into_a_folder_does_not_outlive_the_folder() -> None:
    fs = with_files(a=b"abc")
    fs.mkdir("d")
    fs.replace("a", "d/b")
    assert trees(fs) == [{"d/b": b"abc"}, {"a": b"abc"}, {"a": b"abc"}]
    fs.sync_dir("d")
    assert trees(fs) == [{"d/b": b"abc"}]


def test_a_folder_does_not_go_while_it_holds_a_name() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("d")
    fs.write_bytes("d/a", b"abc")
    fs.sync_dir("")
    fs.replace("d/a", "b")
    fs.rmdir("d")
    found = [(state.tree(), state.isdir("d")) for state in fs.crash_states()]
    assert_same(found, [({"b": b"abc"}, False), ({"d/a": b"abc"}, True), ({"b": b"abc"}, True)])


def test_syncing_a_folder_saves_what_its_changes_build_upon() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("d")
    fs.mkdir("e")
    fs.write_bytes("d/a", b"abc")
    fs.sync_dir("")
    fs.replace("d/a", "e/a")
    fs.rmdir("d")
    fs.sync_dir("")
    assert trees(fs) == [{"e/a": b"abc"}]


def test_a_name_used_anew_does_not_lose_its_former_file() -> None:
    fs = with_files(a=b"1")
    fs.replace("a", "b")
    create(fs, "a", b"2")
    assert_same(trees(fs), [{"a": b"2", "b": b"1"}, {"a": b"1"}, {"b": b"1"}])


def test_a_folder_moved_to_and_fro_is_never_inside_itself() -> None:
    fs = MemoryFileSystem()
    for name in ("a", "b"):
        fs.mkdir(name)
        fs.write_bytes(f"{name}/file", b"x")
    fs.sync_dir("")
    for source, target in (("a", "b/a"), ("b/a", "a"), ("b", "a/b")):
        fs.replace(source, target)
    assert all(len(tree) == 2 for tree in trees(fs))


def test_a_folder_does_not_take_the_place_of_what_is_still_there() -> None:
    for former in ("d/a", "d"):
        fs = MemoryFileSystem()
        if former == "d/a":
            fs.mkdir("d")
        fs.write_bytes(former, b"1")
        fs.mkdir("new")
        fs.write_bytes("new/b", b"2")
        fs.sync_dir("")
        fs.replace("d", "old")
        fs.replace("new", "d")
        moved = former.replace("d", "old", 1)
        assert_same(
            trees(fs),
            [
                {"d/b": b"2", moved: b"1"},
                {former: b"1", "new/b": b"2"},
                {"new/b": b"2", moved: b"1"},
            ],
        )


def test_a_new_folder_is_a_name_of_its_parent() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("d")
    create(fs, "d/a", b"abc")
    fs.sync_dir("d")
    assert trees(fs) == [{"d/a": b"abc"}, {}]
    fs.sync_dir("")
    assert trees(fs) == [{"d/a": b"abc"}]


def test_a_folder_moves_with_what_is_in_it() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("tmp")
    create(fs, "tmp/a", b"abc")
    fs.sync_dir("tmp")
    fs.sync_dir("")
    fs.replace("tmp", "segment")
    assert trees(fs) == [{"segment/a": b"abc"}, {"tmp/a": b"abc"}]


def test_names_and_bytes_multiply() -> None:
    fs = with_files(m=b"old")
    file = fs.open("tmp", "x")
    file.append([b"n"])
    fs.replace("tmp", "m")
    renamed = [{"m": b"n"}, {"m": b""}, {"m": b"\0"}]
    created = [{"m": b"old", "tmp": tail} for tail in (b"n", b"", b"\0")]
    assert_same(trees(fs), [*renamed, *created, {"m": b"old"}])


def test_bytes_of_a_file_without_a_name_make_no_state() -> None:
    fs = MemoryFileSystem()
    fs.open("a", "x").append([b"pqrs"])
    fs.remove("a")
    fs.sync_dir("")
    assert trees(fs) == [{}]


# --- power loss: brute-force twins


def tails_by_brute_force(durable: bytes, pieces: list[bytes]) -> set[bytes]:
    starts = [len(durable) + sum(map(len, pieces[:at])) for at in range(len(pieces))]
    results = {durable}
    for count in range(1, len(pieces) + 1):
        for kept in itertools.combinations(range(len(pieces)), count):
            last = pieces[kept[-1]]
            for torn in torn_by_brute_force(last, starts[kept[-1]]):
                content = durable
                for at in kept:
                    piece = torn if at == kept[-1] else pieces[at]
                    content = content.ljust(starts[at], b"\0") + piece
                results.add(content)
    return results


def torn_by_brute_force(data: bytes, start: int) -> Iterator[bytes]:
    yield data
    yield bytes(len(data))
    for kept in range(1, len(data)):
        if (start + kept) % 512 == 0 or kept == len(data) // 2:
            yield data[:kept]
            yield data[:kept].ljust(len(data), b"\0")


@given(
    st.integers(0, 600), st.lists(st.integers(1, 1200), min_size=1, max_size=4), st.integers(0, 9)
)
def test_file_outcomes_match_brute_force(durable: int, sizes: list[int], seed: int) -> None:
    rng = random.Random(seed)
    pieces = [rng.randbytes(size) for size in sizes]
    fs = with_files(a=b"d" * durable)
    append(fs, "a", *pieces)
    found = endings(fs, "a")
    assert len(found) == len(set(found))
    assert set(found) == tails_by_brute_force(b"d" * durable, pieces)


NameStep = tuple[str, str, str]


def apply_by_brute_force(names: dict[str, str], step: NameStep) -> dict[str, str] | None:
    """One step on name -> label; a label names the file that the step is about."""
    kind, label, path = step
    source, _, target = path.partition(" ")
    if kind == "create":
        return None if source in names else names | {source: label}
    if names.get(source) != label:
        return None
    rest = {name: held for name, held in names.items() if name != source}
    return rest if kind == "remove" else rest | {target: label}


def names_by_brute_force(steps: list[NameStep]) -> list[dict[str, str]]:
    results: list[dict[str, str]] = []
    for kept in itertools.product((True, False), repeat=len(steps)):
        names: dict[str, str] | None = {}
        for step in itertools.compress(steps, kept):
            names = None if names is None else apply_by_brute_force(names, step)
        if names is not None and names not in results:
            results.append(names)
    return results


name_steps = st.tuples(
    st.sampled_from(["create", "create", "remove", "replace"]),
    st.sampled_from("abc"),
    st.sampled_from("abc"),
)


@given(st.lists(name_steps, max_size=9))
def test_name_outcomes_match_brute_force(wishes: list[tuple[str, str, str]]) -> None:
    fs = MemoryFileSystem()
    steps: list[NameStep] = []
    for at, (kind, name, other) in enumerate(wishes):
        if fs.exists(name) != (kind != "create") or (kind == "replace" and name == other):
            continue
        label = fs.read_bytes(name).decode() if fs.exists(name) else str(at)
        if kind == "create":
            create(fs, name, label.encode())
        elif kind == "remove":
            fs.remove(name)
        else:
            fs.replace(name, other)
        steps.append((kind, label, f"{name} {other}" if kind == "replace" else name))
    expected = names_by_brute_force(steps)
    found = [{name: data.decode() for name, data in tree.items()} for tree in trees(fs)]
    assert_same((sorted(f.items()) for f in found), (sorted(e.items()) for e in expected))


# --- power loss: what must hold for every program


class Program:
    """Runs steps on a disk and remembers, on its own, what they promise."""

    PATHS = tuple(f"{folder}/{name}" for folder in "pq" for name in "abc")

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        for folder in "pq":
            self.fs.mkdir(folder)
        self.fs.sync_dir("")
        self.known: dict[str, int | None] = dict.fromkeys(self.PATHS)
        self.synced: dict[int, bytes] = {}
        self.written: dict[int, dict[int, set[int]]] = {}
        self.sizes: dict[int, int] = {}
        self.count = 0

    def run(self, step: tuple[str, str, str, int]) -> None:
        kind, path, other, size = step
        try:
            getattr(self, kind)(path, other, size)
        except OSError:
            return

    def create(self, path: str, other: str, size: int) -> None:
        self.fs.open(path, "x").close()
        self.known.pop(path, None)

    def remove(self, path: str, other: str, size: int) -> None:
        self.fs.remove(path)
        self.known.pop(path, None)

    def replace(self, path: str, other: str, size: int) -> None:
        self.fs.replace(path, other)
        if path != other:
            self.known.pop(path, None)
            self.known.pop(other, None)

    def append(self, path: str, other: str, size: int) -> None:
        file, number = self.fs.open(path, "a"), self.fs.identity(path)
        self.count = self.count % 255 + 1
        places = self.written.setdefault(number, {})
        for at in range(file.size(), file.size() + size):
            places.setdefault(at, set()).add(self.count)
        file.append([bytes([self.count]) * size])
        self.sizes[number] = max(self.sizes.get(number, 0), file.size())

    def truncate(self, path: str, other: str, size: int) -> None:
        file, number = self.fs.open(path, "a"), self.fs.identity(path)
        file.truncate(min(size, file.size()))
        self.synced[number] = self.synced.get(number, b"")[:size]

    def sync(self, path: str, other: str, size: int) -> None:
        file = self.fs.open(path, "r")
        file.sync()
        self.synced[self.fs.identity(path)] = file.read(0, file.size())

    def sync_dir(self, path: str, other: str, size: int) -> None:
        folder = path[0]
        self.fs.sync_dir(folder)
        for place in self.PATHS:
            if place.startswith(folder):
                held = self.fs.identity(place) if self.fs.exists(place) else None
                self.known[place] = held

    def check(self, state: MemoryFileSystem) -> None:
        for path, number in self.known.items():
            assert state.exists(path) == (number is not None), path
            if number is not None:
                assert state.identity(path) == number
                synced = self.synced.get(number, b"")
                assert state.read_bytes(path)[: len(synced)] == synced
        for path, content in state.tree().items():
            self.check_only_written(state.identity(path), content)

    def check_only_written(self, number: int, content: bytes) -> None:
        assert len(content) <= self.sizes.get(number, 0)
        for at, byte in enumerate(content):
            assert byte == 0 or byte in self.written[number].get(at, ())


program_steps = st.tuples(
    st.sampled_from("create create append append sync sync_dir replace remove truncate".split()),
    st.sampled_from(Program.PATHS),
    st.sampled_from(Program.PATHS),
    st.integers(1, 6),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(program_steps, max_size=30), st.integers(0, 99))
def test_what_was_synced_survives_and_nothing_is_invented(
    steps: list[tuple[str, str, str, int]], seed: int
) -> None:
    program = Program()
    for step in steps:
        program.run(step)
    states = list(program.fs.crash_states(40, seed=seed))
    assert states[0].tree() == program.fs.tree()
    for state in states:
        program.check(state)
        assert [s.tree() for s in state.crash_states()] == [state.tree()]
    seen = [identified(state) for state in states]
    assert len(seen) == len({repr(item) for item in seen})


def identified(fs: MemoryFileSystem) -> list[tuple[str, int, bytes]]:
    return [(path, fs.identity(path), data) for path, data in fs.tree().items()]


# --- power loss: limits, samples, independence


def with_many_pending(files: int, pieces: int) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    for at in range(files):
        fs.open(f"{at}", "x").close()
        append(fs, f"{at}", *(b"%d" % piece * 3 for piece in range(pieces)))
    return fs


def test_a_limit_above_the_count_yields_all() -> None:
    fs = with_many_pending(2, 2)
    everything = trees(fs)
    assert len(everything) == (1 + 13) ** 2
    assert [state.tree() for state in fs.crash_states(len(everything))] == everything


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 50])
def test_a_limit_below_the_count_yields_a_sample_of_all(limit: int) -> None:
    fs = with_many_pending(2, 2)
    everything = trees(fs)
    sample = [state.tree() for state in fs.crash_states(limit)]
    assert len(sample) == limit
    assert sample[:2] == everything[:2][:limit]
    assert all(sample.count(tree) == 1 and tree in everything for tree in sample)


def test_the_seed_decides_the_sample() -> None:
    fs = with_many_pending(3, 3)

    def sample(seed: int | random.Random) -> list[Tree]:
        return [state.tree() for state in fs.crash_states(20, seed=seed)]

    assert sample(1) == sample(1) == sample(random.Random(1))
    assert sample(1) != sample(2)


def test_a_sample_of_very_many_states_is_drawn_at_once() -> None:
    fs = with_many_pending(40, 30)
    states = list(fs.crash_states(200, seed=7))
    assert len({repr(state.tree()) for state in states}) == len(states) == 200
    assert states[0].tree() == fs.tree()
    assert states[1].tree() == {}
    some = [len(state.tree()) for state in states[2:]]
    assert len(set(some)) > 10


def test_a_sample_of_one_file_with_many_appends_has_torn_ones_and_gaps() -> None:
    fs = with_files(a=b"")
    append(fs, "a", *(b"x" * 4 for _ in range(30)))
    contents = [state.read_bytes("a") for state in fs.crash_states(100)]
    assert len(set(contents)) == 100
    assert any(len(content) % 4 for content in contents)
    assert any(content.endswith(b"\0") for content in contents)
    assert any(b"\0" in content and content.endswith(b"x") for content in contents)


def test_a_sample_of_many_names_has_any_of_them() -> None:
    fs = MemoryFileSystem()
    for at in range(20):
        create(fs, f"{at}", b"")
    found = [state.tree() for state in fs.crash_states(100)]
    assert len({repr(tree) for tree in found}) == 100
    assert {name for tree in found[2:] if len(tree) < 10 for name in tree} == set(fs.tree())


def test_without_a_limit_there_are_all_however_many() -> None:
    fs = with_files(a=b"")
    append(fs, "a", *(b"x" for _ in range(12)))
    # With the k-th append as the last survivor, those before it and itself are bytes or zeroes.
    assert len(endings(fs, "a")) == 1 + sum(2**k for k in range(1, 13))


def test_states_are_of_the_moment_of_the_call() -> None:
    fs = with_files(a=b"a")
    append(fs, "a", b"b")
    states = fs.crash_states()
    append(fs, "a", b"c")
    fs.remove("a")
    fs.sync_dir("")
    assert_same((state.tree()["a"] for state in states), [b"ab", b"a", b"a\0"])


def test_states_are_independent_of_each_other_and_of_the_original() -> None:
    fs = with_files(a=b"a", b=b"b")
    append(fs, "a", b"x")
    first, second = itertools.islice(fs.crash_states(), 2)
    for system, mark in ((first, b"1"), (second, b"2"), (fs, b"3")):
        append(system, "a", mark)
        append(system, "b", mark)
        create(system, mark.decode(), mark)
    assert first.tree() == {"a": b"ax1", "b": b"b1", "1": b"1"}
    assert second.tree() == {"a": b"a2", "b": b"b2", "2": b"2"}
    assert fs.tree() == {"a": b"ax3", "b": b"b3", "3": b"3"}


def test_a_state_is_on_disk_as_it_is_and_can_go_on() -> None:
    fs = with_files(a=b"a")
    append(fs, "a", b"x")
    state = next(fs.crash_states())
    assert trees(state) == [{"a": b"ax"}]
    append(state, "a", b"y")
    assert_same(endings(state, "a"), [b"axy", b"ax", b"ax\0"])


def test_a_state_has_no_locks_and_starts_counting_anew() -> None:
    fs = MemoryFileSystem(capacity_bytes=7)
    fs.lock("LOCK")
    fs.sync_dir("")
    fs.crash_at = 2
    with pytest.raises(SimulatedCrash):
        fs.mkdir("d")
    state = next(fs.crash_states())
    state.lock("LOCK")
    assert (state.operations, state.crash_at, state.crashed) == ([], None, False)
    assert state.capacity_bytes == 7


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


def failing(use: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the caller checks the errno
        use()
    return caught.value.errno


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


# --- identity, copies, the scene


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
