"""Replays on the apply thread: at the start, and when the log was taken anew."""

from __future__ import annotations

import pytest

from sirius.driver.replaying import Replay
from sirius.errors import HandlerFailed, InvariantViolation, NodeClosed
from sirius.handler import HandledUpdate
from sirius.types import Seq
from tests.driver.applying import Bench, delete, outcomes, put, running, told
from tests.driver.waiting import Threads, until


def start(bench: Bench) -> None:
    bench.applier.start(bench.log)


def close(bench: Bench) -> None:
    bench.handler.gate.open()
    bench.handler.replay_gate.open()
    assert bench.applier.close(30)


@pytest.mark.parametrize("way", list(Replay))
def test_what_is_in_the_log_comes_first(way: Replay) -> None:
    bench = Bench(replay=way, replay_threads=2)
    bench.write(put("a", b"1"), put("b", b"2"), delete("a"))
    start(bench)
    assert outcomes(bench.decide(put("c", b"3"))) == told(4)
    assert bench.handler.events == ["starting", "complete"]
    assert bench.handler.values == {"b": b"2", "c": b"3"}
    assert not bench.applier.is_replaying
    assert bench.applier.replay_end == 3
    close(bench)


def test_what_is_decided_during_the_replay_is_applied_once_and_answered() -> None:
    """The replay goes up to where the backlog begins, also if the log has grown by the time it comes to it."""
    bench = Bench()
    bench.handler.replay_gate.close()
    bench.write(put("a"))
    start(bench)
    acks = bench.decide(put("b"), put("c"))
    assert bench.applier.is_replaying
    assert bench.applier.replay_end == 1
    bench.handler.replay_gate.open()
    assert outcomes(acks) == told(2, 3)
    assert bench.handler.seqs == [1, 2, 3]
    close(bench)


def test_reads_wait_for_the_replay() -> None:
    bench = Bench()
    bench.write(put("a", b"1"))
    bench.handler.replay_gate.close()
    start(bench)
    found = bench.get("a")
    assert bench.handler.replay_gate.waiting.wait(30)
    assert not found.done()
    bench.handler.replay_gate.open()
    assert found.result(30).value == (b"1", 1)
    close(bench)


def test_closing_during_a_replay_ends_it() -> None:
    bench = Bench()
    bench.write(put("a"))
    bench.write(put("b"))
    bench.handler.replay_gate.close()
    start(bench)
    assert bench.handler.replay_gate.waiting.wait(30)
    found = bench.get("a")
    with Threads() as threads:
        threads.start(bench.applier.close, 30)
        until(lambda: bench.applier._closing)
        bench.handler.replay_gate.open()
    assert bench.handler.events == ["starting"]
    assert isinstance(found.exception(0), NodeClosed), "it would have seen half of the state"


@pytest.mark.parametrize("name", ["on_bootstrap_starting", "on_bootstrap_complete"])
def test_a_handler_that_fails_around_the_replay_is_named(name: str) -> None:
    bench = Bench()

    def broken() -> None:
        raise SystemExit("no")

    setattr(bench.handler, name, broken)
    start(bench)
    until(lambda: bench.stopped)
    assert str(bench.applier.failure) == f"{name} raised SystemExit: no"
    assert isinstance(bench.decide(put("k"))[0].exception(30), HandlerFailed)
    close(bench)


@pytest.mark.parametrize("way", [Replay.SERIAL, Replay.PARALLEL])
def test_the_handler_is_watched_during_a_replay(way: Replay) -> None:
    bench = Bench(replay=way, replay_threads=2)
    bench.write(put("a"))
    bench.handler.gate.close()
    start(bench)
    until(lambda: bench.applier.busy_s > 0, "the time that the handler takes")
    bench.handler.poison = lambda update: [][update.seq]
    bench.handler.gate.open()
    until(lambda: bench.stopped)
    assert bench.applier.exceptions == 1
    assert bench.applier.busy_s == 0
    close(bench)


# ------------------------------------------------------------------ a log that was taken anew


def test_keys_that_a_new_log_does_not_have_are_deleted() -> None:
    with running() as bench:
        bench.decide(put("old"), put("both", b"1"))
        assert bench.applier.wait_for(2, 30)
        bench.replace(put("x"), delete("x"), put("both", b"2"), put("new"))
        assert bench.applier.wait_for(4, 30)
        assert bench.handler.values == {"both": b"2", "new": b""}
        assert bench.handler.events == ["starting", "complete"] * 2
        assert outcomes(bench.decide(put("next"))) == told(5)


def test_what_is_handed_over_during_such_a_replay_is_not_lost() -> None:
    with running(backlog_bytes_max=150) as bench:
        bench.decide(put("old"))
        assert bench.applier.wait_for(1, 30)
        bench.handler.replay_gate.close()
        bench.replace(put("a"), put("b"))
        acks = [ack for number in range(5) for ack in bench.decide(put(f"n{number}"))]
        assert bench.handler.replay_gate.waiting.wait(30)
        assert bench.applier.is_replaying
        bench.handler.replay_gate.open()
        assert outcomes(acks) == told(3, 4, 5, 6, 7)
        assert set(bench.handler.values) == {"a", "b", *(f"n{number}" for number in range(5))}


def test_a_log_replaced_during_the_first_replay_leaves_no_key_behind() -> None:
    """A node that was away for long replays its old log when the whole of another one comes."""
    bench = Bench()
    bench.write(put("vanishes"), put("stays"))
    bench.handler.gate.close()
    start(bench)
    assert bench.handler.gate.waiting.wait(30), "in the middle of the replay"
    bench.replace(put("stays"), put("x"), put("y"))
    bench.handler.gate.open()
    assert bench.applier.wait_for(3, 30)
    until(lambda: not bench.applier.is_replaying)
    assert set(bench.handler.values) == {"stays", "x", "y"}
    close(bench)


def test_a_log_replaced_twice_leaves_no_key_of_either_behind() -> None:
    with running() as bench:
        bench.decide(put("first"))
        assert bench.applier.wait_for(1, 30)
        bench.handler.replay_gate.close()
        bench.replace(put("second"), put("x"))
        assert bench.handler.replay_gate.waiting.wait(30), "in the middle of the second"
        bench.replace(*[put("third")] * 3)
        bench.replace(*[put("fourth")] * 4)
        bench.handler.replay_gate.open()
        assert bench.applier.wait_for(4, 30)
        until(lambda: not bench.applier.is_replaying)
        assert set(bench.handler.values) == {"fourth"}


def test_callers_whose_updates_are_in_the_new_log_are_answered() -> None:
    """Decided, on their way to the handler, and then part of the log that came from elsewhere."""
    with running() as bench:
        bench.handler.gate.close()
        first = bench.decide(put("a"))
        second = bench.decide(put("b"))
        assert bench.handler.gate.waiting.wait(30)
        bench.replace(put("a"), put("b"), put("c"))
        bench.handler.gate.open()
        assert [ack.result(30).seq for ack in (*first, *second)] == [1, 2]
        assert set(bench.handler.values) == {"a", "b", "c"}


def test_a_replay_that_fails_is_said_and_reads_go_on() -> None:
    with running() as bench:
        bench.decide(put("a", b"1"))
        assert bench.applier.wait_for(1, 30)

        def poison(update: HandledUpdate) -> None:
            if update.key == "bad":
                raise ValueError("poison")

        bench.handler.poison = poison
        bench.replace(put("b"), put("bad"))
        until(lambda: bench.stopped)
        assert "ValueError at 2" in str(bench.applier.failure)
        assert bench.get("b").result(30).has_value


def test_a_wrong_end_is_a_bug_and_said_at_once() -> None:
    with running() as bench:
        bench.decide(put("a"))
        with pytest.raises(InvariantViolation, match="a log up to 7 ends at 1"):
            bench.applier.replaced(Seq(7), None)


def test_snapshots_are_given_back() -> None:
    """One that is kept keeps what compaction replaced on disk for good."""
    with running() as bench:
        bench.decide(put("a"))
        assert bench.applier.wait_for(1, 30)
        bench.handler.replay_gate.close()
        olds = [bench.replace(*[put("a")] * count) for count in (2, 3, 4)]
        bench.handler.replay_gate.open()
        assert bench.applier.wait_for(4, 30)
        until(lambda: all(old._closed for old in olds))
        until(lambda: not any(bench.log._segments._retirement._pins.values()))
