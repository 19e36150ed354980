"""What kind of value each setting has, told by its type and its name.

The names carry their units (`timeout_s`, `segment_bytes_max`), so the type and the name of a field say everything about
it: what Python may pass, what a file may hold, how to show it. One table serves the checks, the file and the reference,
and the settings of other packages (`PaxosConfig`, `CatchupConfig`) need no word about themselves here.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, Final, Literal, NoReturn, get_args, get_origin, get_type_hints

from sirius.config.source import StrPath, shown
from sirius.config.units import duration, show_duration, show_size, size
from sirius.errors import UsageError

Read = Callable[[Any], object]


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """One kind of values."""

    label: str
    """Its name in the reference."""
    expected: str
    """What a message says when Python passed something else."""
    is_right: Callable[[Any], bool]
    in_file: str = ""
    """What a message says when a file holds something else; empty: the same."""
    read: Read = lambda value: value
    """Turns what a file holds into a value. Raises ValueError for what cannot be turned."""
    show: Callable[[Any], str] = shown
    is_number: bool = False
    is_path: bool = False
    may_be_unset: bool = False

    def accepts(self, value: object) -> bool:
        """Say whether Python may pass this."""
        return (value is None and self.may_be_unset) or self.is_right(value)

    def from_file(self, value: object) -> object:
        """Return the value that stands in a file. Raises ValueError, which says what was expected."""
        try:
            found = self.read(value)
        except ValueError:
            found = None
        if not self.is_right(found):
            raise ValueError(self.in_file or self.expected)
        return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike) and os.fspath(value) not in ("", b"")


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)


def _is_texts_by_text(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_texts, value.values()))


def _is_text_by_text(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(part, str) for part in value.values())


def _unless_text(read: Callable[[str], float]) -> Read:
    return lambda value: read(value) if isinstance(value, str) else value


def _age(text: str) -> float:
    return math.inf if text == "never" else duration(text)


def _quoted(show: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: f'"{show(value)}"' if value else "0"


_DURATIONS: Final = 'seconds as a number, or "250ms", "5s", "10min", "1h", "7d"'
_SIZES: Final = 'a whole number of bytes, or "64KiB", "64MiB", "1GB"'

TEXT: Final = Kind("text", "a text", lambda value: isinstance(value, str))
FLAG: Final = Kind("true or false", "true or false", lambda value: isinstance(value, bool))
COUNT: Final = Kind("count", "a whole number", _is_int, is_number=True)
NUMBER: Final = Kind("number", "a number", _is_number, is_number=True)
DURATION: Final = Kind(
    "duration",
    "a number of seconds",
    _is_number,
    in_file=_DURATIONS,
    read=_unless_text(duration),
    show=_quoted(show_duration),
    is_number=True,
)
AGE: Final = dataclasses.replace(
    DURATION,
    label='duration or "never"',
    is_right=lambda value: _is_number(value) or value == math.inf,
    in_file=f'{_DURATIONS}, or "never"',
    read=_unless_text(_age),
)
SIZE: Final = Kind(
    "size",
    "a whole number of bytes",
    _is_int,
    in_file=_SIZES,
    read=_unless_text(size),
    show=_quoted(show_size),
    is_number=True,
)
RATE: Final = dataclasses.replace(
    SIZE, label="size a second", expected="a number of bytes", is_right=_is_number
)
PATH: Final = Kind("path", "a path", _is_path, is_path=True)
NAMES: Final = Kind("list of names", "a list of names", _is_texts)
ROLES: Final = Kind("table of lists", "a table of lists of roles", _is_texts_by_text)
TEXTS: Final = Kind("table of names", "a table of names", _is_text_by_text)
NAMED_LISTS: Final = Kind("table of lists of names", "a table of lists of names", _is_texts_by_text)

_BY_TYPE: Final[list[tuple[object, Kind]]] = [
    (str, TEXT),
    (bool, FLAG),
    (int, COUNT),
    (float, NUMBER),
    (StrPath, PATH),
    (Sequence[str], NAMES),
]
_IS_DURATION: Final = re.compile(r".*_s(?:_|$)")


def kinds_of(settings: type) -> dict[str, Kind]:
    """Return the kind of each setting of a dataclass, in their order; sections in it are left out."""
    return _kinds_of(settings)


@cache
def _kinds_of(settings: Any) -> dict[str, Kind]:
    hints = get_type_hints(settings)
    return {
        field.name: kind_of(field.name, hints[field.name])
        for field in dataclasses.fields(settings)
        if not dataclasses.is_dataclass(hints[field.name])
    }


def kind_of(name: str, hint: Any) -> Kind:
    """Return the kind of a setting."""
    for option in get_args(hint):
        if isinstance(option, type) and issubclass(option, StrEnum):
            return choice([str(member) for member in option])
    if type(None) in get_args(hint):
        inner = _without_none(hint)
        return dataclasses.replace(kind_of(name, inner), may_be_unset=True)
    if hint in (int, float):
        return _number(name, hint)
    if get_origin(hint) is Literal:
        return choice(get_args(hint))
    if get_origin(hint) is Mapping:
        lists = ROLES if name == "roles" else NAMED_LISTS
        return TEXTS if get_args(hint) == (str, str) else lists
    for known, kind in _BY_TYPE:
        if hint == known:
            return kind
    raise TypeError(f"{name}: {hint} is no type of a setting")


def _without_none(hint: Any) -> Any:
    rest = [arg for arg in get_args(hint) if arg is not type(None)]
    return StrPath if set(rest) == set(get_args(StrPath)) else rest[0]


def _number(name: str, hint: type) -> Kind:
    if "bytes" in name:
        return RATE if hint is float else SIZE
    if name.endswith("_age_s"):
        return AGE
    if _IS_DURATION.match(name):
        return DURATION
    return NUMBER if hint is float else COUNT


def choice(options: Sequence[str]) -> Kind:
    """Return the kind of a setting that has one of a few texts as its value."""
    quoted = [f'"{option}"' for option in options]
    return Kind(", ".join(quoted), f"one of {', '.join(quoted)}", lambda value: value in options)


def check(settings: Any, section: str = "", zero: frozenset[str] | None = None) -> None:
    """Refuse values of the wrong kind, and numbers below 0, and 0 where nobody said what it means.

    `zero` are the settings that may be 0; None: all of them.
    """
    prefix = f"{section}." if section else ""
    for name, kind in kinds_of(type(settings)).items():
        value = getattr(settings, name)
        if not kind.accepts(value):
            refuse(f"{prefix}{name}", value, kind.expected)
        if kind.is_number and value <= 0:
            may_be_zero = zero is None or name in zero
            if value < 0 or not may_be_zero:
                refuse(f"{prefix}{name}", value, "0 or more" if may_be_zero else "more than 0")


def refuse(setting: str, value: object, expected: str) -> NoReturn:
    """Raise the error that names the setting, its value and what was expected."""
    raise UsageError(f"{setting} = {shown(value)}: expected {expected}")
