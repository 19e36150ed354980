"""The records of the machines, field by field, to and from protobuf.

A record is a named tuple or dataclass; its protobuf message has fields of the same names. How a field travels follows
from its annotation, so a new field needs a line in the .proto and nothing here. What is too large to be copied (blocks,
parts of files) is left out of the protobuf message and travels next to it, in the order of the fields: see `Blobs`.

Reading believes nothing: a record that lacks a part, or has a number that no log can have, raises `BadMessage`.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, Union, get_args, get_origin, get_type_hints

from sirius.errors import BadMessage, CorruptLog
from sirius.paxos.values import PUBLISHERS, Numbers, PValue, Request, Value
from sirius.transport.columns import from_columns, size_fault, to_columns
from sirius.types import Ballot, NodeId, SegmentId, Seq
from sirius.wal.block import SEQ_MAX, Block
from sirius.wal.record import Limits


class Blobs:
    """The bytes that came next to a message, taken one after the other."""

    def __init__(self, blobs: Sequence[bytes], limits: Limits) -> None:
        self._blobs: Iterator[bytes] = iter(blobs)
        self.limits = limits

    def take(self) -> bytes:
        for blob in self._blobs:
            return blob
        raise BadMessage("a message lacks its block")

    def block(self) -> Block:
        """Return the next one, which is a block, whole and sound."""
        return self._parsed(self.take())

    def blocks(self) -> tuple[Block, ...]:
        """Return all that are left."""
        return tuple(map(self._parsed, self._blobs))

    def end(self) -> None:
        if next(self._blobs, None) is not None:
            raise BadMessage("a message has a block too many")

    def _parsed(self, blob: bytes) -> Block:
        try:
            return Block.parse(blob, self.limits)
        except CorruptLog as error:
            raise BadMessage(f"a block is damaged: {error}") from None


class Kind(Protocol):
    """How one kind of field travels."""

    def out(self, value: Any, blobs: list[bytes], /) -> Any:
        """Return what protobuf is given; None for nothing."""
        ...

    def back(self, fields: Any, name: str, blobs: Blobs, /) -> Any:
        """Return the value again, from the field `name` of a protobuf message."""
        ...


class Shape:
    """How one type of record travels. `kinds` are those of fields that are not known here."""

    def __init__(self, record: Callable[..., Any], kinds: Mapping[Any, Kind] | None = None) -> None:
        self.record = record
        hints = get_type_hints(record)
        names: Sequence[str] = getattr(record, "_fields", None) or tuple(hints)
        known = {**_KINDS, **(kinds or {})}
        self._fields = tuple((name, _kind(hints[name], known)) for name in names)

    def to_dict(self, record: Any, blobs: list[bytes]) -> dict[str, Any]:
        """Return the fields as protobuf takes them, and add what travels next to them to `blobs`."""
        fields = {}
        for name, kind in self._fields:
            value = kind.out(getattr(record, name), blobs)
            if value is not None:
                fields[name] = value
        return fields

    def from_fields(self, fields: Any, blobs: Blobs) -> Any:
        return self.record(*[kind.back(fields, name, blobs) for name, kind in self._fields])


class Plain:
    """What protobuf has too."""

    def out(self, value: Any, _blobs: list[bytes]) -> Any:
        return value

    def back(self, fields: Any, name: str, _blobs: Blobs) -> Any:
        return getattr(fields, name)


class _Slot(Plain):
    """A sequence number."""

    def back(self, fields: Any, name: str, _blobs: Blobs) -> Any:
        return slot(getattr(fields, name))


class _Seconds(Plain):
    def back(self, fields: Any, name: str, _blobs: Blobs) -> Any:
        value = getattr(fields, name)
        if not (math.isfinite(value) and value >= 0):
            raise BadMessage(f"{name} = {value} is no time to wait")
        return value


class _Part:
    """A record inside a record."""

    def __init__(self, record: Callable[..., Any]) -> None:
        self._shape = Shape(record)

    def out(self, value: Any, blobs: list[bytes]) -> Any:
        return self._shape.to_dict(value, blobs)

    def back(self, fields: Any, name: str, blobs: Blobs) -> Any:
        if not fields.HasField(name):
            raise BadMessage(f"a message lacks its {name}")
        return self._shape.from_fields(getattr(fields, name), blobs)


class _Ballot:
    """A record too; but every message has one, so it has its own way."""

    def out(self, value: Ballot, _blobs: list[bytes]) -> Any:
        return {"round": value[0], "node": value[1]}

    def back(self, fields: Any, name: str, _blobs: Blobs) -> Ballot:
        if not fields.HasField(name):
            raise BadMessage(f"a message lacks its {name}")
        ballot = getattr(fields, name)
        return Ballot(ballot.round, ballot.node)


class _Optional:
    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def out(self, value: Any, blobs: list[bytes]) -> Any:
        return None if value is None else self._kind.out(value, blobs)

    def back(self, fields: Any, name: str, blobs: Blobs) -> Any:
        return self._kind.back(fields, name, blobs) if fields.HasField(name) else None


class Many:
    """Records, or plain values if there is no shape."""

    def __init__(self, shape: Shape | None) -> None:
        self._shape = shape

    def out(self, value: Any, blobs: list[bytes]) -> Any:
        if self._shape is None:
            return value
        return [self._shape.to_dict(each, blobs) for each in value]

    def back(self, fields: Any, name: str, blobs: Blobs) -> Any:
        values = getattr(fields, name)
        if self._shape is None:
            return tuple(values)
        return tuple([self._shape.from_fields(each, blobs) for each in values])


class _Block:
    def out(self, value: Block, blobs: list[bytes]) -> None:
        blobs.append(value.raw)

    def back(self, _fields: Any, _name: str, blobs: Blobs) -> Block:
        return blobs.block()


class _Blocks:
    def out(self, value: Sequence[Block], blobs: list[bytes]) -> None:
        blobs.extend(block.raw for block in value)

    def back(self, _fields: Any, _name: str, blobs: Blobs) -> tuple[Block, ...]:
        return blobs.blocks()


class _Bytes:
    def out(self, value: bytes, blobs: list[bytes]) -> None:
        blobs.append(value)

    def back(self, _fields: Any, _name: str, blobs: Blobs) -> bytes:
        return blobs.take()


class _PValues:
    """The ballots travel as a field, the values next to the message."""

    def out(self, value: Sequence[Any], blobs: list[bytes]) -> Any:
        blobs.extend(pvalue.value.raw for pvalue in value)
        return [{"round": round_, "node": node} for (round_, node), _ in value]

    def back(self, fields: Any, name: str, blobs: Blobs) -> tuple[PValue, ...]:
        ballots = getattr(fields, name)
        return tuple([PValue(Ballot(each.round, each.node), blobs.block()) for each in ballots])


class _Requests:
    """Requests, with their updates as columns."""

    def out(self, value: Sequence[Request], _blobs: list[bytes]) -> Any:
        return list(map(_request_out, value))

    def back(self, fields: Any, name: str, blobs: Blobs) -> tuple[Request, ...]:
        return tuple([_request_back(each, blobs.limits) for each in getattr(fields, name)])


def _request_out(request: Request) -> dict[str, Any]:
    fields = {
        "session": request.session,
        "serial": request.serial,
        "opened": request.opened,
        "size": request.size,
    }
    if request.after is not None:
        fields["after"] = request.after
    if request.cancelled:
        return {**fields, "cancelled": len(request.updates)}
    return {**fields, "updates": to_columns(request.updates)}


def _request_back(fields: Any, limits: Limits) -> Request:
    updates: Sequence[Any]
    size, cancelled = fields.size, not fields.HasField("updates")
    if cancelled:
        updates = range(fields.cancelled)
        # Whoever decides it makes entries of all of them.
        if fault := size_fault(fields.cancelled, 0, limits):
            raise BadMessage(fault)
    else:
        updates = from_columns(fields.updates, limits)
        # A leader puts requests together by their sizes: nobody gets more into a block by claiming less.
        size = max(size, len(fields.updates.keys) + len(fields.updates.bodies))
    slot(fields.serial + len(updates))
    opened = slot(fields.opened)
    after = fields.after if fields.HasField("after") else None
    return Request(fields.session, fields.serial, opened, updates, size, cancelled, after)


def numbers_back(fields: Any, count: int) -> Numbers | None:
    """Return the numbers of a publisher's `count` updates, if it gave any; they have to make sense."""
    if not fields.HasField("numbers"):
        return None
    session, serial, after = fields.numbers.session, fields.numbers.serial, fields.numbers.after
    if session < PUBLISHERS or not after < serial:
        raise BadMessage(f"session {session} cannot have serial {serial} behind {after}")
    slot(serial + count)
    return Numbers(session, serial, after)


def slot(number: int) -> Seq:
    """Return a sequence number, if a log can have it."""
    if number > SEQ_MAX:
        raise BadMessage(f"{number} is above every sequence number")
    return Seq(number)


_KINDS: Final[dict[Any, Kind]] = {
    **dict.fromkeys((int, bool, str, NodeId, SegmentId), Plain()),
    Seq: _Slot(),
    float: _Seconds(),
    bytes: _Bytes(),
    Ballot: _Ballot(),
    Value: _Block(),
    tuple[Value, ...]: _Blocks(),
    tuple[PValue, ...]: _PValues(),
    tuple[Request, ...]: _Requests(),
    tuple[NodeId, ...]: Many(None),
}


def _kind(hint: Any, known: Mapping[Any, Kind]) -> Kind:
    if kind := known.get(hint):
        return kind
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and arguments[1:] == (types.NoneType,):
        return _Optional(_kind(arguments[0], known))
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return Many(Shape(arguments[0]))
    if origin is None and isinstance(hint, type) and get_type_hints(hint):
        return _Part(hint)
    raise TypeError(f"there is no way for a {hint} over the wire")
