"""The server: what it does with nonsense, with crowds, and when it closes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest

from sirius.errors import TransportError
from sirius.paxos.messages import Accept, Envelope
from sirius.transport import wire
from sirius.transport.links import LINK
from sirius.transport.security import Plaintext
from sirius.transport.server import Server
from sirius.types import Ballot, NodeId, Seq
from tests.transport.harness import (
    LIMITS,
    ME,
    PATIENCE_S,
    FakeNode,
    address_of,
    beat,
    block_of,
    eventually,
    link_to,
    linking,
    peer,
    run,
    serving,
)


@asynccontextmanager
async def raw_link(server: Server) -> AsyncIterator[Any]:
    """A stream to the server, without a link's manners."""
    options = [("grpc.max_send_message_length", -1)]
    async with Plaintext().channel(address_of(server), options) as channel:
        call = channel.stream_stream(LINK)()
        assert await call.read() == b""
        yield call


def frame(*envelopes: Envelope) -> bytes:
    return wire.frame([wire.encode(each) for each in envelopes])


def damaged() -> bytes:
    sent = Envelope(1, 2, ME, NodeId(8), Accept(Ballot(1, 7), block_of(100), Seq(0)))
    return frame(beat(1), sent)[:-1] + b"\xff"


@pytest.mark.parametrize("nonsense", [damaged(), b"\xff\xff\xff"], ids=["damaged", "garbage"])
def test_a_bad_message_ends_its_stream_with_one_line(
    nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        got: list[Envelope] = []
        async with serving(got.append) as server, raw_link(server) as other:
            async with raw_link(server) as call:
                await call.write(frame(beat(0)))
                await call.write(nonsense)
                assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
            await other.write(frame(beat(9)))
            await eventually(lambda: got and got[-1] == beat(9))
            assert server.bad_messages == 1
            assert [each.message for each in got if isinstance(each.message, Accept)] == []

    run(test)
    # gRPC may have its own to say, of streams that end with the server.
    ours = [each.getMessage() for each in caplog.records if each.name == "sirius.transport"]
    assert len(ours) == 1
    assert "Nodes/Link" in ours[0]


def test_a_receiver_that_breaks_ends_the_stream_and_not_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    got: list[Envelope] = []

    def broken(envelope: Envelope) -> None:
        got.append(envelope)
        if len(got) == 1:
            raise ValueError("swordfish")

    async def test() -> None:
        async with serving(broken) as server:
            async with raw_link(server) as call:
                await call.write(frame(beat(1), beat(2)))
                assert await call.code() == grpc.StatusCode.INTERNAL
                assert "swordfish" not in await call.details()
            async with raw_link(server) as call:
                await call.write(frame(beat(3)))
                await eventually(lambda: got == [beat(1), beat(3)])

    run(test)
    assert "swordfish" in caplog.text


def test_a_message_above_the_limit_is_not_taken() -> None:
    async def test() -> None:
        async with serving() as server, raw_link(server) as call:
            with suppress(grpc.RpcError):
                await call.write(bytes(LIMITS.message_bytes_max + 1))
            assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

    run(test)


def test_garbage_and_idle_connections_do_not_hurt() -> None:
    async def test() -> None:
        got: list[Envelope] = []
        limits = replace(LIMITS, handshake_timeout_s=0.5)
        async with serving(got.append, limits=limits) as server, linking(limits) as links:
            with ExitStack() as stack:
                crowd = [
                    stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                    for _ in range(300)
                ]
                for each in crowd[:150]:
                    each.sendall(os.urandom(200))

                def is_heard() -> bool:
                    # Half a second may be too short for our own handshake: then what was sent is lost.
                    links.send(peer(server), beat(1))
                    return bool(got)

                await eventually(is_heard)
                for each in crowd:
                    each.setblocking(False)
                await eventually(lambda: all(map(is_closed, crowd)))
                assert link_to(links, server).connected

    run(test)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has hung up; what it said before is passed over."""
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_more_connections_than_allowed_are_turned_away() -> None:
    async def test() -> None:
        limits = replace(LIMITS, connections_max=3)
        async with serving(limits=limits) as server, linking(limits) as links:
            links.send(peer(server), beat(1))
            await eventually(lambda: server.messages)
            with ExitStack() as stack:
                crowd = [
                    stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                    for _ in range(20)
                ]
                for each in crowd:
                    each.setblocking(False)
                await eventually(lambda: sum(map(is_closed, crowd)) >= 17)
            links.send(peer(server), beat(2))
            await eventually(lambda: server.messages == 2)

    run(test)


def test_a_connection_without_a_call_ends_and_one_with_a_link_stays() -> None:
    async def test() -> None:
        limits = replace(LIMITS, connection_idle_s=1)
        ready = grpc.ChannelConnectivity.READY
        async with serving(limits=limits) as server, raw_link(server) as link:
            async with Plaintext().channel(address_of(server), []) as idle:
                idle.get_state(try_to_connect=True)
                await idle.channel_ready()
                await asyncio.wait_for(idle.wait_for_state_change(ready), PATIENCE_S)
            # It came first, and has been as quiet.
            assert not link.done()
            assert server.links == 1

    run(test)


def test_a_port_that_is_taken_is_an_error() -> None:
    async def test() -> None:
        async with serving() as server:
            with pytest.raises(TransportError, match="cannot listen on 127"):
                await Server(address_of(server), Plaintext(), LIMITS).start(print)

    run(test)


def test_closing_ends_links_at_once() -> None:
    async def test() -> None:
        async with serving() as server, linking() as links:
            links.send(peer(server), beat(1))
            await eventually(lambda: server.links)
            async with asyncio.timeout(PATIENCE_S):
                await server.close(grace_s=10 * PATIENCE_S)
            await eventually(lambda: not link_to(links, server).connected)

    run(test)


def test_without_a_backend_clients_are_told_so() -> None:
    async def test() -> None:
        async with (
            serving() as server,
            Plaintext().channel(address_of(server), LIMITS.channel_options()) as channel,
        ):
            with pytest.raises(grpc.RpcError, match="serves no clients"):
                await channel.unary_unary("/sirius.v1.Clients/Status")(b"")

    run(test)


def test_a_backend_that_breaks_tells_strangers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeNode):
        def status(self) -> dict[str, Any]:
            raise ValueError("the password is swordfish")

    async def test() -> None:
        async with (
            serving(backend=Broken()) as server,
            Plaintext().channel(address_of(server), LIMITS.channel_options()) as channel,
        ):
            with pytest.raises(grpc.RpcError) as caught:
                await channel.unary_unary("/sirius.v1.Clients/Status")(b"")
            assert "swordfish" not in str(caught.value)

    run(test)
    assert logging.ERROR in [record.levelno for record in caplog.records]
