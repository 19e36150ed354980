"""The web server, over real sockets, to the letter of RFC 9112 where it matters."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Iterator

import pytest

from sirius.app.web import Refused, Request, Response, WebLimits
from tests.app.background import Listening, read_all, read_until

LIMITS = WebLimits(head_bytes_max=1000, body_bytes_max=100)


async def echo(request: Request) -> Response:
    if request.path == "/raise":
        raise ValueError("a bug")
    if request.path == "/refuse":
        raise Refused(404, "no")
    words = [request.method, request.path, repr(dict(request.query)), request.body.decode()]
    return Response(200, " ".join(words).encode())


@pytest.fixture(scope="module")
def web() -> Iterator[Listening]:
    with Listening(echo, LIMITS) as listening:
        yield listening


def get(path: str = "/", *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: h", *fields, "", ""]).encode()


CLOSE = "Connection: close"


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def status_of(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 ([0-9]{3}) ", answer)
    assert found, answer
    return int(found[1])


# ---------------------------------------------------------------------- what is right


def test_a_request_is_answered_with_a_length_and_a_date(web: Listening) -> None:
    answer = web.talk(get("/a%20b?x=1&y=%C3%BC", CLOSE))
    assert body_of(answer) == "GET /a%20b {'x': '1', 'y': 'ü'} ".encode()
    assert re.search(rb"\r\nDate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n", answer)
    assert b"\r\nContent-Length: 33\r\n" in answer
    assert b"\r\nConnection: close\r\n" in answer


def test_a_connection_takes_one_request_after_the_other(web: Listening) -> None:
    with web.connect() as client:
        for path in ("/one", "/two"):
            client.sendall(get(path))
            assert b"Connection: close" not in read_until(client, f"GET {path} {{}} ".encode())


def test_requests_that_come_at_once_are_answered_in_order(web: Listening) -> None:
    answer = web.talk(get("/one") + get("/two") + get("/three", CLOSE))
    assert re.findall(rb"GET (\S+)", answer) == [b"/one", b"/two", b"/three"]


def test_a_request_may_come_byte_by_byte(web: Listening) -> None:
    request = b"PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
    with web.connect() as client:
        for at in range(len(request)):
            client.sendall(request[at : at + 1])
        assert body_of(read_all(client)) == b"PUT /k {} abc"


def test_empty_lines_before_a_request_mean_nothing(web: Listening) -> None:
    assert status_of(web.talk(b"\r\n\r\n" + get("/", CLOSE))) == 200


def test_head_has_the_length_and_no_body(web: Listening) -> None:
    answer = web.talk(b"HEAD /k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert b"\r\nContent-Length: 11\r\n" in answer
    assert body_of(answer) == b""


def test_http_1_0_closes_unless_it_asks_to_go_on(web: Listening) -> None:
    assert status_of(web.talk(b"GET / HTTP/1.0\r\n\r\n")) == 200
    with web.connect() as client:
        client.sendall(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        read_until(client, b"GET /a {} ")
        client.sendall(b"GET /b HTTP/1.0\r\n\r\n")
        assert body_of(read_all(client)) == b"GET /b {} "


def test_a_whole_address_is_taken_for_its_path(web: Listening) -> None:
    answer = web.talk(get("http://films.example:8080/k?x=1", CLOSE))
    assert body_of(answer) == b"GET /k {'x': '1'} "


def test_a_client_that_expects_a_word_gets_it_before_the_body(web: Listening) -> None:
    head = "PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\nExpect: 100-continue\r\n{}\r\n"
    with web.connect() as client:
        client.sendall(head.format(2, "Connection: close\r\n").encode())
        assert read_until(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"ab")
        assert body_of(read_all(client)) == b"PUT /k {} ab"
    assert status_of(web.talk(head.format(101, "").encode())) == 413


def test_an_error_of_the_application_leaves_the_connection_as_it_is(web: Listening) -> None:
    answer = web.talk(get("/refuse") + get("/", CLOSE))
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"\r\n\r\nno\nHTTP/1.1 200 OK\r\n" in answer


def test_a_bug_is_a_500_and_is_logged(web: Listening, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert status_of(web.talk(get("/raise", CLOSE))) == 500
    assert "a bug" in caplog.text


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (b"HELLO\r\n\r\n", 400, "first line"),
        (b"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400, "first line"),
        (b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400, "first line"),
        (b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n", 400, "first line"),
        (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505, "not spoken here"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "host is missing"),
        (b"GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400, "neither a path nor an address"),
        (b"GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400, "neither a path nor an address"),
        (b"GET /?a=%ff HTTP/1.1\r\nHost: h\r\n\r\n", 400, "query"),
        (b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\x00\r\n\r\n", 400, "malformed"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400, "two fields host"),
        (b"PUT / HTTP/1.1\r\nHost: h\r\n\r\n", 411, "Content-Length"),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 411, "chunks"),
        (
            b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            400,
            "both",
        ),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400, "not a number"),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n", 400, "not a number"),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", 400, "not a number"),
        (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n", 413, "the limit is 100"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n", 417, "expected"),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 1000 + b"\r\n\r\n", 431, "1,000 bytes"),
        (b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 101 + b"\r\n", 431, "100 header fields"),
    ],
)
def test_a_bad_request_is_refused_and_the_connection_closed(
    web: Listening, request_: bytes, status: int, reason: str
) -> None:
    answer = web.talk(request_)
    assert status_of(answer) == status
    assert reason in body_of(answer).decode()
    assert b"\r\nConnection: close\r\n" in answer


def test_a_refusal_is_seen_by_a_client_that_is_still_sending(web: Listening) -> None:
    with web.connect() as client:
        # At once, and more than the server takes at once: it answers while the rest is on its way.
        head = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n"
        client.sendall(head + b"x" * 900_000)
        assert status_of(read_all(client)) == 413


def test_a_client_that_goes_away_half_way_does_no_harm(web: Listening) -> None:
    for part in (b"GET / HT", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\nabc"):
        with web.connect() as client:
            client.sendall(part)
    assert status_of(web.talk(get("/", CLOSE))) == 200


# ---------------------------------------------------------------------- patience


def test_who_takes_too_long_is_told_so() -> None:
    limits = WebLimits(head_s=0.05, body_s=0.05)
    with Listening(echo, limits) as web:
        assert status_of(web.talk(b"GET / HTTP/1.1\r\nHo")) == 408
        put = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc"
        assert status_of(web.talk(put)) == 408


def test_an_idle_connection_is_closed_without_a_word() -> None:
    with Listening(echo, WebLimits(idle_s=0.05)) as web:
        assert web.talk(b"") == b""


def test_one_connection_too_many_is_refused() -> None:
    with Listening(echo, WebLimits(connections_max=1)) as web, web.connect() as client:
        client.sendall(get("/"))
        read_until(client, b"GET / {} ")
        answer = web.talk(b"")
        assert status_of(answer) == 503
        assert b"\r\nRetry-After: 1\r\n" in answer


# ---------------------------------------------------------------------- the end


class Slow:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on: asyncio.Event | None = None

    async def __call__(self, _request: Request) -> Response:
        self.go_on = asyncio.Event()
        self.begun.set()
        await self.go_on.wait()
        return Response(200, b"done")


def test_a_server_that_closes_answers_what_has_begun_and_drops_the_idle() -> None:
    slow = Slow()
    with Listening(slow) as web, web.connect() as idle, web.connect() as client:
        client.sendall(get("/"))
        assert slow.begun.wait(30)
        assert slow.go_on is not None
        closing = asyncio.run_coroutine_threadsafe(web.server.close(30.0), web.loop)
        assert read_all(idle) == b""
        assert not closing.done()
        web.loop.call_soon_threadsafe(slow.go_on.set)
        answer = read_all(client)
        assert body_of(answer) == b"done"
        assert b"\r\nConnection: close\r\n" in answer
        closing.result(30)
        with pytest.raises(ConnectionRefusedError):
            web.connect()


def test_a_server_that_closes_waits_no_longer_than_it_was_told() -> None:
    slow = Slow()
    with Listening(slow) as web, web.connect() as client:
        client.sendall(get("/"))
        assert slow.begun.wait(30)
        web.run(web.server.close(0.05))
        assert read_all(client) == b""
        assert web.server.connections == 0
