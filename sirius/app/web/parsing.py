"""Reading the head of a request: pure functions of bytes.

Strict where leniency has let requests be smuggled past proxies: one length, in digits; no blank before a colon, no
folded lines, no body whose length two headers tell in two ways. Chunked bodies are refused with 411, as RFC 9112 (6.3)
allows: whoever writes here knows how much.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from sirius.app.web.messages import Refused

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE: Final = re.compile(rf"({_TOKEN}) ([!-~]+) HTTP/([0-9])\.([0-9])")
_FIELD: Final = re.compile(rf"({_TOKEN}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_LENGTH: Final = re.compile(r"[0-9]{1,19}")
_FIELDS_MAX: Final = 100
_SINGLE: Final = frozenset({"content-length", "host", "expect", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    minor: int

    @property
    def body_bytes(self) -> int | None:
        """How long the body is; None if the head does not say."""
        text = self.headers.get("content-length")
        return None if text is None else int(text)

    @property
    def wants_close(self) -> bool:
        """Whether the client wants this to be the last request of its connection."""
        options = {word.strip().lower() for word in self.headers.get("connection", "").split(",")}
        return "close" in options or (self.minor == 0 and "keep-alive" not in options)

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for a word before it sends the body."""
        return self.headers.get("expect", "").lower() == "100-continue" and self.minor > 0


def parse_head(raw: bytes) -> Head:
    """Read a head, without the empty line at its end. Raises `Refused`."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    found = _LINE.fullmatch(first)
    if found is None:
        raise _bad("the first line is not that of an HTTP request")
    method, target, major, minor = found.groups()
    if major != "1":
        raise Refused(505, f"HTTP/{major}.{minor} is not spoken here, HTTP/1.1 is", close=True)
    headers = _headers(lines)
    _check(headers, int(minor))
    path, query = _target(target)
    return Head(method, path, query, headers, int(minor))


def _headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > _FIELDS_MAX:
        raise Refused(431, f"more than {_FIELDS_MAX} header fields", close=True)
    headers: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise _bad("a header field is malformed")
        name, value = found[1].lower(), found[2].rstrip(" \t")
        if name in headers and name in _SINGLE:
            raise _bad(f"there are two fields {name}")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check(headers: Mapping[str, str], minor: int) -> None:
    if minor > 0 and "host" not in headers:
        raise _bad("the field host is missing")
    if "transfer-encoding" in headers:
        if "content-length" in headers:
            raise _bad("both content-length and transfer-encoding are given")
        raise Refused(411, "send the body with a Content-Length, not in chunks", close=True)
    length = headers.get("content-length")
    if length is not None and not _LENGTH.fullmatch(length):
        raise _bad("the content-length is not a number")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise Refused(417, "nothing can be expected but 100-continue", close=True)


def _target(target: str) -> tuple[str, dict[str, str]]:
    """Return path and query; clients that talk to a proxy send a whole address."""
    if not target.startswith("/"):
        parts = urlsplit(target)
        if parts.scheme.lower() not in ("http", "https") or not parts.netloc:
            raise _bad("the request is for neither a path nor an address")
        target = f"{parts.path or '/'}?{parts.query}"
    path, _, query = target.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise Refused(400, "the query cannot be read") from None
    return path, dict(pairs)


def _bad(reason: str) -> Refused:
    return Refused(400, reason, close=True)
