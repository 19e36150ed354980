"""A history in memory that begins anew when its proxy does, so that nobody takes one life for another.

An owner that has lost its history would count from 1 again. Who had got further would take new events for old ones and
wait, and then go on as if nothing had happened: the worst that a cache can be told is nothing. So each life counts from
a number that no earlier life can have reached: four times the microseconds of the day's time, since nobody publishes
four million events a second for years. It begins with a GC event that collects everything before: whoever was there
gets a hole, and the word that what was in it is gone. A cache drops everything; anybody else sees the event.

This needs a clock that is not set back beyond the last life's end. Histories that survive a restart need none of this.
"""

from __future__ import annotations

import random
import time
from typing import Final

from sirius.broadcast.events import EventBatch, Kind, Stream, hole
from sirius.broadcast.history import MemoryHistory
from sirius.types import Seq

_PER_US: Final = 4


def begin_anew(_stream: Stream) -> MemoryHistory:
    """Return an empty history for a foreign stream: it is fetched again."""
    return MemoryHistory(random.Random(random.SystemRandom().getrandbits(64)))


def begin_life(stream: Stream, time_us: int | None = None) -> MemoryHistory:
    """Return the history of an own stream, which says that everything before is gone."""
    now = time.time_ns() // 1000 if time_us is None else time_us
    first = Seq(_PER_US * now)
    history = begin_anew(stream)
    history.append(hole(Seq(1), Seq(first - 1)))
    word = EventBatch.of([b""], Kind.GC, payloads=[b"seq < %d" % first])
    history.append(word.numbered(first, now))
    return history
