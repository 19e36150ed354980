"""Links: everything that waits in one frame, control first, bounded; lost and found again."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from sirius.errors import Unreachable
from sirius.paxos.members import Member
from sirius.paxos.messages import Accept, Beat, Envelope
from sirius.transport.links import Links
from sirius.transport.security import Plaintext
from sirius.transport.server import Server
from sirius.types import Ballot, NodeId, Seq
from sirius.wal.record import Limits
from tests.transport.harness import (
    LIMITS,
    ME,
    address_of,
    beat,
    block_of,
    eventually,
    free_address,
    link_to,
    linking,
    peer,
    run,
    serving,
)


def numbers(envelopes: list[Envelope]) -> list[int]:
    return [each.message.number for each in envelopes if isinstance(each.message, Beat)]


def accept(size: int) -> Envelope:
    return Envelope(1, 2, ME, NodeId(8), Accept(Ballot(1, 7), block_of(size), Seq(0)))


def test_messages_arrive_in_order_and_together() -> None:
    async def test() -> None:
        got: list[Envelope] = []
        async with serving(got.append) as server, linking() as links:
            for number in range(1000):
                links.send(peer(server), beat(number))
            await eventually(lambda: len(got) == 1000)
            assert got == [beat(number) for number in range(1000)]
            link = link_to(links, server)
            await eventually(lambda: link.messages == server.messages == 1000)
            assert link.frames == server.frames == 1, "all of it waited for the connection"
            assert link.connected
            assert server.links == 1

    run(test)


def test_while_a_frame_is_written_the_next_one_gathers() -> None:
    async def test() -> None:
        got: list[Envelope] = []
        async with serving(got.append) as server, linking() as links:
            links.send(peer(server), beat(0))
            await eventually(lambda: got)
            link = link_to(links, server)
            for number in range(1, 5001):
                links.send(peer(server), beat(number))
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await eventually(lambda: len(got) == 5001)
            assert numbers(got) == list(range(5001))
            assert link.frames < 1000

    run(test)


def test_a_message_that_may_wait_goes_with_the_next_or_alone_when_its_time_is_up() -> None:
    async def test() -> None:
        got: list[Envelope] = []
        async with serving(got.append) as server, linking() as links:
            links.send(peer(server), beat(0))
            await eventually(lambda: got)
            link = link_to(links, server)
            links.send(peer(server), beat(1), wait_s=3600.0)
            await asyncio.sleep(0)
            links.send(peer(server), beat(2))
            await eventually(lambda: len(got) == 3)
            assert (numbers(got), link.frames) == ([0, 1, 2], 2)
            links.send(peer(server), beat(3), wait_s=0.001)
            await eventually(lambda: len(got) == 4)
            assert link.frames == 3

    run(test)


def test_control_overtakes_data() -> None:
    async def test() -> None:
        got: list[Envelope] = []
        async with serving(got.append) as server, linking() as links:
            links.send(peer(server), accept(100))
            links.send(peer(server), beat(1))
            await eventually(lambda: len(got) == 2)
            assert [type(each.message) for each in got] == [Beat, Accept]

    run(test)


def test_a_message_far_larger_than_a_frame_arrives() -> None:
    async def test() -> None:
        got: list[Envelope] = []
        limits = replace(LIMITS, log=Limits(body_bytes_max=1 << 26))
        async with serving(got.append, limits=limits) as server, linking(limits) as links:
            sent = accept(15 << 20)
            links.send(peer(server), sent)
            links.send(peer(server), accept(1))
            await eventually(lambda: len(got) == 2)
            assert got[0] == sent
            await eventually(lambda: link_to(links, server).frames == 2)

    run(test)


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    async def test() -> None:
        limits = replace(LIMITS, queue_messages_max=3)
        got: list[Envelope] = []
        async with serving(got.append, limits=limits) as server, linking(limits) as links:
            for number in range(5):
                links.send(peer(server), beat(number))
            await eventually(lambda: len(got) == 3)
            assert numbers(got) == [0, 1, 2]
            assert link_to(links, server).dropped == 2

    run(test)


def test_a_peer_that_does_not_read_costs_bounded_memory_and_no_time() -> None:
    async def test() -> None:
        limits = replace(LIMITS, queue_bytes_max=4 << 20, connect_timeout_s=0.2)
        listener = socket.create_server(("127.0.0.1", 0))
        with listener:
            async with linking(limits) as links:
                deaf = Member(NodeId(8), f"127.0.0.1:{listener.getsockname()[1]}")
                for _ in range(20):
                    links.send(deaf, accept(1 << 20))
                link = links.by_name[deaf.name]
                assert link.waiting < 4
                assert link.dropped > 16
                await eventually(lambda: "no answer within 0.2 s" in link.last_error)

    run(test)


def test_a_lost_peer_is_found_again_with_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sirius.transport")

    def lines(word: str) -> int:
        return sum(word in record.getMessage() for record in caplog.records)

    async def test() -> None:
        got: list[Envelope] = []
        async with linking() as links:
            async with serving(got.append, listen=free_address()) as server:
                links.send(peer(server), beat(1))
                await eventually(lambda: got)
            link = link_to(links, server)
            await eventually(lambda: "refused" in link.last_error)
            assert not link.connected
            assert lines("lost") == 1, "of many attempts"
            async with serving(got.append, listen=address_of(server)):
                await eventually(lambda: link.connected)
                links.send(peer(server), beat(2))
                await eventually(lambda: len(got) == 2)
                await eventually(lambda: link.last_error == "")
                assert lines("found again") == lines("lost") == 1
                assert link.connects == 2

    run(test)


def test_a_peer_that_links_up_is_not_kept_waiting() -> None:
    """It came back while we waited for an hour to try again; then it spoke to us, and our answer must reach it."""

    async def test() -> None:
        limits = replace(LIMITS, backoff_s_min=3600, backoff_s_max=3600)
        nobody = Member(NodeId(8), free_address())
        got: list[Envelope] = []
        me = Server("127.0.0.1:0", Plaintext(), limits)
        async with linking(limits) as mine, linking() as theirs:
            mine.send(nobody, beat(1))
            link = mine.by_name[nobody.name]
            await eventually(lambda: link.last_error)
            await me.start(got.append, on_link=mine.nudge)
            try:
                async with serving(listen=nobody.name) as back:
                    theirs.send(peer(me), beat(2)._replace(sender=nobody))
                    await eventually(lambda: link.connected)
                    mine.send(nobody, beat(3))
                    await eventually(lambda: back.messages)
                    mine.nudge("somebody:1")
                    assert list(mine.by_name) == [nobody.name]
            finally:
                await me.close()

    run(test)


class Hasty(Plaintext):
    """The way to a peer that takes the stream, and refuses it while it is written to. Channel and call in one."""

    def __init__(self, failure: Exception | None) -> None:
        super().__init__()
        self._failure = failure
        self._ends = asyncio.Event()
        self.writes = 0

    def channel(self, address: str, options: Any) -> Any:
        self._replies = [b""]
        return self

    def stream_stream(self, method: str) -> Any:
        return lambda: self

    async def read(self) -> bytes:
        if self._replies:
            return self._replies.pop()
        await self._ends.wait()
        raise Unreachable("not you")

    async def write(self, data: bytes) -> None:
        self.writes += 1
        self._ends.set()
        if self._failure:
            raise self._failure
        for _ in range(10):
            await asyncio.sleep(0)

    async def done_writing(self) -> None:
        self._ends.set()

    async def close(self) -> None:
        self._ends.clear()


@pytest.mark.parametrize("failure", [None, asyncio.InvalidStateError("RPC already finished.")])
def test_a_stream_that_ends_while_it_is_written_to_is_lost_at_once(
    failure: Exception | None,
) -> None:
    """Also if nobody has anything more to say to that peer; and what counts is what the peer said."""

    async def test() -> None:
        hasty = Hasty(failure)
        async with linking(security=hasty) as links:
            links.send(Member(NodeId(8), "127.0.0.1:1"), beat(1))
            (link,) = links.by_name.values()
            await eventually(lambda: link.last_error)
            assert link.last_error == "not you"
            await eventually(lambda: link.connects == 2)
            assert hasty.writes == 1

    run(test)


def test_a_link_that_opens_and_fails_again_and_again_is_lost_all_the_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever looks at it, whenever, sees why; and the log has it once."""
    caplog.set_level(logging.INFO, "sirius.transport")

    async def test() -> None:
        limits = replace(LIMITS, backoff_s_min=0.001, backoff_s_max=3600)
        async with linking(limits, security=Hasty(None)) as links:
            links.send(Member(NodeId(8), "127.0.0.1:1"), beat(1))
            (link,) = links.by_name.values()

            async def fails(count: int) -> None:
                await eventually(lambda: link.connects > count)
                assert (link.failures, link.last_error) == (count, "not you")

            for count in range(1, 6):
                await fails(count)
                links.send(Member(NodeId(8), "127.0.0.1:1"), beat(1))

    run(test)
    assert [each.getMessage() for each in caplog.records] == ["127.0.0.1:1: lost: not you"]


def test_what_waited_for_an_attempt_that_failed_is_dropped() -> None:
    async def test() -> None:
        async with linking() as links:
            nobody = Member(NodeId(8), free_address())
            links.send(nobody, beat(1))
            link = links.by_name[nobody.name]
            assert link.waiting == 1
            await eventually(lambda: link.dropped == 1)
            assert link.waiting == 0
            await eventually(lambda: "refused" in link.last_error)

    run(test)


def test_closing_sends_what_waits() -> None:
    async def test() -> None:
        got: list[Envelope] = []
        async with serving(got.append) as server:
            links = Links("me", LIMITS, Plaintext())
            links.send(peer(server), beat(0))
            await eventually(lambda: got)
            for _ in range(40):
                links.send(peer(server), accept(1 << 20))
            await links.close(grace_s=10)
            assert len(got) == 41
            links.send(peer(server), beat(0))
            assert links.dropped == 1
            assert not links.by_name

    run(test)


def test_links_that_nobody_uses_are_closed_and_those_to_keep_are_kept() -> None:
    async def test() -> None:
        limits = replace(LIMITS, link_idle_s=1)
        async with serving() as one, serving() as other, linking(limits) as links:
            for server in (one, other):
                links.send(peer(server), beat(0))
            links.keep([])
            assert len(links.by_name) == 2, "both were used a moment ago"
            await eventually(lambda: one.messages and other.messages)

            def is_closed() -> bool:
                links.keep([address_of(one)])
                return address_of(other) not in links.by_name

            await eventually(is_closed)
            assert list(links.by_name) == [address_of(one)]
            await eventually(lambda: other.links == 0)
            assert one.links == 1

    run(test)


def test_names_from_the_network_open_so_many_links_and_no_more() -> None:
    async def test() -> None:
        async with linking(replace(LIMITS, links_max=2)) as links:
            for name in ("127.0.0.1:1", "unix:///tmp/x", "127.0.0.1:2"):
                links.send(Member(NodeId(8), name), beat(0))
            assert len(links.by_name) == 2
            assert links.dropped == 1

    run(test)


def test_a_name_cannot_choose_another_kind_of_socket() -> None:
    async def test() -> None:
        async with linking(security=Plaintext(allow_plaintext=True)) as links:
            links.send(Member(NodeId(8), "unix:///tmp/sirius-no-such-socket"), beat(0))
            (link,) = links.by_name.values()
            await eventually(lambda: link.last_error)
            assert "unix:" in link.last_error
            assert "No such file" not in link.last_error

    run(test)


def test_sending_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving() as server, linking() as links:
            links.send(peer(server), Envelope(1, 2, ME, NodeId(8), object()))
            links.send(peer(server), beat(-1))
            assert links.dropped == 2
            links.send(peer(server), beat(1))
            await eventually(lambda: server.messages == 1)

    run(test)
    ours = [record.levelname for record in caplog.records if record.name == "sirius.transport"]
    assert ours == ["ERROR", "ERROR"]


@asynccontextmanager
async def black_hole(server: Server, frozen: asyncio.Event) -> AsyncIterator[str]:
    """A proxy that swallows everything while it is frozen, and closes nothing."""
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if not frozen.is_set():
                    writer.write(data)
                    await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.extend((writer, inner_writer))
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    proxy = await asyncio.start_server(connect, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    finally:
        proxy.close()
        for writer in writers:
            writer.close()
        for writer in writers:
            with suppress(ConnectionError):
                await writer.wait_closed()


def test_a_peer_that_falls_silent_is_lost() -> None:
    async def test() -> None:
        limits = replace(LIMITS, keepalive_s=0.2, keepalive_timeout_s=1, connect_timeout_s=2)
        got: list[Envelope] = []
        frozen = asyncio.Event()
        async with (
            serving(got.append, limits=limits) as server,
            black_hole(server, frozen) as name,
            linking(limits) as links,
        ):
            links.send(Member(NodeId(8), name), beat(1))
            await eventually(lambda: got)
            link = links.by_name[name]
            frozen.set()
            await eventually(lambda: not link.connected)
            await eventually(lambda: server.links == 0)
            frozen.clear()
            await eventually(lambda: link.connected)

    run(test)
