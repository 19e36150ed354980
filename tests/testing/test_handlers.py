"""Good handlers pass; bad ones are told what is wrong with them, in words that their authors understand."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from sirius.errors import InvariantViolation, UsageError
from sirius.handler import RequestHandler, SiriusResult
from sirius.testing import HandlerDiverged, HandlerRaised, check_handler
from sirius.testing._handler_run import schedule_of, settings_of
from sirius.testing.handlers import Drawn
from sirius.testing.simulator import Kind

SOAK = bool(os.environ.get("SIRIUS_SOAK"))
DONE = SiriusResult.none()


class Titles(RequestHandler):
    """A good one."""

    def __init__(self) -> None:
        self.by_key: dict[str, Any] = {}

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = body
        return DONE

    def handle_delete(self, key: str) -> SiriusResult:
        self.by_key.pop(key, None)
        return DONE

    def handle_get(self, key: str) -> SiriusResult:
        return SiriusResult.some(self.by_key[key]) if key in self.by_key else DONE


def complaint_about(make: Callable[[], RequestHandler], **options: Any) -> str:
    """What the author of a bad handler is told."""
    with pytest.raises(HandlerDiverged) as caught:
        check_handler(make, **options)
    return str(caught.value)


def is_like(message: str, pattern: str) -> bool:
    """Compare a message with one in which `…` stands for anything in one line, and line breaks are free."""
    words = re.escape(" ".join(pattern.split())).replace("…", ".+?")
    told = " ".join(message.replace("and: more", "").split())
    return re.fullmatch(words, told) is not None


# ---------------------------------------------------------------------- good ones


def test_a_good_handler_passes_and_much_was_compared() -> None:
    counts = check_handler(Titles)
    assert counts.updates > 500
    assert counts.comparisons > 300
    assert counts.compacted > 30
    assert counts.lives > 30


def test_a_seed_is_the_same_check_every_time() -> None:
    assert check_handler(Titles, seeds=[5]) == check_handler(Titles, seeds=[5])


@dataclass
class Film:
    year: int


class Point:
    """Has no `==` of its own."""

    def __init__(self, at: int) -> None:
        self.at = at


class Films(Titles):
    """Parses, rejects what makes no sense, and holds objects."""

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        if not body.isdigit():
            self.by_key.pop(key, None)
            return SiriusResult.rejected("a year is a number")
        self.by_key[key] = [Film(int(body)), Point(int(body))]
        return DONE


def film(rng: random.Random) -> Drawn:
    key = f"film/{rng.randrange(10)}"
    if rng.random() < 0.2:
        return "DELETE", key
    return "PUT", key, rng.choice([b"1942", b"1958", b"unknown"])


def test_a_handler_may_reject_and_may_hold_objects_of_its_own() -> None:
    assert check_handler(Films, updates=film, seeds=[0]).updates > 100


def test_updates_may_come_from_a_hypothesis_strategy() -> None:
    seen = set()

    class Seeing(Films):
        def handle_put(self, key: str, body: bytes) -> SiriusResult:
            seen.add((key, body))
            return super().handle_put(key, body)

    puts = st.tuples(st.just("PUT"), st.sampled_from("abc"), st.sampled_from([b"1", b"2"]))
    deletes = st.tuples(st.just("DELETE"), st.sampled_from("abc"))
    check_handler(Seeing, updates=st.one_of(puts, deletes), seeds=[0])
    assert seen == {(key, body) for key in "abc" for body in (b"1", b"2")}


def test_large_updates_get_through() -> None:
    def large(rng: random.Random) -> Drawn:
        return "PUT", f"key/{rng.randrange(5)}", bytes(16 * 1024 - rng.randrange(2))

    assert check_handler(Titles, updates=large, seeds=[0]).updates > 100


def test_parts_that_do_not_count_can_be_left_out() -> None:
    class Started(Titles):
        def __init__(self) -> None:
            super().__init__()
            self.started = time.perf_counter_ns()

    check_handler(Started, state=lambda handler: handler.by_key, seeds=[0])


# ---------------------------------------------------------------------- bad ones

NOT_DETERMINISTIC = """
    why: the same updates in the same order led to two states. The handler depends on something else: the time,
    random numbers, id(), what handle_get was asked, or something outside of it.
    again: check_handler(..., seeds=[0]) or pytest --sirius-seed 0
"""
COMPACTED = """
    why: the log was compacted: of each key only the newest update is left, and deletes of long ago are gone. The
    state must follow from these alone: it cannot count updates, remember old ones, ignore deletes, or keep a value
    when it rejects the next one of the key.
    again: check_handler(..., seeds=[0]) or pytest --sirius-seed 0
"""
SHARED = """
    why: a handler that was given no update at all has changed too: the handlers share something, perhaps a class
    attribute, a global or a default argument. Make it in __init__.
    again: check_handler(..., seeds=[0]) or pytest --sirius-seed 0
"""


class Dice(Titles):
    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = random.random()
        return DONE


class Times(Titles):
    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = (body, time.perf_counter_ns())
        return DONE


class Ids(Titles):
    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = id(self)
        return DONE


@pytest.mark.parametrize("handler", [Dice, Times, Ids])
def test_what_does_not_follow_from_the_updates_is_found(handler: type[Titles]) -> None:
    assert is_like(
        complaint_about(handler),
        f"""
        {handler.__name__} has another state on node … than in a plain run of the same updates
        where: seed 0, node …, sequence number …
        handler.by_key['key/…: … on node …, … in the plain run
        {NOT_DETERMINISTIC}""",
    )


class Readers(Titles):
    reads = 0

    def handle_get(self, key: str) -> SiriusResult:
        self.reads += 1
        return super().handle_get(key)


def test_a_get_that_changes_the_state_is_found() -> None:
    assert is_like(
        complaint_about(Readers),
        f"""
        Readers has another state on node … than in a plain run of the same updates
        where: seed 0, node …, sequence number …
        handler.reads: … on node …, nothing in the plain run
        {NOT_DETERMINISTIC}""",
    )


class Counting(Titles):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.calls += 1
        return super().handle_put(key, body)


class FirstOne(Titles):
    """Depends on the order of its dict: a key that is written again stays where it was, unless the log forgot it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ""

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        super().handle_put(key, body)
        self.first = next(iter(self.by_key))
        return DONE


class Keeping(Titles):
    def handle_delete(self, key: str) -> SiriusResult:
        return DONE


class Remembering(Titles):
    def handle_delete(self, key: str) -> SiriusResult:
        self.by_key[key] = "deleted"
        return DONE


@pytest.mark.parametrize(
    ("handler", "part"),
    [
        (Counting, "handler.calls: … on node …, … in the plain run"),
        (FirstOne, "handler.first: 'key/… on node …, 'key/… in the plain run"),
        (Keeping, "handler.by_key['key/…: nothing on node …, b'… in the plain run"),
        (Remembering, "handler.by_key['key/…: … on node …, 'deleted' in the plain run"),
    ],
)
def test_what_compaction_takes_away_is_found(handler: type[Titles], part: str) -> None:
    assert is_like(
        complaint_about(handler),
        f"""
        {handler.__name__} has another state on node … than in a plain run of the same updates
        where: seed 0, node …, sequence number …, from a compacted log
        {part}
        {COMPACTED}""",
    )


class Insisting(Titles):
    """Keeps the old value when it rejects a new one, which is all that compaction leaves of the key."""

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        if not body.isdigit():
            return SiriusResult.rejected("a year is a number")
        return super().handle_put(key, body)


def test_a_rejection_that_keeps_the_old_value_is_found() -> None:
    told = complaint_about(Insisting, updates=film)
    assert "nothing on node" in told
    assert is_like(told[told.index("why:") :], COMPACTED)


class InTheClass(Titles):
    titles: ClassVar[dict[str, bytes]] = {}

    def __init__(self) -> None:
        self.by_key = self.titles


class OnlyInTheClass(Titles):
    by_key: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize("handler", [InTheClass, OnlyInTheClass])
def test_handlers_that_share_their_state_are_found(handler: type[Titles]) -> None:
    told = complaint_about(handler)
    assert "has another state on node" in told
    assert is_like(told[told.index("why:") :], SHARED)


def test_shared_state_is_found_even_where_it_does_no_harm() -> None:
    everything: set[str] = set()

    class Growing(Titles):
        def handle_put(self, key: str, body: bytes) -> SiriusResult:
            everything.add("some")
            return DONE

    told = complaint_about(Growing, state=lambda _: len(everything))
    assert is_like(told[told.index("why:") :], SHARED)


def test_only_some_differences_are_shown() -> None:
    lines = complaint_about(Dice, seeds=[1]).splitlines()
    assert sum("handler.by_key['" in line for line in lines) == 4
    assert "  and: more" in lines


# ---------------------------------------------------------------------- those that raise


class Numbers(Titles):
    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = int(body)
        return DONE


def numbers(rng: random.Random) -> Drawn:
    return "PUT", "a", rng.choice([b"1", b"2", b"many"])


def test_an_exception_is_told_with_the_update_that_caused_it() -> None:
    with pytest.raises(HandlerRaised) as caught:
        check_handler(Numbers, updates=numbers)
    assert is_like(
        str(caught.value),
        """
        Numbers raised ValueError: invalid literal for int() with base 10: b'many'
        update: PUT 'a' b'many'
        where: seed 0, node …, sequence number …
        why: a handler that raises stops its node. If no node can take such an update, remove what the key held and
        return SiriusResult.rejected(reason): after compaction nothing else is left of the key.
        again: check_handler(..., seeds=[0]) or pytest --sirius-seed 0
        """,
    )
    assert isinstance(caught.value.__cause__, ValueError)


class Deleting(Titles):
    def handle_delete(self, key: str) -> SiriusResult:
        del self.by_key[key]
        return DONE


def test_a_delete_of_a_key_that_is_not_there_is_explained() -> None:
    assert is_like(
        complaint_about(Deleting),
        """
        Deleting raised KeyError: 'key/…'
        update: DELETE 'key/…'
        where: seed 0, node …, sequence number …
        why: a delete may name a key that is not there: it never was, or compaction dropped the put before it.
        again: check_handler(..., seeds=[0]) or pytest --sirius-seed 0
        """,
    )


class Looking(Titles):
    def handle_get(self, key: str) -> SiriusResult:
        return SiriusResult.some(self.by_key[key])


def test_a_get_that_raises_is_told() -> None:
    assert is_like(
        complaint_about(Looking),
        """
        Looking raised KeyError: 'key/…'
        request: GET 'key/…'
        where: seed 0, node …, sequence number …
        why: a GET may ask for a key that is not there: return SiriusResult.none().
        again: check_handler(..., seeds=[0]) or pytest --sirius-seed 0
        """,
    )


class Silent(Titles):
    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = body
        return None  # type: ignore[return-value]


def test_a_handler_that_returns_nothing_is_told_what_to_return() -> None:
    assert is_like(
        complaint_about(Silent),
        """
        Silent returned None, which is no SiriusResult
        update: PUT 'key/…
        where: seed 0, node …, sequence number …
        why: end with `return SiriusResult.none()`, or .some(value), or .rejected(reason).
        again: check_handler(..., seeds=[0]) or pytest --sirius-seed 0
        """,
    )


# ---------------------------------------------------------------------- states that cannot be compared


class Started(Titles):
    def __init__(self) -> None:
        super().__init__()
        self.started = time.perf_counter_ns()


def test_handlers_that_differ_before_the_first_update_are_told_to_leave_that_out() -> None:
    assert is_like(
        complaint_about(Started),
        """
        two new handlers Started differ before the first update
        handler.started: … in one, … in the other
        why: handlers that were just made must be equal. If this part does not come from the updates, leave it out:
        check_handler(..., state=lambda handler: handler.what_counts).
        """,
    )


def test_a_state_that_cannot_be_copied_is_told() -> None:
    lines = (line for line in "")
    told = complaint_about(Titles, state=lambda handler: (handler.by_key, lines))
    assert told.startswith("the state of Titles cannot be copied (")
    assert "state=lambda handler: handler.what_counts" in told


class Elsewhere(RequestHandler):
    """Might keep everything in a database."""

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        return DONE

    def handle_delete(self, key: str) -> SiriusResult:
        return DONE


def test_a_handler_without_visible_state_is_told() -> None:
    with pytest.raises(
        UsageError, match=r"^after \d+ updates the state of Elsewhere still is what"
    ):
        check_handler(Elsewhere)


# ---------------------------------------------------------------------- wrong use


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        (("POST", "a"), r"""drew \('POST', 'a'\): it is neither \("PUT", key, body\) nor"""),
        (("PUT", "a", "text"), r"drew \('PUT', 'a', 'text'\): a body is bytes, not str"),
        (("DELETE", b"a"), r"drew .*: a key is a str, not bytes"),
        (("DELETE", ""), r"drew .*: the key is empty"),
        (("PUT", "a", bytes(20_000)), r"drew .*: the body has 20000 bytes, the limit is 16384"),
    ],
)
def test_an_update_that_the_log_does_not_take_is_refused(drawn: Drawn, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_handler(Titles, updates=lambda _: drawn)


def test_updates_that_are_neither_a_function_nor_a_strategy_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Hypothesis strategy, not \[\]"):
        check_handler(Titles, updates=[])  # type: ignore[arg-type]


def test_no_seeds_are_refused() -> None:
    with pytest.raises(UsageError, match="no seeds"):
        check_handler(Titles, seeds=[])


def test_errors_of_the_users_own_functions_come_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError):
        check_handler(Titles, state=lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        check_handler(Titles, updates=lambda _: 1 // 0)  # type: ignore[arg-type, return-value]


def test_a_fault_of_sirius_is_not_blamed_on_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sirius.testing.simulator.injector.Injector.heal", lambda self: None)
    monkeypatch.setattr("sirius.testing.simulator.simulation.RESUME_S", 0.0)
    with pytest.raises(
        InvariantViolation, match=r"^this is not the handler's fault: .* seed 0: L:"
    ):
        check_handler(Titles)


# ---------------------------------------------------------------------- what happens to the clusters


@pytest.mark.parametrize("seed", range(20))
def test_every_node_compacts_and_restarts_and_the_cluster_heals(seed: int) -> None:
    settings = settings_of(seed)
    assert settings.liveness
    for kind in (Kind.COMPACT, Kind.RESTART):
        where = {fault.where for fault in schedule_of(settings) if fault.kind == kind}
        assert where >= set(settings.names)


@pytest.mark.deep
def test_a_good_handler_passes_in_many_clusters() -> None:
    check_handler(Titles, seeds=range(1000 if SOAK else 30))
