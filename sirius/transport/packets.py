"""Packets and frames: messages of protobuf whose large parts are not copied.

A frame is a protobuf message, made in an unusual way. An encoded message is a **packet**: protobuf's bytes of all but
the blobs, and the blobs themselves, each behind the few bytes that make it a field. A frame is the packets of all that
waits, end to end, so a blob is copied once on its way to gRPC. Protobuf allows it: the fields of a message may follow
each other in any order, and a message may be written part by part.

Every `.proto` here has its `Frame` and `Envelope`, with the same numbers for `Frame.envelopes` and `Envelope.blobs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from sirius.errors import BadMessage

ENVELOPES: Final = 1
BLOBS: Final = 5
"""The numbers of `Frame.envelopes` and of `Envelope.blobs`."""
_LENGTH_DELIMITED: Final = 2


class Packet(NamedTuple):
    """An encoded envelope, as a part of a frame."""

    parts: list[bytes]
    size: int
    is_data: bool
    """Whether it carries blocks, events, updates or files, which others need not wait for."""


def packet(head: bytes, blobs: Sequence[bytes], is_data: bool) -> Packet:
    """Put an envelope's bytes and its blobs together. The blobs are not copied."""
    parts = [b"", head]
    for blob in blobs:
        parts += (_BLOB + _varint(len(blob)), blob)
    size = sum(map(len, parts))
    parts[0] = _ENVELOPE + _varint(size)
    return Packet(parts, size + len(parts[0]), is_data)


def frame(packets: Iterable[Packet]) -> bytes:
    """Put packets together."""
    return b"".join(chain.from_iterable(packet.parts for packet in packets))


def parsed(message: Any, data: bytes) -> Any:
    """Parse one protobuf message."""
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise BadMessage(f"no {message.DESCRIPTOR.name}: {error}") from None


def field_name(message: type) -> str:
    """`PreVote` travels in the field `pre_vote`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower()


def _varint(number: int) -> bytes:
    """Return a number as protobuf writes it: seven bits a byte, the lowest first."""
    if number < 128:
        return _BYTE[number]
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_BYTE: Final = [bytes([number]) for number in range(128)]
_ENVELOPE: Final = _varint(ENVELOPES << 3 | _LENGTH_DELIMITED)
_BLOB: Final = _varint(BLOBS << 3 | _LENGTH_DELIMITED)
