"""What predicates are made of, and what they mean for one event: the definition, which `evaluate` has to agree with."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sirius.broadcast.events import Event


class Comparison(StrEnum):
    """How an attribute is compared."""

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    OTHER = "!="
    AT_LEAST = ">="
    MORE = ">"


COMPARE: Final[dict[Comparison, Callable[[Any, Any], Any]]] = {
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.EQUAL: operator.eq,
    Comparison.OTHER: operator.ne,
    Comparison.AT_LEAST: operator.ge,
    Comparison.MORE: operator.gt,
}
"""Works for numbers and for columns of them."""


@dataclass(frozen=True, slots=True)
class SeqBelow:
    """`seq < limit`."""

    limit: int

    def __str__(self) -> str:
        return f"seq < {self.limit}"


@dataclass(frozen=True, slots=True)
class TimeBelow:
    """`time < limit`, in microseconds."""

    limit: int

    def __str__(self) -> str:
        return f"time < {self.limit}"


@dataclass(frozen=True, slots=True)
class KeyIs:
    """`key = "…"`."""

    key: bytes

    def __str__(self) -> str:
        return f"key = {quoted(self.key)}"


@dataclass(frozen=True, slots=True)
class KeyPrefix:
    """`key prefix "…"`."""

    prefix: bytes

    def __str__(self) -> str:
        return f"key prefix {quoted(self.prefix)}"


@dataclass(frozen=True, slots=True)
class TopicIs:
    """`topic = "/movies/*"`: a star stands for one name, the last star for one or more."""

    pattern: str

    def __str__(self) -> str:
        return f"topic = {quoted(self.pattern.encode())}"


@dataclass(frozen=True, slots=True)
class Attribute:
    """`price > 10`. An event without the attribute does not match, whatever the comparison."""

    name: str
    comparison: Comparison
    value: int

    def __str__(self) -> str:
        return f"{self.name} {self.comparison} {self.value}"


@dataclass(frozen=True, slots=True)
class And:
    """All of them."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " and ".join(
            f"({part})" if isinstance(part, Or) else str(part) for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.parts))


Atom = SeqBelow | TimeBelow | KeyIs | KeyPrefix | TopicIs | Attribute
Predicate = Atom | And | Or


def quoted(text: bytes) -> str:
    """Return text as it is written in a predicate."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(octet: int) -> str:
    char = chr(octet)
    if char in '"\\':
        return "\\" + char
    return char if " " <= char <= "~" else f"\\x{octet:02x}"


def topic_matches(pattern: str, topic: str) -> bool:
    """Say whether a topic fits a pattern (SESDAD: `/IST/*` takes everything below `/IST/`)."""
    wanted, names = pattern.split("/"), topic.split("/")
    if wanted[-1] == "*":
        names[len(wanted) :] = []
    return len(wanted) == len(names) and all(
        want in ("*", name) for want, name in zip(wanted, names, strict=True)
    )


def matches(predicate: Predicate, event: Event) -> bool:
    """Say whether an event matches."""
    match predicate:
        case SeqBelow(limit):
            return event.seq < limit
        case TimeBelow(limit):
            return event.time < limit
        case KeyIs(key):
            return event.key == key
        case KeyPrefix(prefix):
            return event.key.startswith(prefix)
        case TopicIs(pattern):
            return topic_matches(pattern, event.topic)
        case Attribute(name, comparison, value):
            found = event.attributes.get(name)
            return found is not None and bool(COMPARE[comparison](found, value))
        case And(parts):
            return all(matches(part, event) for part in parts)
        case Or(parts):
            return any(matches(part, event) for part in parts)
