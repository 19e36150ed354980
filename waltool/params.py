"""Readers of option values, with errors that say what would have been right."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import click

from sirius.wal.record import Op
from waltool.text import escape

OPERATIONS = {op.name.lower(): int(op) for op in Op}

_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = re.compile(r"(\d+(?:\.\d+)?) ?((?:[kmgt]i?)?b?)", re.IGNORECASE)
_FACTORS = {
    unit + end: factor
    for power, letter in enumerate(("", "k", "m", "g", "t"))
    for unit, factor in ((letter, 1000**power), (f"{letter}i" if letter else "", 1024**power))
    for end in ("", "b")
}
_SEQ_MAX = (1 << 63) - 1


def sequence_number(text: str | int) -> int:
    """Read a sequence number; 1,000,000 and 1_000_000 will do."""
    try:
        number = int(str(text).replace(",", ""))
    except ValueError:
        raise click.BadParameter(f"{escape(str(text))} is not a sequence number.") from None
    if not 1 <= number <= _SEQ_MAX:
        raise click.BadParameter(f"{number} is not a sequence number; the first is 1.")
    return number


def moment(text: str | int) -> int:
    """Read a time in ISO 8601, or an age such as 2h; return microseconds since 1970."""
    if isinstance(text, int):
        return text
    if age := _AGE.fullmatch(text):
        return int((time.time() - float(age[1]) * _SECONDS[age[2]]) * 1_000_000)
    try:
        point = datetime.fromisoformat(text)
    except ValueError:
        wanted = "2026-11-16T07:00 or 2026-11-16 (UTC), or an age such as 30m, 2h, 7d"
        raise click.BadParameter(f"{escape(text)} is not a time; write {wanted}.") from None
    since = (point if point.tzinfo else point.replace(tzinfo=UTC)) - datetime(
        1970, 1, 1, tzinfo=UTC
    )
    # In integers: a float of this size would lose the last digit.
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def byte_count(text: str | int) -> int:
    """Read a number of bytes: 4096, 50MB (millions) or 64MiB (times 1024 times 1024)."""
    if isinstance(text, int):
        return text
    found = _BYTES.fullmatch(text.strip())
    count = int(float(found[1]) * _FACTORS[found[2].lower()]) if found else 0
    if count < 1:
        raise click.BadParameter(f"{escape(text)} is not a size; write 4096, 50MB or 64MiB.")
    return count


def per_second(text: str | float) -> float:
    """Read a rate: 500 or 500/s."""
    try:
        rate = float(str(text).removesuffix("/s"))
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise click.BadParameter(f"{escape(str(text))} is not a rate; write 500 or 500/s.")
    return rate


def regex(text: str) -> str:
    """Check a regular expression and say where it is wrong."""
    try:
        re.compile(text)
    except re.error as error:
        at = len(text) if error.pos is None else error.pos
        marked = escape(f"{text[:at]} <-- HERE {text[at:]}".rstrip())
        raise click.BadParameter(f"bad regular expression '{marked}': {error.msg}.") from None
    return text


def separator(text: str) -> str:
    """Read a separator, which cannot be empty."""
    if not text:
        raise click.BadParameter("a separator has at least one character.")
    return text
