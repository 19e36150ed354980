"""The bytes of a batch.

::

    header, 60 bytes, little-endian
     0  magic       "SBe1"
     4  checksum    crc32 of the header behind this field
     8  body sum    crc32 of the body
    12  count       records
    16  first
    24  last
    32  time        of all events, unless there is a section TIMES
    40  publisher
    48  serial
    56  body length
    body: sections, in rising order of their tags; one that is not there has its default
     tag u1, length u4, that many bytes

    tag  section      one value an event, or one for all         default
    1    PLACES       u4, counted from first                     no hole
    2    KINDS        u1                                         data
    3    TIMES        i8                                         the header's
    4    TOPICS       names, a zero byte between them            one topic without a name
    5    TOPIC_IDS    u2, which of the topics                    the first
    6    KEY_LENGTHS  u4                                         0
    7    KEYS         end to end
    8    PAY_LENGTHS  u4                                         0
    9    PAYLOADS     end to end
    10   ATTRIBUTE    name, a zero byte, i8; may come repeatedly

What numbers a batch (range, time, publisher) stands in the header: the body stays as the publisher encoded it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from sirius.broadcast.columns import AnyColumn, constant, is_constant, repeated
from sirius.broadcast.events import EventBatch, Kind, hole
from sirius.broadcast.limits import Limits, fault
from sirius.errors import BadMessage, UsageError
from sirius.types import Seq

MAGIC: Final = b"SBe1"
_HEADER: Final = struct.Struct("<4sIIIqqqQQI")
_SUMMED_FROM: Final = 8
_SECTION: Final = struct.Struct("<BI")
PLACES, KINDS, TIMES, TOPICS, TOPIC_IDS, KEY_LENGTHS, KEYS, PAY_LENGTHS, PAYLOADS, ATTRIBUTE = (
    range(1, 11)
)
HEADER_BYTES: Final = _HEADER.size


def encode(batch: EventBatch) -> bytes:
    """Return the bytes of a batch. Its columns are encoded only if nobody has done so before."""
    body = batch.body if batch.body is not None else _body(batch)
    time = int(batch.times[0]) if len(batch) else 0
    rest = (crc32(body), len(batch), batch.first, batch.last, time)
    identity = (batch.publisher, batch.serial, len(body))
    header = _HEADER.pack(MAGIC, 0, *rest, *identity)
    checksum = crc32(memoryview(header)[_SUMMED_FROM:])
    return _HEADER.pack(MAGIC, checksum, *rest, *identity) + body


def sealed(batch: EventBatch) -> EventBatch:
    """Return the batch with its columns encoded, for whoever will send it more than once."""
    return batch if batch.body is not None else replace(batch, body=_body(batch))


def _body(batch: EventBatch) -> bytes:
    return b"".join(
        part for tag, data in _sections(batch) for part in (_SECTION.pack(tag, len(data)), data)
    )


def _sections(batch: EventBatch) -> Iterator[tuple[int, bytes]]:
    if batch.places is not None:
        yield PLACES, batch.places.astype("<u4").tobytes()
    yield from _column(KINDS, batch.kinds, "<u1", Kind.DATA)
    if not is_constant(batch.times):
        yield from _column(TIMES, batch.times, "<i8", None)
    if batch.topics not in ((), ("",)):
        yield TOPICS, "\0".join(batch.topics).encode()
    yield from _column(TOPIC_IDS, batch.topic_ids, "<u2", 0)
    yield from _column(KEY_LENGTHS, batch.key_lengths, "<u4", 0)
    yield KEYS, batch.keys
    yield from _column(PAY_LENGTHS, batch.payload_lengths, "<u4", 0)
    if batch.payloads:
        yield PAYLOADS, batch.payloads
    for name, column in batch.attributes.items():
        ((_, data),) = _column(ATTRIBUTE, column, "<i8", None)
        yield ATTRIBUTE, name.encode() + b"\0" + data


def _column(
    tag: int, column: AnyColumn, dtype: str, default: int | None
) -> Iterator[tuple[int, bytes]]:
    if is_constant(column):
        if default is None or column[0] != default:
            yield tag, column[:1].astype(dtype).tobytes()
    elif len(column) or default is None:
        yield tag, column.astype(dtype).tobytes()


# ---------------------------------------------------------------------- decoding


def decode(data: bytes, limits: Limits) -> EventBatch:
    """Check and open the bytes of a batch; its columns look into them. Raises `BadMessage`."""
    if len(data) < HEADER_BYTES:
        raise BadMessage(f"{len(data)} bytes are no batch of events")
    magic, checksum, body_sum, count, first, last, time, publisher, serial, length = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC or crc32(memoryview(data)[_SUMMED_FROM:HEADER_BYTES]) != checksum:
        raise BadMessage("the header of a batch of events is damaged")
    body = data[HEADER_BYTES:]
    if len(body) != length or crc32(body) != body_sum:
        raise BadMessage(f"the body of the batch from {first} on is damaged")
    if count > limits.events_max:
        raise BadMessage(f"{count} events are more than {limits.events_max}")
    try:
        batch = _Opening(body, count).batch(Seq(first), Seq(last), time)
    except (UsageError, ValueError) as error:
        raise BadMessage(f"the batch from {first} on makes no sense: {error}") from error
    batch = replace(batch, publisher=publisher, serial=serial, body=body)
    if (wrong := fault(batch, limits)) is not None:
        raise BadMessage(f"the batch from {first} on makes no sense: {wrong}")
    return batch


class _Opening:
    """The sections of one body."""

    def __init__(self, body: bytes, count: int) -> None:
        self._count = count
        self._sections: dict[int, bytes] = {}
        self._attributes: dict[str, AnyColumn] = {}
        at = 0
        for tag, data in _split(body):
            if tag < at or (tag == at and tag != ATTRIBUTE) or tag > ATTRIBUTE:
                raise UsageError(f"section {tag} behind section {at}")
            at = tag
            if tag == ATTRIBUTE:
                self._attribute(data)
            else:
                self._sections[tag] = data

    def _attribute(self, data: bytes) -> None:
        name, zero, values = data.partition(b"\0")
        if not zero or name.decode() in self._attributes:
            raise UsageError(f"an attribute {name!r} without a name of its own")
        self._attributes[name.decode()] = self._values(values, "<i8")

    def batch(self, first: Seq, last: Seq, time: int) -> EventBatch:
        places = self._sections.get(PLACES)
        return replace(
            hole(first, last),
            places=None if places is None else self._values(places, "<u4"),
            kinds=self._column(KINDS, "<u1"),
            times=self._column(TIMES, "<i8", time),
            topics=tuple(self._sections.get(TOPICS, b"").decode().split("\0")),
            topic_ids=self._column(TOPIC_IDS, "<u2"),
            key_lengths=self._column(KEY_LENGTHS, "<u4"),
            keys=self._sections.get(KEYS, b""),
            payload_lengths=self._column(PAY_LENGTHS, "<u4"),
            payloads=self._sections.get(PAYLOADS, b""),
            attributes=self._attributes,
        )

    def _column(self, tag: int, dtype: str, default: int = 0) -> AnyColumn:
        data = self._sections.get(tag)
        return constant(default, self._count, dtype) if data is None else self._values(data, dtype)

    def _values(self, data: bytes, dtype: npt.DTypeLike) -> AnyColumn:
        values = np.frombuffer(data, dtype)
        if len(values) == self._count:
            return values
        if len(values) != 1:
            raise UsageError(f"{len(values)} values for {self._count} events")
        return repeated(values, self._count)


def _split(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(body):
        if at + _SECTION.size > len(body):
            raise UsageError("half a section")
        tag, length = _SECTION.unpack_from(body, at)
        at += _SECTION.size
        if at + length > len(body):
            raise UsageError(f"section {tag} of {length} bytes where {len(body) - at} are left")
        yield tag, body[at : at + length]
        at += length
