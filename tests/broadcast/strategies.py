"""Random events, batches and predicates. Not a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from sirius.broadcast.events import ABSENT, Event, EventBatch, Kind, hole
from sirius.broadcast.predicates import Predicate
from sirius.broadcast.predicates.terms import (
    And,
    Attribute,
    Comparison,
    KeyIs,
    KeyPrefix,
    Or,
    SeqBelow,
    TimeBelow,
    TopicIs,
)
from sirius.types import Seq

TOPICS = ("", "/a", "/a/b", "/a/b/c", "/m/b")
PATTERNS = (*TOPICS, "/*", "/a/*", "/*/b", "/*/b/*", "/a/*/c")
KEYS = (b"", b"a", b"ab", b"abc", b"b", b"\x00\xff", b"long" * 20, b"long" * 19 + b"ling")
NAMES = ("price", "year")

keys = st.sampled_from(KEYS)
small = st.integers(0, 6)

atoms: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(SeqBelow, st.integers(0, 40)),
    st.builds(TimeBelow, st.integers(0, 40)),
    st.builds(KeyIs, keys),
    st.builds(KeyPrefix, st.sampled_from((b"", b"a", b"ab", b"long"))),
    st.builds(TopicIs, st.sampled_from(PATTERNS)),
    st.builds(Attribute, st.sampled_from(NAMES), st.sampled_from(Comparison), small),
)


def _both(parts: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    tuples = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(And, tuples), st.builds(Or, tuples))


predicates: st.SearchStrategy[Predicate] = st.recursive(atoms, _both, max_leaves=5)

attribute_maps = st.dictionaries(st.sampled_from(NAMES), small)


@st.composite
def events(draw: st.DrawFn, kinds: Sequence[Kind] = tuple(Kind)) -> Event:
    """One event without a place yet."""
    kind = draw(st.sampled_from(kinds))
    payload = str(draw(predicates)).encode() if kind == Kind.GC else draw(keys)
    topic = draw(st.sampled_from(TOPICS))
    return Event(0, kind, topic, draw(keys), payload, 0, draw(attribute_maps))


def batch_of(
    found: Sequence[Event], first: int | None = None, last: int | None = None
) -> EventBatch:
    """Put events together as they are: their sequence numbers, their times, and holes in between."""
    first = found[0].seq if first is None else first
    last = found[-1].seq if last is None else last
    if not found:
        return hole(Seq(first), Seq(last))
    names = list(dict.fromkeys(name for event in found for name in event.attributes))
    batch = EventBatch.of(
        [event.key for event in found],
        [event.kind for event in found],
        [event.topic for event in found],
        [event.payload for event in found],
        {name: [event.attributes.get(name, ABSENT) for event in found] for name in names},
    )
    places = np.array([event.seq - first for event in found], np.uint32)
    return replace(
        batch,
        first=Seq(first),
        last=Seq(last),
        places=None if len(found) == last - first + 1 else places,
        times=np.array([event.time for event in found], np.int64),
    )


@st.composite
def placed(draw: st.DrawFn, first: int, time: int, gaps: bool = True) -> list[Event]:
    """Some events that follow each other, perhaps with holes."""
    found = []
    for event in draw(st.lists(events(), min_size=1, max_size=8)):
        first += draw(st.integers(0, 2)) if gaps else 0
        time += draw(st.integers(0, 2))
        found.append(event._replace(seq=first, time=time))
        first += 1
    return found
