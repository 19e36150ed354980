"""Acks: futures like any other, completed by the batch, each waiter woken alone."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, as_completed, wait
from typing import Any

import pytest

from sirius.driver import acks as module
from sirius.driver.acks import Ack, complete, fail
from sirius.errors import HandlerFailed, NodeError, RangeUnavailable, RequestRejected
from sirius.handler import SiriusResult
from tests.driver.waiting import Threads, until

SOME = SiriusResult.some(1)


def some(count: int) -> list[SiriusResult]:
    return [SiriusResult.some(number) for number in range(count)]


def test_a_batch_is_completed_each_with_its_own_result() -> None:
    acks = [Ack() for _ in range(100)]
    assert not any(ack.done() for ack in acks)
    complete(acks, some(100))
    assert [ack.result(0).value for ack in acks] == list(range(100))
    assert all(ack.exception(0) is None for ack in acks)
    assert all(ack.done() and not ack.running() and not ack.cancelled() for ack in acks)


def test_a_wrong_number_of_results_touches_none() -> None:
    acks = [Ack(), Ack()]
    with pytest.raises(ValueError, match="shorter"):
        complete(acks, some(1))
    assert not any(ack.done() for ack in acks)


def test_waiters_are_woken_by_a_batch() -> None:
    acks = [Ack() for _ in range(50)]
    found: list[object] = []
    with Threads() as threads:
        for ack in acks:
            threads.start(lambda ack=ack: found.append(ack.result(30).value))
        until(lambda: all(ack._waiters for ack in acks))
        complete(acks, some(50))
    assert sorted(map(str, found)) == sorted(map(str, range(50)))


def test_a_time_out_raises_and_leaves_no_waiter() -> None:
    ack = Ack()
    with pytest.raises(TimeoutError):
        ack.result(0.01)
    with pytest.raises(TimeoutError):
        ack.exception(0)
    with pytest.raises(TimeoutError):
        ack.result(-1)
    assert ack._waiters == []
    complete([ack], [SOME])
    assert ack.result(0) == SOME


def test_an_interrupted_wait_leaves_no_waiter(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_event: object, _timeout: float | None) -> bool:
        raise KeyboardInterrupt

    ack = Ack()
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ack.result(1)
    assert ack._waiters == []


def test_many_who_wait_are_not_woken_by_the_completion_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A condition that all acks share must not be notified: each completion would wake them all."""
    woken: list[Ack] = []
    acks = [Ack() for _ in range(1000)]

    def returned(ack: Ack) -> None:
        ack.result(30)
        woken.append(ack)

    with Threads() as threads:
        threading.stack_size(256 * 1024)
        for ack in acks:
            threads.start(returned, ack)
        threading.stack_size(0)
        until(lambda: all(ack._waiters for ack in acks))
        assert not module._changed._waiters, "they wait on the condition itself"  # type: ignore[attr-defined]
        for _ in range(1000):
            complete([Ack()], [SOME])
        assert woken == []
        complete([acks[7]], [SOME])
        until(lambda: woken)
        assert woken == [acks[7]]
        complete([ack for ack in acks if ack is not acks[7]], some(999))


def when_waited_for(ack: Ack, call: Callable[[list[Ack], Any], None], outcome: Any) -> None:
    until(lambda: ack._waiters)
    call([ack], outcome)


def test_concurrent_futures_wait_and_as_completed_take_acks() -> None:
    acks = [Ack() for _ in range(4)]
    complete(acks[:1], [SOME])
    done, pending = wait(acks, 0.01)
    assert (done, pending) == ({acks[0]}, set(acks[1:]))
    with Threads() as threads:
        threads.start(when_waited_for, acks[1], complete, [SOME])
        assert wait(acks[1:], 10, FIRST_COMPLETED).done == {acks[1]}
        threads.start(when_waited_for, acks[2], fail, RequestRejected("no"))
        assert acks[2] in wait(acks[2:], 10, FIRST_EXCEPTION).done
        threads.start(when_waited_for, acks[3], complete, [SOME])
        assert set(as_completed(acks, 30)) == set(acks)
    assert all(not ack._waiters for ack in acks)


def test_acks_and_plain_futures_can_be_waited_for_together() -> None:
    plain: Future[SiriusResult] = Future()
    ack = Ack()
    plain.set_result(SOME)
    complete([ack], [SOME])
    assert wait([plain, ack], 1).not_done == set()


def test_callbacks_come_once_before_and_after_completion() -> None:
    ack = Ack()
    seen: list[object] = []
    ack.add_done_callback(seen.append)
    assert seen == []
    complete([ack], [SOME])
    assert seen == [ack]
    ack.add_done_callback(seen.append)
    assert seen == [ack, ack]
    failed = Ack()
    failed.add_done_callback(seen.append)
    fail([failed], RequestRejected("no"))
    assert seen == [ack, ack, failed]


def test_a_callback_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def bad(_ack: object) -> None:
        raise ValueError("bad callback")

    acks = [Ack(), Ack()]
    seen: list[object] = []
    acks[0].add_done_callback(bad)
    for ack in acks:
        ack.add_done_callback(seen.append)
    with caplog.at_level(logging.ERROR):
        complete(acks, some(2))
    assert seen == acks
    assert "bad callback" in caplog.text


def test_a_callback_may_look_at_other_acks_and_complete_them() -> None:
    first, second = Ack(), Ack()
    first.add_done_callback(lambda _: complete([second], [SOME]))
    complete([first], [SOME])
    assert second.result(0) == SOME


def test_cancelling_is_refused() -> None:
    ack = Ack()
    assert ack.running()
    assert not ack.cancel()
    assert not ack.cancelled()
    complete([ack], [SOME])
    assert not ack.cancel()
    assert "finished" in repr(ack)


def test_asyncio_waits_for_acks() -> None:
    async def main() -> list[object]:
        acks = [Ack() for _ in range(3)]
        wrapped = [asyncio.wrap_future(ack) for ack in acks]
        threading.Thread(target=complete, args=(acks[:2], some(2))).start()
        first = await asyncio.gather(*wrapped[:2])
        wrapped[2].cancel()
        await asyncio.sleep(0)
        # Nobody listens any more; that must not disturb whoever completes it.
        complete(acks[2:], [SOME])
        await asyncio.sleep(0)
        return [result.value for result in first]

    assert asyncio.run(main()) == [0, 1]


def test_all_fail_with_the_same_error_and_each_has_its_own() -> None:
    """A shared one would grow by the frames of everybody who raises it, and keep them alive."""
    acks = [Ack() for _ in range(50)]
    fail(acks, HandlerFailed("it broke", 7))
    errors = []
    for ack in acks:
        with pytest.raises(HandlerFailed, match="it broke") as caught:
            ack.result(0)
        errors.append(caught.value)
    assert {error.seq for error in errors} == {7}
    assert len({id(error) for error in errors}) == 50
    depths = [len(traceback.extract_tb(error.__traceback__)) for error in errors]
    assert max(depths) == min(depths)


@pytest.mark.parametrize(
    "error", [RangeUnavailable(1, 5, "gone"), OSError(5, "broken"), NodeError(), KeyError("x")]
)
def test_any_kind_of_error_can_be_given_to_many(error: Exception) -> None:
    acks = [Ack(), Ack()]
    cause = ValueError("the cause")
    error.__cause__ = cause
    fail(acks, error)
    for ack in acks:
        found = ack.exception(0)
        assert type(found) is type(error)
        assert (str(found), vars(found)) == (str(error), vars(error))
        assert found is not None
        assert found.__cause__ is cause


def test_nothing_to_complete_is_no_error() -> None:
    complete([], [])
    fail([], NodeError("nobody"))


FORK = """
import os, threading
from sirius.driver import acks
from sirius.handler import SiriusResult
held, forked = threading.Event(), threading.Event()
def hold():
    with acks._changed:
        held.set()
        forked.wait()
threading.Thread(target=hold).start()
held.wait()
if (child := os.fork()) == 0:
    ack = acks.Ack()
    acks.complete([ack], [SiriusResult.some("alive")])
    os._exit(0 if ack.result(30).value == "alive" else 1)
for _ in range(4000):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    threading.Event().wait(0.01)
else:
    os.kill(child, 9)
    os.waitpid(child, 0)
forked.set()
print("child", os.waitstatus_to_exitcode(status) if done else "hangs")
"""


def test_a_fork_while_another_thread_completes_does_not_lock_the_child() -> None:
    outcome = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False
    )
    assert outcome.stdout == "child 0\n", outcome.stderr
