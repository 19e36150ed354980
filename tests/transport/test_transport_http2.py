"""One call of gRPC as its bytes, without a socket: what comes is taken apart, and what breaks a rule is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.errors import (
    BadMessage,
    TransportError,
    Unreachable,
)
from sirius.transport import http2
from sirius.transport.http2 import (
    ACK,
    CONTROL_BYTES_MAX,
    END_HEADERS,
    END_STREAM,
    MESSAGE_BYTES_MAX,
    STREAM,
    Incoming,
    Kind,
    decoded,
    encoded,
    frame,
)
from tests.transport.frames import (
    ANSWER,
    BAD,
    GOAWAY,
    GOOD,
    HELLO,
    PING,
    WINDOW_UPDATE,
    data,
    ending,
    headers,
    message,
)


def fed(given: bytes, incoming: Incoming | None = None) -> tuple[Incoming, bytes]:
    """Give bytes to a machine until it has had all of them, or the call has ended; return the content, too."""
    incoming, content, at = incoming or Incoming("peer:1"), b"", 0
    while at < len(given) and incoming.ending is None:
        if count := min(incoming.content, 3):
            content += given[at : at + count]
            incoming.passed(len(given[at : at + count]))
        else:
            count = incoming.wants
            if at + count > len(given):
                break
            incoming.take(given[at : at + count])
        at += count
    return incoming, content


@pytest.mark.parametrize("size", range(1, 40))
def test_messages_begin_and_end_anywhere_in_frames(size: int) -> None:
    contents = [b"", b"a", b"bcdefg" * 3, b"", b"", b"hij"]
    whole = b"".join(map(message, contents))
    frames = [data(whole[at : at + size]) for at in range(0, len(whole), size)]
    incoming, content = fed(HELLO + ANSWER + b"".join(frames) + GOOD)
    assert content == b"".join(contents)
    assert incoming.ending == (0, "", {b"grpc-status": b"0"})
    assert (incoming.wants, incoming.content) == (0, 0)


def test_settings_and_pings_are_answered_once_and_answers_are_not() -> None:
    incoming, _ = fed(HELLO)
    assert incoming.answers() == frame(Kind.SETTINGS, ACK, 0, b"")
    fed(frame(Kind.SETTINGS, 0, 0, bytes(12)) + PING, incoming)
    assert incoming.answers() == frame(Kind.SETTINGS, ACK, 0, b"") + frame(
        Kind.PING, ACK, 0, b"12345678"
    )
    fed(frame(Kind.SETTINGS, ACK, 0, b"") + frame(Kind.PING, ACK, 0, b"12345678"), incoming)
    assert incoming.answers() == b""


@pytest.mark.parametrize(
    "other",
    [PING, WINDOW_UPDATE, GOAWAY, frame(2, 0, 1, bytes(5)), frame(77, 255, 9, b"?"), data(b"")],
    ids=["ping", "window", "farewell", "priority", "unknown", "empty"],
)
def test_other_frames_may_come_at_any_time(other: bytes) -> None:
    parts = [HELLO, ANSWER, data(message(b"abcd")[:3]), data(message(b"abcd")[3:7]), data(b"cd")]
    for at in range(1, len(parts) + 1):
        if other == data(b"") and at < 2:
            continue
        incoming, content = fed(b"".join([*parts[:at], other, *parts[at:], GOOD]))
        assert (content, incoming.ending is not None) == (b"abcd", True)


def test_windows_are_opened_anew_when_half_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "WINDOW_BYTES", 100)
    incoming, _ = fed(HELLO + ANSWER + data(message(bytes(44))))
    incoming.answers()
    fed(data(b""), incoming)
    assert incoming.answers() == b""
    fed(data(message(b"")[:1]), incoming)
    more = (50).to_bytes(4, "big")
    assert incoming.answers() == frame(Kind.WINDOW_UPDATE, 0, 0, more) + frame(
        Kind.WINDOW_UPDATE, 0, STREAM, more
    )
    fed(data(message(b"")[1:]), incoming)
    assert incoming.answers() == b""


@pytest.mark.parametrize(("given", "kind", "reason"), BAD.values(), ids=BAD.keys())
def test_what_is_not_as_it_should_be_is_refused(
    given: bytes, kind: type[TransportError], reason: str
) -> None:
    with pytest.raises(kind, match=f"(?s)peer:1.*{reason}") as error:
        fed(given)
    assert error.type is kind


def test_headers_and_messages_of_the_greatest_length_are_taken() -> None:
    block = b"\x88" + encoded({"a": "b" * (CONTROL_BYTES_MAX - 8)})
    assert len(block) == CONTROL_BYTES_MAX
    incoming, _ = fed(HELLO + headers(block))
    fed(data(b"\0" + MESSAGE_BYTES_MAX.to_bytes(4, "big") + b"abc"), incoming)
    assert incoming.content == 0
    assert incoming.wants == 9


def test_a_call_ends_well_only_by_a_status_at_its_end() -> None:
    early = headers(b"\x88" + encoded({"grpc-status": "0"}))
    for answer in (
        HELLO + ANSWER + data(message(b"x"), END_STREAM),
        HELLO + early + data(message(b"x"), END_STREAM),
        HELLO + early + ending(other="0"),
        HELLO + ANSWER + ending(grpc_status="zero"),
        HELLO + ANSWER + ending(grpc_status="-0"),
        HELLO + ANSWER + ending(grpc_status="00000"),
        HELLO + ANSWER + headers(b"\0\x0bgrpc-status\x810", END_HEADERS | END_STREAM),
        HELLO + ANSWER + headers(b"\0\x8bgrpc-status\x010", END_HEADERS | END_STREAM),
    ):
        incoming, _ = fed(answer)
        assert incoming.ending is not None
        assert incoming.ending.status is None


def test_what_grpc_sends_at_the_end_is_read() -> None:
    sent = (
        b" \x88@\x0ccontent-type\x10application/grpc@\x0bgrpc-status\x017"
        b"\x00\x0cgrpc-message\x10n%C3%B6 %25 x%0A\x00\x12sirius-failure-bin\x03\x00\x01a"
    )
    incoming, _ = fed(HELLO + headers(sent, END_HEADERS | END_STREAM))
    assert incoming.ending is not None
    assert incoming.ending[:2] == (7, "nö % x\n")
    assert incoming.ending.headers[b"sirius-failure-bin"] == b"\x00\x01a"


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 254, 255, 256, 300, 16510, 16511, 60000])
def test_headers_of_any_length_are_what_they_were(length: int) -> None:
    fields = {"a": "x" * length, "n" * length: "b"}
    assert decoded(encoded(fields)) == {
        name.encode(): value.encode() for name, value in fields.items()
    }


def test_fields_in_every_form_are_told_apart() -> None:
    forms = (
        b"\x20\x3f\xe1\x1f"  # sizes of the table
        b"\x8e\xbe\xbf\x80"  # 500; of a table that is not there; of none
        b"\x48\x03404\x08\x03\x34\x30\x35"  # :status by its number, with values of its own
        b"\x5f\x01x\x0f\x10\x01y\x10\x01c\x01d\x40\x01e\x01f"  # another name by its number; names
        b"\x28"  # a size that is also the number of a status
    )
    assert decoded(forms) == {b":status": b"405", b"c": b"d", b"e": b"f"}


@given(st.binary(max_size=40))
def test_any_bytes_are_headers_or_none(block: bytes) -> None:
    with suppress(IndexError, ValueError):
        decoded(block)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_an_answer_or_refused(given: bytes, greets: bool) -> None:
    with suppress(BadMessage, Unreachable):
        fed(HELLO + ANSWER + given if greets else given)


def test_the_opening_is_one_request_and_all_windows_open() -> None:
    opening = http2.opening("peer:1", "http", "/sirius.test/Give", b"question")
    settings = bytes.fromhex("000100000000 000200000000 00047fffffff 000500ffffff fe0300000001")
    fields = encoded({":path": "/sirius.test/Give", ":authority": "peer:1"})
    assert opening.startswith(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(Kind.SETTINGS, 0, 0, settings)
    )
    assert frame(Kind.WINDOW_UPDATE, 0, 0, (2**31 - 1 - 65535).to_bytes(4, "big")) in opening
    assert fields in opening
    assert opening.endswith(data(message(b"question"), END_STREAM))
