"""Requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import Final

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"

_BODILESS: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for."""

    method: str
    path: str
    """As it was sent, percent-encoded."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes
    wants_close: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """What it gets."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, *, close: bool, with_body: bool = True) -> bytes:
        """Return the bytes to send. HEAD is answered without the body, but with its length."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}", f"Date: {_date()}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.status not in _BODILESS:
            lines += [f"Content-Type: {self.content_type}", f"Content-Length: {len(self.body)}"]
        if close:
            lines.append("Connection: close")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        return head + self.body if with_body and self.status not in _BODILESS else head


def _date() -> str:
    return _date_at(int(time()))


@lru_cache(maxsize=2)
def _date_at(second: int) -> str:
    return formatdate(second, usegmt=True)


class Refused(Exception):
    """A request that is answered with an error, and the reason as one line of text."""

    def __init__(
        self,
        status: int,
        reason: str,
        headers: Mapping[str, str] | None = None,
        *,
        close: bool = False,
    ) -> None:
        super().__init__(reason)
        self.response = Response(status, f"{reason}\n".encode(), headers=headers or {})
        self.close = close
        """Whether the connection can be used no more: nobody knows where the next request begins."""
