"""From a TOML file to a `SiriusConfig`.

Every mistake in a file is reported at once, each with its line, the setting and what was expected. What a setting may
be is said by its dataclass alone: messages of `__post_init__` name the setting they are about, and the line is looked
up by that name.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, get_type_hints

from sirius.config.kinds import Kind, kinds_of
from sirius.config.lines import Place
from sirius.config.settings import SAID_ELSEWHERE, SiriusConfig
from sirius.config.source import StrPath, TomlFile, read_bytes, shown
from sirius.errors import UsageError

HIDDEN: Final = {("paxos", "request_timeout_s"): SAID_ELSEWHERE}
"""Settings that only Python has, and why."""

_MENTION: Final = re.compile(r'([a-z_]+(?:\.[a-z_]+)?)(?:\."([^"]*)")?(?:\[([0-9]+)\])?')


@cache
def sections() -> dict[str, type]:
    """Return the dataclasses of the tables of a file."""
    hints = get_type_hints(SiriusConfig)
    names = [field.name for field in dataclasses.fields(SiriusConfig)]
    return {name: hints[name] for name in names if dataclasses.is_dataclass(hints[name])}


def load(path: StrPath) -> SiriusConfig:
    """Read a configuration from a file."""
    file = TomlFile.parse(path, read_bytes(path)[0])
    values = _values(file, "", SiriusConfig, file.tree)
    file.raise_complaints()
    values.setdefault("data", _beside(file.path, SiriusConfig().data))
    try:
        return SiriusConfig(**values)
    except UsageError as error:
        _complain(file, str(error))
        file.raise_complaints()
        raise


def _values(file: TomlFile, section: str, settings: type, table: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a table, and complain about those that are none."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if not section and key in sections():
            found |= _section(file, key, value)
        elif reason := HIDDEN.get((section, key)):
            file.complain((section, key), f"{section}.{key}: expected {reason}")
        elif kind := kinds_of(settings).get(key):
            found |= _value(file, _place(section, key), kind, value)
        else:
            place = _place(section, key)
            file.complain(place, _unknown(section, key, isinstance(value, dict)))
    return found


def _section(file: TomlFile, name: str, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        file.complain((name,), f"{name} = {shown(table)}: expected a table, [{name}]")
        return {}
    try:
        return {name: sections()[name](**_values(file, name, sections()[name], table))}
    except UsageError as error:
        message = str(error)
        _complain(file, message if message.startswith(f"{name}.") else f"{name}.{message}")
        return {}


def _value(file: TomlFile, place: Place, kind: Kind, value: object) -> dict[str, Any]:
    try:
        found = kind.from_file(value)
    except ValueError as expected:
        setting = ".".join(map(str, place))
        file.complain(place, f"{setting} = {shown(value)}: expected {expected}")
        return {}
    if kind.is_path:
        found = _beside(file.path, str(found))
    return {str(place[-1]): found}


def _beside(file: Path, path: StrPath) -> Path:
    """Return a path of a file as seen from that file. Absolute, so that it stays what it is."""
    return file.absolute().parent / os.path.expanduser(path)


def _place(section: str, key: str) -> Place:
    return (section, key) if section else (key,)


# ---------------------------------------------------------------------- messages


def _complain(file: TomlFile, message: str) -> None:
    """Complain at the line of the first setting that a message names and that stands in the file.

    The one that is wrong may be a default, which stands nowhere; then it is at odds with one that does.
    """
    named = list(_mentioned(message))
    given = [place for place in named if place[:2] in file.places or place[:1] in file.places]
    exact = [place for place in given if _setting(place) in file.places]
    file.complain((exact or given or [()])[0], message)


def _setting(place: Place) -> Place:
    """The place of the whole setting of which this is a part."""
    return place[:2] if place[0] in sections() else place[:1]


def _mentioned(message: str) -> Iterator[Place]:
    """The places that a message names. Names without a section are of the one named before."""
    section = ""
    for found in _MENTION.finditer(message):
        place: Place = tuple(found[1].split("."))
        if len(place) == 2 and place[0] in sections():
            section = str(place[0])
        elif section and place[0] in kinds_of(sections()[section]):
            place = (section, *place)
        elif place[0] not in kinds_of(SiriusConfig):
            continue
        parts = [part for part in (found[2], found[3] and int(found[3])) if part is not None]
        yield (*place, *parts)


def _unknown(section: str, key: str, is_table: bool) -> str:
    """What to say about a setting that does not exist."""
    dotted = ".".join(map(str, _place(section, key)))
    if is_table:
        return f"there is no table [{dotted}]; {_nearest(section, key)}"
    return f"there is no setting {dotted}; {_nearest(section, key)}"


def _nearest(section: str, key: str) -> str:
    known = _known(section)
    if section and key in kinds_of(SiriusConfig):
        return f"{key} stands at the top of the file, before the first table"
    if close := get_close_matches(key, known, n=1):
        dotted = ".".join(map(str, _place(section, close[0])))
        return f"did you mean {f'[{dotted}]' if dotted in sections() else dotted}?"
    elsewhere = [f"{name}.{key}" for name in sections() if key in _known(name)]
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere)}?"
    return f"known are {', '.join(known)}"


def _known(section: str) -> list[str]:
    if not section:
        return [*kinds_of(SiriusConfig), *sections()]
    return [name for name in kinds_of(sections()[section]) if (section, name) not in HIDDEN]
