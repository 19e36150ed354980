"""Keys are texts. Anything else would be cached and never invalidated, since streams speak of texts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sirius.errors import UsageError


def checked(key: Any, what: str = "a key") -> str:
    """Return a key that is a text; raise otherwise."""
    if not isinstance(key, str):
        raise UsageError(f"{what} is a str, not {type(key).__name__}")
    return key


def each_of(keys: Iterable[str]) -> Collection[str]:
    """Return keys that are all texts, as something that can be gone through twice."""
    if isinstance(keys, str | bytes):
        raise UsageError(f"many keys are wanted, not one {type(keys).__name__}")
    found = keys if isinstance(keys, list | tuple | set | frozenset) else list(keys)
    # By their types first: a call for each would take three times as long as dropping them.
    if not {*map(type, found)} <= {str}:
        for key in found:
            checked(key)
    return found
