"""What must hold, watched from outside.

- **O** order: every client is given each stream from where it began, without a gap and without a repetition.
- **E** events: what is delivered was published, exactly so. What was acknowledged stands where it was said to, and
  nothing that was published once stands there twice.
- **H** holes: for each event that a client was not given, it was later given an event that collects it (Sprinkler,
  section 2.1). This is judged by the plain meaning of predicates, event by event, and not by the code that
  collected.
- **P** prefix: what a proxy takes over of a foreign stream are the owner's events, in order.
- **M** memory: buffers stay below their bounds.
- **L** liveness: after healing, everybody is up to date within 5 s, and every publication is answered.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from sirius.broadcast.events import Event, EventBatch, Kind, Stream
from sirius.broadcast.history import MemoryHistory
from sirius.broadcast.messages import Published
from sirius.broadcast.predicates import matches, parse
from sirius.types import Seq


class Violation(Exception):
    """A promise was broken; the message begins with its letter."""


@dataclass(slots=True)
class Audience:
    """What one life of a client was given of one stream."""

    position: int
    holes: list[int] = field(default_factory=list)
    collectors: list[Event] = field(default_factory=list)


class Truth:
    """All events of all streams, as their owners numbered them."""

    def __init__(self) -> None:
        self.events: dict[Stream, list[Event]] = defaultdict(list)
        self._seen: set[bytes] = set()
        self._known: dict[int, tuple[EventBatch, list[Event]]] = {}

    def last(self, stream: Stream) -> int:
        return len(self.events[stream])

    def add(self, stream: Stream, batch: EventBatch) -> None:
        """The owner has numbered a batch."""
        if batch.first != self.last(stream) + 1:
            raise Violation(f"E: {stream} goes on with {batch.first} behind {self.last(stream)}")
        for event in batch.events():
            name = name_of(event)
            if name in self._seen:
                raise Violation(f"E: {name!r} is in {stream} twice, now at {event.seq}")
            self._seen.add(name)
            self.events[stream].append(event)

    def agree(self, who: str, stream: Stream, batch: EventBatch) -> None:
        """A replica of the owner counts a batch: the first one adds it, and the others have the same."""
        if batch.last <= self.last(stream):
            self.check(who, stream, batch)
        else:
            self.add(stream, batch)

    def check(self, who: str, stream: Stream, batch: EventBatch) -> list[Event]:
        """See that events are what they were; return them. The same batch goes to many, and is opened once."""
        known = self._known.get(id(batch))
        if known is not None:
            return known[1]
        if batch.last > self.last(stream):
            raise Violation(f"E: {who} has {stream} up to {batch.last}, of {self.last(stream)}")
        events = batch.events()
        for event in events:
            if self.events[stream][event.seq - 1] != event:
                raise Violation(f"E: {who} has another event at {event.seq} of {stream}")
        self._known[id(batch)] = batch, events
        return events


def name_of(event: Event) -> bytes:
    """Return what no other event of a run has: the payload, or the key of a GC event."""
    return event.key if event.kind == Kind.GC else event.payload


class WatchedHistory(MemoryHistory):
    """A history that tells the checker what comes in."""

    def __init__(self, truth: Truth, who: str, stream: Stream, *, owned: bool) -> None:
        super().__init__()
        self._truth, self._who, self._stream, self._owned = truth, who, stream, owned

    def append(self, batch: EventBatch) -> None:
        super().append(batch)
        if self._owned:
            self._truth.agree(self._who, self._stream, batch)
        else:
            self._truth.check(self._who, self._stream, batch)


class Checker:
    """Everything that was ever delivered."""

    def __init__(self) -> None:
        self.truth = Truth()
        self.audiences: dict[tuple[str, Stream], Audience] = {}
        self.delivered = 0
        self.holes = 0
        self.acknowledged = 0

    def begins(self, who: str, stream: Stream, after: Seq) -> None:
        """A life of a client begins."""
        self.audiences[who, stream] = Audience(after)

    def deliver(self, who: str, stream: Stream, batch: EventBatch) -> None:
        audience = self.audiences[who, stream]
        if batch.first != audience.position + 1:
            raise Violation(
                f"O: {who} is given {stream} from {batch.first} on behind {audience.position}"
            )
        events = self.truth.check(who, stream, batch)
        present = {event.seq for event in events}
        missing = [seq for seq in range(batch.first, batch.last + 1) if seq not in present]
        audience.holes += missing
        audience.collectors += [event for event in events if event.kind != Kind.DATA]
        audience.position = batch.last
        self.delivered += len(events)
        self.holes += len(missing)

    def published(self, answer: Published, batch: EventBatch) -> None:
        """A publisher was told where its batch stands."""
        stood = self.truth.events[answer.stream][answer.first - 1 : answer.last]
        if list(map(name_of, stood)) != list(map(name_of, batch.events())):
            raise Violation(f"E: {answer} is not what stands there")
        self.acknowledged += 1

    def check_holes(self, who: str, stream: Stream) -> None:
        """See that a client that is up to date knows why each hole is one."""
        audience = self.audiences[who, stream]
        for seq in audience.holes:
            event = self.truth.events[stream][seq - 1]
            if not any(collects(each, event) for each in audience.collectors):
                raise Violation(f"H: {who} was never told why {seq} of {stream} is a hole: {event}")


def collects(event: Event, earlier: Event) -> bool:
    """Say whether an event makes an earlier one needless, by the definition."""
    if earlier.seq >= event.seq:
        return False
    if event.kind == Kind.KEYED:
        return (event.topic, event.key) == (earlier.topic, earlier.key)
    return matches(parse(event.payload), earlier)
