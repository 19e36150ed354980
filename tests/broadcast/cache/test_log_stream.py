"""The stream in memory, and a handler that tells it what it was given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from sirius import RequestHandler, Sirius, SiriusResult
from sirius.broadcast.cache import LogStream, MemoryStream, NearCache, Translated, feed
from sirius.errors import UsageError
from sirius.handler import HandledUpdate
from sirius.types import Seq
from tests.broadcast.cache.fakes import PATIENCE_S, Recorder
from tests.node.nodes import Dict, config


def update(seq: int, key: str, body: bytes | None = b"v") -> HandledUpdate:
    return HandledUpdate(Seq(seq), 0, key, body)


class Numbered(Dict):
    def handle_update(self, update: HandledUpdate) -> SiriusResult:
        return SiriusResult.some(update.seq)


class Batched(Dict):
    def handle_batch(self, updates: Sequence[HandledUpdate]) -> Sequence[SiriusResult]:
        return [SiriusResult.some(update.key) for update in updates]


def attached(handler: RequestHandler) -> tuple[LogStream, Recorder]:
    stream, sink = LogStream(handler), Recorder()
    stream.source().start(sink, None)
    sink.told.clear()
    return stream, sink


def test_updates_go_to_the_handler_first() -> None:
    handler = Dict()
    stream, sink = attached(handler)
    seen: list[dict[str, bytes]] = []
    sink.invalidated = lambda seq, keys: seen.append(dict(handler.values))  # type: ignore[method-assign]
    stream.handler.handle_update(update(1, "a"))
    stream.handler.handle_update(update(2, "a", None))
    assert seen == [{"a": b"v"}, {}]


def test_a_handler_is_called_the_way_it_wants() -> None:
    numbered, _ = attached(Numbered())
    assert numbered.handler.handle_update(update(3, "a")).value == 3
    batched, sink = attached(Batched())
    results = batched.handler.handle_batch([update(4, "a"), update(6, "b")])
    assert [result.value for result in results or ()] == ["a", "b"]
    assert (sink.told, sink.keys) == ([("invalidated", 6)], ["a", "b"])
    plain, _ = attached(Dict())
    plain.handler.handle_update(update(1, "a"))
    assert plain.handler.handle_get("a").value == b"v"


def test_an_update_that_the_handler_does_not_take_is_not_told() -> None:
    handler = Dict()
    handler.bad = {"a"}
    stream, sink = attached(handler)
    with pytest.raises(ValueError, match="do not like"):
        stream.handler.handle_update(update(1, "a"))
    assert sink.told == []
    handler.bad = set()
    stream.handler.handle_update(update(1, "a"))
    assert sink.told == [("invalidated", 1)]


def test_a_replay_is_a_gap_in_the_end_and_nothing_before() -> None:
    stream, sink = attached(Dict())
    stream.handler.handle_update(update(4, "x"))
    stream.handler.on_bootstrap_starting()
    for seq in (9, 2, 7):
        stream.handler.handle_update(update(seq, "a"))
    assert sink.told == [("invalidated", 4)]
    stream.handler.on_bootstrap_complete()
    stream.handler.handle_update(update(10, "b"))
    assert sink.told == [("invalidated", 4), ("gap", 9), ("invalidated", 10)]


def test_a_log_that_goes_back_is_a_gap() -> None:
    stream, sink = attached(Dict())
    stream.handler.handle_update(update(4, "x"))
    stream.handler.handle_update(update(3, "y"))
    assert sink.told == [("invalidated", 4), ("gap", 3)]


def test_nobody_vouches_until_a_node_is_watched() -> None:
    class Node:
        def staleness(self) -> float:
            return 2.5

    stream, sink = LogStream(Dict()), Recorder()
    source = stream.source()
    source.start(sink, None)
    source.beat()
    assert sink.ages == [math.inf]
    stream.watch(Node())
    source.beat()
    assert sink.ages[-1] == 2.5


def test_who_has_the_answer_to_a_write_reads_nothing_older(tmp_path: Path) -> None:
    handler = Dict()
    stream = LogStream(handler)
    cache = NearCache(lambda key: handler.values.get(key, b""))
    with (
        Sirius(stream.handler, config(tmp_path)) as node,
        feed(cache, stream.source()),
    ):
        for number in range(50):
            body = b"%d" % number
            seq = node.enqueue_put("a", body).result(PATIENCE_S).seq
            assert cache.get("a") == body
            assert cache.position == seq == stream.position


def test_sequence_numbers_rise() -> None:
    stream = MemoryStream(7)
    stream.tell(9, ["a"])
    with pytest.raises(UsageError, match="9 was told before"):
        stream.tell(9, ["b"])
    with pytest.raises(UsageError, match="a key is a str, not int"):
        stream.publish(5)  # type: ignore[arg-type]
    assert stream.position == 9


@pytest.mark.parametrize(("after", "told"), [(6, "gap"), (7, "invalidated"), (99, "gap")])
def test_a_stream_knows_how_far_it_remembers(after: int, told: str) -> None:
    stream = MemoryStream(5, history_max=2)
    for seq in (7, 8, 9):
        stream.tell(seq, ["a"])
    sink = Recorder()
    stream.source().start(sink, after)
    assert sink.told[0][0] == told
    assert sink.position == 9


def test_a_stream_without_memory_remembers_nothing_but_its_end() -> None:
    stream = MemoryStream(history_max=0)
    stream.publish("a")
    first, second = Recorder(), Recorder()
    stream.source().start(first, 0)
    stream.source().start(second, 1)
    assert (first.told, second.told) == ([("gap", 1)], [])
    with pytest.raises(UsageError, match="history_max is 0 or more"):
        MemoryStream(history_max=-1)


def test_keys_can_be_translated() -> None:
    pages: NearCache[str] = NearCache()
    stream = MemoryStream()
    sink = Translated(pages, lambda key: [f"page/{key}", "front"])
    stream.source().start(sink, sink.position)
    for page in ("page/a", "page/b", "front"):
        pages.put(page, "…")
    stream.publish("a")
    assert [page in pages for page in ("page/a", "page/b", "front")] == [False, True, False]


def test_a_translation_that_fails_drops_everything() -> None:
    sink = Recorder()
    translated = Translated(sink, lambda key: [str(1 / 0)])
    translated.invalidated(3, ["a"])
    translated.alive(3)
    translated.gap(4)
    assert sink.told == [("gap", 3), ("alive", 3), ("gap", 4)]
    assert translated.position == 4


def test_a_feed_goes_on_when_a_beat_fails() -> None:
    stream = MemoryStream()
    beats: list[int] = []

    def age_s() -> float:
        beats.append(1)
        if len(beats) < 3:
            raise ValueError("not now")
        return 0.0

    stream.age_s = age_s
    sink = Recorder()
    with feed(sink, stream.source(), beat_s=0.001):
        sink.until(lambda: sink.seqs("alive"))
    with pytest.raises(UsageError, match="beat_s is a number of seconds above 0"):
        feed(sink, stream.source(), beat_s=0)
