"""On which line of a TOML file a setting stands: `tomllib` does not tell.

This is no second parser. It trusts that `tomllib` has accepted the text, cuts it into tokens, and follows only what
can move a key: table headers, dotted and quoted keys, strings and brackets that go over several lines. What stands
inside an inline table has the line of the key in front of it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

Place = tuple[str | int, ...]
"""Where a value stands: the keys that lead to it, and its position if it is an element of a list."""

_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r]+|\#[^\n]*)
      | (?P<newline>\n)
      | (?P<string>\"{3}(?:\\[\s\S]|[^\\])*?\"{3,5} | '{3}[\s\S]*?'{3,5}
                 | "(?:\\.|[^"\\\n])*" | '[^'\n]*')
      | (?P<mark>[\[\]{}=,.])
      | (?P<bare>[^\s\#"'\[\]{}=,.]+)""",
    re.VERBOSE,
)


class _Token(NamedTuple):
    text: str
    kind: str
    line: int


def places(text: str) -> dict[Place, int]:
    """Return the line, from 1 on, of each table, each key and each element of a list."""
    scan = _Scan()
    for token in _tokens(text):
        scan.take(token)
    return scan.found


def line_of(found: Mapping[Place, int], place: Place) -> int | None:
    """Return the line of a place, or of what it is a part of."""
    for end in range(len(place), 0, -1):
        if (line := found.get(place[:end])) is not None:
            return line
    return None


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        if (kind := match.lastgroup or "") != "blank":
            yield _Token(match[0], kind, line)
        line += match[0].count("\n")
    yield _Token("\n", "newline", line)


class _Scan:
    """Is before a statement, in a table header, in a key or in a value, and knows in which table."""

    def __init__(self) -> None:
        self.found: dict[Place, int] = {}
        self._table: Place = ()
        self._take = self._key
        self._keys: list[str] = []
        self._open = ""
        self._element = 0
        self._element_begins = False

    def take(self, token: _Token) -> None:
        self._take(token)

    def _key(self, token: _Token) -> None:
        if token.kind in ("bare", "string"):
            self._keys.append(_unquoted(token))
        elif token.text == "[":
            self._take = self._header
        elif token.text == "=":
            self._note((*self._table, *self._keys), token.line)
            self._open, self._element, self._take = "", 0, self._value

    def _header(self, token: _Token) -> None:
        if token.kind in ("bare", "string"):
            self._keys.append(_unquoted(token))
        elif token.kind == "newline":
            self._table = tuple(self._keys)
            self._note(self._table, token.line)
            self._end()

    def _value(self, token: _Token) -> None:
        if token.kind == "newline":
            if not self._open:
                self._end()
            return
        if self._element_begins and token.text != "]":
            self.found[(*self._table, *self._keys, self._element)] = token.line
            self._element_begins = False
        self._follow(token.text)

    def _follow(self, text: str) -> None:
        if text in ("[", "{"):
            self._open += text
            self._element_begins = self._open == "["
        elif text in ("]", "}"):
            self._open = self._open[:-1]
        elif text == "," and self._open == "[":
            self._element += 1
            self._element_begins = True

    def _note(self, place: Place, line: int) -> None:
        for end in range(1, len(place) + 1):
            self.found.setdefault(place[:end], line)

    def _end(self) -> None:
        self._keys = []
        self._element_begins = False
        self._take = self._key


def _unquoted(token: _Token) -> str:
    if token.kind == "bare":
        return token.text
    return str(tomllib.loads(f"key = {token.text}")["key"])
