"""The member file: which nodes should vote.

Two forms. A file whose name ends in `.toml` has one setting::

    members = ["films1.example:7400", "films2.example:7400", "films3.example:7400"]

Any other file has the ancestor's form: one name a line, `#` begins a comment, empty lines mean nothing. No names at
all is legal, and makes every node that reads it passive.

The file is the wish; who votes stands in the log, and is changed through the log. Still a wrong wish is costly: a file
that is read while an editor writes it may lack its last lines, and the cluster would begin to remove voters. So a
change counts when the file has been left alone for a second, or when it is found the same twice. A file that is bad or
gone changes nothing: the names before stay in force, and the problem is there to be shown.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sirius.config import address
from sirius.config.kinds import NAMES
from sirius.config.settings import unique_names
from sirius.config.source import StrPath, TomlFile, decoded, located, read_bytes, shown
from sirius.errors import UsageError

NAMES_MAX: Final = 1000
_SETTLED_S: Final = 1.0
_HEADER: Final = "# The nodes that vote. Nodes that are not listed follow.\n"


@dataclass(frozen=True, slots=True)
class Members:
    """What a member file says."""

    names: tuple[str, ...]
    """In the order of the file, each in its one spelling. None of them: be passive."""


def read_members(path: StrPath) -> Members:
    """Read a member file. Raises `UsageError` with one line for each thing that is wrong in it."""
    return _parse(path, read_bytes(path)[0])


def _parse(path: StrPath, content: bytes) -> Members:
    names = _from_toml(path, content) if _is_toml(path) else _from_lines(path, content)
    if len(names) > NAMES_MAX:
        raise UsageError(f"{os.fspath(path)}: {len(names)} members: expected {NAMES_MAX} at most")
    return Members(names)


def _is_toml(path: StrPath) -> bool:
    return os.fspath(path).endswith(".toml")


# ---------------------------------------------------------------------- the two forms


def _from_toml(path: StrPath, content: bytes) -> tuple[str, ...]:
    file = TomlFile.parse(path, content)
    for key in file.tree:
        if key != "members":
            file.complain((key,), f"there is no setting {key}; a member file has members alone")
    if "members" not in file.tree:
        file.complain((), 'members is missing: expected members = ["host:port", …]')
    file.raise_complaints()
    names = _listed(file, file.tree["members"])
    file.raise_complaints()
    return names


def _listed(file: TomlFile, found: Any) -> tuple[str, ...]:
    if not NAMES.is_right(found):
        file.complain(("members",), f"members = {shown(found)}: expected a list of names")
        return ()
    names = address.Names()
    for position, text in enumerate(found):
        if expected := names.add(text, f"members[{position}]"):
            message = f"members[{position}] = {shown(text)}: expected {expected}"
            file.complain(("members", position), message)
    return tuple(names)


def _from_lines(path: StrPath, content: bytes) -> tuple[str, ...]:
    names, problems = address.Names(), []
    for number, line in enumerate(decoded(path, content).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text and (expected := names.add(text, f"in line {number}")):
            problems.append(f"{located(path, number)}: {shown(text)}: expected {expected}")
    if problems and content.lstrip().startswith(b"members"):
        problems = [f'{os.fspath(path)}: a member file in TOML has a name that ends in ".toml"']
    if problems:
        raise UsageError("\n".join(problems))
    return tuple(names)


# ---------------------------------------------------------------------- watching

_Mark = tuple[int, ...]


class MembersFile:
    """A member file that is looked at again and again. It has no thread and never waits; one thread uses it."""

    def __init__(
        self,
        path: StrPath,
        *,
        check: Callable[[Sequence[str]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        otherwise: Sequence[str] | None = None,
    ) -> None:
        """Read the file. If it is bad, the names `otherwise` count until it is not; without any it raises `UsageError`.
        Nothing raises afterwards.

        `check` may refuse names by a `UsageError` of its own: see `SiriusConfig.check_members`. `clock` is the time
        of day.
        """
        self.path = Path(path)
        self.problem: str | None = None
        """Why the file as it is now does not count; None: it does."""
        self.problem_since: float | None = None
        """Since when, without a break, there has been a problem."""
        self._check = check
        self._clock = clock
        self.members = Members(tuple(otherwise or ()))
        """What counts."""
        self._content: bytes | None = None
        self._seen: bytes | None = None
        self._trusted: _Mark | None = None
        try:
            self._begin()
        except UsageError as error:
            if otherwise is None:
                raise
            self._note(str(error))

    def _begin(self) -> None:
        content, status = read_bytes(self.path)
        self.members = self._understood(content)
        self._content = self._seen = content
        self._trusted = self._mark_if_settled(status)

    def poll(self) -> Members | None:
        """Return what the file says if that is something else than before, and None if not."""
        try:
            return self._look()
        except UsageError as error:
            self._trusted = None
            self._note(str(error))
            return None

    def _look(self) -> Members | None:
        if self._trusted is not None and self._trusted == self._mark_now():
            return None
        content, status = read_bytes(self.path)
        seen, self._seen = self._seen, content
        trusted = self._mark_if_settled(status)
        if trusted is None and content != seen:
            return None
        found = self._take(content)
        self._trusted = trusted
        return found

    def _take(self, content: bytes) -> Members | None:
        """Let the content of the file count."""
        members = self.members if content == self._content else self._understood(content)
        self._content = content
        self.problem = self.problem_since = None
        if members == self.members:
            return None
        self.members = members
        return members

    def _understood(self, content: bytes) -> Members:
        members = _parse(self.path, content)
        try:
            self._check(members.names)
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}") from None
        return members

    def _note(self, problem: str) -> None:
        self.problem = problem
        if self.problem_since is None:
            self.problem_since = self._clock()

    def _mark_now(self) -> _Mark | None:
        try:
            return _mark(os.stat(self.path))
        except OSError:
            return None

    def _mark_if_settled(self, status: os.stat_result) -> _Mark | None:
        """Return by what to know the file again, unless it changed so recently that it may be changing still.

        A change within the same tick of the file system's clock leaves no trace in a file's times, so a fresh file is
        read again.
        """
        age_s = self._clock() - max(status.st_mtime, status.st_ctime)
        return _mark(status) if age_s >= _SETTLED_S else None


def _mark(status: os.stat_result) -> _Mark:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


# ---------------------------------------------------------------------- writing


def write_members(path: StrPath, names: Iterable[str]) -> Members:
    """Write a member file, all of it or nothing of it, and return what it says. Comments in the old one are lost.

    Raises `UsageError` for names that are none, and `OSError` if the disk does not take the file.
    """
    members = Members(unique_names("members", list(names)))
    # A link stays one: what it leads to is replaced.
    target = Path(os.path.realpath(path))
    _replace(target, _text(_is_toml(path), members).encode())
    return members


def _text(is_toml: bool, members: Members) -> str:
    if is_toml:
        lines = "".join(f'    "{name}",\n' for name in members.names)
        return f"{_HEADER}members = [\n{lines}]\n"
    return _HEADER + "".join(f"{name}\n" for name in members.names)


def _replace(target: Path, content: bytes) -> None:
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(scratch, "wb") as file:
            file.write(content)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), os.stat(target).st_mode & 0o7777)
            os.fsync(file.fileno())
        os.replace(scratch, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        if isinstance(error, OSError):
            # Nobody asked for the file that takes its place for a moment.
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
