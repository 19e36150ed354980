"""A history that is too simple to be wrong, and the conformance suite that every history passes. Not a test.

To have another kind of history checked, subclass `HistoryConformance` in a test module and say how one is made.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sirius.broadcast.events import Event, EventBatch, Kind, hole, holes
from sirius.broadcast.history import History, Published
from sirius.broadcast.predicates import covers, is_closed, matches, parse
from sirius.errors import BadMessage, OutOfOrder
from sirius.types import Seq
from tests.broadcast.strategies import batch_of

ALL = 1 << 30


class ModelHistory:
    """Events in a list, and for each new one a look at all others."""

    def __init__(self) -> None:
        self.published: list[Event] = []
        self.live: list[Event] = []

    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            self.live = [each for each in self.live if not collects(event, each)]
            self.live.append(event)
            self.published.append(event)


def collects(event: Event, earlier: Event) -> bool:
    """Say whether an event collects an earlier one."""
    if event.kind == Kind.KEYED:
        same = (event.topic, event.key) == (earlier.topic, earlier.key)
        return same and earlier.kind == Kind.KEYED
    if event.kind == Kind.DATA or not matches(predicate := parse(event.payload), earlier):
        return False
    if earlier.kind == Kind.GC:
        return covers(predicate, parse(earlier.payload), earlier.seq, earlier.time)
    return earlier.kind == Kind.DATA or is_closed(predicate)


def explains(event: Event, missing: Event) -> bool:
    """Say whether an event tells a client why an earlier one may be left out (Sprinkler, section 2.1)."""
    if missing.seq >= event.seq or event.kind == Kind.DATA:
        return False
    if event.kind == Kind.KEYED:
        return (event.topic, event.key) == (missing.topic, missing.key)
    return matches(parse(event.payload), missing)


def read_all(history: History, bytes_max: int = ALL, first: int = 1) -> list[EventBatch]:
    """Read a history to its end, part by part."""
    parts = []
    while first <= history.last:
        part = history.read(Seq(first), history.last, bytes_max)
        assert part.first == first <= part.last <= history.last
        parts.append(part)
        first = part.last + 1
    return parts


def events_of(parts: Sequence[EventBatch]) -> list[Event]:
    return [event for part in parts for event in part.events()]


def keyed(first: int, *keys: str, topic: str = "", time: int = 0) -> EventBatch:
    batch = EventBatch.of([key.encode() for key in keys], Kind.KEYED, topic)
    return batch.numbered(Seq(first), time)


def data(first: int, *keys: str, topic: str = "", time: int = 0) -> EventBatch:
    batch = EventBatch.of([key.encode() for key in keys], Kind.DATA, topic)
    return batch.numbered(Seq(first), time)


def gc(first: int, *texts: str, time: int = 0) -> EventBatch:
    payloads = [text.encode() for text in texts]
    batch = EventBatch.of([b""] * len(texts), Kind.GC, payloads=payloads)
    return batch.numbered(Seq(first), time)


class HistoryConformance:
    """What every kind of history does."""

    def make(self) -> History:
        raise NotImplementedError

    def again(self, history: History) -> History:
        """Return what is left of a history once everything that may fail has failed and is back: by default, all."""
        return history

    def filled(self, *batches: EventBatch) -> History:
        history = self.make()
        for batch in batches:
            history.append(batch)
        return history

    def left(self, *batches: EventBatch) -> list[int]:
        """Append, and return the sequence numbers of what is left."""
        return [event.seq for event in events_of(read_all(self.filled(*batches)))]

    def test_a_new_one_is_empty(self) -> None:
        history = self.make()
        assert (history.last, history.last_time) == (0, 0)

    def test_it_gives_back_what_it_was_given(self) -> None:
        history = self.filled(data(1, "a", "b", time=3), data(3, "c", time=4))
        assert (history.last, history.last_time) == (3, 4)
        assert [(e.seq, e.key, e.time) for e in events_of(read_all(history))] == [
            (1, b"a", 3),
            (2, b"b", 3),
            (3, b"c", 4),
        ]

    @pytest.mark.parametrize("first", [1, 2, 4])
    def test_it_takes_nothing_but_what_comes_next(self, first: int) -> None:
        history = self.filled(data(1, "a", "b"))
        with pytest.raises(OutOfOrder):
            history.append(data(first, "x"))
        assert history.last == 2

    def test_a_key_collects_earlier_events_of_the_key(self) -> None:
        """Sprinkler, section 3.4."""
        assert self.left(keyed(1, "a", "b", "a"), keyed(4, "b", "c")) == [3, 4, 5]

    def test_keys_of_different_topics_are_different(self) -> None:
        assert self.left(keyed(1, "a", topic="/x"), keyed(2, "a", topic="/y")) == [1, 2]

    def test_data_is_not_collected_by_keys(self) -> None:
        assert self.left(data(1, "a"), keyed(2, "a"), data(3, "a"), keyed(4, "a")) == [1, 3, 4]

    def test_keys_with_equal_beginnings_and_long_keys_are_told_apart(self) -> None:
        long = "x" * 100
        keys = ["", "a", "a\0", "ab", long, long + "a", long + "b"]
        assert self.left(keyed(1, *keys), keyed(8, *keys)) == list(range(8, 15))
        assert self.left(keyed(1, *keys)) == list(range(1, 8))

    def test_older_than_a_sequence_number(self) -> None:
        assert self.left(data(1, "a", "b", "c"), gc(4, "seq < 3")) == [3, 4]

    def test_older_than_a_time(self) -> None:
        early, late = data(1, "a", "b", time=5), data(3, "c", time=6)
        assert self.left(early, late, gc(4, "time < 6", time=9)) == [3, 4]

    def test_a_gc_event_does_not_match_a_future_event(self) -> None:
        """Sprinkler, section 2.1."""
        assert self.left(gc(1, "seq < 100"), data(2, "a")) == [1, 2]

    def test_topics_and_prefixes(self) -> None:
        history = [data(1, "a", topic="/m/x"), data(2, "ab", topic="/n"), data(3, "b", topic="/n")]
        assert self.left(*history, gc(4, 'topic = "/m/*"')) == [2, 3, 4]
        assert self.left(*history, gc(4, 'key prefix "a"')) == [3, 4]
        assert self.left(*history, gc(4, 'topic = "/n" and key prefix "a" or seq < 2')) == [3, 4]

    def test_attributes(self) -> None:
        batch = EventBatch.of([b"a", b"b", b"c"], Kind.DATA, attributes={"price": [1, 5, 9]})
        assert self.left(data(1, "z"), batch.numbered(Seq(2), 0), gc(5, "price >= 5")) == [1, 2, 5]

    def test_a_later_gc_event_collects_an_earlier_one_that_it_covers(self) -> None:
        """Sprinkler, section 2.1: g may match g' if it matches all that g' matches."""
        assert self.left(data(1, "a"), gc(2, "seq < 2"), gc(3, "seq < 3")) == [3]

    def test_a_gc_event_that_is_not_covered_stays(self) -> None:
        first, second = gc(2, 'key prefix "a"'), gc(3, 'topic = "" and key = ""')
        assert self.left(data(1, "ab"), first, second) == [2, 3]

    def test_attributes_do_not_collect_keyed_events(self) -> None:
        """An earlier event of the key may have had another price."""
        batch = EventBatch.of([b"a", b"a"], Kind.KEYED, attributes={"price": [1, 9]})
        assert self.left(batch.numbered(Seq(1), 0), gc(3, "price > 5")) == [2, 3]

    def test_gc_events_in_the_middle_of_a_batch_look_back_only(self) -> None:
        kinds = [Kind.DATA, Kind.GC, Kind.DATA]
        batch = EventBatch.of([b"a", b"", b"a"], kinds, payloads=[b"", b'key = "a"', b""])
        assert self.left(batch.numbered(Seq(1), 0)) == [2, 3]

    def test_garbage_collection_is_final(self) -> None:
        """What was collected does not come back, whatever comes later."""
        assert self.left(data(1, "a"), gc(2, "seq < 2"), data(3, "a"), gc(4, "seq < 1")) == [
            2,
            3,
            4,
        ]

    def test_holes_that_came_are_holes(self) -> None:
        history = self.filled(data(1, "a"), hole(Seq(2), Seq(9)), data(10, "b"))
        assert holes(read_all(history)) == [(2, 9)]
        assert history.last == 10

    def test_neighbouring_holes_are_one(self) -> None:
        """Sprinkler, Figure 1: `filter` aggregates consecutive tombstones."""
        history = self.filled(hole(Seq(1), Seq(2)), keyed(3, "a", "b"), keyed(5, "b", "a"))
        assert holes([history.read(Seq(1), Seq(6), ALL)]) == [(1, 4)]

    def test_a_read_begins_and_ends_where_it_is_told_to(self) -> None:
        history = self.filled(data(1, "a", "b", "c", "d", "e"))
        part = history.read(Seq(2), Seq(4), ALL)
        assert (part.first, part.last, [e.seq for e in part.events()]) == (2, 4, [2, 3, 4])
        assert history.read(Seq(4), Seq(99), ALL).last == 5

    @pytest.mark.parametrize("bytes_max", [0, 1, 2, 3, 5])
    def test_a_read_is_bounded_and_still_gets_on(self, bytes_max: int) -> None:
        history = self.filled(data(1, "aa", "bb", "cc"), hole(Seq(4), Seq(6)), data(7, "dd"))
        parts = read_all(history, bytes_max)
        assert all(part.nbytes <= max(2, bytes_max) for part in parts)
        assert [event.seq for event in events_of(parts)] == [1, 2, 3, 7]

    def test_a_predicate_that_cannot_be_read_changes_nothing(self) -> None:
        history = self.filled(data(1, "a"))
        with pytest.raises(BadMessage, match="cannot be read"):
            history.append(gc(2, "seq > 1"))
        assert history.last == 1
        history.append(data(2, "b"))
        assert [event.seq for event in events_of(read_all(history))] == [1, 2]

    def test_time_does_not_fall(self) -> None:
        history = self.filled(data(1, "a", time=5))
        with pytest.raises(BadMessage, match="time falls from 5 to 4"):
            history.append(data(2, "b", time=4))
        assert (history.last, history.last_time) == (1, 5)

    def test_attributes_of_a_stream_are_bounded(self) -> None:
        history = self.make()
        for number in range(1, 17):
            batch = EventBatch.of([str(number).encode()], attributes={f"a{number}": [1]})
            history.append(batch.numbered(Seq(number), 0))
        more = EventBatch.of([b"1"], attributes={"b": [1]}).numbered(Seq(17), 0)
        with pytest.raises(BadMessage, match="at most 16 attributes"):
            history.append(more)
        history.append(keyed(17, "1"))  # the only event with a1 is collected
        history.append(EventBatch.of([b"1"], attributes={"b": [1]}).numbered(Seq(18), 0))
        assert history.last == 18

    def test_it_knows_what_was_published(self) -> None:
        history = self.make()
        history.append(EventBatch.of([b"a", b"b"]).numbered(Seq(1), 0, publisher=7, serial=3))
        history.append(data(3, "c"))
        assert history.published(7) == (3, 1, 2)
        assert history.published(8) is None

    def test_what_is_collected_takes_no_room(self) -> None:
        history = self.make()
        for first in range(1, 5001, 100):
            history.append(keyed(first, *map(str, range(100))))
        assert history.nbytes == self.filled(keyed(1, *map(str, range(100)))).nbytes
        assert [event.seq for event in events_of(read_all(history))] == list(range(4901, 5001))

    # ------------------------------------------------------------------ afterwards

    def test_it_is_the_same_afterwards(self) -> None:
        """Numbers, times, holes and attributes; and it goes on where it was."""
        priced = EventBatch.of([b"p", b"q"], Kind.DATA, "/x", [b"1", b""], {"price": [1, 9]})
        history = self.filled(
            keyed(1, "a", "b", "a", time=3),
            gc(4, 'key = "b"', time=4),
            priced.numbered(Seq(5), 5),
            hole(Seq(7), Seq(9)),
            EventBatch.of([b"\xff\x00", b"\0"], Kind.KEYED, payloads=[b"x", b"y"]).numbered(
                Seq(10), 6
            ),
        )
        before = events_of(read_all(history))
        found = self.again(history)
        assert (found.last, found.last_time) == (11, 6)
        assert events_of(read_all(found)) == before
        assert [event.seq for event in before] == [3, 4, 5, 6, 10, 11]
        assert holes(read_all(found)) == [(1, 2), (7, 9)]
        found.append(keyed(12, "a", time=7))
        assert [event.seq for event in events_of(read_all(found))] == [4, 5, 6, 10, 11, 12]

    def test_a_publisher_is_known_afterwards_although_his_events_are_collected(self) -> None:
        history = self.make()
        history.append(EventBatch.of([b"a", b"b"]).numbered(Seq(1), 0, publisher=7, serial=3))
        history.append(
            EventBatch.of([b"a", b"b"]).numbered(Seq(3), 0, publisher=2**64 - 1, serial=1)
        )
        found = self.again(self.again(history))
        assert found.published(7) == (3, 1, 2)
        assert found.published(2**64 - 1) == (1, 3, 4)
        assert found.published(8) is None
        assert [event.seq for event in events_of(read_all(found))] == [3, 4]

    def test_what_publishers_did_in_a_range(self) -> None:
        history = self.make()
        for first in (1, 3):
            batch = EventBatch.of([b"a", b"b"]).numbered(Seq(first), 0, publisher=first, serial=1)
            history.append(batch)
        assert history.publishers(Seq(1), Seq(3)) == [(1, (1, 1, 2))]
        assert history.publishers(Seq(2), Seq(4)) == [(1, (1, 1, 2)), (3, (1, 3, 4))]

    def test_an_older_word_about_a_publisher_does_not_count(self) -> None:
        history = self.filled(data(1, "a", "b", "c"))
        history.note(5, Published(2, Seq(2), Seq(2)))
        history.note(5, Published(1, Seq(1), Seq(1)))
        assert history.published(5) == (2, 2, 2)
        history.note(5, Published(3, Seq(3), Seq(3)))
        assert history.published(5) == (3, 3, 3)

    def test_names_of_attributes(self) -> None:
        batch = EventBatch.of([b"a"], attributes={"price": [1]}).numbered(Seq(1), 0)
        history = self.filled(batch, keyed(2, "a"))
        assert history.attribute_names(exact=False) <= {"price"}
        assert history.attribute_names(exact=True) == set()

    # ------------------------------------------------------------------ the model

    def check(self, history: History, model: ModelHistory) -> None:
        """Compare with the model, in parts and from the middle, and see that every hole is explained."""
        found = events_of(read_all(history, 7))
        assert found == model.live
        alive = {event.seq for event in found}
        for missing in model.published:
            if missing.seq not in alive:
                assert any(explains(event, missing) for event in found), missing
        middle = history.last // 2 + 1
        if history.last:
            rest = events_of(read_all(history, ALL, middle))
            assert rest == [event for event in model.live if event.seq >= middle]

    def compare(self, history: History, batches: Sequence[list[Event]]) -> None:
        """Append batches here and to the model."""
        model = ModelHistory()
        for events in batches:
            first = history.last + 1
            history.append(batch_of(events, first, events[-1].seq))
            model.append(events)
            self.check(history, model)
