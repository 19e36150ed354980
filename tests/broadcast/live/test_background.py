"""The thread with an event loop: what becomes of those who use it while another thread closes it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sirius.broadcast.live.background import Background
from sirius.errors import NodeClosed

PATIENCE_S = 60.0


async def answer() -> int:
    return 42


async def forever(begun: threading.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


def test_what_is_begun_is_done_on_its_thread() -> None:
    background = Background("test")
    assert background.run(answer(), PATIENCE_S) == 42
    background.close()
    background.close()
    assert background.is_closed


def test_after_the_end_nothing_begins() -> None:
    background = Background("test")
    background.close()
    work = answer()
    with pytest.raises(NodeClosed):
        background.run(work, PATIENCE_S)
    # It was closed: nobody will complain that it was never awaited.
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_who_waits_when_another_thread_closes_it_is_told() -> None:
    background = Background("test")
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(background.run, forever(begun))
        assert begun.wait(PATIENCE_S)
        background.close()
        with pytest.raises(NodeClosed):
            waiting.result(PATIENCE_S)


def test_nobody_waits_for_ever_however_the_threads_take_turns() -> None:
    for _ in range(50):
        background = Background("test")
        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(background.run, answer(), PATIENCE_S) for _ in range(8)]
            background.close()
            ends = [each.exception(PATIENCE_S) for each in asking]
        assert {type(each) for each in ends} <= {type(None), NodeClosed}
