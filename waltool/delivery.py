"""One record, one HTTP request: where it goes, and what the answer means.

================================  ==================================================
2xx; 404 for a DELETE             done
429, 5xx, no answer at all        to be tried again, after `Retry-After` if it is given
anything else                     refused: trying again would not help
================================  ==================================================

PUT and DELETE may be repeated without harm, so a request whose answer was lost is simply sent again.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

from sirius.errors import UsageError
from waltool.text import shorten

_ANSWER_MAX: Final = 1 << 16
_REASON_MAX: Final = 200
_STALE: Final = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)


class Request(NamedTuple):
    """A record to be delivered."""

    seq: int
    method: str
    key: str
    body: bytes


class Verdict(Enum):
    """What an answer means."""

    DONE = "done"
    AGAIN = "again"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, or why there is none."""

    verdict: Verdict
    what: str
    retry_after_s: float | None = None


def verdict_on(method: str, status: int) -> Verdict:
    """Say what a status means for a request."""
    if 200 <= status < 300 or (method == "DELETE" and status == 404):
        return Verdict.DONE
    return Verdict.AGAIN if status == 429 or status >= 500 else Verdict.REFUSED


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where records go: `<url>/<key>`, the key percent-encoded as one part of the path."""

    url: str
    secure: bool
    host: str
    port: int | None
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 30.0

    @classmethod
    def of(cls, url: str, headers: tuple[str, ...] = (), timeout_s: float = 30.0) -> Endpoint:
        """Read a URL and headers written as `Name: value`."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"{url} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url} is not the URL of a web service; expected http:// or https://")
        if parts.username is not None:
            raise UsageError("the URL holds credentials; give --header 'Authorization: …' instead")
        if parts.query or parts.fragment or not _is_plain(url):
            raise UsageError(f"{url}: expected a plain URL, without blanks, query or fragment")
        place = (parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))
        return cls(url.rstrip("/"), *place, tuple(map(_header, headers)), timeout_s)

    def connect(self) -> HTTPConnection:
        if self.secure:
            context = ssl.create_default_context()
            return HTTPSConnection(self.host, self.port, timeout=self.timeout_s, context=context)
        return HTTPConnection(self.host, self.port, timeout=self.timeout_s)

    def target(self, key: str) -> str:
        return f"{self.path}/{quote(key, safe='')}"


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    sound = colon and _is_plain(name.strip()) and text.isascii() and text.isprintable()
    if not sound:
        raise UsageError("a header is written as 'Name: value'")
    return name.strip(), value.strip()


def _is_plain(text: str) -> bool:
    return text != "" and text.isascii() and text.isprintable() and " " not in text


class Client(Protocol):
    """Sends requests, one at a time. One thread owns it; a call blocks until the answer is there, or none comes."""

    def send(self, request: Request) -> Answer: ...
    def close(self) -> None: ...


class HttpClient:
    """A connection that is kept open from one request to the next."""

    def __init__(self, endpoint: Endpoint, now: Callable[[], float] = time.time) -> None:
        self._endpoint = endpoint
        self._now = now
        self._connection = endpoint.connect()
        self._used = False

    def close(self) -> None:
        self._connection.close()
        self._used = False

    def send(self, request: Request) -> Answer:
        """Send a request; a connection that the server has closed meanwhile is opened anew at once."""
        try:
            try:
                return self._send(request)
            except _STALE:
                if not self._used:
                    raise
                self.close()
                return self._send(request)
        except ssl.SSLCertVerificationError as error:
            self.close()
            return Answer(Verdict.REFUSED, f"certificate not accepted: {error.verify_message}")
        except (OSError, HTTPException) as error:
            self.close()
            return Answer(Verdict.AGAIN, f"no answer: {str(error) or type(error).__name__}")

    def _send(self, request: Request) -> Answer:
        headers = {"Content-Type": "application/octet-stream"} if request.method == "PUT" else {}
        headers.update(self._endpoint.headers)
        body = request.body if request.method == "PUT" else None
        target = self._endpoint.target(request.key)
        self._connection.request(request.method, target, body, headers)
        response = self._connection.getresponse()
        self._used = True
        self._read(response)
        what = shorten(f"{response.status} {response.reason}".strip(), _REASON_MAX)
        wait = self._wait(response.getheader("Retry-After"))
        return Answer(verdict_on(request.method, response.status), what, wait)

    def _read(self, response: HTTPResponse) -> None:
        """Take in the answer, so that the connection can be used again; a long one is not worth it."""
        response.read(_ANSWER_MAX)
        if not response.isclosed():
            self.close()

    def _wait(self, text: str | None) -> float | None:
        """Read a `Retry-After`: seconds, or a date."""
        if text is None:
            return None
        try:
            if text.strip().isdecimal():
                return float(text)
            return max(parsedate_to_datetime(text).timestamp() - self._now(), 0.0)
        except (ValueError, OverflowError):
            return None
