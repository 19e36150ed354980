"""Messages of nodes as bytes. The format is that of `proto/sirius.proto`; `sirius.transport.packets` has the frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

from sirius.catchup import messages as catchup
from sirius.errors import BadMessage
from sirius.paxos import messages as paxos
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.transport import sirius_pb2 as pb
from sirius.transport.cutting import envelopes
from sirius.transport.packets import Packet, field_name, frame, packet, parsed
from sirius.transport.shapes import Blobs, Shape
from sirius.types import NodeId
from sirius.wal.record import DEFAULT_LIMITS, Limits

__all__ = ["DATA", "MESSAGES", "Packet", "decode", "encode", "frame", "parsed"]

MESSAGES: Final[tuple[type, ...]] = (*get_args(paxos.Message), *get_args(catchup.Message))
"""Every message that can travel."""
DATA: Final = frozenset({paxos.Forward, catchup.Range, catchup.Push})
"""Messages of these types never overtake each other, also if they carry nothing."""


def encode(envelope: Envelope) -> Packet:
    """Encode a message. Some microseconds: blocks are not copied."""
    cluster, number, (node, name), to, message = envelope
    field, shape = _FIELDS[type(message)]
    blobs: list[bytes] = []
    fields = shape.to_dict(message, blobs)
    sender = {"node": node, "name": name}
    content: dict[str, Any] = {field: fields}
    head = pb.Envelope(cluster=cluster, number=number, sender=sender, to=to, **content)
    return packet(head.SerializeToString(), blobs, bool(blobs) or type(message) in DATA)


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Iterator[Envelope]:
    """Yield the messages of a frame; raise `BadMessage` at the first thing that is none.

    Blocks are checked as a whole, and nothing is allocated for a length before as many bytes are there.
    """
    for fields, blobs in envelopes(pb.Frame, pb.Envelope, data):
        yield _envelope(fields, Blobs(blobs, limits))


def _envelope(fields: Any, blobs: Blobs) -> Envelope:
    name = fields.WhichOneof("message")
    if name is None or not fields.HasField("sender"):
        raise BadMessage("an envelope without a message that is known here, or without a sender")
    message = _SHAPES[name].from_fields(getattr(fields, name), blobs)
    blobs.end()
    sender = Member(NodeId(fields.sender.node), fields.sender.name)
    return Envelope(fields.cluster, fields.number, sender, NodeId(fields.to), message)


_FIELDS: Final = {message: (field_name(message), Shape(message)) for message in MESSAGES}
_SHAPES: Final = dict(_FIELDS.values())
