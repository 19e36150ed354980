"""The bytes of a batch: what goes in comes out, and garbage raises `BadMessage`."""

from __future__ import annotations

import struct
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirius.broadcast import wire
from sirius.broadcast.columns import constant
from sirius.broadcast.events import Event, EventBatch, Kind, hole
from sirius.broadcast.limits import Limits, fault
from sirius.errors import BadMessage
from sirius.types import Seq
from tests.broadcast.strategies import batch_of, placed

LIMITS = Limits()


def sample() -> EventBatch:
    return replace(
        EventBatch.of(
            [b"a", b"bb", b""],
            [Kind.DATA, Kind.KEYED, Kind.GC],
            ["/x", "", "/y"],
            [b"p", b"", b"seq < 2"],
            {"price": [1, 2, 3]},
        ),
        first=Seq(4),
        last=Seq(9),
        places=np.array([0, 2, 5], np.uint32),
        times=np.array([7, 7, 8], np.int64),
    )


def resummed(header: bytes, body: bytes) -> bytes:
    """Put damaged parts together so that all checksums are right."""
    fields = list(struct.unpack("<4sIIIqqqQQI", header))
    fields[1], fields[2], fields[9] = 0, crc32(body), len(body)
    fields[1] = crc32(struct.pack("<4sIIIqqqQQI", *fields)[8:])
    return struct.pack("<4sIIIqqqQQI", *fields) + body


@given(placed(3, 0))
def test_a_batch_survives_the_wire(found: list[Event]) -> None:
    batch = batch_of(found, 2, found[-1].seq + 1)
    back = wire.decode(wire.encode(batch), LIMITS)
    assert (back.first, back.last, back.events()) == (batch.first, batch.last, found)


def test_a_hole_survives_the_wire() -> None:
    back = wire.decode(wire.encode(hole(Seq(3), Seq(8))), LIMITS)
    assert (back.first, back.last, len(back)) == (3, 8, 0)


def test_ten_byte_events_take_ten_bytes() -> None:
    data = wire.encode(EventBatch.packed(bytes(10_000), 10))
    assert len(data) < 10_000 + 100


def test_numbering_leaves_the_encoded_columns_as_they_are() -> None:
    batch = wire.decode(wire.encode(EventBatch.of([b"a", b"b"])), LIMITS)
    numbered = batch.numbered(Seq(9), 123, 5, 6)
    data = wire.encode(numbered)
    assert numbered.body is batch.body
    assert data.endswith(batch.body or b"?")
    back = wire.decode(data, LIMITS)
    assert back.events() == numbered.events()
    assert (back.publisher, back.serial) == (5, 6)


def test_sealing_encodes_once() -> None:
    batch = wire.sealed(sample())
    assert wire.sealed(batch) is batch
    assert wire.encode(batch) == wire.encode(sample())


def test_every_flipped_bit_is_noticed() -> None:
    data = wire.encode(sample())
    for at in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(BadMessage):
            wire.decode(bytes(damaged), LIMITS)


def test_every_truncation_is_noticed() -> None:
    data = wire.encode(sample())
    for length in range(len(data)):
        with pytest.raises(BadMessage):
            wire.decode(data[:length], LIMITS)


@given(st.data())
def test_what_has_right_checksums_and_is_garbage_raises_a_clear_error(data: st.DataObject) -> None:
    """A peer with a bug, or an attacker: no other error than `BadMessage`, whatever the bytes say."""
    encoded = bytearray(wire.encode(sample()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(12, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(wire.HEADER_BYTES, len(encoded)))
    mended = resummed(bytes(encoded[: wire.HEADER_BYTES]), bytes(encoded[wire.HEADER_BYTES : end]))
    try:
        batch = wire.decode(mended, LIMITS)
    except BadMessage:
        return
    assert len(batch.events()) == len(batch)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (replace(sample(), first=Seq(0)), "0 to 9 is no range"),
        (replace(sample(), last=Seq(8)), "do not stand in 4 to 8"),
        (replace(sample(), places=np.array([0, 2, 2], np.uint32)), "do not rise"),
        (replace(sample(), places=None), "3 events in 4 to 9"),
        (replace(sample(), kinds=constant(3, 3, np.uint8)), "kind 3 is none"),
        (replace(sample(), times=np.array([8, 7, 8], np.int64)), "times fall"),
        (replace(sample(), topic_ids=np.array([0, 1, 3], np.uint16)), "topic 3 of 3"),
        (replace(sample(), topics=("x", "", "/y")), "'x' is no topic"),
        (replace(sample(), topics=("/*", "", "/y")), "no star"),
        (replace(sample(), keys=b"abbc"), "add up to 3, not 4"),
        (replace(sample(), payloads=b""), "add up to 8, not 0"),
        (replace(sample(), attributes={"seq": np.zeros(3, np.int64)}), "'seq' is no name"),
    ],
)
def test_nonsense_is_named(batch: EventBatch, message: str) -> None:
    with pytest.raises(BadMessage, match=message):
        wire.decode(wire.encode(batch), LIMITS)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(events_max=2), "3 events are more than 2"),
        (Limits(key_bytes_max=1), "a key of 2 bytes is longer than 1"),
        (Limits(payload_bytes_max=6), "a payload of 7 bytes is longer than 6"),
        (Limits(batch_bytes_max=10), "11 bytes are more than 10"),
        (Limits(topics_max=2), "3 topics are more than 2"),
        (Limits(topic_bytes_max=1), "a topic of 2 characters"),
        (Limits(attributes_max=0), "1 attributes are more than 0"),
    ],
)
def test_limits_hold(limits: Limits, message: str) -> None:
    with pytest.raises(BadMessage, match=message):
        wire.decode(wire.encode(sample()), limits)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (struct.pack("<BI", 7, 1) + b"a", "section 7 behind section 10"),
        (struct.pack("<BI", 11, 0), "section 11 behind section 10"),
        (struct.pack("<BI", 10, 99) + b"b", "section 10 of 99 bytes where 1 are left"),
        (b"\x0a", "half a section"),
        (struct.pack("<BI", 10, 14) + b"price\0" + bytes(8), "without a name of its own"),
        (struct.pack("<BI", 10, 1) + b"b", "without a name of its own"),
        (struct.pack("<BI", 10, 18) + b"b\0" + bytes(16), "2 values for 3 events"),
    ],
)
def test_sections_that_make_no_sense_are_named(more: bytes, message: str) -> None:
    data = wire.encode(sample())
    with pytest.raises(BadMessage, match=message):
        wire.decode(resummed(data[: wire.HEADER_BYTES], data[wire.HEADER_BYTES :] + more), LIMITS)


def test_what_no_message_has_room_for_is_refused_whatever_the_limits_are() -> None:
    numbers = {f"a{at}": list(range(600_000)) for at in range(14)}
    batch = EventBatch.of([b""] * 600_000, attributes=numbers)
    assert fault(batch, Limits()) == (
        "600000 events take more than 62914560 bytes with their attributes"
    )
    assert fault(EventBatch.packed(bytes(1 << 20), 1), Limits()) is None
