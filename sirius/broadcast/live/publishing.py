"""Events on their way out.

An event that is published by itself joins the batch that is gathering for its stream. A publisher has one batch under
way a stream, and what comes meanwhile gathers for the next: so batches grow with the load by themselves, and an event
that comes alone leaves at once. Batches that wait travel together, too. If the stream's owner refuses several at once,
each is sent again by itself: nobody's events fail because of somebody else's.

No batch becomes larger than its proxy takes: it would be sent again and again. Names of attributes are what a stream
may have too many of. So an event with a name that the owner has not taken before is a part of its own.

A stream that is full takes GC events alone. They go ahead of what it refuses, under a number of their own: behind it
they would wait for the room that they are to make.

Callers stand on one side of a lock, the loop on the other. What waits is bounded in events and bytes; a caller that
finds no room waits for it.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from sirius.broadcast.client.publisher import Publisher
from sirius.broadcast.config import ClientConfig
from sirius.broadcast.context import Context, Effects
from sirius.broadcast.events import ABSENT, TOPICS_MAX, EventBatch, Kind, Stream, joined
from sirius.broadcast.limits import Limits
from sirius.broadcast.live.receipts import Receipt, Span, outcome
from sirius.broadcast.messages import Message, Peer, Published, Refused
from sirius.broadcast.wire import sealed
from sirius.errors import Overloaded, RequestRejected, SiriusError
from sirius.types import Seq

EVENT_BYTES: Final = 64
"""What an event counts beyond its key and payload."""


class Room(NamedTuple):
    """How much may wait to be published, a stream, and for how long a caller waits for room."""

    events_max: int = 1 << 18
    """Events in flight or waiting. A batch that comes when nothing waits may be larger."""
    bytes_max: int = 64 << 20
    batch_events_max: int = 1 << 14
    """Single events in one batch."""
    joined_events_max: int = 1 << 17
    """Events of batches that travel together."""
    batch_bytes_max: int = 1 << 20
    """Bytes of what travels together. A batch that was published as one may be larger."""
    timeout_s: float = 10.0


class Single(NamedTuple):
    """One event, as it is published."""

    key: bytes
    payload: bytes = b""
    topic: str = ""
    kind: Kind = Kind.KEYED
    attributes: Mapping[str, int] | None = None


class Part(NamedTuple):
    """Events whose outcome is one. Several parts may be a batch."""

    make: Callable[[], EventBatch]
    future: Future[Span]
    events: int
    nbytes: int
    topics: int
    """How many different ones there are, at most."""
    names: frozenset[str] = frozenset()
    """Those of attributes."""
    makes_room: bool = False
    """Whether it is a GC event."""


@dataclass(slots=True)
class _Gathering:
    """Single events that will be a part."""

    future: Future[Span] = field(default_factory=outcome)
    events: list[Single] = field(default_factory=list)
    nbytes: int = 0
    names: frozenset[str] = frozenset()

    def part(self) -> Part:
        count = len(self.events)
        return Part(self.batch, self.future, count, self.nbytes, count, self.names)

    def batch(self) -> EventBatch:
        """Make columns of rows; a column of equal values is one value."""
        keys, payloads, topics, kinds, attributes = zip(*self.events, strict=True)
        same_topic, same_kind = len(set(topics)) == 1, len(set(kinds)) == 1
        return EventBatch.of(
            keys,
            kinds[0] if same_kind else kinds,
            topics[0] if same_topic else topics,
            payloads if any(payloads) else (),
            _columns(attributes) if any(attributes) else None,
        )


@dataclass(slots=True)
class _Load:
    """What is in a batch by now."""

    events: int = 0
    nbytes: int = 0
    topics: int = 0
    names: frozenset[str] = frozenset()

    def add(self, part: Part) -> None:
        self.events += part.events
        self.nbytes += part.nbytes
        self.topics += part.topics
        self.names |= part.names


def _columns(attributes: tuple[Mapping[str, int] | None, ...]) -> dict[str, list[int]]:
    rows = [each or {} for each in attributes]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, ABSENT) for row in rows] for name in names}


class Outgoing:
    """What waits for one stream. Any thread puts, the loop takes."""

    def __init__(self, wake: Callable[[], None], room: Room, limits: Limits) -> None:
        self._wake = wake
        self._room, self._limits = room, limits
        self._topics_max = min(limits.topics_max, TOPICS_MAX)
        self._singles_max = min(room.batch_events_max, limits.events_max, self._topics_max)
        self._events_max = min(room.joined_events_max, limits.events_max)
        self._bytes_max = min(room.batch_bytes_max, limits.batch_bytes_max)
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[Part] = deque()
        self._gathering: _Gathering | None = None
        self._names: frozenset[str] = frozenset()
        """Names of attributes that the owner has taken: as many as a batch may have."""
        self._events = 0
        self._nbytes = 0
        self._newest: Future[Span] | None = None
        self._newest_gc: Future[Span] | None = None
        self._is_told = False
        """Whether the loop was woken and has not found the queue empty since."""
        self._refusal: SiriusError | None = None

    @property
    def events(self) -> int:
        """How many events wait, or are under way."""
        return self._events

    # ------------------------------------------------------------------ callers

    def add(self, event: Single, timeout_s: float | None = None) -> Receipt:
        """Add one event; wait for room if there is none. Every single event comes this way: it is short."""
        attributes = event.attributes
        if attributes and not attributes.keys() <= self._names:
            return Receipt(self._add_part(_alone(event), timeout_s), 0)
        size = EVENT_BYTES + len(event.key) + len(event.payload)
        with self._changed:
            self._await_room(1, size, timeout_s)
            gathering = self._gathering
            if gathering is None or gathering.nbytes + size > self._bytes_max:
                self._close_gathering()
                gathering = self._gathering = _Gathering()
                self._newest = gathering.future
            events = gathering.events
            at = len(events)
            events.append(event)
            gathering.nbytes += size
            if attributes:
                gathering.names = self._names
            if at + 1 >= self._singles_max:
                self._close_gathering()
            wake, self._is_told = not self._is_told, True
        if wake:
            self._wake()
        return Receipt(gathering.future, at)

    def add_gc(self, event: Single) -> Receipt:
        """Add a GC event. It waits for no room, since it is to make some."""
        part = _alone(event)._replace(makes_room=True)
        with self._changed:
            if self._refusal is not None:
                raise self._refusal
            self._events += part.events
            self._nbytes += part.nbytes
            self._newest_gc = part.future
            wake = self._put(part)
        if wake:
            self._wake()
        return Receipt(part.future, 0)

    def add_batch(self, batch: EventBatch, timeout_s: float | None = None) -> Future[Span]:
        """Add a batch, behind everything that was added before."""
        return self._add_part(_part(batch), timeout_s)

    def _add_part(self, part: Part, timeout_s: float | None) -> Future[Span]:
        with self._changed:
            self._await_room(part.events, part.nbytes, timeout_s)
            self._newest = part.future
            wake = self._put(part)
        if wake:
            self._wake()
        return part.future

    def _put(self, part: Part) -> bool:
        """Put a part behind all others; say whether the loop has to be woken."""
        self._close_gathering()
        self._queue.append(part)
        wake, self._is_told = not self._is_told, True
        return wake

    @property
    def newest(self) -> list[Future[Span]]:
        """The outcomes of what was added last, and of the last GC event. When they are known, all before are."""
        return [each for each in (self._newest, self._newest_gc) if each is not None]

    def _await_room(self, events: int, size: int, timeout_s: float | None) -> None:
        """Take room; the caller holds the lock."""
        if self._refusal is not None or self._is_full(events, size):
            self._wait(events, size, self._room.timeout_s if timeout_s is None else timeout_s)
        self._events += events
        self._nbytes += size

    def _is_full(self, events: int, size: int) -> bool:
        room = self._room
        return self._events > 0 and (
            self._events + events > room.events_max or self._nbytes + size > room.bytes_max
        )

    def _wait(self, events: int, size: int, timeout_s: float) -> None:
        def is_over() -> bool:
            return self._refusal is not None or not self._is_full(events, size)

        if not self._changed.wait_for(is_over, timeout_s):
            raise Overloaded(
                f"{self._events:,} events wait to be published, and in {timeout_s:g} s there was no "
                f"room for {events:,} more: is the stream's owner there?"
            )
        if self._refusal is not None:
            raise self._refusal

    def _close_gathering(self) -> None:
        if self._gathering is not None:
            self._queue.append(self._gathering.part())
            self._gathering = None

    # ------------------------------------------------------------------ the loop

    def take(self) -> list[Part]:
        """Take what is next, as much as goes into one batch; nothing: whoever adds something will say so."""
        parts: list[Part] = []
        with self._changed:
            load = _Load()
            while (part := self._next()) is not None and (not parts or self._fits(load, part)):
                load.add(part)
                parts.append(self._queue.popleft())
            if not parts:
                self._is_told = False
        return parts

    def _next(self) -> Part | None:
        if not self._queue:
            self._close_gathering()
        return self._queue[0] if self._queue else None

    def take_gc(self) -> Part | None:
        """Take the first GC event, also if others are before it."""
        with self._changed:
            found = next((part for part in self._queue if part.makes_room), None)
            if found is not None:
                self._queue = deque(part for part in self._queue if part is not found)
            return found

    def _fits(self, load: _Load, part: Part) -> bool:
        """Say whether a part may join others. Every limit of one batch holds for all of them."""
        return (
            load.events + part.events <= self._events_max
            and load.nbytes + part.nbytes <= self._bytes_max
            and load.topics + part.topics <= self._topics_max
            and len(load.names | part.names) <= self._limits.attributes_max
        )

    def release(self, parts: Sequence[Part]) -> None:
        """Their outcome is known: there is room for others."""
        with self._changed:
            self._events -= sum(part.events for part in parts)
            self._nbytes -= sum(part.nbytes for part in parts)
            self._changed.notify_all()

    def taken(self, parts: Sequence[Part]) -> None:
        """The owner has taken these."""
        names = self._names.union(*(part.names for part in parts))
        if len(names) <= self._limits.attributes_max:
            self._names = names

    def refuse(self, error: SiriusError) -> list[Part]:
        """Take nothing any more; return what waits."""
        with self._changed:
            self._refusal = error
            self._close_gathering()
            waiting = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
            return waiting


def _part(batch: EventBatch) -> Part:
    size, names = batch.nbytes + EVENT_BYTES, frozenset(batch.attributes)
    return Part(lambda: batch, outcome(), len(batch), size, len(batch.topics), names)


def _alone(event: Single) -> Part:
    names = frozenset(event.attributes or ())
    size = EVENT_BYTES + len(event.key) + len(event.payload)
    return _Gathering(events=[event], nbytes=size, names=names).part()


class Publishing:
    """The machine of a session's publications, and what feeds it. Owned by the loop."""

    def __init__(
        self,
        me: Peer,
        owners: Mapping[Stream, Peer],
        outgoing: Mapping[Stream, Outgoing],
        config: ClientConfig,
        now: float,
    ) -> None:
        number = random.SystemRandom().getrandbits(62) << 1 | 1
        self._context = Context(me, random.Random(number), now)
        self._publisher = Publisher(self._context, config, owners, number)
        self._ahead_number = number + 1
        self._ahead = Publisher(self._context, config, owners, self._ahead_number)
        """Publishes GC events ahead of what is refused."""
        self._gc_under_way: dict[Stream, Part] = {}
        self._outgoing = outgoing
        self._under_way: dict[Stream, list[Part]] = {}
        self._again: dict[Stream, deque[Part]] = {stream: deque() for stream in outgoing}
        """Parts of a batch that was refused: each goes by itself now."""

    def step(self, now: float, sender: Peer, message: Message) -> Effects:
        """See `Machine`: only answers to publications are of interest."""
        self._context.at(now)
        if isinstance(message, Published | Refused):
            self._publisher.answered(sender, message)
            self._ahead.answered(sender, message)
        if isinstance(message, Refused) and message.again and message.stream in self._under_way:
            self._make_room(message.stream)
        return self._context.taken()

    def _make_room(self, stream: Stream) -> None:
        """The stream does not take what is under way: if a GC event waits behind it, that goes first."""
        if stream in self._gc_under_way:
            return
        part = self._outgoing[stream].take_gc()
        if part is not None:
            self._gc_under_way[stream] = part
            self._ahead.publish(stream, sealed(part.make()))

    def tick(self, now: float) -> Effects:
        self._context.at(now)
        self._publisher.tick()
        self._ahead.tick()
        return self._context.taken()

    def begin(self, now: float, stream: Stream) -> Effects:
        """Publish what is next in a stream, unless something is under way there."""
        self._context.at(now)
        while stream not in self._under_way:
            again = self._again[stream]
            parts = [again.popleft()] if again else self._outgoing[stream].take()
            if not parts:
                break
            try:
                batch = sealed(joined([part.make() for part in parts]))
                self._publisher.publish(stream, batch)
                self._under_way[stream] = parts
            except Exception as error:
                # What somebody passed cannot be made a batch. The others' events need not suffer.
                self._failed(stream, parts, error)
        return self._context.taken()

    def _failed(self, stream: Stream, parts: list[Part], error: Exception) -> None:
        if len(parts) > 1:
            self._again[stream].extend(parts)
            return
        self._outgoing[stream].release(parts)
        parts[0].future.set_exception(error)

    def answered(self, answer: Published | Refused) -> None:
        """Tell whoever waits what became of a batch."""
        if answer.publisher == self._ahead_number:
            gc = self._gc_under_way.pop(answer.stream, None)
            parts = None if gc is None else [gc]
        else:
            parts = self._under_way.pop(answer.stream, None)
        if parts is None:
            return
        if isinstance(answer, Refused):
            self._failed(answer.stream, parts, RequestRejected(answer.reason))
            return
        outgoing = self._outgoing[answer.stream]
        outgoing.taken(parts)
        outgoing.release(parts)
        first = answer.first
        for part in parts:
            part.future.set_result(Span(first, first + part.events - 1))
            first = Seq(first + part.events)

    def give_up(self, error: SiriusError, unsent: SiriusError) -> None:
        """Nothing more will be published: tell those who wait whether their events may be in the stream."""
        under_way, self._under_way = self._under_way, {}
        ahead, self._gc_under_way = self._gc_under_way, {}
        for part in (*chain.from_iterable(under_way.values()), *ahead.values()):
            part.future.set_exception(error)
        for stream, outgoing in self._outgoing.items():
            for part in (*self._again[stream], *outgoing.refuse(unsent)):
                part.future.set_exception(unsent)
            self._again[stream].clear()
