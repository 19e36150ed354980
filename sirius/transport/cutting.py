"""Large frames, taken apart around their blobs.

Protobuf copies a blob twice: when it parses a frame, and when somebody asks for the blob. Blocks have up to some
megabytes, and that costs more than all the rest of taking one. Here the fields of an envelope are told apart by the few
bytes in front of each, the blobs are cut out of the frame, and protobuf gets what is left::

    field     number << 3 | kind, a varint | content

    kind  0   a varint: seven bits a byte, the lowest first, the highest bit says whether there are more
          1   8 bytes
          2   a length, which is a varint, and as many bytes
          5   4 bytes

This knows no more of protobuf than that. What is not as our own senders write it (a number with more bytes than it
needs, a group, a length that leads outside, any number of fields) is left to protobuf as a whole, which takes it or
refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sirius.transport.packets import BLOBS, ENVELOPES, parsed

LARGE_BYTES: Final = 64 * 1024
"""Frames and envelopes below this are parsed by protobuf in less time."""
_FIELDS_MAX: Final = 256
"""How many fields are looked at, of a frame and of each of its large envelopes. Protobuf is faster with many."""
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_ENVELOPE: Final = ENVELOPES << 3 | _LENGTH_DELIMITED
_BLOB: Final = BLOBS << 3 | _LENGTH_DELIMITED
_VARINT_BYTES_MAX: Final = 10

_Field = tuple[int, int, int, int]
"""What a field begins with, where it does, where its content begins, and where it ends."""


class _Unusual(Exception):
    """Not as our senders write it."""


def envelopes(frame: Any, envelope: Any, data: bytes) -> Sequence[tuple[Any, Sequence[bytes]]]:
    """Return the envelopes of a frame, each with its blobs; raise `BadMessage` if it is none.

    `frame` and `envelope` are the classes that protobuf has for them.
    """
    if len(data) >= LARGE_BYTES:
        try:
            return [_cut(envelope, data, field) for field in _fields(data, 0, len(data))]
        except (_Unusual, IndexError):
            pass
    return [(fields, fields.blobs) for fields in parsed(frame, data).envelopes]


def _cut(envelope: Any, data: bytes, field: _Field) -> tuple[Any, Sequence[bytes]]:
    """Return an envelope and its blobs."""
    tag, _, begin, end = field
    if tag != _ENVELOPE:
        raise _Unusual
    if end - begin < LARGE_BYTES:
        fields = parsed(envelope, data[begin:end])
        return fields, fields.blobs
    rest, blobs = [], []
    for tag, at, content_at, stop in _fields(data, begin, end):
        if tag == _BLOB:
            blobs.append(data[content_at:stop])
        else:
            rest.append(data[at:stop])
    return parsed(envelope, b"".join(rest)), blobs


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """Yield the fields from `at` to `end`."""
    for _ in range(_FIELDS_MAX):
        if at >= end:
            return
        tag, content_at = _number(data, at)
        content_at, stop = _content(data, content_at, tag & 7)
        if stop > end:
            raise _Unusual
        yield tag, at, content_at, stop
        at = stop
    raise _Unusual


def _content(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return from where to where a field's content goes."""
    if kind == _LENGTH_DELIMITED:
        length, at = _number(data, at)
        return at, at + length
    if kind == _VARINT:
        return at, _number(data, at)[1]
    if kind == _FIXED64:
        return at, at + 8
    if kind == _FIXED32:
        return at, at + 4
    raise _Unusual


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint, and where it ends."""
    number = data[at] & 127
    for shift in range(7, 7 * _VARINT_BYTES_MAX + 1, 7):
        if data[at] < 128:
            if not data[at] and shift > 7:
                break
            return number, at + 1
        at += 1
        number |= (data[at] & 127) << shift
    raise _Unusual
