"""Updates with numbers: whatever happens to a stream, they are sent again, in order, with the same numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sirius.errors import BadMessage, OutcomeUnknown, RequestRejected, Unreachable, UsageError
from sirius.paxos.values import PUBLISHERS, Numbers
from sirius.transport import resending, sending
from sirius.transport import sirius_pb2 as pb
from sirius.transport.resending import numbered, session_id
from sirius.transport.shapes import numbers_back
from sirius.types import Seq
from sirius.wal.record import Update
from tests.transport.harness import (
    FakeNode,
    address_of,
    eventually,
    free_address,
    puts,
    run,
    serving,
)
from tests.transport.test_transport_client import asked


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "BATCH_UPDATES", 10)


class Once(FakeNode):
    """A node that takes each serial once, in order; several may share what they have."""

    def __init__(self, other: Once | None = None) -> None:
        super().__init__()
        self.log = other.log if other else self.log

    async def _publish(self, number: int, updates: Sequence[Update]) -> Seq:
        numbers = self.numbers[number - 1]
        assert numbers is not None
        if self.errors.get(number):
            raise self.errors[number]
        await self.gate.wait()
        if numbers.serial == len(self.log) + 1:
            self.log.extend(updates)
        return Seq(len(self.log))


def test_batches_carry_consecutive_numbers() -> None:
    async def test() -> None:
        node = Once()
        async with serving(backend=node) as server:
            assert await asked(server, lambda client: client.publish(puts(25), session="s")) == 25
            assert session_id("s") >= PUBLISHERS
            assert [each and each[1:] for each in node.numbers] == [(1, 0), (11, 10), (21, 20)]
            assert {each.session for each in node.numbers if each} == {session_id("s")}

    run(test)


def test_what_a_lost_node_did_not_acknowledge_goes_to_the_next_in_order() -> None:
    async def test() -> None:
        node = Once()
        other = Once(node)
        node.gate.clear()
        async with serving(backend=other) as spare, serving(backend=node) as server:
            addresses = [address_of(server), address_of(spare)]
            publishing = asyncio.create_task(
                asked(addresses, lambda client: client.publish(puts(50), session="s"))
            )
            await eventually(lambda: len(node.batches) == 5)
            await server.close(grace_s=0.01)
            assert await publishing == 50
            assert other.log == puts(50)
            assert [each and each.serial for each in other.numbers] == [1, 11, 21, 31, 41]

    run(test)


@pytest.mark.parametrize("error", [OutcomeUnknown("who knows"), RequestRejected("no room")])
def test_what_may_be_over_the_next_time_is_tried_again(error: Exception) -> None:
    async def test() -> None:
        node = Once()
        node.errors[2] = error
        async with serving(backend=node) as server:
            acks = await asked(
                server, lambda client: list(client.acknowledgements(puts(30), session="s"))
            )
            assert [count for count, _ in acks] == [10, 10, 10]
            assert node.log == puts(30)

    run(test)


def test_patience_comes_to_an_end_and_says_what_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resending, "_PAUSE_S", 0.001)

    async def test() -> None:
        node = Once()
        node.errors = {number: OutcomeUnknown("never") for number in range(2, 10_000)}
        async with serving(backend=node) as server:
            with pytest.raises(OutcomeUnknown, match="never") as raised:
                await asked(
                    server,
                    lambda client: client.publish(puts(20), session="s", in_flight=1, patience_s=1),
                )
            assert any("in front of serial 11 is in the log" in n for n in raised.value.__notes__)
            assert len(node.batches) > 2, "it was tried more than once"

    run(test)


def test_nobody_there_is_an_error_in_the_end() -> None:
    async def test() -> None:
        with pytest.raises(Unreachable):
            await asked(
                [free_address()],
                lambda client: client.publish(puts(1), session="s", patience_s=0.1),
            )

    run(test)


def test_what_would_be_wrong_again_is_raised_at_once() -> None:
    async def test() -> None:
        node = Once()
        node.errors[1] = BadMessage("nonsense")
        async with serving(backend=node) as server:
            with pytest.raises(BadMessage):
                await asked(server, lambda client: client.publish(puts(1), session="s"))
            assert node.batches == [1]

    run(test)


@pytest.mark.parametrize(
    ("session", "serial", "after"), [("", 1, 0), ("s", 0, -1), ("s", 5, 5), ("s", 5, -1)]
)
def test_numbers_that_make_no_sense_are_not_sent(session: str, serial: int, after: int) -> None:
    with pytest.raises(UsageError, match=r"cannot have serial|needs a name"):
        list(numbered([(serial, [puts(1)])], session, after))


def test_numbers_may_leave_gaps_between_runs() -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server:
            runs = [(3, puts(12)), (20, puts(1)), (21, puts(2))]
            acks = await asked(server, lambda client: list(client.runs(runs, "s")))
            assert [count for count, _ in acks] == [10, 2, 1, 2]
            assert [each and each[1:] for each in node.numbers] == [
                (3, 0),
                (13, 12),
                (20, 14),
                (21, 20),
            ]

    run(test)


def test_runs_that_go_back_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot have serial 4 behind 4"):
        list(numbered([(3, [puts(2)]), (4, [puts(1)])], "s", 0))


@pytest.mark.parametrize(
    "numbers",
    [
        Numbers(5, 1, 0),
        Numbers(PUBLISHERS, 0, 0),
        Numbers(PUBLISHERS, 3, 3),
        Numbers(PUBLISHERS, (1 << 63) - 1, 0),
    ],
    ids=["a node's session", "no serial", "behind itself", "too high"],
)
def test_numbers_that_make_no_sense_are_not_taken(numbers: Numbers) -> None:
    request = pb.PublishRequest(numbers=pb.Numbers(**numbers._asdict()))
    with pytest.raises(BadMessage):
        numbers_back(request, 10)


def test_names_of_sessions_that_differ_are_different_sessions() -> None:
    assert len({session_id(f"job/{at}") for at in range(1000)}) == 1000
