"""The inbox: bounded in requests and bytes, in order, and nobody waits for what is there."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import pytest

from sirius.driver import inbox as module
from sirius.driver.acks import Ack
from sirius.driver.inbox import Asked, Inbox, size_of
from sirius.errors import NodeClosed, NodeError, Overloaded
from sirius.wal.record import Op, Update
from tests.driver.waiting import Threads, until


def asked(name: str = "k", body: bytes = b"") -> Asked:
    return Asked(Update(Op.PUT, name.encode(), body), Ack())


SIZE = size_of(asked("k").update)


def closed() -> NodeError:
    return NodeClosed("shut")


class Woken:
    """How often the loop was woken."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def new(count_max: int = 1000, bytes_max: int = 10**9) -> tuple[Inbox, Woken]:
    woken = Woken()
    return Inbox(woken, count_max, bytes_max), woken


def names(requests: list[Asked]) -> list[str]:
    return [request.update.key.decode() for request in requests]


def test_what_was_put_is_taken_in_order_and_the_loop_is_woken_once() -> None:
    inbox, woken = new()
    for name in "abc":
        inbox.put(asked(name), 0)
    assert woken.times == 1
    assert inbox.next_size == SIZE
    assert names(inbox.take(2, 10**6)) == ["a", "b"]
    assert names(inbox.take(2, 10**6)) == ["c"]
    assert inbox.take(2, 10**6) == []
    assert inbox.next_size == 0
    assert inbox.rest()
    inbox.put(asked("d"), 0)
    assert woken.times == 2


def test_a_loop_that_rests_with_something_to_do_is_told() -> None:
    inbox, woken = new()
    inbox.put(asked(), 0)
    assert not inbox.rest()
    inbox.put(asked(), 0)
    assert woken.times == 1


@pytest.mark.parametrize("bytes_max", [0, 1, SIZE, 10 * SIZE])
def test_a_batch_has_at_least_one_and_no_more_than_fits(bytes_max: int) -> None:
    inbox, _ = new()
    for _ in range(20):
        inbox.put(asked(), 0)
    assert len(inbox.take(100, bytes_max)) == max(1, bytes_max // SIZE)
    inbox.put(asked("x", bytes(10**6)), 0)
    assert len(inbox.take(100, 10**5)) + len(inbox.take(100, 10**5)) == 21 - max(
        1, bytes_max // SIZE
    )


def test_requests_are_bounded_from_put_until_they_are_answered() -> None:
    inbox, _ = new(count_max=3)
    for _ in range(3):
        inbox.put(asked(), 0)
    with pytest.raises(Overloaded, match="3 requests"):
        inbox.put(asked(), 0.01)
    taken = inbox.take(2, 10**6)
    assert inbox.outstanding == 3, "what was taken still counts"
    with pytest.raises(Overloaded):
        inbox.put(asked(), 0)
    inbox.release(len(taken), 2 * SIZE)
    assert (inbox.outstanding, inbox.in_line) == (1, 0)
    inbox.put(asked(), 0)


def test_bytes_are_bounded_also_while_nobody_takes() -> None:
    """The loop takes nothing while the handler is behind: what is in the queue must count."""
    inbox, _ = new(bytes_max=1000)
    for _ in range(50):
        try:
            inbox.put(asked("k", bytes(300)), 0)
        except Overloaded:
            break
    assert 1000 <= inbox.outstanding_bytes <= 1000 + size_of(asked("k", bytes(300)).update)


def test_one_request_greater_than_the_bound_gets_in_alone() -> None:
    inbox, _ = new(bytes_max=10)
    inbox.put(asked("k", bytes(1000)), 0)
    with pytest.raises(Overloaded):
        inbox.put(asked(), 0)


def test_a_caller_that_waits_goes_on_when_room_comes() -> None:
    inbox, woken = new(count_max=1)
    inbox.put(asked("a"), 0)
    with Threads() as threads:
        threads.start(inbox.put, asked("b"), 10.0)
        until(lambda: inbox.in_line)
        inbox.take(1, 1)
        assert inbox.rest()
        times = woken.times
        inbox.release(1, SIZE)
    assert woken.times == times + 1, "the loop hears of it"
    assert names(inbox.take(9, 10**6)) == ["b"]


def inbox_grew(inbox: Inbox, before: int) -> bool:
    return inbox.in_line > before


def test_only_as_many_go_on_as_there_is_room_for_and_in_their_order() -> None:
    """A gate that is opened for all lets all in: the bound would be as good as the number of callers."""
    inbox, _ = new(count_max=2)
    first = [asked("x"), asked("y")]
    for request in first:
        inbox.put(request, 0)
    with Threads() as threads:
        names_in_line = [f"w{number:02}" for number in range(30)]
        for name in names_in_line:
            before = inbox.in_line
            threads.start(inbox.put, asked(name), 10.0)
            until(partial(inbox_grew, inbox, before))
        seen: list[str] = []
        while inbox.outstanding:
            assert inbox.outstanding <= 2
            taken = inbox.take(9, 10**6)
            seen += names(taken)
            inbox.release(len(taken), sum(size_of(each.update) for each in taken))
    assert seen == ["x", "y", *names_in_line]


def test_nobody_passes_those_who_wait() -> None:
    inbox, _ = new(count_max=1)
    inbox.put(asked("a"), 0)
    inbox.line_up(early := asked("early"), lambda _: None)
    inbox.take(1, 1)
    # Room comes, and with it somebody new, at the same moment.
    inbox._count = 0
    assert not inbox.offer(asked("late"))
    inbox.release(0, 0)
    assert inbox.take(9, 10**6) == [early]


def test_who_leaves_the_line_is_not_let_in() -> None:
    inbox, _ = new(count_max=1)
    inbox.put(asked("a"), 0)
    told: list[object] = []
    inbox.line_up(gone := asked("gone"), told.append)
    inbox.line_up(stays := asked("stays"), told.append)
    assert inbox.leave(gone)
    assert not inbox.leave(gone)
    inbox.take(1, 1)
    inbox.release(1, SIZE)
    assert (inbox.take(9, 10**6), told) == ([stays], [None])
    assert not inbox.leave(stays)


def test_a_time_out_at_the_moment_room_comes_is_no_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. the caller's time is up; 2. it is let in; 3. it wants to leave, and learns that it is in."""
    inbox, _ = new(count_max=1)
    inbox.put(asked("a"), 0)
    leave = inbox.leave

    def let_in_before(request: Asked) -> bool:
        inbox.take(1, 1)
        inbox.release(1, SIZE)
        return leave(request)

    monkeypatch.setattr(inbox, "leave", let_in_before)
    inbox.put(asked("b"), 0.01)
    assert names(inbox.take(1, 1)) == ["b"]


def test_an_interrupted_caller_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        put = staticmethod(print)

        def get(self, **_: Any) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "SimpleQueue", Interrupted)
    inbox, _ = new(count_max=1)
    inbox.put(asked("a"), 0)
    with pytest.raises(KeyboardInterrupt):
        inbox.put(asked("b"), 10)
    assert inbox.in_line == 0


def test_shutting_refuses_everybody_and_returns_what_nobody_took() -> None:
    inbox, _ = new(count_max=2)
    inbox.put(asked("taken"), 0)
    inbox.take(1, 1)
    inbox.put(asked("left"), 0)
    refused: list[str] = []

    def wait() -> None:
        with pytest.raises(NodeClosed) as caught:
            inbox.put(asked(), 60.0)
        refused.append(str(caught.value))

    with Threads() as threads:
        for _ in range(20):
            threads.start(wait)
        until(lambda: inbox.in_line == 20)
        assert names(inbox.shut(closed)) == ["left"]
    assert refused == ["shut"] * 20
    assert inbox.outstanding == 1
    with pytest.raises(NodeClosed):
        inbox.offer(asked())
    with pytest.raises(NodeClosed):
        inbox.put(asked(), 1)
    with pytest.raises(NodeClosed):
        inbox.line_up(asked(), print)
    assert inbox.shut(closed) == []
    inbox.release(1, size_of(asked("taken").update))
    assert (inbox.outstanding, inbox.outstanding_bytes) == (0, 0)


def test_an_endless_time_out_is_taken() -> None:
    inbox, _ = new(count_max=1)
    inbox.put(asked("a"), float("inf"))
    with Threads() as threads:
        threads.start(inbox.put, asked("b"), float("inf"))
        until(lambda: inbox.in_line)
        inbox.take(1, 1)
        inbox.release(1, SIZE)


@pytest.mark.parametrize(("count_max", "bytes_max"), [(1, 10**9), (7, 10**9), (1000, 500)])
def test_no_wake_up_is_lost(count_max: int, bytes_max: int) -> None:
    """Many threads put, and a consumer sleeps whenever it is told that it may: everything arrives, within the bound."""
    awake = threading.Event()
    inbox = Inbox(awake.set, count_max, bytes_max)
    producers, each = 8, 400
    seen: list[str] = []
    highest = 0

    def produce(number: int) -> None:
        for serial in range(each):
            inbox.put(asked(f"{number}/{serial:04}"), 30.0)

    def consume() -> None:
        nonlocal highest
        while len(seen) < producers * each:
            assert awake.wait(30), (
                f"asleep, with {len(inbox)} in the queue and {inbox.in_line} in line"
            )
            awake.clear()
            while batch := inbox.take(5, 10**6):
                highest = max(highest, inbox.outstanding)
                seen.extend(names(batch))
                time.sleep(0)
                inbox.release(len(batch), sum(size_of(one.update) for one in batch))
            if not inbox.rest():
                awake.set()

    with Threads() as threads:
        threads.start(consume)
        for number in range(producers):
            threads.start(produce, number)
    assert highest <= count_max
    assert (inbox.outstanding, inbox.outstanding_bytes, inbox.in_line) == (0, 0, 0)
    for number in range(producers):
        mine = [name for name in seen if name.startswith(f"{number}/")]
        assert mine == [f"{number}/{serial:04}" for serial in range(each)]
