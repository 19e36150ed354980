"""The asyncio calls: they wait, and the event loop does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirius import Sirius
from sirius.config.settings import HandlerSettings, RequestSettings
from sirius.errors import HandlerFailed, InvalidRecord, NodeClosed, Overloaded
from tests.driver.waiting import Threads, until
from tests.node.nodes import Dict, config


@pytest.fixture
def handler() -> Dict:
    return Dict()


@pytest.fixture(params=[60])
def narrow(tmp_path: Path, handler: Dict, request: pytest.FixtureRequest) -> Iterator[Sirius]:
    """A node with room for three requests, whose callers wait so many seconds for more."""
    made = config(
        tmp_path,
        requests=RequestSettings(outstanding_max=3, timeout_s=request.param),
        handler=HandlerSettings(retries=0, retry_s=0, behind_max=1),
    )
    with Sirius(handler, made) as sirius:
        yield sirius
        handler.gate.open()


async def fill(sirius: Sirius, handler: Dict) -> list[asyncio.Task[object]]:
    """Let so much be asked for that there is no room for more."""
    handler.gate.close()
    inbox = sirius._node.driver.inbox
    tasks: list[asyncio.Task[object]] = []
    while not inbox.in_line:
        tasks.append(asyncio.create_task(sirius.put(f"f{len(tasks)}", b"")))
        await asyncio.sleep(0.001)
    return tasks


def test_from_two_event_loops_in_two_threads(tmp_path: Path, handler: Dict) -> None:
    async def work(name: str) -> None:
        await asyncio.gather(*(sirius.put(f"{name}/{n}", b"%d" % n) for n in range(300)))
        await sirius.delete(f"{name}/0")
        assert (await sirius.get(f"{name}/7")).value == b"7"
        assert not (await sirius.get(f"{name}/0", linearizable=True)).has_value

    made = config(tmp_path, requests=RequestSettings(outstanding_max=20, timeout_s=10))
    with Sirius(handler, made) as sirius, Threads() as threads:
        for name in "ab":
            threads.start(lambda name=name: asyncio.run(work(name)))
    assert len(handler.values) == 598


def test_bad_input_is_refused(narrow: Sirius) -> None:
    with pytest.raises(InvalidRecord):
        asyncio.run(narrow.put("", b"v"))
    with pytest.raises(InvalidRecord):
        asyncio.run(narrow.delete(""))


@pytest.mark.parametrize("narrow", [3], indirect=True)
def test_the_event_loop_goes_on_while_there_is_no_room(narrow: Sirius, handler: Dict) -> None:
    """Also at the moment at which the waiting is given up."""

    async def main() -> None:
        tasks = await fill(narrow, handler)
        gaps: list[float] = []
        before = time.monotonic()
        while not any(task.done() for task in tasks):
            await asyncio.sleep(0.005)
            now = time.monotonic()
            gaps.append(now - before)
            before = now
        assert max(gaps) < 2.5, "something blocked for as long as callers wait"
        (done,) = {type(task.exception()) for task in tasks if task.done()}
        assert done is Overloaded
        handler.gate.open()
        await asyncio.wait(tasks)

    asyncio.run(main())


def test_those_who_wait_go_on_when_there_is_room(narrow: Sirius, handler: Dict) -> None:
    async def main() -> int:
        tasks = await fill(narrow, handler)
        handler.gate.open()
        await asyncio.gather(*tasks)
        return len(tasks)

    count = asyncio.run(main())
    assert len(handler.values) == count
    assert narrow._node.driver.inbox.in_line == 0


def test_who_is_cancelled_in_line_is_taken_back(narrow: Sirius, handler: Dict) -> None:
    async def main() -> None:
        tasks = await fill(narrow, handler)
        late = asyncio.create_task(narrow.put("cancelled", b""))
        await asyncio.sleep(0)
        assert late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        handler.gate.open()
        await asyncio.gather(*tasks)
        await narrow.put("after", b"")

    asyncio.run(main())
    assert "after" in handler.values
    assert "cancelled" not in handler.values


def test_closing_refuses_those_in_line(narrow: Sirius, handler: Dict) -> None:
    async def main() -> list[BaseException | object]:
        tasks = await fill(narrow, handler)
        closing = asyncio.to_thread(narrow.close, 0.2)
        outcomes, _ = await asyncio.gather(asyncio.gather(*tasks, return_exceptions=True), closing)
        return list(outcomes)

    outcomes = asyncio.run(main())
    assert isinstance(outcomes[-1], NodeClosed)
    assert all(isinstance(outcome, NodeClosed | HandlerFailed) for outcome in outcomes)
    with pytest.raises(NodeClosed):
        asyncio.run(narrow.put("k", b""))


def test_a_handler_that_has_stopped_is_said_at_once(tmp_path: Path, handler: Dict) -> None:
    handler.bad.add("bad")
    with Sirius(handler, config(tmp_path, requests=RequestSettings(timeout_s=60))) as sirius:
        with pytest.raises(HandlerFailed):
            asyncio.run(sirius.put("bad", b""))
        until(lambda: sirius._inbox._refusal is not None)
        with pytest.raises(HandlerFailed, match="I do not like bad"):
            asyncio.run(asyncio.wait_for(sirius.put("good", b""), 30))
