"""Clients: batches in order, bounded on both ends, and never a word more than is known."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from sirius.errors import (
    InvalidRecord,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    RangeUnavailable,
    RequestRejected,
    TransportError,
    Unreachable,
    UsageError,
)
from sirius.transport import sending
from sirius.transport.client import Client
from sirius.transport.failures import rebuilt
from sirius.transport.publishing import failure_of
from sirius.transport.server import Server
from sirius.wal.record import Op, Update
from tests.transport.harness import (
    LIMITS,
    PATIENCE_S,
    FakeNode,
    address_of,
    eventually,
    free_address,
    puts,
    run,
    serving,
)

T = TypeVar("T")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "BATCH_UPDATES", 10)


async def asked(server: Server | list[str], question: Callable[[Client], T]) -> T:
    """Ask a server from another thread."""

    def ask() -> T:
        addresses = server if isinstance(server, list) else [address_of(server)]
        with Client(addresses, limits=LIMITS, timeout_s=PATIENCE_S) as client:
            return question(client)

    return await asyncio.to_thread(ask)


def test_updates_get_into_the_log_in_order() -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server:
            updates = [*puts(95), Update(Op.DELETE, b"key/3")]
            assert await asked(server, lambda client: client.publish(updates)) == 96
            assert node.log == updates
            assert node.batches == [10] * 9 + [6]
            assert await asked(server, lambda client: client.publish([])) is None

    run(test)


def test_each_batch_is_acknowledged() -> None:
    async def test() -> None:
        async with serving(backend=FakeNode()) as server:
            acks = await asked(server, lambda client: list(client.acknowledgements(puts(25))))
            assert acks == [(10, 10), (10, 20), (5, 25)]

    run(test)


def test_a_batch_is_bounded_in_bytes() -> None:
    updates = puts(5, size=400_000)
    assert [len(batch) for batch in sending.batches(updates, LIMITS.log)] == [2, 2, 1]


def test_many_threads_share_a_client() -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server:

            def work(client: Client) -> None:
                threads = [
                    threading.Thread(target=client.publish, args=(puts(50),)) for _ in range(8)
                ]
                for each in threads:
                    each.start()
                for each in threads:
                    each.join()

            await asked(server, work)
            assert len(node.log) == 400

    run(test)


def test_a_client_has_so_many_batches_under_way_and_no_more() -> None:
    async def test() -> None:
        node = FakeNode()
        node.gate.clear()
        async with serving(backend=node) as server:
            taken: list[int] = []

            def endless() -> Iterator[Update]:
                for number, update in enumerate(puts(200)):
                    taken.append(number)
                    yield update

            publishing = asyncio.create_task(
                asked(server, lambda client: client.publish(endless(), in_flight=3))
            )
            await eventually(lambda: len(node.batches) == 3)
            node.gate.set()
            assert await publishing == 200

    run(test)


def test_a_server_stops_reading_a_stream_with_enough_under_way() -> None:
    async def test() -> None:
        node = FakeNode()
        node.gate.clear()
        limits = replace(LIMITS, batches_max=4)
        async with serving(backend=node, limits=limits) as server:
            publishing = asyncio.create_task(
                asked(server, lambda client: client.publish(puts(400), in_flight=40))
            )
            await eventually(lambda: len(node.batches) == 4)
            # What it has not read by now it will not read: the client has sent all of it before it waits.
            for _ in range(50):
                await asyncio.sleep(0.002)
            assert len(node.batches) == 4
            node.gate.set()
            assert await publishing == 400

    run(test)


def test_a_server_stops_reading_a_stream_with_enough_bytes_under_way() -> None:
    async def test() -> None:
        node = FakeNode()
        node.gate.clear()
        limits = replace(LIMITS, batches_bytes_max=25_000)
        async with serving(backend=node, limits=limits) as server:
            publishing = asyncio.create_task(
                asked(server, lambda client: client.publish(puts(100, 1000), in_flight=10))
            )
            await eventually(lambda: len(node.batches) == 3)
            for _ in range(50):
                await asyncio.sleep(0.002)
            assert len(node.batches) == 3
            node.gate.set()
            assert await publishing == 100

    run(test)


def test_a_batch_that_fails_says_what_is_in_the_log() -> None:
    async def test() -> None:
        node = FakeNode()
        node.errors[3] = Overloaded("too much")
        async with serving(backend=node) as server:
            with pytest.raises(Overloaded, match="too much") as caught:
                await asked(server, lambda client: client.publish(puts(100), in_flight=1))
            assert caught.value.__notes__ == [
                "a batch of 10 updates failed; 20 updates before it are in the log, "
                "up to sequence number 20"
            ]
            assert len(node.log) == 20

    run(test)


def test_what_was_under_way_behind_a_failure_is_unknown() -> None:
    async def test() -> None:
        node = FakeNode()
        node.gate.clear()
        node.errors[1] = Overloaded("too much")
        async with serving(backend=node) as server:
            publishing = asyncio.create_task(
                asked(server, lambda client: client.publish(puts(30), in_flight=3))
            )
            await eventually(lambda: len(node.batches) == 3)
            node.gate.set()
            with pytest.raises(Overloaded) as caught:
                await publishing
            assert "20 updates behind it were under way" in caught.value.__notes__[-1]

    run(test)


def test_an_internal_error_is_an_unknown_outcome_and_tells_no_secrets() -> None:
    async def test() -> None:
        node = FakeNode()
        node.errors[1] = ValueError("swordfish")
        async with serving(backend=node) as server:
            with pytest.raises(OutcomeUnknown) as caught:
                await asked(server, lambda client: client.publish(puts(1)))
            assert "swordfish" not in str(caught.value)

    run(test)


def test_a_batch_that_the_node_gave_up_has_an_unknown_outcome() -> None:
    async def test() -> None:
        node = FakeNode()
        node.errors[1] = asyncio.CancelledError()
        async with serving(backend=node) as server:
            with pytest.raises(OutcomeUnknown, match="given up"):
                await asked(server, lambda client: client.publish(puts(1)))
            assert await asked(server, lambda client: client.publish(puts(1))) == 1

    run(test)


def test_a_connection_lost_with_a_batch_under_way_is_an_unknown_outcome() -> None:
    async def test() -> None:
        node, other = FakeNode(), FakeNode()
        node.gate.clear()
        async with serving(backend=other) as spare, serving(backend=node) as server:
            publishing = asyncio.create_task(
                asked(
                    [address_of(server), address_of(spare)], lambda client: client.publish(puts(5))
                )
            )
            await eventually(lambda: node.batches)
            await server.close(grace_s=0.01)
            with pytest.raises(OutcomeUnknown, match="the answer did not come"):
                await publishing
            assert not other.log, "nothing is sent twice"

    run(test)


def test_a_server_that_closes_answers_what_it_has() -> None:
    async def test() -> None:
        node = FakeNode()
        node.gate.clear()
        async with serving(backend=node) as server:
            publishing = asyncio.create_task(asked(server, lambda client: client.publish(puts(5))))
            await eventually(lambda: node.batches)
            closing = asyncio.create_task(server.close(grace_s=PATIENCE_S))
            done, _ = await asyncio.wait({closing}, timeout=0.1)
            assert not done
            node.gate.set()
            assert await publishing == 5
            await closing

    run(test)


def test_a_publisher_goes_on_at_another_node_when_nothing_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams: list[sending.Stream] = []

    def opened(client: Client, address: str) -> sending.Stream:
        streams.append(open_stream(client, address))
        return streams[-1]

    open_stream = Client._open
    monkeypatch.setattr(Client, "_open", opened)

    async def test() -> None:
        node, other = FakeNode(), FakeNode()
        async with serving(backend=other) as spare, serving(backend=node) as server:
            loop = asyncio.get_running_loop()

            def updates() -> Iterator[Update]:
                yield from puts(11)  # the eleventh makes the first ten a batch
                asyncio.run_coroutine_threadsafe(close(), loop).result()
                yield from puts(4)

            async def close() -> None:
                await eventually(lambda: node.log)
                await server.close(grace_s=PATIENCE_S)
                await eventually(lambda: streams[0].is_over)

            addresses = [address_of(server), address_of(spare)]
            await asked(addresses, lambda client: client.publish(updates(), in_flight=1))
            assert (len(node.log), len(other.log)) == (10, 5)

    run(test)


def test_a_node_that_is_away_is_passed_over() -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server, serving() as mute:
            addresses = [free_address(), address_of(mute), address_of(server)]
            assert await asked(addresses, lambda client: client.publish(puts(3))) == 3
            assert (await asked(addresses, lambda client: client.status()))["state"] == "ready"

    run(test)


def test_nobody_there_is_said_for_every_address() -> None:
    addresses = [free_address(), free_address()]
    with (
        Client(addresses, limits=LIMITS) as client,
        pytest.raises(Unreachable, match=f"{addresses[0]}.*{addresses[1]}"),
    ):
        client.publish(puts(1))
    with pytest.raises(UsageError, match="address"):
        Client([])


def test_an_update_that_the_log_does_not_take_is_not_sent() -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server:
            bad = [Update(Op.PUT, b"")]
            with pytest.raises(InvalidRecord, match="the key is empty"):
                await asked(server, lambda client: client.publish(bad))
            assert not node.batches

    run(test)


def test_a_control_entry_is_refused_by_the_server() -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server:
            bad = [Update(Op.MEMBERSHIP, b"membership", b"{}")]
            with pytest.raises(TransportError, match="neither a PUT nor a DELETE"):
                await asked(server, lambda client: client.publish(bad))
            assert not node.batches

    run(test)


def test_a_tail_tells_what_is_there_and_what_comes() -> None:
    async def test() -> None:
        node = FakeNode()
        node.log = puts(5)
        async with serving(backend=node) as server:
            blocks = await asked(server, lambda client: list(client.tail(2)))
            assert [block.first for block in blocks] == [2, 3, 4, 5]
            assert await asked(server, lambda client: list(client.tail(6))) == []
            with pytest.raises(RequestRejected, match=r"RangeUnavailable.*there is a hole"):
                await asked(server, lambda client: list(client.tail(9)))

            def follow(client: Client) -> list[int]:
                tail = client.tail(4, follow=True)
                return [next(tail).first, next(tail).first]

            assert await asked(server, follow) == [4, 5]
            await eventually(lambda: node.tails == 0)

    run(test)


def test_a_tail_goes_on_at_another_node() -> None:
    async def test() -> None:
        node, other = FakeNode(), FakeNode()
        node.log, other.log = puts(3), puts(6)
        async with serving(backend=other) as spare, serving(backend=node) as server:
            loop = asyncio.get_running_loop()

            def follow(client: Client) -> list[int]:
                tail = client.tail(1, follow=True)
                seen: list[int] = [next(tail).first for _ in range(3)]
                asyncio.run_coroutine_threadsafe(server.close(), loop).result()
                return seen + [next(tail).first for _ in range(3)]

            addresses = [address_of(server), address_of(spare)]
            assert await asked(addresses, follow) == [1, 2, 3, 4, 5, 6]

    run(test)


def test_administration() -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server:
            assert await asked(server, lambda client: client.members()) == node.members()
            await asked(server, lambda client: client.transfer_leadership())
            await asked(server, lambda client: client.transfer_leadership("b:1"))
            assert node.transfers == [None, "b:1"]

    run(test)


def test_a_node_that_does_not_answer_is_not_waited_for_longer_than_said() -> None:
    async def test() -> None:
        node = FakeNode()
        node.gate.clear()
        async with serving(backend=node) as server:

            def impatient() -> None:
                with Client([address_of(server)], limits=LIMITS, timeout_s=1) as client:
                    client.publish(puts(1))

            with pytest.raises(OutcomeUnknown, match=r"did not answer within 1 s"):
                await asyncio.to_thread(impatient)

    run(test)


@pytest.mark.parametrize(
    ("told", "understood"),
    [
        (Overloaded("much"), Overloaded("much")),
        (OutcomeUnknown("who knows"), OutcomeUnknown("who knows")),
        (NotPermitted("no"), NotPermitted("no")),
        (RangeUnavailable(1, 2, "x"), RequestRejected("RangeUnavailable: ")),
        (KeyError("x"), OutcomeUnknown("KeyError: an internal error")),
    ],
)
def test_an_error_that_was_told_is_understood(told: Exception, understood: Exception) -> None:
    error = rebuilt(failure_of(told))
    assert type(error) is type(understood)
    assert str(error).startswith(str(understood))
