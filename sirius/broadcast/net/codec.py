"""Messages of proxies and clients as bytes. The format is that of `proto/broadcast.proto`.

A batch of events travels next to the fields of its message, in the bytes in which its publisher encoded it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, get_args

from sirius.broadcast import messages
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.limits import Limits
from sirius.broadcast.messages import Counts, Epoch, Mark, Message, Peer
from sirius.broadcast.wire import decode as decode_batch
from sirius.broadcast.wire import encode as encode_batch
from sirius.errors import BadMessage
from sirius.transport import broadcast_pb2 as pb
from sirius.transport.packets import Packet, field_name, packet, parsed
from sirius.transport.shapes import Blobs, Many, Plain, Shape, slot
from sirius.wal.record import DEFAULT_LIMITS

MESSAGES: Final[tuple[type, ...]] = get_args(Message)
"""Every message that can travel."""
DATA: Final = frozenset(
    {
        messages.Forward,
        messages.Events,
        messages.Publish,
        messages.Published,
        messages.Refused,
        messages.ChainPush,
    }
)
"""Messages of these types never overtake each other, also if they carry nothing."""


class Letter(NamedTuple):
    """A message, from whom and to whom: a process may be the home of many."""

    sender: Peer
    to: Peer
    message: Message


def encode(letter: Letter) -> Packet:
    """Encode a message. Batches are not copied."""
    sender, to, message = letter
    field, shape = _FIELDS[type(message)]
    blobs: list[bytes] = []
    content: dict[str, Any] = {field: shape.to_dict(message, blobs)}
    head = pb.Envelope(sender=sender, to=to, **content)
    return packet(head.SerializeToString(), blobs, type(message) in DATA)


def decode(data: bytes, limits: Limits) -> Iterator[Letter]:
    """Yield the messages of a frame; raise `BadMessage` at the first thing that is none."""
    for fields in parsed(pb.Frame, data).envelopes:
        name = fields.WhichOneof("message")
        if name is None or not fields.sender or not fields.to:
            raise BadMessage("an envelope without a message that is known here, or no address")
        blobs = _Batches(fields.blobs, limits)
        message = _SHAPES[name].from_fields(getattr(fields, name), blobs)
        blobs.end()
        yield Letter(Peer(fields.sender), Peer(fields.to), message)


class _Batches(Blobs):
    """The batches that came next to a message."""

    def __init__(self, blobs: Any, limits: Limits) -> None:
        super().__init__(blobs, DEFAULT_LIMITS)
        self._events = limits

    def batch(self) -> EventBatch:
        return decode_batch(self.take(), self._events)

    def batches(self) -> tuple[EventBatch, ...]:
        """Return all that are left."""
        return tuple([decode_batch(blob, self._events) for blob in self._blobs])


class _Batch:
    def out(self, value: EventBatch, blobs: list[bytes]) -> None:
        blobs.append(encode_batch(value))

    def back(self, _fields: Any, _name: str, blobs: Any) -> EventBatch:
        batch: EventBatch = blobs.batch()
        return batch


class _Many:
    def out(self, value: tuple[EventBatch, ...], blobs: list[bytes]) -> None:
        blobs.extend(map(encode_batch, value))

    def back(self, _fields: Any, _name: str, blobs: Any) -> tuple[EventBatch, ...]:
        batches: tuple[EventBatch, ...] = blobs.batches()
        return batches


class _Counts:
    def out(self, value: Counts, _blobs: list[bytes]) -> Any:
        return [{"stream": stream, "seq": seq} for stream, seq in value]

    def back(self, fields: Any, name: str, _blobs: Any) -> Counts:
        return tuple([(Stream(each.stream), slot(each.seq)) for each in getattr(fields, name)])


class _Epoch:
    def out(self, value: Epoch, _blobs: list[bytes]) -> Any:
        return {"life": value[0], "number": value[1]}

    def back(self, fields: Any, name: str, _blobs: Any) -> Epoch:
        if not fields.HasField(name):
            raise BadMessage(f"a message lacks its {name}")
        epoch = getattr(fields, name)
        return epoch.life, epoch.number


_KINDS: Final[dict[Any, Any]] = {
    Stream: Plain(),
    Peer: Plain(),
    tuple[Peer, ...]: Many(None),
    EventBatch: _Batch(),
    tuple[EventBatch, ...]: _Many(),
    Counts: _Counts(),
    Epoch: _Epoch(),
    tuple[Mark, ...]: Many(Shape(Mark)),
}
_FIELDS: Final = {message: (field_name(message), Shape(message, _KINDS)) for message in MESSAGES}
_SHAPES: Final = dict(_FIELDS.values())
