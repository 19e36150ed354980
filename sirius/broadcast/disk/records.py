"""Events as entries of a log, one each, with the same sequence number and time.

::

    key     letter | topic | 0 | key              a keyed event: later ones of the key take its place
            letter | topic | 0 | key | 0 | seq    data, and GC events: nothing takes their place by itself
    letter  K, D, G for keyed, data, GC; k, d, g if the key is no UTF-8 and stands here in hexadecimal digits
    body    number of attributes (u8) | for each: bytes of its name (u8), name, value (i64) | payload
    session, serial: the publisher and his how-manieth batch; 0: unknown

So the tools for logs show a stream's keys, and compaction is key GC. All events of a batch stand in one block: a log
has all of them or none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import repeat
from typing import Final

import numpy as np

from sirius.broadcast.columns import pieces
from sirius.broadcast.events import ABSENT, EventBatch, Kind
from sirius.errors import BadMessage, CorruptLog, InvalidRecord
from sirius.types import Seq
from sirius.wal.batch import Batch
from sirius.wal.block import ENTRY, Block, assemble
from sirius.wal.record import Limits, Op

_LETTERS: Final = {Kind.KEYED: b"K", Kind.DATA: b"D", Kind.GC: b"G"}
_KINDS: Final = {ord(letter): kind for kind, letter in _LETTERS.items()}
_VALUE: Final = struct.Struct("<q")


def block_of(batch: EventBatch, limits: Limits) -> Block:
    """Return a batch as a block of a log. Raises `BadMessage` if it is too large for one."""
    entries = np.zeros(len(batch), ENTRY)
    entries["op"] = Op.PUT
    entries["seq"] = batch.seqs
    entries["ts"] = batch.times
    entries["session"] = batch.publisher
    entries["serial"] = batch.serial
    try:
        return assemble(batch.first, batch.last, entries, _keys(batch), _bodies(batch), limits)
    except InvalidRecord as error:
        raise BadMessage(f"{len(batch)} events do not go into the log: {error}") from error


def _keys(batch: EventBatch) -> list[bytes]:
    topics = [topic.encode() for topic in batch.topics]
    rows = zip(
        batch.kinds.tolist(),
        batch.topic_ids.tolist(),
        pieces(batch.keys, batch.key_lengths),
        batch.seqs.tolist(),
        strict=True,
    )
    is_text = _is_ascii if batch.keys.isascii() else _is_utf8
    return [
        _key(Kind(kind), topics[topic], key, seq, is_text(key)) for kind, topic, key, seq in rows
    ]


def _is_ascii(_key: bytes) -> bool:
    return True


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _key(kind: Kind, topic: bytes, key: bytes, seq: int, is_text: bool) -> bytes:
    letter = _LETTERS[kind]
    name = b"%s%s\0%s" % (letter, topic, key)
    if not is_text:
        name = b"%s%s\0%s" % (letter.lower(), topic, key.hex().encode())
    return name if kind == Kind.KEYED else b"%s\0%d" % (name, seq)


def _bodies(batch: EventBatch) -> list[bytes]:
    payloads = pieces(batch.payloads, batch.payload_lengths)
    if not batch.attributes:
        return [b"\0" + payload for payload in payloads]
    names = [b"%c%s" % (len(name), name.encode()) for name in batch.attributes]
    rows = zip(*(column.tolist() for column in batch.attributes.values()), strict=True)
    return [_body(names, values, payload) for values, payload in zip(rows, payloads, strict=True)]


def _body(names: list[bytes], values: tuple[int, ...], payload: bytes) -> bytes:
    found = [
        name + _VALUE.pack(value)
        for name, value in zip(names, values, strict=True)
        if value != ABSENT
    ]
    return b"".join((bytes([len(found)]), *found, payload))


# ---------------------------------------------------------------------- and back


def events_in(batch: Batch) -> EventBatch:
    """Return entries of a log as the events that they are. They need not be those of one published batch."""
    rows = [_parsed(key) for key in batch.key_blobs()]
    bodies = [_unpacked(body) for body in batch.bodies()]
    made = EventBatch.of(
        [key for _, _, key in rows],
        [kind for kind, _, _ in rows],
        [topic for _, topic, _ in rows],
        [payload for _, payload in bodies],
        _columns([attributes for attributes, _ in bodies]),
    )
    return numbered_as(made, batch)


def numbered_as(made: EventBatch, batch: Batch) -> EventBatch:
    """Give events the numbers and times that they have in a log."""
    places = batch.seq.astype(np.int64) - batch.first
    return EventBatch(
        first=batch.first,
        last=batch.last,
        places=places.astype(np.uint32) if batch.holes else None,
        kinds=made.kinds,
        times=batch.entries["ts"].astype(np.int64),
        topics=made.topics,
        topic_ids=made.topic_ids,
        key_lengths=made.key_lengths,
        keys=made.keys,
        payload_lengths=made.payload_lengths,
        payloads=made.payloads,
        attributes=made.attributes,
    )


def _parsed(name: bytes) -> tuple[Kind, str, bytes]:
    kind = _KINDS.get(name[0] & ~0x20) if name else None
    topic, zero, key = name[1:].partition(b"\0")
    if kind is None or not zero:
        raise CorruptLog(f"{name[:40]!r} is not the key of an event")
    if kind != Kind.KEYED:
        key = key.rpartition(b"\0")[0]
    return kind, topic.decode(), bytes.fromhex(key.decode()) if name[0] & 0x20 else key


def _unpacked(body: bytes) -> tuple[dict[str, int], bytes]:
    if not body:
        raise CorruptLog("an event without a body is none")
    at, attributes = 1, {}
    for _ in repeat(None, body[0]):
        end = at + 1 + body[at]
        attributes[body[at + 1 : end].decode()] = _VALUE.unpack_from(body, end)[0]
        at = end + _VALUE.size
    return attributes, body[at:]


def _columns(rows: list[dict[str, int]]) -> dict[str, list[int]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, ABSENT) for row in rows] for name in names}


def publishers_in(batch: Batch) -> Iterator[tuple[int, int, Seq, Seq]]:
    """Yield publisher, serial, first and last number of every published batch, as far as it is left."""
    entries = batch.entries
    if not len(entries):
        return
    changed = np.flatnonzero(
        (np.diff(entries["session"]) != 0) | (np.diff(entries["serial"].astype(np.int64)) != 0)
    )
    begins = [0, *(changed + 1).tolist()]
    ends = [*changed.tolist(), len(entries) - 1]
    for begin, end in zip(begins, ends, strict=True):
        publisher, serial = int(entries["session"][begin]), int(entries["serial"][begin])
        if publisher:
            yield publisher, serial, Seq(int(entries["seq"][begin])), Seq(int(entries["seq"][end]))
