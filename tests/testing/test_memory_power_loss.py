"""The disk in memory: what a power loss may leave of it, and in how many ways."""

from __future__ import annotations

import itertools
import random

import pytest

from sirius.testing import MemoryFileSystem, SimulatedCrash
from tests.testing.disks import Tree, append, assert_same, create, endings, trees, with_files

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


def test_what_is_synced_is_what_is_left_if_nothing_else_is() -> None:
    fs = with_files(a=b"a", b=b"b")
    append(fs, "a", b"xx")
    create(fs, "c", b"c")
    fs.remove("b")
    left = fs.synced()
    assert left.tree() == trees(fs)[1] == {"a": b"a", "b": b"b"}
    append(left, "a", b"yy")
    assert left.tree() == {"a": b"ayy", "b": b"b"}
    assert fs.tree() == {"a": b"axx", "c": b"c"}


def test_names_that_came_and_went_are_not_what_is_synced() -> None:
    """Everything and nothing are the same state then, and the second one is another."""
    fs = with_files(a=b"a")
    create(fs, "b", b"b")
    fs.remove("b")
    assert fs.synced().tree() == {"a": b"a"} != trees(fs)[1]


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
