"""Durations and sizes as people write them, and back."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

_SECONDS: Final = {
    "us": Fraction(1, 1_000_000),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
    "w": Fraction(7 * 86400),
}
_BYTES: Final = {
    letter + i + b: (1024 if i else 1000) ** power
    for power, letter in enumerate(("", "k", "m", "g", "t"))
    for i in (("", "i") if letter else ("",))
    for b in ("", "b")
}
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-zA-Z]*)")
_SHOWN_SECONDS: Final = ("d", "h", "min", "s", "ms", "us")
_SHOWN_BYTES: Final = ("TiB", "GiB", "MiB", "KiB")
_DIGITS_MAX: Final = 30


def duration(text: str) -> float:
    """Return the seconds that "250ms", "5s", "10min", "1h" or "7d" stand for; ValueError if it is none of these."""
    number, unit = _parts(text)
    if unit not in _SECONDS:
        raise ValueError(f"{unit!r} is no unit of time")
    return float(number * _SECONDS[unit])


def size(text: str) -> int:
    """Return the bytes that "64MiB" (times 1024 times 1024) or "1GB" (thousands) stand for; ValueError if none."""
    number, unit = _parts(text)
    factor = _BYTES.get(unit.lower())
    if factor is None:
        raise ValueError(f"{unit!r} is no unit of size")
    count = number * factor
    if count.denominator != 1:
        raise ValueError("there are no parts of bytes")
    return int(count)


def _parts(text: str) -> tuple[Fraction, str]:
    found = _QUANTITY.fullmatch(text)
    if not found or len(found[1]) > _DIGITS_MAX:
        raise ValueError("not a number and a unit")
    return Fraction(found[1]), found[2]


def show_duration(seconds: float) -> str:
    """Return what `duration` reads, in the largest unit that needs no fraction."""
    if not math.isfinite(seconds):
        return "never"
    exact = Fraction(repr(seconds))
    for unit in _SHOWN_SECONDS:
        if exact and (exact / _SECONDS[unit]).denominator == 1:
            return f"{exact / _SECONDS[unit]}{unit}"
    return f"{seconds:f}s" if exact else "0s"


def show_size(count: float) -> str:
    """Return what `size` reads, in the largest unit that needs no fraction."""
    for unit in _SHOWN_BYTES:
        if count and count % (factor := _BYTES[unit.lower()]) == 0:
            return f"{int(count // factor)}{unit}"
    return f"{int(count)}B"
