"""Numbers and names as text for people."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def escape(text: str) -> str:
    """Show control characters and the like as escapes: what others named must not drive a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def size(count: float) -> str:
    """Show a number of bytes: 1536 is 1.5 KiB."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float | None) -> str:
    """Show a time in the unit that fits: 0.0213 is 21 ms."""
    if seconds is None or seconds == float("inf"):
        return "unknown"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
