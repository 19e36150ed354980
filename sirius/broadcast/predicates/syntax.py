r"""The language of predicates.

::

    predicate  = all { "or" all }
    all        = one { "and" one }
    one        = "(" predicate ")" | comparison
    comparison = ("seq" | "time") ("<" | "<=") number
               | "key" ("=" | "prefix") text
               | "topic" "=" text
               | name ("<" | "<=" | "=" | "!=" | ">=" | ">") number
    number     = ["-"] digits, at most 64 bits; "_" may stand between digits
    text       = '"' … '"', in which \" is a quote, \\ a backslash, \x00 any byte

`seq` and `time` have only "below": a predicate is about what is older. Times are microseconds.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sirius.broadcast.limits import NAME
from sirius.broadcast.predicates.terms import (
    And,
    Attribute,
    Comparison,
    KeyIs,
    KeyPrefix,
    Or,
    Predicate,
    SeqBelow,
    TimeBelow,
    TopicIs,
)
from sirius.errors import UsageError

TEXT_MAX: Final = 16_384
"""How long a predicate may be."""
DEPTH_MAX: Final = 32
"""How deep brackets may be."""

_TOKEN: Final = re.compile(
    r"""\s*(?: (?P<number>-?\d[\d_]*) | (?P<word>[A-Za-z_]\w*) | (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<sign><=|>=|!=|<|>|=|\(|\)) | (?P<end>\Z) )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([\"\\])|(.?))", re.DOTALL)


class PredicateError(UsageError):
    """A predicate that cannot be read; its message points at the place."""

    def __init__(self, text: str, at: int, problem: str) -> None:
        begin = max(0, at - 50)
        shown = "".join(c if c.isprintable() else "·" for c in text[begin : at + 30])
        super().__init__(f"{problem}\n  {shown}\n  {' ' * (at - begin)}^")
        self.at = at
        self.problem = problem


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse(text: str | bytes) -> Predicate:
    """Read a predicate. Raises `PredicateError`."""
    text = _decoded(text) if isinstance(text, bytes) else text
    if len(text) > TEXT_MAX:
        raise PredicateError(text, TEXT_MAX, f"a predicate has at most {TEXT_MAX} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PredicateError(text, error.start, "this is no text") from error
    return _Parser(text).whole()


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        at = len(data[: error.start].decode())
        raise PredicateError(data.decode(errors="replace"), at, "this is no text") from error


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._token = self._read(0)

    def whole(self) -> Predicate:
        predicate = self._any()
        if self._token.kind != "end":
            raise self._error('"and", "or" or the end was expected here')
        return predicate

    def _error(self, problem: str, at: int | None = None) -> PredicateError:
        return PredicateError(self._text, self._token.at if at is None else at, problem)

    def _read(self, position: int) -> _Token:
        found = _TOKEN.match(self._text, position)
        if found is None or found.lastgroup is None:
            blank = re.compile(r"\s*").match(self._text, position)
            at = blank.end() if blank else position
            problem = "this text does not end" if self._text[at] == '"' else "this means nothing"
            raise PredicateError(self._text, at, problem)
        kind = found.lastgroup
        return _Token(kind, found[kind], found.start(kind))

    def _next(self) -> _Token:
        token = self._token
        self._token = self._read(token.at + len(token.text))
        return token

    def _is(self, text: str) -> bool:
        return self._token.kind in ("word", "sign") and self._token.text == text

    def _any(self) -> Predicate:
        parts = [self._all()]
        while self._is("or"):
            self._next()
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Predicate:
        parts = [self._one()]
        while self._is("and"):
            self._next()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _one(self) -> Predicate:
        if not self._is("("):
            return self._comparison()
        if self._depth == DEPTH_MAX:
            raise self._error(f"more than {DEPTH_MAX} brackets inside each other")
        self._depth += 1
        self._next()
        inside = self._any()
        if not self._is(")"):
            raise self._error('"and", "or" or ")" was expected here')
        self._next()
        self._depth -= 1
        return inside

    def _comparison(self) -> Predicate:
        name = self._token
        if name.kind != "word" or name.text in ("and", "or", "prefix"):
            raise self._error('a comparison such as seq < 100 or key = "a" was expected here')
        self._next()
        match name.text:
            case "seq":
                return SeqBelow(self._below("seq"))
            case "time":
                return TimeBelow(self._below("time"))
            case "key":
                return self._key()
            case "topic":
                return self._topic()
        if not NAME.fullmatch(name.text):
            raise self._error("no name of an attribute: small letters, digits and _", name.at)
        comparison = self._sign(tuple(Comparison))
        return Attribute(name.text, Comparison(comparison), self._number())

    def _below(self, name: str) -> int:
        if self._token.kind == "sign" and self._token.text not in ("<", "<="):
            raise self._error(f"{name} can only be < or <=: a predicate is about what is older")
        sign = self._sign(("<", "<="))
        return self._number() + (sign == "<=")

    def _key(self) -> Predicate:
        sign = self._sign(("=", "prefix"))
        text = self._string()
        return KeyIs(text) if sign == "=" else KeyPrefix(text)

    def _topic(self) -> Predicate:
        self._sign(("=",))
        at = self._token.at
        try:
            pattern = self._string().decode()
        except UnicodeDecodeError as error:
            raise self._error("a topic is text", at) from error
        if pattern and not pattern.startswith("/"):
            raise self._error("a topic begins with a slash", at)
        return TopicIs(pattern)

    def _sign(self, allowed: tuple[str, ...]) -> str:
        if not any(map(self._is, allowed)):
            raise self._error(f"one of {' '.join(allowed)} was expected here")
        return self._next().text

    def _number(self) -> int:
        if self._token.kind != "number":
            raise self._error("a number was expected here")
        value = int(self._token.text.replace("_", ""))
        if not -(2**63) < value < 2**63 - 1:
            raise self._error("this number has more than 64 bits")
        self._next()
        return value

    def _string(self) -> bytes:
        if self._token.kind != "text":
            raise self._error('a text in "quotes" was expected here')
        token = self._next()
        return _ESCAPE.sub(lambda found: self._unescaped(found, token), token.text[1:-1].encode())

    def _unescaped(self, found: re.Match[bytes], token: _Token) -> bytes:
        if found[1] is not None:
            return bytes([int(found[1], 16)])
        if found[2] is not None:
            return found[2]
        before = found.string[: found.start()].decode()
        raise self._error(
            'a backslash stands before ", \\ or x and two digits', token.at + 1 + len(before)
        )
