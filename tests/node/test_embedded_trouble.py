"""A node whose handler or whose caller does not do as it should."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sirius import Sirius, SiriusResult
from sirius.config.settings import HandlerSettings, LogSettings, RequestSettings
from sirius.errors import HandlerFailed, NodeClosed, Overloaded
from sirius.ops.status import State
from tests.driver.waiting import Threads, until
from tests.node.nodes import Dict, config


@pytest.fixture
def handler() -> Dict:
    return Dict()


def test_many_puts_without_waiting_stay_bounded_and_all_arrive(
    tmp_path: Path, handler: Dict
) -> None:
    made = config(tmp_path, requests=RequestSettings(outstanding_max=100, timeout_s=30))
    highest = 0
    with Sirius(handler, made) as sirius:
        inbox = sirius._node.driver.inbox
        acks = []
        for number in range(20_000):
            acks.append(sirius.enqueue_put(f"k{number}", b"%d" % number))
            highest = max(highest, inbox.outstanding)
        seqs = [ack.result(30).seq for ack in acks]
    assert highest <= 100
    assert seqs == sorted(seqs, key=lambda seq: seq or 0)
    assert len(set(seqs)) == 20_000
    assert handler.values == {f"k{number}": b"%d" % number for number in range(20_000)}


@pytest.mark.parametrize("replay", ["serial", "parallel", "newest"])
def test_a_restart_keeps_everything(tmp_path: Path, replay: str) -> None:
    made = config(tmp_path, handler=HandlerSettings(replay=replay, retries=0))  # type: ignore[arg-type]
    expected: dict[str, bytes] = {}
    last = 0
    for life in range(3):
        handler = Dict()
        with Sirius(handler, made) as sirius:
            assert handler.values == expected
            for number in range(50):
                ack = sirius.enqueue_put(f"k{number % 20}", b"%d/%d" % (life, number))
            ack.result(30)
            seq = sirius.enqueue_delete(f"k{life}").result(30).seq
            assert seq is not None
            assert seq > last
            last = seq
        expected = dict(handler.values)
        assert len(expected) == 19


def test_answered_when_decided(tmp_path: Path, handler: Dict) -> None:
    made = config(tmp_path, requests=RequestSettings(ack="decided"))
    with Sirius(handler, made) as sirius:
        handler.gate.close()
        result = sirius.enqueue_put("k", b"v").result(30)
        assert (result.has_value, result.seq is None) == (False, False)
        assert handler.values == {}
        assert handler.gate.waiting.wait(30)
        handler.gate.open()
        assert sirius.wait_for(result.seq or 0, 30)
        assert handler.values == {"k": b"v"}


def test_a_handler_that_raises_once_is_called_again(tmp_path: Path, handler: Dict) -> None:
    class Once(Dict):
        def handle_put(self, key: str, body: bytes) -> SiriusResult:
            if sirius.status().handler_exceptions < 2:
                raise ConnectionError("a moment, please")
            return super().handle_put(key, body)

    settings = HandlerSettings(retries=3, retry_s=0.001)
    with Sirius(Once(), config(tmp_path, handler=settings)) as sirius:
        assert sirius.enqueue_put("k", b"v").result(30).error is None
        assert sirius.status().handler_exceptions == 2
        assert sirius.status().state == State.READY


def test_a_handler_that_keeps_raising_stops_the_node_and_says_so(
    tmp_path: Path, handler: Dict
) -> None:
    handler.bad.add("bad")
    made = config(tmp_path, handler=HandlerSettings(retries=2, retry_s=0.001))
    with Sirius(handler, made) as sirius:
        good = sirius.enqueue_put("good", b"1").result(30)
        with pytest.raises(HandlerFailed, match="in the log but not applied") as caught:
            sirius.enqueue_put("bad", b"").result(30)
        assert good.seq is not None
        assert caught.value.seq == good.seq + 1
        until(lambda: sirius.status().state == State.HANDLER_STOPPED)
        status = sirius.status()
        assert status.problem is not None
        assert "ValueError" in status.problem
        assert "3 times: I do not like bad" in status.problem
        assert status.handler_exceptions == 3
        assert status.role == "leader", "it goes on voting"
        until(lambda: sirius._inbox._refusal is not None)
        with pytest.raises(HandlerFailed, match="this node's handler has stopped"):
            sirius.enqueue_put("later", b"")
        assert sirius.enqueue_get("good").result(30).value == b"1"
        assert not sirius.wait_for(good.seq + 1, 30)
    with pytest.raises(HandlerFailed, match="I do not like bad"), Sirius(handler, made):
        raise AssertionError("a node whose handler fails in the replay is never ready")
    handler.bad.clear()
    with Sirius(again := Dict(), made):
        assert again.values == {"good": b"1", "bad": b""}


def test_a_handler_that_answers_nonsense_stops_the_node_with_a_clear_word(tmp_path: Path) -> None:
    class Wrong(Dict):
        def handle_put(self, key: str, body: bytes) -> SiriusResult:
            return body  # type: ignore[return-value]

    with Sirius(Wrong(), config(tmp_path)) as sirius:
        with pytest.raises(HandlerFailed, match="handle_put returned a bytes at"):
            sirius.enqueue_put("k", b"v").result(30)
        assert sirius.status().state == State.HANDLER_STOPPED


def test_a_slow_handler_bounds_memory_and_makes_callers_wait(tmp_path: Path, handler: Dict) -> None:
    body = bytes(20_000)
    made = config(
        tmp_path,
        log=LogSettings(reserve_bytes=0, key_bytes_max=100, body_bytes_max=20_000),
        requests=RequestSettings(outstanding_max=50, outstanding_bytes_max=200_000, timeout_s=30),
        handler=HandlerSettings(retries=0, backlog_bytes_max=100_000, behind_max=60),
    )
    acks = []
    with Sirius(handler, made) as sirius, Threads() as threads:
        inbox = sirius._node.driver.inbox
        handler.gate.close()
        threads.start(lambda: acks.extend([sirius.enqueue_put(f"k{n}", body) for n in range(500)]))
        until(lambda: inbox.in_line)
        status = sirius.status()
        assert status.backlog_bytes <= 100_000
        assert inbox.outstanding_bytes <= 200_000 + 30_000
        assert status.lag < 400
        handler.gate.open()
        threads.join()
        assert all(ack.result(30).error is None for ack in acks)
    assert len(handler.values) == 500


def test_closing_while_the_handler_hangs_returns_in_time(tmp_path: Path, handler: Dict) -> None:
    sirius = Sirius(handler, config(tmp_path))
    assert sirius.wait_until_ready(30)
    handler.gate.close()
    ack = sirius.enqueue_put("k", b"v")
    assert handler.gate.waiting.wait(30)
    until(lambda: sirius.status().handler_busy_s > 0)
    began = time.monotonic()
    sirius.close(0.2)
    assert time.monotonic() - began < 30, "it waited for the handler"
    error = ack.exception(0)
    assert isinstance(error, HandlerFailed)
    assert error.seq is not None
    handler.gate.open()
    with Sirius(again := Dict(), config(tmp_path)):
        assert again.values == {"k": b"v"}


def test_gets_while_the_node_closes_are_all_answered(tmp_path: Path) -> None:
    sirius = Sirius(Dict(), config(tmp_path))
    assert sirius.wait_until_ready(30)
    acks = []

    def ask(linearizable: bool) -> None:
        with suppress(NodeClosed):
            while True:
                acks.append(sirius.enqueue_get("k", linearizable=linearizable))

    with Threads() as threads:
        for linearizable in (True, False):
            threads.start(ask, linearizable)
        until(lambda: len(acks) > 100)
        sirius.close()
    until(lambda: all(ack.done() for ack in acks), "the last answer")


def test_callbacks_may_ask_for_more(tmp_path: Path, handler: Dict) -> None:
    done = threading.Event()

    def more(_ack: object) -> None:
        if len(handler.values) < 50:
            sirius.enqueue_put(f"k{len(handler.values)}", b"").add_done_callback(more)
        else:
            done.set()

    with Sirius(handler, config(tmp_path)) as sirius:
        sirius.enqueue_put("first", b"").add_done_callback(more)
        assert done.wait(30)


def test_large_bodies_wait_for_room_instead_of_being_refused(tmp_path: Path) -> None:
    handler = Dict()
    with Sirius(handler, config(tmp_path)) as sirius:
        acks = [sirius.enqueue_put(f"k{number}", bytes(8 << 20)) for number in range(12)]
        for ack in acks:
            ack.result(30)
    assert len(handler.values) == 12


def test_an_update_counts_until_it_is_answered(tmp_path: Path) -> None:
    handler = Dict()
    requests = RequestSettings(outstanding_max=10, timeout_s=2)
    with Sirius(handler, config(tmp_path, requests=requests)) as sirius:
        handler.gate.close()
        try:
            acks = [sirius.enqueue_put(f"k{number}", b"v") for number in range(10)]
            # They are decided by now, or soon, and still nobody has an answer.
            with pytest.raises(Overloaded):
                sirius.enqueue_put("one too many", b"v")
        finally:
            handler.gate.open()
        assert all(ack.result(30).seq for ack in acks)
        sirius.enqueue_put("room again", b"v").result(30)
