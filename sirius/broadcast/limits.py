"""What a batch may be like, and what is wrong with one that is not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from sirius.broadcast.columns import AnyColumn, Lengths, is_constant, total
from sirius.broadcast.events import EventBatch, Kind

NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}")
"""The names that attributes may have."""
RESERVED: Final = frozenset({"seq", "time", "key", "topic", "and", "or", "prefix"})
ATTRIBUTES_MAX: Final = 16
"""How many names of attributes a stream may have at a time."""
_RANGE_MAX: Final = 2**32
SEQ_MAX: Final = 2**62
"""All sequence numbers are below."""
ENCODED_BYTES_MAX: Final = 60 << 20
"""All columns of a batch, whatever the limits are: more does not go into a message."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large things may be."""

    events_max: int = 1 << 20
    """Events in one batch."""
    batch_bytes_max: int = 16 << 20
    """Keys and payloads of one batch."""
    key_bytes_max: int = 4096
    """One key."""
    payload_bytes_max: int = 1 << 20
    """One payload."""
    topics_max: int = 1 << 16
    """Different topics in one batch."""
    topic_bytes_max: int = 1024
    """The name of one topic."""
    attributes_max: int = ATTRIBUTES_MAX
    """Different names of attributes in one batch."""


def fault(batch: EventBatch, limits: Limits) -> str | None:
    """Say what is wrong with a batch, if anything. O(events), vectorised."""
    return (
        _range_fault(batch)
        or _size_fault(batch, limits)
        or _pieces_fault("key", batch.key_lengths, len(batch.keys), limits.key_bytes_max)
        or _pieces_fault(
            "payload", batch.payload_lengths, len(batch.payloads), limits.payload_bytes_max
        )
        or _values_fault(batch)
        or _topics_fault(batch, limits)
        or _attributes_fault(batch, limits)
    )


def _range_fault(batch: EventBatch) -> str | None:
    first, last, count = batch.first, batch.last, len(batch)
    if not 1 <= first <= last < SEQ_MAX or (count and last - first >= _RANGE_MAX):
        return f"{first} to {last} is no range"
    if batch.places is None:
        return None if count == last - first + 1 else f"{count} events in {first} to {last}"
    places = batch.places
    if len(places) != count or (count and int(places[-1]) > last - first):
        return f"{count} events do not stand in {first} to {last}"
    if bool((places[1:] <= places[:-1]).any()):
        return "sequence numbers do not rise"
    return None


def _size_fault(batch: EventBatch, limits: Limits) -> str | None:
    if len(batch) > limits.events_max:
        return f"{len(batch)} events are more than {limits.events_max}"
    if batch.nbytes > limits.batch_bytes_max:
        return f"{batch.nbytes} bytes are more than {limits.batch_bytes_max}"
    if batch.nbytes + _columns_bytes(batch) > ENCODED_BYTES_MAX:
        return f"{len(batch)} events take more than {ENCODED_BYTES_MAX} bytes with their attributes"
    return None


def _columns_bytes(batch: EventBatch) -> int:
    """Return at most how many bytes its columns take beyond keys and payloads."""
    columns: list[AnyColumn] = [batch.kinds, batch.times, batch.topic_ids]
    columns += [batch.key_lengths, batch.payload_lengths, *batch.attributes.values()]
    sizes = [column.nbytes for column in columns if column.strides != (0,)]
    return sum(sizes) + sum(4 * len(topic) for topic in batch.topics)


def _pieces_fault(what: str, lengths: Lengths, size: int, most: int) -> str | None:
    longest = int(lengths.max(initial=0))
    if longest > most:
        return f"a {what} of {longest} bytes is longer than {most}"
    if total(lengths) != size:
        return f"the lengths of each {what} add up to {total(lengths)}, not {size}"
    return None


def _values_fault(batch: EventBatch) -> str | None:
    count = len(batch)
    columns: list[AnyColumn] = [batch.kinds, batch.times, batch.topic_ids]
    columns += [batch.key_lengths, batch.payload_lengths, *batch.attributes.values()]
    if any(len(column) != count for column in columns):
        return "columns of different lengths"
    if int(batch.kinds.max(initial=0)) > max(Kind):
        return f"kind {batch.kinds.max()} is none"
    if not is_constant(batch.times) and bool((np.diff(batch.times) < 0).any()):
        return "times fall"
    return None


def _topics_fault(batch: EventBatch, limits: Limits) -> str | None:
    if len(batch.topics) > limits.topics_max:
        return f"{len(batch.topics)} topics are more than {limits.topics_max}"
    if len(batch) and int(batch.topic_ids.max()) >= len(batch.topics):
        return f"topic {batch.topic_ids.max()} of {len(batch.topics)}"
    for topic in batch.topics:
        if len(topic.encode()) > limits.topic_bytes_max:
            return f"a topic of {len(topic)} characters"
        if topic and (not topic.startswith("/") or "*" in topic or "\0" in topic):
            return f"{topic!r} is no topic: it begins with a slash and has no star"
    return None


def _attributes_fault(batch: EventBatch, limits: Limits) -> str | None:
    if len(batch.attributes) > limits.attributes_max:
        return f"{len(batch.attributes)} attributes are more than {limits.attributes_max}"
    for name in batch.attributes:
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in RESERVED:
            return f"{name!r} is no name for an attribute"
    return None
