"""Frames of HTTP/2 as a server sends them, good ones and bad ones, and a server that sends them. Not a test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from sirius.errors import BadMessage, TransportError, Unreachable
from sirius.transport.http2 import (
    ACK,
    CONTROL_BYTES_MAX,
    END_HEADERS,
    END_STREAM,
    MESSAGE_BYTES_MAX,
    PADDED,
    STREAM,
    WITH_PRIORITY,
    Kind,
    encoded,
    frame,
)
from tests.transport.harness import PATIENCE_S


def message(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4, "big") + content


def data(payload: bytes, flags: int = 0, stream: int = STREAM) -> bytes:
    return frame(Kind.DATA, flags, stream, payload)


def headers(block: bytes, flags: int = END_HEADERS, stream: int = STREAM) -> bytes:
    return frame(Kind.HEADERS, flags, stream, block)


def ending(**fields: str) -> bytes:
    block = encoded({name.replace("_", "-"): value for name, value in fields.items()})
    return headers(block, END_HEADERS | END_STREAM)


HELLO = frame(Kind.SETTINGS, 0, 0, b"")
ANSWER = headers(b"\x88")
GOOD = ending(grpc_status="0")
PING = frame(Kind.PING, 0, 0, b"12345678")
WINDOW_UPDATE = frame(Kind.WINDOW_UPDATE, 0, 0, bytes(4))
GOAWAY = frame(Kind.GOAWAY, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0bye")

LONG = MESSAGE_BYTES_MAX + 1
BAD: dict[str, tuple[bytes, type[TransportError], str]] = {
    "HTTP/1": (b"HTTP/1.1 400 Bad Request\r\n", BadMessage, r"does not speak HTTP/2.*HTTP/1\.1"),
    "no greeting": (ANSWER, BadMessage, "does not speak HTTP/2"),
    "an answer as a greeting": (frame(Kind.SETTINGS, ACK, 0, b""), BadMessage, "does not speak"),
    "half a setting": (frame(Kind.SETTINGS, 0, 0, b"abc"), BadMessage, "does not speak"),
    "compressed": (HELLO + ANSWER + data(b"\1\0\0\0\1x"), BadMessage, "compressed"),
    "long": (HELLO + ANSWER + data(b"\0" + LONG.to_bytes(4, "big")), BadMessage, f"of {LONG} by"),
    "content first": (HELLO + data(message(b"x")), BadMessage, "before its headers"),
    "padded content": (HELLO + ANSWER + data(b"\0", PADDED), BadMessage, "padding"),
    "padded headers": (HELLO + headers(b"\0\x88", END_HEADERS | PADDED), BadMessage, "padding"),
    "with a priority": (
        HELLO + headers(bytes(5) + b"\x88", END_HEADERS | WITH_PRIORITY),
        BadMessage,
        "headers with padding",
    ),
    "half the headers": (HELLO + headers(b"\x88", 0), BadMessage, "not all of them"),
    "headers of nothing": (HELLO + frame(Kind.CONTINUATION, 4, 1, b""), BadMessage, "nobody asked"),
    "a promise": (HELLO + frame(Kind.PUSH_PROMISE, 4, 1, b"\0\0\0\2"), BadMessage, "nobody asked"),
    "headers again": (HELLO + ANSWER + ANSWER, BadMessage, "in the middle of the content"),
    "cut headers": (HELLO + headers(b"\x88\0\1a"), BadMessage, "headers that are none"),
    "a cut header": (HELLO + headers(b"\x88\0\1a\5bc"), BadMessage, "headers that are none"),
    "a long number": (HELLO + headers(b"\x88" + b"\xff" * 5 + b"\1"), BadMessage, "that are none"),
    "another stream": (HELLO + ANSWER + data(b"", stream=3), BadMessage, "wrong stream"),
    "a ping in a stream": (HELLO + frame(Kind.PING, 0, 1, bytes(8)), BadMessage, "wrong stream"),
    "a long ping": (HELLO + frame(Kind.PING, 0, 0, bytes(CONTROL_BYTES_MAX + 1)), BadMessage, "lo"),
    "long headers": (HELLO + headers(bytes(CONTROL_BYTES_MAX + 1)), BadMessage, "too long"),
    "a reset": (HELLO + frame(Kind.RST_STREAM, 0, 1, b"\0\0\0\7"), Unreachable, "dropped.*error 7"),
    "no welcome": (
        HELLO + frame(Kind.GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\7"),
        Unreachable,
        "takes no c",
    ),
    "a web server": (HELLO + headers(b"\x8d"), Unreachable, "is no Sirius node.*404"),
    "no status of HTTP": (HELLO + headers(encoded({"a": "b"})), Unreachable, "is no Sirius node"),
    "half a message": (
        HELLO + ANSWER + data(message(b"xy")[:-1]) + GOOD,
        BadMessage,
        "middle of a",
    ),
    "half a length": (HELLO + ANSWER + data(b"\0\0") + GOOD, BadMessage, "in the middle of a mess"),
}


class Script:
    """A server that lets one client in, says what it was told to, and listens until the other end has hung up."""

    def __init__(self, answer: Sequence[bytes], hangs_up: bool, host: str = "127.0.0.1") -> None:
        self.heard = bytearray()
        self._answer = answer
        self._hangs_up = hangs_up
        self._listener = socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        name = f"[{host}]" if ":" in host else host
        self.address = f"{name}:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError), self._listener.accept()[0] as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in self._answer:
                connection.sendall(part)
            if self._hangs_up:
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                self.heard += more

    def close(self) -> None:
        """Wait until the client has hung up; it has, or is not there."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@contextmanager
def scripted(*answer: bytes, hangs_up: bool = False, host: str = "127.0.0.1") -> Iterator[Script]:
    script = Script(answer, hangs_up, host)
    try:
        yield script
    finally:
        script.close()
