"""Turning what a log holds into text that is safe and short enough for a terminal."""

from __future__ import annotations

import unicodedata
from codecs import utf_8_decode
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def escape(text: str) -> str:
    """Show control characters, direction marks and the like as escapes; a log must not drive a terminal."""
    return text if text.isprintable() else text.translate(_ESCAPES)


class _Escapes(dict[int, str]):
    """What stands for each character; learns them as they come."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        shown = character if character.isprintable() else _escaped(code)
        if len(self) < _ESCAPES_MAX:
            self[code] = shown
        return shown


_ESCAPES_MAX = 10_000
_ESCAPES = _Escapes({ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"})


def _escaped(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable(body: bytes, columns: int | None = None) -> str:
    """Show a body as text if it is UTF-8, and otherwise byte by byte; cut to `columns` if given."""
    # A character takes at most four bytes, so what lies behind these cannot show.
    head = body if columns is None else body[: 4 * columns + 4]
    try:
        text, _ = utf_8_decode(head, "strict", len(head) == len(body))
    except UnicodeDecodeError:
        # The escapes of `repr` at its speed, but for those that only a literal needs.
        text = repr(head)[2:-1].replace("\\\\", "\\").replace("\\'", "'")
    return escape(text) if columns is None else shorten(escape(text), columns)


def shorten(text: str, columns: int) -> str:
    """Cut printable text to a number of columns, with an ellipsis where something is missing."""
    if len(text) <= columns and (text.isascii() or width(text) <= columns):
        return text
    kept = text[: max(columns - 1, 0)]
    while not kept.isascii() and width(kept) > columns - 1:
        kept = kept[:-1]
    return kept + "…"


def width(text: str) -> int:
    """Return how many columns printable text takes on a terminal."""
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


@lru_cache(maxsize=4096)  # the records of a block often share their time
def iso(ts_us: int, timespec: str = "milliseconds") -> str:
    """Show a time of the log in ISO 8601, UTC."""
    try:
        moment = _EPOCH + timedelta(microseconds=ts_us)
    except OverflowError:
        return f"@{ts_us}us"
    return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def number(value: int) -> str:
    return f"{value:,}"


def size(count: int) -> str:
    """Show a number of bytes: 1536 is 1.5 KiB."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.1f} {unit}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
