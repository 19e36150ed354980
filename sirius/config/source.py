"""Files that people write: read whole, with messages that name the file and the line."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sirius.config.lines import Place, line_of, places
from sirius.errors import UsageError

StrPath = str | os.PathLike[str]

BYTES_MAX: Final = 1024 * 1024
_AT: Final = re.compile(
    r"(.*) \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)", re.DOTALL
)
_SHOWN_MAX: Final = 60


def read_bytes(path: StrPath) -> tuple[bytes, os.stat_result]:
    """Return what a file holds and its status at that moment, or say why it cannot be read."""
    try:
        # Without O_NONBLOCK a pipe of that name would stop the caller until somebody writes into it.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{os.fspath(path)}: this is not a file that holds text")
            content = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise UsageError(f"{os.fspath(path)}: there is no such file") from None
    except OSError as error:
        raise UsageError(f"{os.fspath(path)}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{os.fspath(path)!r}: {error}") from None
    if len(content) > BYTES_MAX:
        raise UsageError(f"{os.fspath(path)}: has more than {BYTES_MAX} bytes")
    return content, status


def decoded(path: StrPath, content: bytes) -> str:
    """Return the text that bytes stand for, or say where they are not UTF-8."""
    try:
        return content.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{located(path, line)}: this is not UTF-8") from None


def located(path: StrPath, line: int | None) -> str:
    """Return a place in a file as it stands in front of a message."""
    return os.fspath(path) if line is None else f"{os.fspath(path)}, line {line}"


def shown(value: object) -> str:
    """Return a value as a TOML file would have it, cut if it is long."""
    text = _spelt(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _spelt(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(value))
            return f'"{escaped}"'
        case os.PathLike():
            return _spelt(os.fspath(value))
        case list() | tuple():
            return f"[{', '.join(map(_spelt, value))}]"
        case dict():
            parts = (f"{_spelt(key)} = {_spelt(part)}" for key, part in value.items())
            return f"{{{', '.join(parts)}}}"
    return str(value)


@dataclass
class TomlFile:
    """A parsed file, and the complaints about it."""

    path: Path
    tree: dict[str, Any]
    places: dict[Place, int]
    _complaints: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def parse(cls, path: StrPath, content: bytes) -> TomlFile:
        """Parse what was read from `path`."""
        text = decoded(path, content)
        try:
            tree = tomllib.loads(text)
        except RecursionError:
            raise UsageError(f"{os.fspath(path)}: too many brackets within brackets") from None
        except ValueError as error:
            raise UsageError(_syntax(path, text, str(error))) from None
        return cls(Path(path), tree, places(text))

    def complain(self, place: Place, message: str) -> None:
        """Note what is wrong with the value at a place."""
        line = line_of(self.places, place)
        self._complaints.append((line or 0, f"{located(self.path, line)}: {message}"))

    @property
    def has_complaints(self) -> bool:
        return bool(self._complaints)

    def raise_complaints(self) -> None:
        """Raise what was noted, in the order of the lines, all of it at once."""
        if self._complaints:
            raise UsageError("\n".join(message for _, message in sorted(self._complaints)))


def _syntax(path: StrPath, text: str, message: str) -> str:
    found = _AT.fullmatch(message)
    if not found:
        return f"{os.fspath(path)}: this is not TOML: {message}"
    line = int(found[2]) if found[2] else text.rstrip("\n").count("\n") + 1
    where = f"column {found[3]}" if found[3] else "at the end of the file"
    return f"{located(path, line)}: this is not TOML: {found[1]} ({where})"
