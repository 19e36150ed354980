"""What a cache is told of GC events: they drop everything only if they may be about what it did not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sirius.broadcast.events import EventBatch, Kind, Stream, hole
from sirius.broadcast.live.source import BroadcastSource
from sirius.types import Seq
from tests.broadcast.cache.fakes import Recorder


class FakeSession:
    """A session whose stream is what the test says."""

    def __init__(self) -> None:
        self.first = 0
        self.deliver: Callable[[str, EventBatch], object] = lambda *_: None

    def status(self) -> dict[str, Any]:
        return {"streams": {"films": {"count": 5}}}

    def freshness(self, _stream: str) -> tuple[int, float]:
        return 9, 0.5

    def subscribe(self, _stream: str, first: int, on_batch: Callable[..., object]) -> FakeSession:
        self.first, self.deliver = first, on_batch
        return self

    def close(self) -> None:
        """Nothing to close."""


def begun(after: int | None) -> tuple[FakeSession, Recorder, BroadcastSource]:
    session, sink = FakeSession(), Recorder()
    source = BroadcastSource(session, Stream("films"))  # type: ignore[arg-type]
    source.start(sink, after)
    return session, sink, source


def keyed(first: int, *keys: bytes) -> EventBatch:
    return EventBatch.of(keys).numbered(Seq(first), 1)


def gc(first: int) -> EventBatch:
    return EventBatch.of([b""], Kind.GC, payloads=[b"seq < 3"]).numbered(Seq(first), 1)


def test_at_the_end_of_a_stream_a_gc_event_changes_nothing() -> None:
    session, sink, _ = begun(None)
    assert session.first == 6
    session.deliver("films", keyed(6, b"a"))
    session.deliver("films", gc(7))
    assert sink.told == [("gap", 5), ("invalidated", 6), ("invalidated", 7)]


def test_behind_a_hole_a_gc_event_drops_everything_once() -> None:
    session, sink, _ = begun(None)
    session.deliver("films", hole(Seq(6), Seq(8)))
    session.deliver("films", keyed(9, b"a"))
    session.deliver("films", gc(10))
    session.deliver("films", gc(11))
    assert sink.told == [("gap", 5), ("invalidated", 9), ("gap", 10), ("invalidated", 11)]


def test_to_one_that_comes_back_the_first_gc_event_is_behind_a_hole() -> None:
    session, sink, _ = begun(3)
    session.deliver("films", keyed(4, b"a"))
    session.deliver("films", gc(5))
    assert sink.told == [("invalidated", 4), ("gap", 5)]


def test_a_sink_that_failed_is_told_to_drop_everything_also_if_nothing_more_comes() -> None:
    session, sink, source = begun(3)
    sink.refusing = 1
    session.deliver("films", keyed(4, b"a"))
    source.beat()
    assert sink.told == [("gap", 4), ("alive", 9)]


def test_keys_that_are_no_text_do_no_harm() -> None:
    session, sink, _ = begun(3)
    session.deliver("films", keyed(4, b"\xff", b"a"))
    assert "a" in sink.keys
