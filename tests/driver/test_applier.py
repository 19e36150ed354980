"""The apply thread: everything once and in order, and every caller told of his own."""

from __future__ import annotations

import threading

import pytest

from sirius.driver.acks import Ack
from sirius.driver.applier import Answered
from sirius.driver.calls import Patience
from sirius.errors import HandlerFailed, NodeClosed, Overloaded, ReadFailed
from sirius.handler import HandledUpdate
from sirius.types import Seq
from sirius.wal import Block, CompactionPolicy, encode
from tests.driver.applying import Bench, delete, outcomes, put, running, told
from tests.driver.waiting import Threads, until

LARGE = 64
"""So many entries make a block that is read on its own."""


def test_updates_are_applied_in_order_and_results_reach_their_callers() -> None:
    with running() as bench:
        first = bench.decide(put("a", b"1"), put("b", b"2"))
        second = bench.decide(delete("a"))
        assert outcomes([*first, *second]) == told(1, 2, 3)
        assert bench.handler.values == {"b": b"2"}
        assert bench.applier.applied == 3


def test_when_an_ack_is_done_the_node_says_so_too() -> None:
    """Whoever has an answer may hand its number to `wait_for`, and must not be told that it is not there."""
    with running() as bench:
        for number in range(1, 300):
            (ack,) = bench.decide(put("k"))
            assert ack.result(30).seq == number
            assert bench.applier.wait_for(number, 0)


def test_what_others_decided_stands_between() -> None:
    with running() as bench:
        bench.handler.gate.close()
        theirs = bench.write(put("t1"), put("t2"))
        mine = bench.write(put("m1"))
        mixed = bench.write(put("t3"), put("m2"), put("m3"), put("t4"))
        acks = [Ack() for _ in range(3)]
        answered = [Answered(3, acks[:1]), Answered(5, acks[1:])]
        bench.applier.hand([theirs, mine, mixed], answered)
        bench.handler.gate.open()
        assert outcomes(acks) == told(3, 5, 6)
        assert bench.applier.wait_for(7, 30)
        assert bench.handler.seqs == [1, 2, 3, 4, 5, 6, 7]


def test_one_batch_of_acks_may_lie_over_several_blocks() -> None:
    with running() as bench:
        bench.handler.gate.close()
        blocks = [bench.write(put(f"k{number}")) for number in range(5)]
        acks = [Ack() for _ in range(5)]
        bench.applier.hand(blocks, [Answered(1, acks)])
        bench.handler.gate.open()
        assert outcomes(acks) == told(1, 2, 3, 4, 5)


def test_a_block_that_was_handed_before_is_not_applied_again() -> None:
    """After a disk was opened again, decided blocks come a second time, cut elsewhere."""
    with running() as bench:
        block = bench.write(put("a"), put("b"))
        bench.applier.hand([block], [])
        longer = encode(1, [put("a"), put("b"), put("c")], 5)
        bench.write(put("c"))
        bench.applier.hand([block], [])
        bench.applier.hand([longer], [])
        assert bench.applier.wait_for(3, 30)
        assert bench.handler.seqs == [1, 2, 3]


def test_who_asks_for_what_was_applied_long_ago_is_told_at_once() -> None:
    with running() as bench:
        bench.applier.hand([bench.write(put("a"), put("b"))], [])
        assert bench.applier.wait_for(2, 30)
        ack = Ack()
        bench.applier.hand([], [Answered(2, [ack])])
        result = ack.result(30)
        assert (result.value, result.seq) == (None, 2)


def test_answers_out_of_order_are_all_told() -> None:
    with running() as bench:
        bench.handler.gate.close()
        blocks = [bench.write(put("a")), bench.write(put("b"))]
        acks = [Ack(), Ack()]
        bench.applier.hand(blocks[:1], [Answered(2, acks[1:])])
        bench.applier.hand([], [Answered(1, acks[:1])])
        bench.handler.gate.open()
        assert outcomes(acks[:1]) == told(1)
        assert not acks[1].done()
        bench.applier.hand(blocks[1:], [])
        assert outcomes(acks) == told(1, 2)


def test_what_does_not_fit_into_memory_is_read_from_the_log() -> None:
    with running(backlog_bytes_max=300) as bench:
        bench.handler.gate.close()
        acks = [ack for _ in range(40) for ack in bench.decide(put("k", bytes(50)), put("l"))]
        assert bench.applier.backlog_bytes <= 300
        bench.handler.gate.open()
        assert outcomes(acks) == told(*range(1, 81))
        assert bench.handler.seqs == list(range(1, 81))
        assert bench.applier.waiting == 0


def test_much_that_is_read_from_the_log_is_read_a_block_at_a_time() -> None:
    """All of it at once may be more than there is memory for."""
    with running(backlog_bytes_max=0) as bench:
        alive: list[int] = []
        batches = bench.log.batches

        def counted(first: int, last: int) -> object:
            for batch in batches(first, last):
                alive.append(bench.applier.applied)
                yield batch

        bench.log.batches = counted  # type: ignore[method-assign, assignment]
        bench.handler.gate.close()
        for _ in range(20):
            bench.decide(*[put("k")] * LARGE)
        bench.handler.gate.open()
        assert bench.applier.wait_for(20 * LARGE, 30)
        each = list(range(0, 20 * LARGE, LARGE))
        assert alive == each, "each is applied before the next one is read"


def test_small_blocks_are_read_from_the_log_together() -> None:
    with running(backlog_bytes_max=0) as bench:
        bench.handler.gate.close()
        for _ in range(20):
            bench.decide(put("k"))
        read: list[int] = []
        batches = bench.log.batches

        def noted(first: int, last: int) -> object:
            for batch in batches(first, last):
                read.append(len(batch))
                yield batch

        bench.log.batches = noted  # type: ignore[method-assign, assignment]
        bench.handler.gate.open()
        assert bench.applier.wait_for(20, 30)
        assert len(read) < 5


def test_what_came_into_the_log_as_a_whole_is_applied_in_its_turn() -> None:
    with running() as bench:
        bench.decide(put("a"))
        bench.write(put("b"), put("c"))
        bench.applier.jump(Seq(3))
        bench.decide(put("d"))
        assert bench.applier.wait_for(4, 30)
        assert bench.handler.seqs == [1, 2, 3, 4]


def test_what_is_not_on_disk_yet_is_waited_for() -> None:
    with running(backlog_bytes_max=0) as bench:
        block = bench.write(put("k"), flush=False)
        ack = Ack()
        bench.applier.hand([block], [Answered(1, [ack])])
        assert not bench.applier.wait_for(1, 0.02)
        bench.log.flush()
        assert outcomes([ack]) == told(1)


def test_what_compaction_took_away_before_its_turn_is_answered_with_nothing() -> None:
    with running(backlog_bytes_max=0) as bench:
        bench.handler.gate.close()
        acks = [ack for body in (b"1", b"2", b"3") for ack in bench.decide(put("k", body))]
        assert bench.handler.gate.waiting.wait(30)
        bench.log.rotate()
        bench.log.compact(CompactionPolicy(dead_fraction_min=0))
        bench.handler.gate.open()
        found = outcomes(acks)
        assert [seq for _, seq in found] == [1, 2, 3]
        assert found[2] == ("3", 3)
        assert bench.handler.values == {"k": b"3"}


# ------------------------------------------------------------------ gets


def test_gets_come_between_updates() -> None:
    with running() as bench:
        bench.handler.gate.close()
        bench.decide(put("k", b"1"))
        bench.decide(put("k", b"2"))
        assert bench.handler.gate.waiting.wait(30)
        found = bench.get("k")
        bench.handler.gate.open()
        assert found.result(30).value == (b"1", 1)
        assert bench.get("none").result(30).has_value is False


def test_a_get_with_a_number_waits_for_it() -> None:
    with running() as bench:
        bench.decide(put("k", b"1"))
        late, soon = bench.get("k", upto=2), bench.get("k", upto=1)
        assert soon.result(30).value == (b"1", 1)
        assert not late.done()
        bench.decide(put("k", b"2"))
        assert late.result(30).value == (b"2", 2)


@pytest.mark.parametrize("error", [KeyError("k"), SystemExit(3)])
def test_a_get_that_raises_harms_nobody_else(error: BaseException) -> None:
    with running() as bench:

        def poison(update: HandledUpdate) -> None:
            if update.key == "bad":
                raise error

        bench.handler.poison = poison
        found = bench.get("bad").exception(30)
        assert isinstance(found, KeyError if isinstance(error, KeyError) else ReadFailed)
        assert outcomes(bench.decide(put("k"))) == told(1)


def test_gets_are_bounded() -> None:
    with running(gets_max=10) as bench:
        bench.handler.gate.close()
        bench.decide(put("k"))
        assert bench.handler.gate.waiting.wait(30)
        gets = [bench.get("k") for _ in range(12)]
        assert [type(ack.exception(0)) for ack in gets[10:]] == [Overloaded] * 2
        bench.handler.gate.open()
        assert all(ack.result(30).has_value for ack in gets[:10])


# ------------------------------------------------------------------ wait_for


def test_many_threads_wait_each_for_his_own() -> None:
    reached: list[int] = []
    with running() as bench:

        def wait(seq: int) -> None:
            assert bench.applier.wait_for(seq, 30)
            assert bench.applier.applied >= seq
            reached.append(seq)

        with Threads() as threads:
            for seq in range(1, 51):
                threads.start(wait, seq)
            threads.start(lambda: not bench.applier.wait_for(1000, 0.01))
            for _ in range(50):
                bench.decide(put("k"))
        assert sorted(reached) == list(range(1, 51))
        assert bench.applier._waiting_for == {}


def test_waiting_ends_with_the_time() -> None:
    with running() as bench:
        assert not bench.applier.wait_for(1, 0.01)
        assert bench.applier.wait_for(0, 0)
        assert bench.applier._waiting_for == {}


def test_nobody_misses_what_is_reached_just_now() -> None:
    """1. a thread sees that 1 is not there; 2. it is applied; 3. the thread begins to wait."""

    class Late(dict[object, object]):
        def __setitem__(self, key: object, value: object) -> None:
            bench.handler.gate.open()
            # Time enough for the apply thread to come and go, if nothing keeps it.
            bench.applier._closed.wait(0.05)
            super().__setitem__(key, value)

    with running() as bench:
        bench.handler.gate.close()
        bench.decide(put("k"))
        assert bench.handler.gate.waiting.wait(30)
        bench.applier._waiting_for = Late()  # type: ignore[assignment]
        with Threads() as threads:
            threads.start(bench.applier.wait_for, 1, 60)


# ------------------------------------------------------------------ a handler that fails, hangs, or is late


def test_a_handler_that_fails_stops_the_node_from_applying() -> None:
    with running(patience=Patience(1, 0)) as bench:

        def poison(update: HandledUpdate) -> None:
            if update.key == "bad":
                raise ValueError("poison")

        bench.handler.poison = poison
        bench.handler.gate.close()
        acks = bench.decide(put("a"), put("bad"), put("c"))
        later = bench.decide(put("d"))
        bench.handler.gate.open()
        assert outcomes(acks[:1]) == told(1), "what was done before is answered"
        for seq, ack in ((2, acks[1]), (3, acks[2]), (4, later[0])):
            error = ack.exception(30)
            assert isinstance(error, HandlerFailed)
            assert error.seq == seq
            assert f"update {seq} is in the log but not applied" in str(error)
            assert "ValueError at 2, 2 times: poison" in str(error)
        until(lambda: bench.stopped)
        assert bench.applier.exceptions == 2
        assert bench.applier.applied == 1
        assert not bench.applier.wait_for(2, 5)
        assert isinstance(bench.decide(put("e"))[0].exception(30), HandlerFailed)
        assert bench.get("a").result(30).value == (b"", 1), "reads go on"
        assert isinstance(bench.get("a", upto=2).exception(30), HandlerFailed)
        assert bench.handler.seqs == [1]


def test_waiting_ends_when_the_handler_stops() -> None:
    with running() as bench, Threads() as threads:
        bench.handler.gate.close()
        bench.handler.poison = lambda update: [][update.seq]
        bench.decide(put("k"))
        threads.start(lambda: bench.applier.wait_for(1, 60))
        until(lambda: bench.applier._waiting_for)
        bench.handler.gate.open()


def test_a_bug_on_the_thread_does_not_leave_everybody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running() as bench:
        monkeypatch.setattr(bench.applier, "_caller", None)
        (ack,) = bench.decide(put("k"))
        assert "AttributeError" in str(ack.exception(30))
        assert "AttributeError" in str(bench.applier.failure)


def test_a_log_that_cannot_be_read_stops_the_node_with_the_reason() -> None:
    with running(backlog_bytes_max=0) as bench:

        def broken(first: int, last: int) -> Block:
            raise OSError(5, "Input/output error")

        bench.log.batches = broken  # type: ignore[method-assign, assignment]
        (ack,) = bench.decide(put("k"))
        assert "Input/output error" in str(ack.exception(30))


def test_a_handler_that_stopped_does_not_hold_callers_up() -> None:
    with running(behind_max=2) as bench:
        bench.handler.gate.close()
        for _ in range(5):
            bench.decide(put("k"))
        assert bench.applier.is_behind
        bench.handler.poison = lambda update: [][update.seq]
        bench.handler.gate.open()
        until(lambda: bench.stopped)
        assert not bench.applier.is_behind


def test_closing_while_the_handler_hangs_returns_in_time_and_tells_everybody() -> None:
    bench = Bench()
    bench.applier.start(bench.log)
    bench.handler.gate.close()
    (ack,) = bench.decide(put("k"))
    assert bench.handler.gate.waiting.wait(30)
    found = bench.get("k")
    until(lambda: bench.applier.busy_s > 0)
    with Threads() as threads:
        threads.start(lambda: bench.applier.wait_for(9, 60))
        until(lambda: bench.applier._waiting_for)
        assert not bench.applier.close(0.05)
    error = ack.exception(0)
    assert isinstance(error, HandlerFailed)
    assert error.seq == 1
    assert isinstance(found.exception(0), NodeClosed)
    assert isinstance(bench.get("k").exception(0), NodeClosed)
    assert isinstance(bench.decide(put("l"))[0].exception(0), HandlerFailed)
    bench.handler.gate.open()
    assert bench.applier.close(30)
    assert bench.handler.seqs == [1], "the batch at hand was finished, and no other begun"


def test_closing_does_not_wait_for_the_next_try() -> None:
    bench = Bench(patience=Patience(2, 3600.0))
    bench.applier.start(bench.log)
    raised = threading.Event()

    def poison(_update: HandledUpdate) -> None:
        raised.set()
        raise ValueError("poison")

    bench.handler.poison = poison
    bench.decide(put("k"))
    assert raised.wait(30)
    assert bench.applier.close(30)


def test_closing_ends_reading_from_the_log_at_the_next_block() -> None:
    bench = Bench(backlog_bytes_max=0)
    bench.applier.start(bench.log)
    bench.handler.gate.close()
    for _ in range(10):
        bench.decide(*[put("k")] * LARGE)
    assert bench.handler.gate.waiting.wait(30)
    assert not bench.applier.close(0)
    bench.handler.gate.open()
    assert bench.applier.close(30)
    assert bench.handler.seqs == list(range(1, LARGE + 1))


def test_an_applier_that_never_started_can_be_closed() -> None:
    assert Bench().applier.close(0)
