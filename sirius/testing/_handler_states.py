"""Compares two states of a handler, and names the parts that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import is_dataclass
from itertools import zip_longest
from reprlib import Repr
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

_SHORT: Final = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


_MISSING: Final = _Missing()


class Difference(NamedTuple):
    """One part of a state that is not the same here and there."""

    path: str
    here: str
    there: str


def differences(here: Any, there: Any, path: str) -> Iterator[Difference]:
    """Yield the smallest parts that differ; nothing if the states are equal.

    What has no `==` of its own is compared by its attributes: two nodes never hold the same object.
    """
    return _differences(here, there, path, set())


def _differences(
    here: Any, there: Any, path: str, seen: set[tuple[int, int]]
) -> Iterator[Difference]:
    if is_equal(here, there) or (id(here), id(there)) in seen:
        return
    parts = _parts(here, there)
    if parts is None:
        yield Difference(path, short(here), short(there))
        return
    seen.add((id(here), id(there)))
    for name, mine, theirs in parts:
        yield from _differences(mine, theirs, path + name, seen)


def is_equal(here: Any, there: Any) -> bool:
    """Say whether `==` holds; arrays are equal if all of their elements are, and nan is itself."""
    try:
        same = here == there
        if hasattr(same, "all"):
            same = same.all()
        return bool(same) or (here != here and there != there)  # noqa: PLR0124
    except Exception:
        # Something that cannot be compared with `==`, such as a dict of arrays: its parts may be.
        return False


def _parts(here: Any, there: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """Return the parts of two things of one type side by side; None if they have none."""
    if type(here) is not type(there) or isinstance(here, str | bytes | bytearray):
        return None
    if isinstance(here, Mapping):
        return _of_mappings(here, there, "[{!r}]")
    if isinstance(here, Set):
        return _of_sets(here, there)
    if isinstance(here, Sequence):
        return _of_sequences(here, there)
    if _is_transparent(here):
        return _of_mappings(vars(here), vars(there), ".{}")
    return None


def _of_mappings(
    here: Mapping[Any, Any], there: Mapping[Any, Any], form: str
) -> Iterator[tuple[str, Any, Any]]:
    for key in {**here, **there}:
        yield form.format(key), here.get(key, _MISSING), there.get(key, _MISSING)


def _of_sets(here: Set[Any], there: Set[Any]) -> Iterator[tuple[str, Any, Any]]:
    for item in sorted(here ^ there, key=repr):
        name = f" member {short(item)}"
        yield (name, item, _MISSING) if item in here else (name, _MISSING, item)


def _of_sequences(here: Sequence[Any], there: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
    pairs = zip_longest(here, there, fillvalue=_MISSING)
    for index, (mine, theirs) in enumerate(pairs):
        yield f"[{index}]", mine, theirs


def _is_transparent(thing: Any) -> bool:
    """Say whether a thing is its attributes: it has no `==` of its own, or one that only looks at them."""
    kind = type(thing)
    if not hasattr(thing, "__dict__"):
        return False
    has_own = any("__eq__" in vars(each) for each in kind.__mro__[:-1])
    return not has_own or is_dataclass(kind) or isinstance(thing, SimpleNamespace)


def short(thing: Any) -> str:
    """Write a value in less than a line."""
    return _SHORT.repr(thing)
