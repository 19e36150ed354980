"""Calling a handler: each kind of it, again when it raises, and never past what it cannot take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sirius.driver.calls import Caller, Patience, numbered
from sirius.errors import HandlerFailed, ReadFailed
from sirius.handler import HandledUpdate, RequestHandler, SiriusResult
from sirius.wal import Batch, Op, Update, encode

NONE = SiriusResult.none()


def batch(*updates: tuple[str, bytes | None], first: int = 11) -> Batch:
    """Return PUTs, and DELETEs where the body is None."""
    made = [
        Update(Op.DELETE, key.encode()) if body is None else Update(Op.PUT, key.encode(), body)
        for key, body in updates
    ]
    return Batch.of(encode(first, made, 77))


THREE = batch(("a", b"1"), ("b", None), ("c", b"3"))


class Plain(RequestHandler):
    def __init__(self, answer: Callable[[str], Any] = SiriusResult.some) -> None:
        self.calls: list[Any] = []
        self.answer = answer

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.calls.append((key, body))
        return self.answer(key)  # type: ignore[no-any-return]

    def handle_delete(self, key: str) -> SiriusResult:
        self.calls.append((key, None))
        return self.answer(key)  # type: ignore[no-any-return]

    def handle_get(self, key: str) -> SiriusResult:
        return self.answer(key)  # type: ignore[no-any-return]


class WithSeq(Plain):
    def handle_update(self, update: HandledUpdate) -> SiriusResult:
        self.calls.append(update)
        return self.answer(update.key)  # type: ignore[no-any-return]


class ByBatch(Plain):
    def handle_batch(self, updates: Sequence[HandledUpdate]) -> Sequence[SiriusResult] | None:
        self.calls.append(list(updates))
        return [self.answer(update.key) for update in updates]


KINDS = [Plain, WithSeq, ByBatch]
UPDATES = [
    HandledUpdate(11, 77, "a", b"1"),  # type: ignore[arg-type]
    HandledUpdate(12, 77, "b", None),  # type: ignore[arg-type]
    HandledUpdate(13, 77, "c", b"3"),  # type: ignore[arg-type]
]


def caller(handler: RequestHandler, retries: int = 0, **settings: Any) -> Caller:
    return Caller(handler, Patience(retries, 0), **settings)


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (Plain, [("a", b"1"), ("b", None), ("c", b"3")]),
        (WithSeq, UPDATES),
        (ByBatch, [UPDATES]),
    ],
)
def test_a_handler_is_called_the_way_it_wants(kind: type[Plain], calls: list[Any]) -> None:
    handler = kind()
    results = caller(handler).apply(THREE)
    assert handler.calls == calls
    assert [result.value for result in results] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_none_is_an_answer(kind: type[Plain]) -> None:
    handler = kind(lambda _key: None)
    assert list(caller(handler).apply(THREE)) == [NONE] * 3
    assert caller(handler).get("k") == NONE


def test_a_batch_may_be_answered_with_none_as_a_whole() -> None:
    class Silent(Plain):
        def handle_batch(self, updates: Sequence[HandledUpdate]) -> None:
            return None

    assert list(caller(Silent()).apply(THREE)) == [NONE] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_rejections_are_answers(kind: type[Plain]) -> None:
    results = caller(kind(SiriusResult.rejected)).apply(THREE)
    assert [result.error for result in results] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_applied_for_nothing(kind: type[Plain]) -> None:
    handler = kind()
    assert list(caller(handler).apply(THREE.between(14, 20))) == []
    assert handler.calls == []


class Flaky:
    """Raises so often at a key, then answers."""

    def __init__(self, key: str, times: int, error: BaseException) -> None:
        self.key, self.left, self.error = key, times, error

    def __call__(self, key: str) -> SiriusResult:
        if key == self.key and self.left:
            self.left -= 1
            raise self.error
        return SiriusResult.some(key)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopIteration(), MemoryError()]
)
def test_one_that_raises_is_called_again(kind: type[Plain], error: BaseException) -> None:
    handler = kind(Flaky("b", 2, error))
    calls = caller(handler, retries=2)
    assert [result.value for result in calls.apply(THREE)] == ["a", "b", "c"]
    assert calls.exceptions == 2
    assert calls.busy_since is None


@pytest.mark.parametrize(
    ("kind", "seq", "done"), [(Plain, 12, ["a"]), (WithSeq, 12, ["a"]), (ByBatch, 11, [])]
)
def test_one_that_keeps_raising_stops_with_what_was_done(
    kind: type[Plain], seq: int, done: list[str]
) -> None:
    error = ValueError("never")
    calls = caller(kind(Flaky("b", 99, error)), retries=3)
    with pytest.raises(HandlerFailed, match=f"ValueError at {seq}, 4 times: never") as caught:
        calls.apply(THREE)
    assert caught.value.seq == seq
    assert caught.value.__cause__ is error
    assert [result.value for result in calls.done] == done
    assert calls.exceptions == 4
    assert calls.busy_since is None


def test_a_plain_handler_is_not_called_beyond_the_update_that_failed() -> None:
    handler = Plain(Flaky("b", 99, ValueError()))
    with pytest.raises(HandlerFailed):
        caller(handler, retries=1).apply(THREE)
    assert [key for key, _ in handler.calls] == ["a", "b", "b"]


def test_the_wait_doubles_with_each_retry() -> None:
    """So says the setting `handler.retry_s`."""
    waits: list[float] = []
    handler = Plain(Flaky("a", 4, ValueError()))
    Caller(handler, Patience(4, 0.1), waits.append).apply(THREE)
    assert waits == [0.1, 0.2, 0.4, 0.8]


def test_what_was_done_before_is_forgotten_with_the_next_batch() -> None:
    handler = Plain(Flaky("b", 1, ValueError()))
    calls = caller(handler)
    with pytest.raises(HandlerFailed):
        calls.apply(THREE)
    assert [result.value for result in calls.apply(THREE)] == ["a", "b", "c"]
    assert len(calls.done) == 3


WRONG = [("done", "a str"), (True, "a bool"), (b"", "a bytes"), (7, "an int"), ({}, "a dict")]


@pytest.mark.parametrize(("answer", "said"), WRONG)
@pytest.mark.parametrize(
    ("kind", "name"), [(Plain, "handle_put"), (WithSeq, "handle_update"), (ByBatch, "handle_batch")]
)
def test_an_answer_that_is_none_is_refused_at_once(
    kind: type[Plain], name: str, answer: object, said: str
) -> None:
    """Not called again: it has done its work, and would answer the same."""
    handler = kind(lambda key: answer if key == "c" else NONE)
    calls = caller(handler, retries=3)
    expected = f"{name} returned {said} at 13, not a SiriusResult or None"
    with pytest.raises(HandlerFailed, match=expected) as caught:
        calls.apply(THREE)
    assert caught.value.seq == 13
    assert len(handler.calls) == (1 if kind is ByBatch else 3)


def test_a_coroutine_is_no_answer() -> None:
    class Asynchronous(Plain):
        async def handle_put(self, key: str, body: bytes) -> SiriusResult:  # type: ignore[override]
            return NONE

    with pytest.raises(HandlerFailed, match="handle_put returned a coroutine at 11"):
        caller(Asynchronous()).apply(THREE)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([], "returned 0 results for 3 updates"),
        ([NONE] * 2, "returned 2 results for 3 updates"),
        ([NONE] * 4, "returned 4 results for 3 updates"),
        ("abc", "returned a str at 11"),
        (5, "returned an int at 11, not a sequence"),
        (iter([NONE] * 3), "returned a list_iterator at 11, not a sequence"),
        ({1: 2, 3: 4, 5: 6}, "returned a dict at 11, not a sequence"),
    ],
)
def test_wrong_answers_to_a_batch_are_refused(answers: Any, said: str) -> None:
    class Wrong(Plain):
        def handle_batch(self, updates: Sequence[HandledUpdate]) -> Any:
            return answers

    with pytest.raises(HandlerFailed, match=said) as caught:
        caller(Wrong(), retries=2).apply(THREE)
    assert caught.value.seq == 11


def test_a_get_raises_what_the_handler_raises_and_refuses_what_is_no_answer() -> None:
    with pytest.raises(ZeroDivisionError):
        caller(Plain(Flaky("k", 1, ZeroDivisionError()))).get("k")
    with pytest.raises(ReadFailed, match="handle_get returned a bytes, not a SiriusResult"):
        caller(Plain(lambda _key: b"raw")).get("k")


def test_it_is_known_for_how_long_the_handler_is_busy() -> None:
    seen: list[float | None] = []
    handler = Plain(lambda _key: seen.append(calls.busy_since))
    calls = caller(handler)
    before = time.monotonic()
    calls.apply(THREE)
    assert all(since is not None and before <= since <= time.monotonic() for since in seen)
    assert calls.busy_since is None


def test_results_get_their_numbers() -> None:
    given = [SiriusResult.some("x"), SiriusResult.rejected("y"), NONE]
    found = numbered([4, 5, 9], given)
    assert [(each.value, each.error, each.seq) for each in found] == [
        ("x", None, 4),
        (None, "y", 5),
        (None, None, 9),
    ]
    assert numbered([3]) == [SiriusResult(seq=3)]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shorter"):
        numbered([1, 2, 3], given[:2])
