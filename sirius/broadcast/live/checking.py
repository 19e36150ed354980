"""What an event may be like, said to whoever publishes it: before it has joined others, who would suffer with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Final

import numpy as np

from sirius.broadcast.columns import Ints
from sirius.broadcast.events import EventBatch, Kind
from sirius.broadcast.limits import NAME, RESERVED, Limits, fault
from sirius.broadcast.live.publishing import Single
from sirius.errors import UsageError

_TOPICS_KEPT: Final = 10_000
_MOST: Final = 2**63
Text = str | bytes


class Checking:
    """The limits of a proxy. Remembers which topics were good, since there are few and they come often."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._topics = {""}

    def single(self, event: Single) -> None:
        """Raise `UsageError` if an event is none."""
        key, payload, topic, _, attributes = event
        limits = self._limits
        if (
            len(key) > limits.key_bytes_max
            or len(payload) > limits.payload_bytes_max
            or len(key) + len(payload) > limits.batch_bytes_max
        ):
            self._refuse_size(key, payload)
        if topic not in self._topics:
            self._check_topic(topic)
        if attributes:
            self._check_attributes(attributes)

    def batch(self, batch: EventBatch) -> None:
        """Raise `UsageError` if a batch is none."""
        if not len(batch):
            raise UsageError("there is nothing to publish")
        if wrong := fault(batch, self._limits):
            raise UsageError(wrong)

    def _refuse_size(self, key: bytes, payload: bytes) -> None:
        limits = self._limits
        sizes = (("key", key, limits.key_bytes_max), ("payload", payload, limits.payload_bytes_max))
        for what, data, most in sizes:
            if len(data) > most:
                raise UsageError(f"a {what} of {len(data):,} bytes is longer than {most:,}")
        size = len(key) + len(payload)
        raise UsageError(f"an event of {size:,} bytes is larger than {limits.batch_bytes_max:,}")

    def _check_topic(self, topic: str) -> None:
        _topics(topic)
        self.batch(EventBatch.of([b""], topic=topic))
        if len(self._topics) < _TOPICS_KEPT:
            self._topics.add(topic)

    def _check_attributes(self, attributes: Mapping[str, int]) -> None:
        if len(attributes) > self._limits.attributes_max:
            raise UsageError(
                f"{len(attributes)} attributes are more than {self._limits.attributes_max}"
            )
        for name, value in attributes.items():
            if not isinstance(name, str) or not NAME.fullmatch(name) or name in RESERVED:
                raise UsageError(f"{name!r} is no name for an attribute")
            if not isinstance(value, int) or not -_MOST < value < _MOST:
                raise UsageError(f"attribute {name} is a whole number of 64 bits, not {value!r}")


def octets(text: Text) -> bytes:
    """Return a key or a payload as bytes."""
    if isinstance(text, bytes):
        return text
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{text!r} cannot be written as UTF-8: pass bytes") from None
    raise UsageError(f"a key is text or bytes, not {text!r}")


def columns(
    keys: Sequence[Text] | bytes,
    payloads: Sequence[Text],
    width: int | None,
    topic: str | Sequence[str],
    kind: Kind,
    attributes: Mapping[str, Sequence[int]] | None,
) -> EventBatch:
    """Make a batch of what somebody passed. Raises `UsageError` if that is none."""
    if width is not None:
        if not isinstance(keys, bytes) or payloads or topic or attributes:
            raise UsageError("with width, keys are bytes, and there is nothing else")
        if width < 1:
            raise UsageError(f"a width is 1 or more, not {width}")
        return EventBatch.packed(keys, width, kind)
    if isinstance(keys, bytes | str) or not isinstance(keys, Sized):
        raise UsageError("keys is a list of keys; a key alone is for publish()")
    _topics(topic)
    if payloads:
        _same_length(keys, payloads=payloads)
    if not isinstance(topic, str):
        _same_length(keys, topics=topic)
    named = attributes or {}
    _same_length(keys, **{f"values of {name}": values for name, values in named.items()})
    numbers = {name: _numbers(name, values) for name, values in named.items()}
    pieces = [octets(key) for key in keys], [octets(payload) for payload in payloads]
    return EventBatch.of(pieces[0], kind, topic, pieces[1], numbers)


def _topics(topic: str | Sequence[str]) -> None:
    """Raise `UsageError` if these are no texts."""
    for each in (topic,) if isinstance(topic, str) or not isinstance(topic, Sized) else topic:
        if not isinstance(each, str):
            raise UsageError(f"a topic is text, not {each!r}")
        try:
            each.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{each!r} is no topic: it cannot be written as UTF-8") from None


def _numbers(name: str, values: Sequence[int]) -> Ints:
    """Return a column of an attribute. Nothing is rounded, and nothing is cut off."""
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):
        found = np.empty(0, object)
    if found.dtype.kind not in "iub" or (found.dtype.kind == "u" and int(found.max()) >= _MOST):
        raise UsageError(f"attribute {name} has values that are no whole numbers of 64 bits")
    return found.astype(np.int64)


def _same_length(keys: Sized, **columns: Sized) -> None:
    """Raise `UsageError` if a column has not one value a key."""
    for name, column in columns.items():
        if len(column) != len(keys):
            raise UsageError(f"{len(column)} {name} for {len(keys)} keys")
