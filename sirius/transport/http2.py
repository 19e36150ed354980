"""One call of gRPC as its bytes: what a client sends, and what it makes of what comes. No socket is touched here.

gRPC is HTTP/2 with few of its features. A connection is a sequence of frames; our one call is stream 1::

    frame     length, 3 bytes | kind, 1 | flags, 1 | stream, 4 | payload

    there     "PRI * HTTP/2.0…"  SETTINGS  WINDOW_UPDATE  HEADERS  DATA+END_STREAM
    back      SETTINGS  HEADERS  DATA  DATA  …  HEADERS+END_STREAM         PING at any time

    message   compressed, 1 byte | length, 4 | content

The payloads of the DATA frames are one string of messages: a message begins and ends anywhere in a frame, and so do its
first five bytes. Nobody here asks where messages end: what is handed on is the content of all, one after the other.

`Incoming` says what the next bytes of the connection are. Either it wants a number of them for itself (`take`), or they
are content, and may go wherever they are needed (`passed`): so a megabyte is read to where it is used, and is not
looked at here. Now and then there is something to send.

**Windows.** HTTP/2 lets a sender send only what it was allowed to. We allow all that the protocol can express, and
again whenever half of it was used: who reads too slowly is held back by TCP, which needs no help.

**Headers** are compressed (HPACK, RFC 7541). We say that we keep no table, so none can be referred to but the one in
the RFC, of which only `:status` matters. What is left are plain strings, and strings in a Huffman code. The C core of
gRPC uses that code for binary values alone, and not for those either if it is told that they may come as they are,
which is a setting of its own. So there is no decoder for it: a header in that code counts as absent, and a call without
a readable status has failed.

What HTTP/2 allows and gRPC does not use (padding, priorities, headers in several frames) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from sirius.errors import BadMessage, Unreachable, UsageError


class Kind(IntEnum):
    """Of a frame. Others are to be ignored."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


ACK = END_STREAM = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
STREAM: Final = 1

WINDOW_BYTES: Final = 2**31 - 1
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
CONTROL_BYTES_MAX: Final = 64 * 1024
"""What a frame other than DATA may have."""

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES: Final = 9
_PREFIX_BYTES: Final = 5
_REQUEST_BYTES_MAX: Final = 16384 - _PREFIX_BYTES
"""Frames of that length are taken by anybody who has not said otherwise yet."""
_WINDOW_BYTES_FIRST: Final = 65535
"""The window of a connection that nobody has opened yet."""
_TRUE_BINARY: Final = 0xFE03
"""The setting of gRPC's own."""
_STREAM_OF: Final[Mapping[int, int]] = {
    Kind.DATA: STREAM,
    Kind.HEADERS: STREAM,
    Kind.RST_STREAM: STREAM,
    Kind.SETTINGS: 0,
    Kind.PING: 0,
    Kind.GOAWAY: 0,
}
_STATUSES: Final = dict(enumerate((b"200", b"204", b"206", b"304", b"400", b"404", b"500"), 8))
"""Where HPACK's table has `:status`."""


class Head(NamedTuple):
    """What a frame begins with."""

    length: int
    kind: int
    flags: int
    stream: int


class Ending(NamedTuple):
    """How the other end says that the call has ended."""

    status: int | None
    """That of gRPC, 0 if all is well; None if there is none that can be read."""
    message: str
    headers: Mapping[bytes, bytes]


class Incoming:
    """What comes over the connection. One thread owns it; an error (`BadMessage`, `Unreachable`) is its end."""

    def __init__(self, peer: str) -> None:
        """`peer` is named by errors."""
        self.peer = peer
        self.greeted = False
        """Whether the other end has shown that it speaks HTTP/2."""
        self.ending: Ending | None = None
        self._head = Head(0, 0, 0, 0)
        self._frame_left = 0
        """How much of a DATA frame is to come."""
        self._prefix = b""
        self._message_left = 0
        self._window_used = 0
        self._answered = False
        """Whether the headers have come that are in front of the content."""
        self._answers = b""
        self._expect(_HEAD_BYTES, self._on_head)

    @property
    def wants(self) -> int:
        """How many bytes have to be given to `take` next; 0 if content follows, or nothing."""
        return self._wants

    @property
    def content(self) -> int:
        """How many of the next bytes are content, at least."""
        return min(self._frame_left, self._message_left)

    def take(self, data: bytes) -> None:
        """Go on by `wants` bytes."""
        self._step(data)

    def passed(self, count: int) -> None:
        """Go on by that many bytes of content, which are where they should be."""
        self._frame_left -= count
        self._message_left -= count
        self._go_on()

    def answers(self) -> bytes:
        """Return what is to be sent now, once."""
        answers, self._answers = self._answers, b""
        return answers

    # ------------------------------------------------------------------ frames

    def _expect(self, count: int, step: Callable[[bytes], None]) -> None:
        self._wants, self._step = count, step

    def _on_head(self, data: bytes) -> None:
        stream = _number(data[5:]) & 2**31 - 1
        head = self._head = Head(_number(data[:3]), data[3], data[4], stream)
        if not self.greeted:
            self._greet(data)
        if stream != _STREAM_OF.get(head.kind, stream):
            raise self._bad(f"a frame of the wrong stream: {head}")
        if head.kind == Kind.DATA:
            self._on_data()
        elif head.length > CONTROL_BYTES_MAX:
            raise self._bad(f"a frame that is too long: {head}")
        elif head.length:
            self._expect(head.length, self._on_control)
        else:
            self._on_control(b"")

    def _greet(self, data: bytes) -> None:
        """HTTP/2 begins with settings; whatever begins with something else is something else."""
        if self._head[1:] != (Kind.SETTINGS, 0, 0) or self._head.length % 6:
            raise BadMessage(f"{self.peer} does not speak HTTP/2: it begins with {data!r}")
        self.greeted = True

    def _on_control(self, payload: bytes) -> None:
        self._expect(_HEAD_BYTES, self._on_head)
        match self._head.kind:
            case Kind.HEADERS:
                self._on_headers(payload)
            case Kind.SETTINGS if not self._head.flags & ACK:
                self._answers += frame(Kind.SETTINGS, ACK, 0, b"")
            case Kind.PING if not self._head.flags & ACK:
                self._answers += frame(Kind.PING, ACK, 0, payload)
            case Kind.RST_STREAM:
                raise Unreachable(
                    f"{self.peer} has dropped the call: HTTP/2 error {_number(payload)}"
                )
            case Kind.GOAWAY if _number(payload[:4]) & 2**31 - 1 < STREAM:
                raise Unreachable(
                    f"{self.peer} takes no calls: HTTP/2 error {_number(payload[4:8])}"
                )
            case Kind.PUSH_PROMISE | Kind.CONTINUATION:
                raise self._bad(f"a frame that nobody asked for: {self._head}")

    # ------------------------------------------------------------------ content

    def _on_data(self) -> None:
        if not self._answered or self._head.flags & PADDED:
            raise self._bad(f"content before its headers, or with padding: {self._head}")
        self._frame_left = self._head.length
        self._use_window(self._head.length)
        self._go_on()

    def _go_on(self) -> None:
        """Find out what comes next in a DATA frame, or behind it."""
        if self.content:
            self._wants = 0
        elif self._frame_left:
            self._expect(min(self._frame_left, _PREFIX_BYTES - len(self._prefix)), self._on_prefix)
        else:
            self._expect(_HEAD_BYTES, self._on_head)
            if self._head.flags & END_STREAM:
                self._end({})

    def _on_prefix(self, data: bytes) -> None:
        self._prefix += data
        self._frame_left -= len(data)
        if len(self._prefix) == _PREFIX_BYTES:
            compressed, self._message_left = self._prefix[0], _number(self._prefix[1:])
            self._prefix = b""
            if compressed:
                raise self._bad("a compressed message")
            if self._message_left > MESSAGE_BYTES_MAX:
                raise self._bad(f"a message of {self._message_left} bytes")
        self._go_on()

    def _use_window(self, count: int) -> None:
        self._window_used += count
        if self._window_used >= WINDOW_BYTES // 2:
            more = self._window_used.to_bytes(4, "big")
            self._answers += frame(Kind.WINDOW_UPDATE, 0, 0, more)
            self._answers += frame(Kind.WINDOW_UPDATE, 0, STREAM, more)
            self._window_used = 0

    # ------------------------------------------------------------------ headers

    def _on_headers(self, block: bytes) -> None:
        flags = self._head.flags
        if flags & (PADDED | WITH_PRIORITY) or not flags & END_HEADERS:
            raise self._bad(f"headers with padding, or not all of them: {self._head}")
        try:
            headers = decoded(block)
        except (IndexError, ValueError):
            raise self._bad(f"headers that are none: {block[:100]!r}") from None
        if not self._answered:
            self._on_answer(headers.get(b":status"))
        elif not flags & END_STREAM:
            raise self._bad("headers in the middle of the content")
        if flags & END_STREAM:
            self._end(headers)

    def _on_answer(self, status: bytes | None) -> None:
        if status != b"200":
            raise Unreachable(f"{self.peer} is no Sirius node: its HTTP status is {status!r}")
        self._answered = True

    def _end(self, headers: Mapping[bytes, bytes]) -> None:
        text = headers.get(b"grpc-status", b"")
        status = int(text) if text.isdigit() and len(text) < 4 else None
        if status == 0 and (self._message_left or self._prefix):
            raise self._bad("the stream ends in the middle of a message")
        message = unquote_to_bytes(headers.get(b"grpc-message", b""))
        self.ending = Ending(status, message.decode("utf-8", "replace"), headers)
        self._wants = 0

    def _bad(self, reason: str) -> BadMessage:
        return BadMessage(f"{self.peer}: {reason}")


def opening(authority: str, scheme: str, path: str, request: bytes) -> bytes:
    """Return all that a client says of its own accord: who it is, what it takes, and its one request."""
    if len(request) > _REQUEST_BYTES_MAX:
        raise UsageError(f"a request of {len(request)} bytes is above {_REQUEST_BYTES_MAX}")
    # The table's size, pushes, a stream's window, a frame's length.
    settings = {1: 0, 2: 0, 4: WINDOW_BYTES, 5: 2**24 - 1, _TRUE_BINARY: 1}
    fields = {
        ":method": "POST",
        ":scheme": scheme,
        ":path": path,
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": "sirius",
    }
    pairs = (key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in settings.items())
    window = WINDOW_BYTES - _WINDOW_BYTES_FIRST
    return (
        _PREFACE
        + frame(Kind.SETTINGS, 0, 0, b"".join(pairs))
        + frame(Kind.WINDOW_UPDATE, 0, 0, window.to_bytes(4, "big"))
        + frame(Kind.HEADERS, END_HEADERS, STREAM, encoded(fields))
        + frame(Kind.DATA, END_STREAM, STREAM, b"\0" + len(request).to_bytes(4, "big") + request)
    )


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame."""
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


def encoded(fields: Mapping[str, str]) -> bytes:
    """Return a header block: names and values as they are, for no table."""
    return b"".join(
        b"\0" + _string(name.encode()) + _string(value.encode()) for name, value in fields.items()
    )


def decoded(block: bytes) -> dict[bytes, bytes]:
    """Return the headers of a block that can be read; raise `IndexError` or `ValueError` if it is none.

    A field begins with the bits 1, and is an index into the table; or with 01, 0001 or 0000, and is an index for the
    name, or 0 and a name, and a value. What begins with 001 is a size for the table.
    """
    fields, at = dict[bytes, bytes](), 0
    while at < len(block):
        bits = next(bits for bits in (7, 6, 5, 4) if block[at] >> bits or bits == 4)
        index, at = _integer(block, at, bits)
        name, value = b":status" if index in _STATUSES else None, _STATUSES.get(index)
        if bits in (6, 4):
            if not index:
                name, at = _text(block, at)
            value, at = _text(block, at)
        if bits != 5 and name is not None and value is not None:
            fields[name] = value
    return fields


def _text(block: bytes, at: int) -> tuple[bytes | None, int]:
    """Return a string, None if it is in the Huffman code, and where it ends."""
    is_huffman = block[at] >> 7
    length, at = _integer(block, at, 7)
    if at + length > len(block):
        raise ValueError("a string is cut off")
    return None if is_huffman else block[at : at + length], at + length


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return the number in the last bits of a byte, and in further bytes if all of those are 1, and where it ends."""
    full = (1 << bits) - 1
    number = block[at] & full
    if number < full:
        return number, at + 1
    for shift in range(0, 28, 7):
        at += 1
        number += (block[at] & 127) << shift
        if block[at] < 128:
            return number, at + 1
    raise ValueError("a number has too many bytes")


def _string(data: bytes) -> bytes:
    """Return a string of HPACK."""
    if len(data) < 127:
        return bytes((len(data),)) + data
    length, rest = bytearray((127,)), len(data) - 127
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    return bytes((*length, rest)) + data


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")
