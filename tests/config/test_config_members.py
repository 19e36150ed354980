"""The member file: read, watched, written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sirius.config import Members, MembersFile, SiriusConfig, read_members, write_members
from sirius.errors import UsageError

FORM = '"host:port", such as "films1.example:7400", "10.0.0.1:7400" or "[::1]:7400"'

# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("\n\n   \n# nobody\n", []),
        ("films1:7400\nfilms2:7400", ["films1:7400", "films2:7400"]),
        ("# ours\n\n  b:1  # rack 3\r\n\t[::1]:2\r\nA:3\n\n", ["b:1", "[::1]:2", "a:3"]),
    ],
)
def test_one_name_a_line_as_the_ancestor_had_it(
    tmp_path: Path, text: str, names: list[str]
) -> None:
    (tmp_path / "members").write_bytes(text.encode())
    assert read_members(tmp_path / "members") == Members(tuple(names))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("members = []", []),
        ('# ours\nmembers = [\n  "B:01", # b\n  "a:2",\n]\n', ["b:1", "a:2"]),
    ],
)
def test_a_list_in_toml(tmp_path: Path, text: str, names: list[str]) -> None:
    (tmp_path / "m.toml").write_text(text)
    assert read_members(tmp_path / "m.toml") == Members(tuple(names))


BAD_LINES = [
    ("a:1\n\nfilms2\n", [f'FILE, line 3: "films2": expected {FORM}']),
    ("a:1 b:2\n", [f'FILE, line 1: "a:1 b:2": expected {FORM}']),
    ("a:0\n", ['FILE, line 1: "a:0": expected a port from 1 to 65535']),
    ("# x\na:65536\n", ['FILE, line 2: "a:65536": expected a port from 1 to 65535']),
    (
        "10.0.0.300:1",
        ['FILE, line 1: "10.0.0.300:1": expected an IPv4 address of four numbers up to 255'],
    ),
    (
        "a:1\nb:2\n\nA:01",
        ['FILE, line 4: "A:01": expected each name once; it is in line 1 already'],
    ),
    (
        "0.0.0.0:1",
        [
            'FILE, line 1: "0.0.0.0:1": expected an address that others can reach; this one can only be listened on'
        ],
    ),
    (
        "x\nb:2\ny\n",
        [f'FILE, line 1: "x": expected {FORM}', f'FILE, line 3: "y": expected {FORM}'],
    ),
    ('members = ["a:1"]\n', ['FILE: a member file in TOML has a name that ends in ".toml"']),
]


@pytest.mark.parametrize(("text", "messages"), BAD_LINES)
def test_bad_lines_are_told(tmp_path: Path, text: str, messages: list[str]) -> None:
    path = tmp_path / "members"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_members(path)
    assert str(caught.value).replace(str(path), "FILE").splitlines() == messages


BAD_TOML = [
    ("members = [", ["FILE, line 1: this is not TOML: Invalid value (at the end of the file)"]),
    ("", ['FILE: members is missing: expected members = ["host:port", …]']),
    ("members = 'a:1'", ['FILE, line 1: members = "a:1": expected a list of names']),
    ("\nmembers = ['a:1', 2]", ['FILE, line 2: members = ["a:1", 2]: expected a list of names']),
    (
        "members = []\n\nmember = []",
        ["FILE, line 3: there is no setting member; a member file has members alone"],
    ),
    (
        "members = [\n'a:1',\n\n'',\n'a:1', 'a:0']",
        [
            f'FILE, line 4: members[1] = "": expected {FORM}',
            'FILE, line 5: members[2] = "a:1": expected each name once; it is members[0] already',
            'FILE, line 5: members[3] = "a:0": expected a port from 1 to 65535',
        ],
    ),
]


@pytest.mark.parametrize(("text", "messages"), BAD_TOML)
def test_bad_toml_is_told(tmp_path: Path, text: str, messages: list[str]) -> None:
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_members(path)
    assert str(caught.value).replace(str(path), "FILE").splitlines() == messages


def test_more_names_than_any_cluster_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_text("".join(f"n{number}:1\n" for number in range(1001)))
    with pytest.raises(UsageError, match=r"members: 1001 members: expected 1000 at most$"):
        read_members(path)


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_bytes(b"a:1\n\xff:2\n")
    with pytest.raises(UsageError, match=r"members, line 2: this is not UTF-8$"):
        read_members(path)


@given(st.binary(max_size=30) | st.text(alphabet="a1:#\n[]=' \u0665", max_size=20).map(str.encode))
def test_any_file_is_a_list_or_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    for name in ("any", "any.toml"):
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(content)
        try:
            found = read_members(path)
        except UsageError:
            continue
        assert len(set(found.names)) == len(found.names)


# ---------------------------------------------------------------------- watching


class Watched:
    """A member file, its watcher and the time of day, which only moves when it is told to."""

    def __init__(self, path: Path, check: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        self.path = path
        self.later_s = 0.0
        path.write_text("a:1\n")
        self.file = MembersFile(path, check=check, clock=self.now)

    def now(self) -> float:
        # Whatever the file system's clock says of a file that was written just now, that is the present.
        try:
            status = os.stat(self.path)
        except OSError:
            return self.later_s
        return max(status.st_mtime, status.st_ctime) + self.later_s

    def settled(self) -> Members | None:
        """Let a second pass, then look."""
        self.later_s = 1.0
        try:
            return self.file.poll()
        finally:
            self.later_s = 0.0


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "members")


def test_a_bad_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "members").write_text("nobody")
    with pytest.raises(UsageError, match="line 1"):
        MembersFile(tmp_path / "members")
    with pytest.raises(UsageError, match="there is no such file"):
        MembersFile(tmp_path / "none")


@pytest.mark.parametrize("content", [b"nobody", b"\xff\xfe", None])
def test_a_bad_file_at_the_start_is_a_problem_where_others_count_until_it_is_good(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "members"
    if content is not None:
        path.write_bytes(content)
    file = MembersFile(path, otherwise=["a:1", "b:2"])
    assert file.members == Members(("a:1", "b:2"))
    assert str(path) in (file.problem or "")
    assert (file.poll(), file.members) == (None, Members(("a:1", "b:2")))
    path.write_text("c:3\n")
    polled = [file.poll(), file.poll()]
    assert polled == [None, Members(("c:3",))], "a file that is new may be changing still"
    assert (file.members, file.problem) == (Members(("c:3",)), None)


def test_a_change_is_told_once(watched: Watched) -> None:
    assert watched.file.members == Members(("a:1",))
    assert watched.file.poll() is None
    watched.path.write_text("a:1\nb:2\n")
    assert watched.settled() == Members(("a:1", "b:2"))
    assert watched.settled() is None
    assert watched.file.members == Members(("a:1", "b:2"))


def test_a_file_that_was_replaced_is_noticed_although_its_times_and_size_are_the_same(
    watched: Watched,
) -> None:
    before = os.stat(watched.path)
    watched.settled()
    other = watched.path.with_name("other")
    other.write_text("b:2\n")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, watched.path)
    assert watched.settled() == Members(("b:2",))


def test_an_edit_that_leaves_no_trace_in_the_times_is_noticed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = os.stat(watched.path)
    monkeypatch.setattr(os, "stat", lambda path: frozen)
    monkeypatch.setattr(os, "fstat", lambda handle: frozen)
    watched.path.write_text("b:2\n")
    assert watched.file.poll() is None
    assert watched.file.poll() == Members(("b:2",))


def test_a_file_that_is_being_written_is_left_alone(watched: Watched) -> None:
    watched.path.write_text("")
    assert watched.file.poll() is None
    watched.path.write_text("b:2\n")
    assert watched.file.poll() is None
    watched.path.write_text("b:2\nc:3\n")
    assert watched.file.poll() is None
    assert watched.file.members == Members(("a:1",))
    assert watched.file.poll() == Members(("b:2", "c:3")), "found the same twice"


def test_a_copy_that_kept_its_old_times_is_a_fresh_file_all_the_same(watched: Watched) -> None:
    watched.path.write_text("b:2\n")
    os.utime(watched.path, (1, 1))
    assert watched.file.poll() is None
    assert watched.settled() == Members(("b:2",))


def test_a_file_that_was_away_is_looked_at_although_nothing_shows_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not every file system notes a rename in a file's times.
    monkeypatch.setattr("sirius.config.members._mark", lambda status: (status.st_ino,))
    watched.settled()
    away = watched.path.rename(watched.path.with_name("away"))
    watched.file.poll()
    assert watched.file.problem is not None
    away.rename(watched.path)
    watched.file.poll()
    assert watched.file.problem is None


def test_a_file_that_nobody_touched_is_not_read_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.settled()

    def fail(*args: object) -> NoReturn:
        raise AssertionError(args)

    monkeypatch.setattr("sirius.config.members.read_bytes", fail)
    assert watched.settled() is None


def test_other_comments_are_no_change(watched: Watched) -> None:
    watched.path.write_text("# hello\nA:01\n")
    assert watched.settled() is None
    assert watched.file.problem is None


def test_no_names_are_a_change_like_any_other(watched: Watched) -> None:
    watched.path.write_text("# nobody\n")
    assert watched.settled() == Members(())


def test_a_bad_file_changes_nothing_and_is_remembered(watched: Watched) -> None:
    watched.path.write_text("a:1\nb\n")
    assert watched.settled() is None
    assert watched.file.problem == f'{watched.path}, line 2: "b": expected {FORM}'
    since = watched.file.problem_since
    assert since == pytest.approx(os.stat(watched.path).st_mtime + 1, abs=0.5)
    watched.path.write_text("worse")
    watched.later_s = 7.0
    assert watched.file.poll() is None
    assert watched.file.problem == f'{watched.path}, line 1: "worse": expected {FORM}'
    assert watched.file.problem_since == since, "there was no moment without a problem"
    assert watched.file.members == Members(("a:1",))


def test_a_file_that_is_mended_is_no_problem_any_more(watched: Watched) -> None:
    watched.path.write_text("b")
    watched.settled()
    watched.path.write_text("a:1\n")
    assert watched.settled() is None
    assert (watched.file.problem, watched.file.problem_since) == (None, None)
    watched.path.write_text("b")
    watched.settled()
    watched.path.write_text("b:2")
    assert watched.settled() == Members(("b:2",))
    assert watched.file.problem is None


def test_a_file_that_vanishes_is_a_problem_and_no_empty_list(watched: Watched) -> None:
    watched.settled()
    watched.path.unlink()
    assert watched.file.poll() is None
    assert watched.file.poll() is None
    assert watched.file.problem == f"{watched.path}: there is no such file"
    assert watched.file.members == Members(("a:1",))
    watched.path.write_text("a:1\n")
    assert watched.settled() is None
    assert watched.file.problem is None


@pytest.mark.parametrize("become", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_any_more_is_a_problem(
    watched: Watched, become: Callable[[Path], None]
) -> None:
    watched.path.unlink()
    become(watched.path)
    assert watched.file.poll() is None
    assert watched.file.problem is not None


def test_names_that_the_node_may_not_talk_to_are_a_problem(tmp_path: Path) -> None:
    config = SiriusConfig(name="localhost:1", members_file="members")
    path = tmp_path / "members"
    path.write_text("localhost:1\n")
    file = MembersFile(path, check=config.check_members)
    path.write_text("localhost:1\nfilms2:1\n")
    file.poll()
    assert file.poll() is None
    assert file.problem == (
        f'{path}: members = "films2:1" is beyond this machine, and updates would travel as plain '
        "text: expected tls.certificate, or allow_plaintext = true"
    )
    with pytest.raises(UsageError, match="plain text"):
        MembersFile(path, check=config.check_members)


class Editing(RuleBasedStateMachine):
    """Somebody does anything to a member file. What counts is always the last list that was left standing."""

    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.path = self.root / "members"
        self.path.unlink(missing_ok=True)
        self.watched = Watched(self.path)
        self.wanted: Members = Members(("a:1",))

    @rule(
        content=st.sampled_from(
            [b"", b"a:1\n", b"b:2\n", b"c:3\n", b"a:1\nb:2\n", b"bad", b"\xff"]
        ),
        renamed=st.booleans(),
    )
    def write(self, content: bytes, renamed: bool) -> None:
        if renamed:
            (self.root / "other").write_bytes(content)
            os.replace(self.root / "other", self.path)
        else:
            self.path.write_bytes(content)

    @rule()
    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    @rule()
    def look_at_once(self) -> None:
        self.look(self.watched.file.poll())

    @rule()
    def look_later(self) -> None:
        found = self.watched.settled()
        self.look(found)
        said = None
        try:
            self.wanted = read_members(self.path)
        except UsageError as error:
            said = str(error)
        assert self.watched.file.problem == said
        assert self.watched.file.members == self.wanted

    def look(self, found: Members | None) -> None:
        """A change is told if and only if there was one."""
        assert found in (None, self.watched.file.members)
        assert (found is None) == (self.watched.file.members == self.before)
        self.before = self.wanted = self.watched.file.members

    before = Members(("a:1",))

    @invariant()
    def a_problem_has_a_time(self) -> None:
        file = self.watched.file
        assert (file.problem is None) == (file.problem_since is None)


def test_whatever_is_done_to_the_file(tmp_path: Path) -> None:
    Editing.root = tmp_path
    run_state_machine_as_test(Editing)


# ---------------------------------------------------------------------- writing

NAMES = st.lists(
    st.builds(
        "{}:{}".format, st.sampled_from(["a", "b.c", "10.0.0.1", "[::1]"]), st.integers(1, 9)
    ),
    unique=True,
)


@given(NAMES, st.sampled_from(["members", "members.toml"]))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    assert write_members(path, names) == read_members(path) == Members(tuple(names))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("members", "# The nodes that vote. Nodes that are not listed follow.\na:1\nb:2\n"),
        (
            "members.toml",
            '# The nodes that vote. Nodes that are not listed follow.\nmembers = [\n    "a:1",\n    "b:2",\n]\n',
        ),
    ],
)
def test_the_name_of_the_file_says_its_form(tmp_path: Path, name: str, text: str) -> None:
    write_members(tmp_path / name, ["A:01", "b:2"])
    assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], f'members[0] = "a": expected {FORM}'),
        (["a:1", "A:1"], 'members[1] = "A:1": expected each name once; it is members[0] already'),
    ],
)
def test_bad_names_are_not_written(tmp_path: Path, names: list[str], message: str) -> None:
    path = tmp_path / "members"
    path.write_text("old:1\n")
    with pytest.raises(UsageError) as caught:
        write_members(path, names)
    assert str(caught.value) == message
    assert path.read_text() == "old:1\n"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "members"
    path.write_text("old:1\n")

    def fail(*args: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_members(path, ["new:1"])
    assert str(caught.value) == f"[Errno 28] No space left on device: '{path}'"
    assert path.read_text() == "old:1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "members"
    with pytest.raises(FileNotFoundError) as caught:
        write_members(path, ["new:1"])
    assert str(caught.value) == f"[Errno 2] No such file or directory: '{path}'"
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    with pytest.raises(IsADirectoryError) as replaced:
        write_members(folder, ["new:1"])
    assert str(replaced.value) == f"[Errno 21] Is a directory: '{folder}'"


def test_content_is_on_disk_before_the_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def syncing(handle: int) -> None:
        assert os.fstat(handle).st_size > 0, "nothing is left in a buffer"
        fsync(handle)
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    def replacing(source: Path, target: Path) -> None:
        replace(source, target)
        done.append("replace")

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    write_members(tmp_path / "members", ["a:1"])
    assert done == ["file", "replace", "folder"]


def test_a_link_and_the_rights_of_a_file_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real", tmp_path / "members"
    real.write_text("old:1\n")
    real.chmod(0o640)
    link.symlink_to(real)
    write_members(link, ["new:1"])
    assert link.is_symlink()
    assert read_members(real) == Members(("new:1",))
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_new_file_has_the_rights_that_new_files_have(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_members(tmp_path / "members", [])
    assert (tmp_path / "members").stat().st_mode == (tmp_path / "other").stat().st_mode
