"""Messages as bytes. The format is that of `proto/sirius.proto`.

A frame is a protobuf message, made in an unusual way. Encoding an envelope gives a **packet**: protobuf's bytes of
everything but the blobs, and the blobs themselves, each behind the few bytes that make it a field. A frame is the
packets of all that waits, end to end, so a block is copied once on its way to gRPC. Protobuf allows it: the fields of a
message may follow each other in any order, and a message may be written part by part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple, get_args

from google.protobuf.message import DecodeError

from sirius.catchup import messages as catchup
from sirius.errors import BadMessage
from sirius.paxos import messages as paxos
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.transport import sirius_pb2 as pb
from sirius.transport.shapes import Blobs, Shape
from sirius.types import NodeId
from sirius.wal.record import DEFAULT_LIMITS, Limits

MESSAGES: Final[tuple[type, ...]] = (*get_args(paxos.Message), *get_args(catchup.Message))
"""Every message that can travel."""
DATA: Final = frozenset({paxos.Forward, catchup.Range, catchup.Push, catchup.FilePart})
"""Messages of these types never overtake each other, also if they carry nothing."""


class Packet(NamedTuple):
    """An encoded envelope, as a part of a frame."""

    parts: list[bytes]
    size: int
    is_data: bool
    """Whether it carries blocks, updates or files, which others need not wait for."""


def encode(envelope: Envelope) -> Packet:
    """Encode a message. Some microseconds: blocks are not copied."""
    cluster, number, (node, name), to, message = envelope
    field, shape = _FIELDS[type(message)]
    blobs: list[bytes] = []
    fields = shape.to_dict(message, blobs)
    sender = {"node": node, "name": name}
    content: dict[str, Any] = {field: fields}
    head = pb.Envelope(cluster=cluster, number=number, sender=sender, to=to, **content)
    parts = [b"", head.SerializeToString()]
    for blob in blobs:
        parts += (_BLOB + _varint(len(blob)), blob)
    size = sum(map(len, parts))
    parts[0] = _ENVELOPE + _varint(size)
    is_data = bool(blobs) or type(message) in DATA
    return Packet(parts, size + len(parts[0]), is_data)


def frame(packets: Iterable[Packet]) -> bytes:
    """Put packets together."""
    return b"".join(chain.from_iterable(packet.parts for packet in packets))


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Iterator[Envelope]:
    """Yield the messages of a frame; raise `BadMessage` at the first thing that is none.

    Blocks are checked as a whole, and nothing is allocated for a length before as many bytes are there.
    """
    for fields in parsed(pb.Frame, data).envelopes:
        yield _envelope(fields, limits)


def parsed(message: Any, data: bytes) -> Any:
    """Parse one protobuf message."""
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise BadMessage(f"no {message.DESCRIPTOR.name}: {error}") from None


def _envelope(fields: Any, limits: Limits) -> Envelope:
    name = fields.WhichOneof("message")
    if name is None or not fields.HasField("sender"):
        raise BadMessage("an envelope without a message that is known here, or without a sender")
    blobs = Blobs(fields.blobs, limits)
    message = _SHAPES[name].from_fields(getattr(fields, name), blobs)
    blobs.end()
    sender = Member(NodeId(fields.sender.node), fields.sender.name)
    return Envelope(fields.cluster, fields.number, sender, NodeId(fields.to), message)


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


def _field_name(message: type) -> str:
    """`PreVote` travels in the field `pre_vote`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower()


_BYTE: Final = [bytes([number]) for number in range(128)]
_LENGTH_DELIMITED: Final = 2
_ENVELOPE: Final = _varint(pb.Frame.ENVELOPES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED)
_BLOB: Final = _varint(pb.Envelope.BLOBS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED)
_FIELDS: Final = {message: (_field_name(message), Shape(message)) for message in MESSAGES}
_SHAPES: Final = dict(_FIELDS.values())
