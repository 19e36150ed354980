"""One node inside an application, on a real disk: what its users see of it."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sirius import Sirius, SiriusConfig, SiriusResult
from sirius.config.settings import CompactionSettings, HandlerSettings, LogSettings, RequestSettings
from sirius.driver.acks import Ack
from sirius.errors import (
    HandlerFailed,
    InvalidRecord,
    LogLocked,
    NodeClosed,
    NotALog,
    Overloaded,
    UsageError,
)
from sirius.ops.status import State, Status
from tests.driver.waiting import Threads, until
from tests.node.nodes import FAST, Dict, config


@pytest.fixture
def handler() -> Dict:
    return Dict()


@pytest.fixture
def sirius(tmp_path: Path, handler: Dict) -> Iterator[Sirius]:
    with Sirius(handler, config(tmp_path)) as node:
        yield node
        handler.gate.open()


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    handler = Dict()
    with Sirius(handler, config(tmp_path)) as sirius:
        result = sirius.enqueue_put("title/vertigo", b"1958").result(30)
        assert handler.values == {"title/vertigo": b"1958"}, "answered when applied"
        assert (result.value, result.error) == (False, None)
        again = sirius.enqueue_put("title/vertigo", b"1959").result(30)
        assert again.value is True
        assert result.seq is not None
        assert again.seq == result.seq + 1
        assert sirius.enqueue_get("title/vertigo").result(30).value == b"1959"
        assert sirius.enqueue_delete("title/vertigo").result(30).value is True
        assert sirius.enqueue_delete("title/vertigo").result(30).value is False
        assert not sirius.enqueue_get("title/vertigo").result(30).has_value


def test_without_a_configuration_it_lives_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SiriusConfig, "paxos_config", lambda _self: FAST)
    with Sirius(Dict()) as sirius:
        sirius.enqueue_put("k", b"v").result(30)
    assert (tmp_path / "sirius-data").is_dir()


BAD_KEYS: list[tuple[Any, str]] = [
    ("", "the key is empty"),
    ("k" * 32769, "the key has 32,769 bytes, the limit is 32,768"),
    ("é" * 16385, "the key has 32,770 bytes"),
    (b"k", "a key is a str, not bytes"),
    (None, "a key is a str, not NoneType"),
    ("\ud800", "cannot be written as UTF-8"),
]
BAD_BODIES: list[tuple[Any, str]] = [
    ("text", "a body is bytes, not str"),
    (None, "a body is bytes, not NoneType"),
    (7, "a body is bytes, not int"),
    ([1], "a body is bytes, not list"),
    (bytes(16 * 1024 * 1024 + 1), "the body has 16,777,217 bytes, the limit is 16,777,216"),
]


def test_bad_input_is_refused_at_once_and_harms_nothing(sirius: Sirius) -> None:
    for key, said in BAD_KEYS:
        with pytest.raises(InvalidRecord, match=said):
            sirius.enqueue_put(key, b"v")
        with pytest.raises(InvalidRecord, match=said):
            sirius.enqueue_delete(key)
    for key in (b"k", None, "\ud800"):
        with pytest.raises(InvalidRecord):
            sirius.enqueue_get(key)  # type: ignore[arg-type]
    for body, said in BAD_BODIES:
        with pytest.raises(InvalidRecord, match=said):
            sirius.enqueue_put("k", body)
    assert sirius.status().outstanding == 0
    assert sirius.enqueue_put("k", b"v").result(30).error is None


def test_what_can_be_taken_as_bytes_is(sirius: Sirius, handler: Dict) -> None:
    class Bytes(bytes):
        pass

    longest = "k" * 32768
    changed = bytearray(b"a")
    bodies: dict[str, Any] = {
        "array": changed,
        "view": memoryview(b"b"),
        "sub": Bytes(b"c"),
        longest: b"d",
        "e": b"",
    }
    acks = [sirius.enqueue_put(key, body) for key, body in bodies.items()]
    changed[:] = b"X"
    for ack in acks:
        ack.result(30)
    assert list(handler.values.values()) == [b"a", b"b", b"c", b"d", b""]


@pytest.mark.parametrize("wrong", [None, object(), Dict, "handler"])
def test_what_is_no_handler_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(UsageError, match="a handler is a RequestHandler, not"):
        Sirius(wrong, config(tmp_path))


@pytest.mark.parametrize("wrong", [{}, "sirius.toml", SiriusConfig])
def test_what_is_no_configuration_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="a configuration is a SiriusConfig, not"):
        Sirius(Dict(), wrong)


def test_a_folder_that_is_none_is_refused_and_nothing_is_left_running(tmp_path: Path) -> None:
    before = threading.active_count()
    (tmp_path / "data").write_text("a file")
    with pytest.raises((NotALog, OSError)):
        Sirius(Dict(), config(tmp_path))
    assert threading.active_count() == before


def test_two_on_one_folder_are_one_too_many(tmp_path: Path, sirius: Sirius) -> None:
    with pytest.raises(LogLocked):
        Sirius(Dict(), config(tmp_path))
    assert sirius.enqueue_put("k", b"v").result(30).error is None


# ------------------------------------------------------------------ the end


def all_calls(sirius: Sirius) -> list[Any]:
    return [
        lambda: sirius.enqueue_put("k", b"v"),
        lambda: sirius.enqueue_delete("k"),
        lambda: sirius.enqueue_get("k"),
        lambda: sirius.enqueue_get("k", linearizable=True),
        lambda: sirius.wait_for(1, 0),
        sirius.compact,
        sirius.transfer_leadership,
        lambda: sirius.wait_until_ready(0),
    ]


def test_after_the_end_every_call_says_so(tmp_path: Path) -> None:
    with Sirius(Dict(), config(tmp_path)) as sirius:
        ack = sirius.enqueue_put("k", b"v")
    assert ack.result(0).seq is not None, "what was asked for before is answered"
    for call in all_calls(sirius):
        with pytest.raises(NodeClosed, match="closed"):
            call()
    assert not sirius.is_ready()
    assert not sirius.is_online()
    assert sirius.status().state == State.CLOSED
    sirius.close()


def test_functions_are_called_when_it_was_closed_once_and_in_order(tmp_path: Path) -> None:
    sirius = Sirius(Dict(), config(tmp_path))
    called: list[str] = []
    sirius.on_close(lambda: called.append(sirius.status().state))
    sirius.on_close(lambda: called.append("second"))
    assert called == []
    sirius.close()
    sirius.close()
    assert called == ["closed", "second"]
    sirius.on_close(lambda: called.append("late"))
    assert called[2:] == ["late"]


def test_no_thread_outlives_the_node(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Sirius(Dict(), config(tmp_path)) as sirius:
        sirius.enqueue_put("k", b"v").result(30)
    assert set(threading.enumerate()) <= before


def test_an_error_in_the_block_closes_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Sirius(Dict(), config(tmp_path)) as sirius:
        1 / 0  # noqa: B018
    assert sirius.status().state == State.CLOSED
    Sirius(Dict(), config(tmp_path)).close()


def test_whoever_closes_second_waits_for_the_first(tmp_path: Path, handler: Dict) -> None:
    """When `close` has returned the folder is free."""
    sirius = Sirius(handler, config(tmp_path))
    sirius.wait_until_ready(30)

    def close() -> None:
        sirius.close()
        assert sirius.status().state == State.CLOSED
        assert sirius._node.driver.disk.log._closed

    with Threads() as threads:
        for _ in range(5):
            threads.start(close)
    Sirius(Dict(), config(tmp_path)).close()


def test_a_handler_cannot_close_its_own_node(tmp_path: Path) -> None:
    """It would wait for itself."""
    said: list[str] = []

    class Suicidal(Dict):
        def handle_put(self, key: str, body: bytes) -> SiriusResult:
            with pytest.raises(UsageError) as caught:
                node.close()
            said.append(str(caught.value))
            return super().handle_put(key, body)

    with Sirius(Suicidal(), config(tmp_path)) as node:
        for key in "kl":
            assert node.enqueue_put(key, b"v").result(30).error is None
    assert said == ["a handler, or a callback of a future, cannot close its own node"] * 2


def test_closing_answers_callers_that_are_blocked(tmp_path: Path, handler: Dict) -> None:
    requests = RequestSettings(outstanding_max=5, timeout_s=60)
    sirius = Sirius(handler, config(tmp_path, requests=requests))
    sirius.wait_until_ready(30)
    handler.gate.close()
    acks: list[Ack] = []
    refused: list[BaseException] = []

    def write(number: int) -> None:
        try:
            while True:
                acks.append(sirius.enqueue_put(f"k{number}", b"v"))
        except NodeClosed as error:
            refused.append(error)

    def wait() -> None:
        assert sirius.wait_for(10**9, 60) is False

    with Threads() as threads:
        for number in range(4):
            threads.start(write, number)
        threads.start(wait)
        assert handler.gate.waiting.wait(30)
        inbox = sirius._node.driver.inbox
        # The handler is far enough behind once nothing more is let in; or closing comes while all are at it.
        until(lambda: len(acks) > 20 or inbox.in_line == 4)
        threads.start(sirius.close, 0.2)
        until(lambda: len(refused) == 4)
    for ack in acks:
        assert isinstance(ack.exception(30), HandlerFailed | NodeClosed)
    handler.gate.open()


# ------------------------------------------------------------------ reading, waiting, asking


def test_a_linearizable_get_sees_everything_before_it(sirius: Sirius, handler: Dict) -> None:
    handler.gate.close()
    for number in range(50):
        sirius.enqueue_put("k", b"%d" % number)
    assert handler.gate.waiting.wait(30)
    until(lambda: sirius.status().decided >= 50)
    found = sirius.enqueue_get("k", linearizable=True)
    handler.gate.open()
    assert found.result(30).value == b"49"


def test_waiting_for_a_number(sirius: Sirius) -> None:
    seq = sirius.enqueue_put("k", b"v").result(30).seq
    assert seq is not None
    assert sirius.wait_for(seq, 0)
    assert not sirius.wait_for(seq + 1, 0.01)


def test_a_node_that_is_ready_is_fresh(sirius: Sirius) -> None:
    assert sirius.is_ready()
    assert sirius.is_online()
    assert 0 <= sirius.staleness() < 30
    assert sirius.wait_until_ready(0)


def test_handing_over_is_harmless_when_alone(sirius: Sirius) -> None:
    assert sirius.transfer_leadership() is False
    with pytest.raises(UsageError, match="nobody is not a voter"):
        sirius.transfer_leadership("nobody")
    assert sirius.enqueue_put("k", b"v").result(30).error is None


def test_status_names_everything_and_is_json(tmp_path: Path, handler: Dict) -> None:
    sirius = Sirius(handler, config(tmp_path))
    for _ in range(2):
        status = sirius.status().as_dict()
        assert status.keys() == {field.name for field in dataclasses.fields(Status)}
        parsed = json.loads(json.dumps(status, allow_nan=False))
        assert parsed["state"] in list(State)
        assert sirius.wait_until_ready(30)
    assert parsed["state"] == "ready"
    assert parsed["role"] == "leader"
    assert parsed["problem"] is None
    sirius.close()


def test_compaction_on_demand(tmp_path: Path) -> None:
    made = config(
        tmp_path,
        compaction=CompactionSettings(dead_fraction_min=0, rate_bytes_s=0),
        log=LogSettings(reserve_bytes=0, segment_records_max=50, retire_after_s=0),
    )
    handler = Dict()
    with Sirius(handler, made) as sirius:
        for _ in range(20):
            for ack in [sirius.enqueue_put("k", bytes(1000)) for _ in range(20)]:
                ack.result(30)
        until(lambda: sirius.status().durable >= 400)
        before = sirius.status().log_bytes
        sirius.compact()
        assert sirius.status().log_bytes < before / 2
    with Sirius(again := Dict(), made):
        assert again.values == handler.values


def test_overloaded_is_said_after_the_time(tmp_path: Path, handler: Dict) -> None:
    requests = RequestSettings(outstanding_max=2, timeout_s=2)
    slow = HandlerSettings(retries=0, retry_s=0, behind_max=3)
    with Sirius(handler, config(tmp_path, requests=requests, handler=slow)) as sirius:
        handler.gate.close()
        acks: list[Ack] = []

        def flood() -> None:
            while len(acks) < 1000:
                acks.append(sirius.enqueue_put("k", b"v"))

        with pytest.raises(Overloaded, match="no room for another within"):
            flood()
        handler.gate.open()
        assert all(ack.result(30).error is None for ack in acks)
        assert sirius.enqueue_put("k", b"v").result(30).error is None


def test_a_rejection_is_a_result(tmp_path: Path) -> None:
    class Picky(Dict):
        def handle_put(self, key: str, body: bytes) -> SiriusResult:
            return SiriusResult.rejected("not today")

    with Sirius(Picky(), config(tmp_path)) as sirius:
        result = sirius.enqueue_put("k", b"v").result(30)
        assert (result.error, result.has_value) == ("not today", False)
        assert result.seq is not None
