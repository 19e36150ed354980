"""A long answer read off a socket by hand: against scripts that break each rule, and against real gRPC servers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from sirius.errors import (
    BadMessage,
    NodeClosed,
    NotPermitted,
    SiriusError,
    TransportError,
    Unreachable,
    UsageError,
    WrongCertificate,
)
from sirius.transport import failures, http2
from sirius.transport import sirius_pb2 as pb
from sirius.transport.fetching import Fetch, fetch
from sirius.transport.http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    Kind,
    frame,
)
from sirius.transport.security import Plaintext, Security, Tls
from tests.transport.certificates import Authority
from tests.transport.frames import (
    ANSWER,
    BAD,
    GOOD,
    HELLO,
    PING,
    WINDOW_UPDATE,
    Script,
    data,
    headers,
    message,
    scripted,
)
from tests.transport.harness import LIMITS, PATIENCE_S, eventually, free_address, run

PATH = "/sirius.test/Give"
SHORT_S = 0.05
"""For tests of the time-out itself."""
MB = 1024 * 1024


# ---------------------------------------------------------------------- against a script


def asked(
    address: str,
    security: Security | None = None,
    timeout_s: float = PATIENCE_S,
    request: bytes = b"question",
) -> Fetch:
    return fetch(address, PATH, request, security or Plaintext(), timeout_s)


def all_of(fetching: Fetch, size: int = 1000) -> bytes:
    """Read to the end, by buffers of that size."""
    content, buffer = bytearray(), bytearray(size)
    with closing(fetching):
        while count := fetching.read_into(memoryview(buffer)):
            content += buffer[:count]
            if count < size:
                assert fetching.read_into(memoryview(buffer)) == 0
        assert fetching.read_into(memoryview(buffer)) == 0
    return bytes(content)


def is_open(fetching: Fetch) -> bool:
    return fetching._connection.fileno() >= 0


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_an_answer_that_comes_byte_by_byte_is_the_same(size: int) -> None:
    parts = [HELLO, ANSWER, PING, data(message(b"abc") + message(b"")[:2]), WINDOW_UPDATE]
    whole = b"".join([*parts, data(message(b"")[2:] + message(b"defg")), PING, GOOD])
    with scripted(*(whole[at : at + 1] for at in range(len(whole)))) as script:
        assert all_of(asked(script.address), size) == b"abcdefg"
    answers = frame(Kind.SETTINGS, ACK, 0, b"") + 2 * frame(Kind.PING, ACK, 0, b"12345678")
    opening = http2.opening(script.address, "http", PATH, b"question")
    assert script.heard == opening + answers


@pytest.mark.parametrize(("given", "kind", "reason"), BAD.values(), ids=BAD.keys())
def test_a_reader_hears_what_is_wrong_and_has_hung_up(
    given: bytes, kind: type[TransportError], reason: str
) -> None:
    with scripted(given) as script:
        fetching = asked(script.address)
        with closing(fetching):
            with pytest.raises(kind, match=f"(?s){script.address}.*{reason}"):
                fetching.read_into(memoryview(bytearray(100)))
            assert not is_open(fetching)
            with pytest.raises(Unreachable, match="was closed"):
                fetching.read_into(memoryview(bytearray(100)))


@pytest.mark.parametrize("given", [b"", b"\x15\x03\x03\0\2\2\x46"], ids=["nothing", "alert"])
def test_who_hangs_up_before_saying_anything_may_want_tls(given: bytes) -> None:
    with (
        scripted(given, hangs_up=True) as script,
        closing(asked(script.address)) as fetching,
        pytest.raises(Unreachable, match=rf"{script.address}.*does it want TLS\?"),
    ):
        fetching.read_into(memoryview(bytearray(100)))


@pytest.mark.parametrize(
    "given",
    [HELLO, HELLO + ANSWER, HELLO + ANSWER + data(message(bytes(9)))[:-3], HELLO + b"\0\0"],
    ids=["greeting", "headers", "content", "frame"],
)
def test_who_hangs_up_in_the_middle_has_not_answered(given: bytes) -> None:
    with (
        scripted(given, hangs_up=True) as script,
        closing(asked(script.address)) as fetching,
        pytest.raises(Unreachable, match=f"{script.address}.*hung up in the middle"),
    ):
        fetching.read_into(memoryview(bytearray(100)))


@pytest.mark.parametrize(
    "given",
    [b"", HELLO + ANSWER, HELLO + ANSWER + data(message(bytes(9)))[:-3]],
    ids=["nothing", "headers", "content"],
)
def test_who_says_nothing_more_is_left_after_the_time_out(given: bytes) -> None:
    with (
        scripted(given) as script,
        closing(asked(script.address, timeout_s=SHORT_S)) as fetching,
        pytest.raises(Unreachable, match=f"{script.address}: nothing came for {SHORT_S} s"),
    ):
        fetching.read_into(memoryview(bytearray(100)))


class Endless(Sequence[bytes]):
    """Pings, for as long as somebody takes them."""

    def __getitem__(self, at: Any) -> Any:
        return PING if at else HELLO + ANSWER + data(message(b"ab"))

    def __len__(self) -> int:
        return 2**31


def test_pings_alone_are_no_answer() -> None:
    script = Script(Endless(), hangs_up=False)
    with closing(script), closing(asked(script.address, timeout_s=SHORT_S)) as fetching:
        buffer = bytearray(2)
        assert fetching.read_into(memoryview(buffer)) == 2
        assert buffer == b"ab"
        with pytest.raises(Unreachable, match="nothing came for"):
            fetching.read_into(memoryview(buffer))


def test_bytes_that_come_in_time_are_waited_for_however_long_all_take() -> None:
    """The kernel gives up a wait for all bytes after the time-out also when some have come since."""
    halves = threading.Event()

    class InTwo(Sequence[bytes]):
        def __getitem__(self, at: Any) -> Any:
            if at == 1:
                assert halves.wait(PATIENCE_S)
            return [HELLO + ANSWER + data(message(b"abcd"))[:-2], b"cd" + GOOD][at]

        def __len__(self) -> int:
            return 2

    class Impatient(Plaintext):
        def connect(self, address: str, timeout_s: float) -> socket.socket:
            return ShortWaits(super().connect(address, timeout_s))

    class ShortWaits(socket.socket):
        """As if each wait for all bytes took too long."""

        def __init__(self, connection: socket.socket) -> None:
            super().__init__(fileno=connection.detach())

        def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
            got = super().recv_into(buffer, nbytes, flags & ~socket.MSG_WAITALL)
            halves.set()
            return got

    script = Script(InTwo(), hangs_up=False)
    with closing(script):
        assert all_of(asked(script.address, Impatient())) == b"abcd"


def test_a_wait_is_left_to_the_kernel() -> None:
    """Python's own time-out would make MSG_WAITALL void, and every piece of content cost a turn."""
    with scripted(HELLO) as script, closing(asked(script.address, timeout_s=7.5)) as fetching:
        connection = fetching._connection
        assert connection.gettimeout() is None
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            assert connection.getsockopt(socket.SOL_SOCKET, option, 16) == (
                (7).to_bytes(8, "little") + (500_000).to_bytes(8, "little")
            )
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_full_buffer_is_handed_on_before_anything_else_comes() -> None:
    with (
        scripted(HELLO + ANSWER + data(message(b"abcdef"))) as script,
        closing(asked(script.address)) as fetching,
    ):
        buffer = bytearray(3)
        for expected in (b"abc", b"def"):
            assert fetching.read_into(memoryview(buffer)) == 3
            assert bytes(buffer) == expected
        assert fetching.read_into(memoryview(buffer)[:0]) == 0


def test_a_status_that_cannot_be_read_is_a_failure() -> None:
    huffman = headers(b"\0\x0bgrpc-status\x81\x07", END_HEADERS | END_STREAM)
    with (
        scripted(HELLO + ANSWER + data(message(b"x")) + huffman) as script,
        closing(asked(script.address)) as fetching,
        pytest.raises(TransportError, match=f"{script.address}.*not readable"),
    ):
        fetching.read_into(memoryview(bytearray(100)))


def test_a_request_that_is_too_long_is_not_sent_and_leaves_nothing_open() -> None:
    with (
        scripted(hangs_up=True) as script,
        pytest.raises(UsageError, match="16380 bytes is above 16379"),
    ):
        asked(script.address, request=bytes(16380))
    assert script.heard == b""


def test_addresses_of_the_sixth_version() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    with scripted(HELLO + ANSWER + data(message(b"six")) + GOOD, host="::1") as script:
        assert all_of(asked(script.address)) == b"six"


@pytest.mark.parametrize(
    "address", ["no-port", "localhost:what", "127.0.0.1:", "127.0.0.1:99999", f"{'x' * 300}:1", ""]
)
def test_an_address_that_is_none_is_unreachable(address: str) -> None:
    with pytest.raises(Unreachable, match=f"^{address}: "):
        asked(address, Plaintext(allow_plaintext=True))


def test_nobody_there_is_unreachable() -> None:
    address = free_address()
    with pytest.raises(Unreachable, match=f"{address}.*refused"):
        asked(address)


def test_plain_text_does_not_leave_the_machine() -> None:
    with pytest.raises(UsageError, match="allow_plaintext"):
        asked("192.0.2.1:9")


# ---------------------------------------------------------------------- against gRPC


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(params=["plain", "tls"])
def ends(request: pytest.FixtureRequest, authority: Authority) -> tuple[Security, Security]:
    """The security of a server, and that of a client."""
    if request.param == "plain":
        return Plaintext(), Plaintext()
    return Tls(authority.issue("member-1")), Tls(authority.issue("follower-1"))


Method = Callable[[bytes, Any], Awaitable[None]]


@asynccontextmanager
async def serving(method: Method, security: Security, **options: Any) -> AsyncIterator[Any]:
    """A gRPC server with one method, and its address as an attribute."""
    server = grpc.aio.server(options=LIMITS.server_options(), **options)
    handler = grpc.unary_stream_rpc_method_handler(method)
    service = grpc.method_handlers_generic_handler("sirius.test", {"Give": handler})
    server.add_generic_rpc_handlers((service,))
    server.address = f"127.0.0.1:{security.bind(server, '127.0.0.1:0')}"
    await server.start()
    try:
        yield server
    finally:
        await server.stop(None)


def cut(sizes: Sequence[int]) -> list[bytes]:
    """Pieces of these sizes, each with a content of its own."""
    return [
        (bytes((at + number) % 251 for at in range(251)) * (size // 251 + 1))[:size]
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "buffer"),
    [
        ([0, 1, 5 * MB, 0, 3], 4 * MB),
        ([5 * MB], 5 * MB),
        ([70_000] * 20, 70_001),
        ([1000], 1),
        ([0], 10),
        ([], 10),
    ],
)
def test_all_pieces_come_in_order(
    ends: tuple[Security, Security], sizes: list[int], buffer: int
) -> None:
    given, asked_for = cut(sizes), list[bytes]()

    async def give(request: bytes, context: Any) -> None:
        asked_for.append(request)
        for piece in given:
            await context.write(piece)

    async def test() -> None:
        async with serving(give, ends[0]) as server:
            content = await asyncio.to_thread(
                lambda: all_of(asked(server.address, ends[1], request=b"\0\xff" * 8000), buffer)
            )
        assert content == b"".join(given)
        assert asked_for == [b"\0\xff" * 8000]

    run(test)


def test_a_server_that_compresses_is_refused() -> None:
    """gRPC does so if it was told to, whatever the client says that it takes."""

    async def give(_: bytes, context: Any) -> None:
        await context.write(bytes(100_000))

    async def test() -> None:
        async with serving(give, Plaintext(), compression=grpc.Compression.Gzip) as server:
            with pytest.raises(BadMessage, match=f"{server.address}: a compressed message"):
                await asyncio.to_thread(lambda: all_of(asked(server.address)))

    run(test)


def test_small_windows_do_not_stop_a_long_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "WINDOW_BYTES", 100_000)
    given = cut([1000, MB, 7, 3 * MB])

    async def give(_: bytes, context: Any) -> None:
        for piece in given:
            await context.write(piece)

    async def test() -> None:
        async with serving(give, Plaintext()) as server:
            content = await asyncio.to_thread(lambda: all_of(asked(server.address, timeout_s=10)))
            assert content == b"".join(given)

    run(test)


def failing(code: Any, details: str, *before: bytes, failure: Any = None) -> Method:
    async def give(_: bytes, context: Any) -> None:
        for piece in before:
            await context.write(piece)
        told = ((failures.FAILURE, failure.SerializeToString()),) if failure else ()
        await context.abort(code, details, trailing_metadata=told)

    return give


CODE = grpc.StatusCode


@pytest.mark.parametrize("before", [(), (b"abc", bytes(MB))], ids=["at once", "in the middle"])
@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (CODE.PERMISSION_DENIED, NotPermitted, ": schlüssel 100 % ☂$"),
        (CODE.UNAVAILABLE, Unreachable, ": schlüssel 100 % ☂$"),
        (CODE.UNIMPLEMENTED, Unreachable, " is no Sirius node: schlüssel 100 % ☂$"),
        (CODE.DATA_LOSS, TransportError, r": schlüssel 100 % ☂ \(DATA_LOSS\)$"),
    ],
)
def test_a_call_that_fails_says_why(
    ends: tuple[Security, Security],
    before: Sequence[bytes],
    code: Any,
    kind: type[TransportError],
    said: str,
) -> None:
    async def test() -> None:
        async with serving(failing(code, "schlüssel 100 % ☂", *before), ends[0]) as server:
            with pytest.raises(kind, match=f"^{server.address}{said}") as error:
                await asyncio.to_thread(lambda: all_of(asked(server.address, ends[1])))
            assert error.type is kind

    run(test)


def test_an_error_of_a_node_is_that_error_here(ends: tuple[Security, Security]) -> None:
    failure = pb.Failure(kind="NodeClosed", reason="it is Sunday")

    async def test() -> None:
        method = failing(CODE.UNAVAILABLE, "?", b"abc", failure=failure)
        async with serving(method, ends[0]) as server:
            with pytest.raises(NodeClosed, match=r"^it is Sunday$"):
                await asyncio.to_thread(lambda: all_of(asked(server.address, ends[1])))

    run(test)


def test_a_method_that_is_not_there_is_no_sirius_node() -> None:
    async def test() -> None:
        async with serving(failing(CODE.OK, ""), Plaintext()) as server:
            with (
                closing(fetch(server.address, "/a.b/C", b"", Plaintext(), PATIENCE_S)) as fetching,
                pytest.raises(Unreachable, match="is no Sirius node: Method not found"),
            ):
                await asyncio.to_thread(fetching.read_into, memoryview(bytearray(10)))

    run(test)


async def stalling(_: bytes, context: Any) -> None:
    """Gives a piece, and nothing after it."""
    await context.write(b"abc")
    await asyncio.Event().wait()


def first(fetching: Fetch) -> None:
    """Read the one piece, so that the call is known to be under way."""
    buffer = bytearray(3)
    assert fetching.read_into(memoryview(buffer)) == 3
    assert buffer == b"abc"


def test_a_server_that_stops_in_the_middle_is_unreachable(ends: tuple[Security, Security]) -> None:
    async def test() -> None:
        async with serving(stalling, ends[0]) as server:
            fetching = await asyncio.to_thread(asked, server.address, ends[1])
            with closing(fetching):
                await asyncio.to_thread(first, fetching)
                rest = asyncio.create_task(asyncio.to_thread(all_of, fetching))
                await eventually(lambda: fetching._busy)
                await server.stop(None)
                with pytest.raises(Unreachable, match=server.address):
                    await rest

    run(test)


def test_a_server_that_stalls_is_left_after_the_time_out(ends: tuple[Security, Security]) -> None:
    async def test() -> None:
        async with serving(stalling, ends[0]) as server:
            with pytest.raises(Unreachable, match=f"{server.address}.*(nothing came|timed out)"):
                await asyncio.to_thread(lambda: all_of(asked(server.address, ends[1], 1.0)))

    run(test)


def test_close_ends_a_read_of_another_thread(ends: tuple[Security, Security]) -> None:
    async def test() -> None:
        async with serving(stalling, ends[0]) as server:
            fetching = await asyncio.to_thread(asked, server.address, ends[1])
            with closing(fetching):
                await asyncio.to_thread(first, fetching)
                rest = asyncio.create_task(
                    asyncio.to_thread(fetching.read_into, memoryview(bytearray(10)))
                )
                await eventually(lambda: fetching._busy)
                fetching.close()
                with pytest.raises(Unreachable, match=f"^{server.address}: the call was closed$"):
                    await rest
                assert not is_open(fetching)

    run(test)


def test_close_may_come_at_any_time_and_twice() -> None:
    """Also while content flows: what the kernel still has is not handed on."""

    async def give(_: bytes, context: Any) -> None:
        while True:
            await context.write(bytes(MB))

    async def test() -> None:
        async with serving(give, Plaintext()) as server:
            fetching = await asyncio.to_thread(asked, server.address)
            with closing(fetching):
                reading = asyncio.create_task(asyncio.to_thread(all_of, fetching, 512 * MB))
                await eventually(lambda: fetching._busy)
                fetching.close()
                fetching.close()
                with pytest.raises(Unreachable, match="the call was closed"):
                    await reading
                assert not is_open(fetching)

    run(test)


def test_a_call_that_ended_is_closed_like_any_other() -> None:
    with scripted(HELLO + ANSWER + GOOD) as script:
        fetching = asked(script.address)
        assert fetching.read_into(memoryview(bytearray(10))) == 0
        fetching.close()
        assert not is_open(fetching)
        with pytest.raises(Unreachable, match="the call was closed"):
            fetching.read_into(memoryview(bytearray(10)))


# ---------------------------------------------------------------------- certificates


async def refused(server: Any, security: Security) -> SiriusError:
    with pytest.raises(SiriusError) as error:
        await asyncio.to_thread(lambda: all_of(asked(server.address, security)))
    assert server.address in str(error.value)
    return error.value


async def one(_: bytes, context: Any) -> None:
    await context.write(b"one")


def test_a_wrong_certificate_is_called_one(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_LOOK_S", PATIENCE_S)
    stranger = Authority(authority.folder, "stranger")

    async def test() -> None:
        async with serving(one, Tls(authority.issue("member-1"))) as server:
            expired = await refused(server, Tls(authority.issue("member-2", -3, -2)))
            unknown = await refused(server, Tls(stranger.issue("member-3")))
        async with serving(one, Tls(authority.issue("member-4", host="films.example"))) as server:
            elsewhere = await refused(server, Tls(authority.issue("member-5")))
        for error in (expired, unknown, elsewhere):
            assert type(error) is WrongCertificate
        assert "verify failed" in str(unknown)
        assert "not valid for '127.0.0.1'" in str(elsewhere)

    run(test)


def test_tls_and_plain_text_do_not_mix(authority: Authority) -> None:
    async def test() -> None:
        tls = Tls(authority.issue("member-1"))
        async with serving(one, Plaintext()) as server:
            assert type(await refused(server, tls)) in (WrongCertificate, Unreachable)
        async with serving(one, tls) as server:
            error = await refused(server, Plaintext())
            assert type(error) is Unreachable
            assert "does it want TLS?" in str(error)

    run(test)


def test_certificates_are_those_on_disk(authority: Authority) -> None:
    async def test() -> None:
        tls = Tls(authority.issue("member-1"))
        new = Authority(authority.folder, "authority")
        new.issue("member-1")
        async with serving(one, Tls(new.issue("member-2"))) as server:
            content = await asyncio.to_thread(lambda: all_of(asked(server.address, tls)))
            assert content == b"one"

    run(test)
