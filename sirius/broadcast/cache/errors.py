"""What a cache raises besides `sirius.errors.UsageError`.

::

    UsageError
    └── NotCached    also a KeyError: not cached and nobody to load it, or not known to the loader
"""

from __future__ import annotations

from sirius.errors import UsageError


class NotCached(UsageError, KeyError):
    """There is no value for the key, and no way to get one."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key!r} {reason}")
        self.key = key

    def __str__(self) -> str:
        # A KeyError would show its message as a quoted string.
        return str(self.args[0])
