"""Messages as bytes and back; and bytes that are none."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from sirius.broadcast.events import EventBatch, Kind, Stream
from sirius.broadcast.limits import Limits
from sirius.broadcast.messages import (
    Advertise,
    ChainBeat,
    ChainIs,
    ChainPull,
    ChainPush,
    Events,
    Forward,
    Gossip,
    Mark,
    Message,
    Notify,
    Peer,
    Publish,
    Published,
    Refused,
    Request,
    Subscribe,
    Unsubscribe,
)
from sirius.broadcast.net.codec import MESSAGES, Letter, decode, encode
from sirius.broadcast.wire import encode as batch_bytes
from sirius.errors import BadMessage
from sirius.transport import broadcast_pb2 as pb
from sirius.transport.packets import field_name, frame
from sirius.types import Seq

FILMS = Stream("films")
A, B = Peer("127.0.0.1:1"), Peer("127.0.0.1:2/c7")
BATCH = EventBatch.of([b"k1", b"key2"], Kind.KEYED, "/a/b", [b"x", b""], {"size": [1, 2]})
LATER = EventBatch.packed(b"0123456789", 5).numbered(Seq(7), 1000, 3, 4)
EXAMPLES: list[Message] = [
    Advertise(((FILMS, Seq(5)), (Stream("b"), Seq(0)))),
    Subscribe(FILMS, Seq(3), (2**63 + 1, 2)),
    Unsubscribe(FILMS, (1, 2)),
    Forward(FILMS, BATCH),
    Gossip((A, B), True, (Peer("x:1"),)),
    Notify(((FILMS, Seq(7)),)),
    Request(FILMS, Seq(1), Seq(2**62), 3),
    Events(FILMS, 1, Seq(8), (BATCH, LATER)),
    Events(FILMS, 1, Seq(0), ()),
    Publish(FILMS, 2**64 - 1, 1, BATCH),
    Published(FILMS, 9, 1, Seq(1), Seq(2)),
    Refused(FILMS, 9, 1, "there is no stream", again=True),
    ChainPush(3, FILMS, Seq(9), (Mark(2**64 - 1, 4, Seq(7), Seq(8)),), LATER),
    ChainPull(3, ((FILMS, Seq(8)),), ((FILMS, Seq(0)),)),
    ChainBeat(3, (B,)),
    ChainBeat(3, ()),
    ChainIs(A, 2**40, (A, B)),
]


def comparable(value: object) -> object:
    """Batches are compared by their bytes: they have columns."""
    if isinstance(value, EventBatch):
        return batch_bytes(value)
    if isinstance(value, tuple):
        return (type(value).__name__, *map(comparable, value))
    return value


def test_there_is_an_example_of_every_message_and_a_field_for_it() -> None:
    assert {type(example) for example in EXAMPLES} == set(MESSAGES) == set(get_args(Message))
    fields = pb.Envelope.DESCRIPTOR.oneofs_by_name["message"].fields
    assert {field.name for field in fields} == {field_name(message) for message in MESSAGES}


@pytest.mark.parametrize("message", EXAMPLES)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    (letter,) = decode(frame([encode(Letter(A, B, message))]), Limits())
    assert comparable(letter) == comparable(Letter(A, B, message))


def test_a_frame_holds_many() -> None:
    letters = [Letter(A, B, message) for message in EXAMPLES]
    back = list(decode(frame(map(encode, letters)), Limits()))
    assert list(map(comparable, back)) == list(map(comparable, letters))


def test_garbage_is_a_bad_message_and_nothing_else() -> None:
    """Every byte of a frame is changed, and it is cut everywhere: what comes out is messages, or `BadMessage`."""
    whole = frame(encode(Letter(A, B, message)) for message in EXAMPLES)
    rng = random.Random(1)
    bad = 0
    for at in range(len(whole)):
        spoilt = bytearray(whole)
        spoilt[at] ^= 1 << rng.randrange(8)
        for data in (bytes(spoilt), whole[:at]):
            try:
                list(decode(data, Limits()))
            except BadMessage:
                bad += 1
    assert bad > len(whole)


@pytest.mark.parametrize(
    ("envelope", "message"),
    [
        (pb.Envelope(sender=A, to=B), "without a message"),
        (pb.Envelope(to=B, notify={}), "no address"),
        (pb.Envelope(sender=A, notify={}), "no address"),
        (pb.Envelope(sender=A, to=B, subscribe={"stream": "films"}), "lacks its epoch"),
        (pb.Envelope(sender=A, to=B, forward={"stream": "films"}), "lacks its block"),
        (pb.Envelope(sender=A, to=B, notify={}, blobs=[b"x"]), "a block too many"),
        (pb.Envelope(sender=A, to=B, forward={}, blobs=[b"x" * 99]), "is damaged"),
        (pb.Envelope(sender=A, to=B, request={"first": 2**63}), "above every sequence number"),
    ],
)
def test_what_is_wrong_is_told(envelope: pb.Envelope, message: str) -> None:
    with pytest.raises(BadMessage, match=message):
        list(decode(pb.Frame(envelopes=[envelope]).SerializeToString(), Limits()))


def test_a_batch_that_is_too_large_is_refused() -> None:
    data = frame([encode(Letter(A, B, Forward(FILMS, BATCH)))])
    with pytest.raises(BadMessage, match="2 events are more than 1"):
        list(decode(data, Limits(events_max=1)))
