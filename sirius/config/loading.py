"""From a TOML file to the settings that it holds: a `SiriusConfig`, or others with a table for each section.

Every mistake in a file is reported at once, each with its line, the setting and what was expected. What a setting may
be is said by its dataclass alone: messages of `__post_init__` name the setting they are about, and the line is looked
up by that name.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, get_type_hints

from sirius.config.kinds import Kind, kinds_of
from sirius.config.lines import Place
from sirius.config.settings import SAID_ELSEWHERE, SiriusConfig
from sirius.config.source import StrPath, TomlFile, read_bytes, shown
from sirius.errors import UsageError

T = TypeVar("T")

HIDDEN: Final = {("paxos", "request_timeout_s"): SAID_ELSEWHERE}
"""Settings that only Python has, and why."""

_MENTION: Final = re.compile(r'([a-z_]+(?:\.[a-z_]+)?)(?:\."([^"]*)")?(?:\[([0-9]+)\])?')
_ONE: Final = re.compile(r'[a-z_]+(?:\[[0-9]+\])? = (?:"[^"]*"|[^" ]+): expected ')


def sections_of(root: type) -> dict[str, type]:
    """Return the dataclasses of the tables of a file."""
    return _sections_of(root)


@cache
def _sections_of(root: Any) -> dict[str, type]:
    hints = get_type_hints(root)
    names = [field.name for field in dataclasses.fields(root)]
    return {name: hints[name] for name in names if dataclasses.is_dataclass(hints[name])}


def sections() -> dict[str, type]:
    """Return those of a node's file."""
    return sections_of(SiriusConfig)


def load(path: StrPath) -> SiriusConfig:
    """Read a configuration from a file."""
    beside = {"data": _beside(Path(path), SiriusConfig().data)}
    return load_as(SiriusConfig, path, beside, HIDDEN)


def load_as(
    root: type[T],
    path: StrPath,
    defaults: Mapping[str, Any],
    hidden: Mapping[tuple[str, str], str],
) -> T:
    """Read the settings of a class; `hidden` are those that only Python has, and why."""
    return _Loading(root, TomlFile.parse(path, read_bytes(path)[0]), hidden).settings(defaults)


class _Loading(Generic[T]):
    """One file on its way to the settings of one class."""

    def __init__(
        self, root: type[T], file: TomlFile, hidden: Mapping[tuple[str, str], str]
    ) -> None:
        self._root = root
        self._sections = sections_of(root)
        self._file = file
        self._hidden = hidden

    def settings(self, defaults: Mapping[str, Any]) -> T:
        values = {**defaults, **self._values("", self._root, self._file.tree)}
        try:
            config = self._root(**values)
        except UsageError as error:
            if not self._file.has_complaints or _is_of_one(str(error)):
                self._complain(str(error))
        self._file.raise_complaints()
        return config

    def _values(self, section: str, settings: type, table: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a table, and complain about those that are none."""
        found: dict[str, Any] = {}
        for key, value in table.items():
            if not section and key in self._sections:
                found |= self._section(key, value)
            elif reason := self._hidden.get((section, key)):
                self._file.complain((section, key), f"{section}.{key}: expected {reason}")
            elif kind := kinds_of(settings).get(key):
                found |= self._value(_place(section, key), kind, value)
            else:
                place = _place(section, key)
                self._file.complain(place, self._unknown(section, key, isinstance(value, dict)))
        return found

    def _section(self, name: str, table: object) -> dict[str, Any]:
        if not isinstance(table, dict):
            self._file.complain((name,), f"{name} = {shown(table)}: expected a table, [{name}]")
            return {}
        try:
            return {name: self._sections[name](**self._values(name, self._sections[name], table))}
        except UsageError as error:
            message = str(error)
            self._complain(message if message.startswith(f"{name}.") else f"{name}.{message}")
            return {}

    def _value(self, place: Place, kind: Kind, value: object) -> dict[str, Any]:
        try:
            found = kind.from_file(value)
        except ValueError as expected:
            setting = ".".join(map(str, place))
            self._file.complain(place, f"{setting} = {shown(value)}: expected {expected}")
            return {}
        if kind.is_path:
            found = _beside(self._file.path, str(found))
        return {str(place[-1]): found}

    # ------------------------------------------------------------------ messages

    def _complain(self, message: str) -> None:
        """Complain at the line of the first setting that a message names and that stands in the file.

        The one that is wrong may be a default, which stands nowhere; then it is at odds with one that does.
        """
        named = list(self._mentioned(message))
        given = [
            place
            for place in named
            if place[:2] in self._file.places or place[:1] in self._file.places
        ]
        exact = [place for place in given if self._setting(place) in self._file.places]
        self._file.complain((exact or given or [()])[0], message)

    def _setting(self, place: Place) -> Place:
        """The place of the whole setting of which this is a part."""
        return place[:2] if place[0] in self._sections else place[:1]

    def _mentioned(self, message: str) -> Iterator[Place]:
        """The places that a message names. Names without a section are of the one named before."""
        section = ""
        for found in _MENTION.finditer(message):
            place: Place = tuple(found[1].split("."))
            if len(place) == 2 and place[0] in self._sections:
                section = str(place[0])
            elif section and place[0] in kinds_of(self._sections[section]):
                place = (section, *place)
            elif place[0] not in kinds_of(self._root):
                continue
            parts = [part for part in (found[2], found[3] and int(found[3])) if part is not None]
            yield (*place, *parts)

    def _unknown(self, section: str, key: str, is_table: bool) -> str:
        """What to say about a setting that does not exist."""
        dotted = ".".join(map(str, _place(section, key)))
        if is_table:
            return f"there is no table [{dotted}]; {self._nearest(section, key)}"
        return f"there is no setting {dotted}; {self._nearest(section, key)}"

    def _nearest(self, section: str, key: str) -> str:
        known = self._known(section)
        if section and key in kinds_of(self._root):
            return f"{key} stands at the top of the file, before the first table"
        if close := get_close_matches(key, known, n=1):
            dotted = ".".join(map(str, _place(section, close[0])))
            return f"did you mean {f'[{dotted}]' if dotted in self._sections else dotted}?"
        elsewhere = [f"{name}.{key}" for name in self._sections if key in self._known(name)]
        if elsewhere:
            return f"did you mean {' or '.join(elsewhere)}?"
        return f"known are {', '.join(known)}"

    def _known(self, section: str) -> list[str]:
        if not section:
            return [*kinds_of(self._root), *self._sections]
        return [
            name
            for name in kinds_of(self._sections[section])
            if (section, name) not in self._hidden
        ]


def _is_of_one(message: str) -> bool:
    """Whether a message is about the value of one setting. It holds also if others, which were bad, are left out."""
    return _ONE.match(message) is not None


def _beside(file: Path, path: StrPath) -> Path:
    """Return a path of a file as seen from that file. Absolute, so that it stays what it is."""
    return file.absolute().parent / os.path.expanduser(path)


def _place(section: str, key: str) -> Place:
    return (section, key) if section else (key,)
