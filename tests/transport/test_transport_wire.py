"""Every message gets over the wire as it was; and nothing that is none gets in."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sirius.catchup import messages as catchup
from sirius.errors import BadMessage
from sirius.paxos import messages as paxos
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Accept, Beat, Envelope, Forward, Hello
from sirius.paxos.values import PValue, Request, Value
from sirius.transport import sirius_pb2 as pb
from sirius.transport import wire
from sirius.transport.columns import from_columns, to_columns
from sirius.transport.packets import field_name
from sirius.types import Ballot, NodeId, SegmentId, Seq
from sirius.wal.block import SEQ_MAX, Block, encode
from sirius.wal.record import DEFAULT_LIMITS, Limits, Op, Update

U64 = st.integers(0, 2**64 - 1)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(str.encode)
PUTS = st.tuples(KEYS, st.binary(max_size=40)).map(lambda pair: Update(Op.PUT, *pair))
UPDATES = st.lists(PUTS | KEYS.map(lambda key: Update(Op.DELETE, key)), min_size=1, max_size=9)
HOLES = st.tuples(st.integers(1, 2**40), st.integers(0, 9)).map(
    lambda pair: Block.hole(pair[0], sum(pair))
)
BLOCKS = HOLES | st.tuples(st.integers(1, 2**62), UPDATES).map(lambda pair: encode(*pair, ts_us=1))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    head = draw(U64), draw(st.integers(0, 2**62)), Seq(draw(st.integers(0, SEQ_MAX)))
    if draw(st.booleans()):
        return Request(*head, range(draw(st.integers(1, 10**6))), 0, cancelled=True)
    updates = draw(UPDATES)
    size = sum(len(each.key) + len(each.body) for each in updates)
    after = draw(st.none() | st.integers(0, 2**62))
    return Request(*head, updates, size + draw(st.integers(0, 99)), after=after)


KINDS: dict[Any, st.SearchStrategy[Any]] = {
    int: U64,
    NodeId: U64,
    SegmentId: U64,
    Seq: st.integers(0, SEQ_MAX),
    bool: st.booleans(),
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    bytes: st.binary(max_size=99),
    float: st.floats(0, allow_infinity=False, allow_nan=False),
    Value: BLOCKS,
    Request: requests(),
}


def any_of(hint: Any) -> st.SearchStrategy[Any]:
    """Everything that an annotation allows."""
    if hint in KINDS:
        return KINDS[hint]
    arguments = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return st.none() | any_of(arguments[0])
    if get_origin(hint) is tuple:
        return st.lists(any_of(arguments[0]), max_size=4).map(tuple)
    return st.builds(hint, *[any_of(each) for each in get_type_hints(hint).values()])


def envelopes(message: Any) -> st.SearchStrategy[Envelope]:
    return st.builds(Envelope, U64, U64, any_of(Member), U64, message)


ANY = envelopes(st.one_of([any_of(message) for message in wire.MESSAGES]))
ME = Member(NodeId(7), "127.0.0.1:4000")
BLOCK = encode(5, [Update(Op.PUT, b"k", b"body")], 0)


def over_the_wire(*sent: Envelope) -> list[Envelope]:
    return list(wire.decode(wire.frame([wire.encode(each) for each in sent])))


def envelope(message: Any) -> Envelope:
    return Envelope(1, 2, ME, NodeId(8), message)


@pytest.mark.parametrize("message", wire.MESSAGES, ids=lambda message: message.__name__)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_message_arrives_as_it_was(message: type, data: st.DataObject) -> None:
    sent = data.draw(envelopes(any_of(message)))
    (got,) = over_the_wire(sent)
    assert got == sent
    assert type(got.message) is message


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(sent=st.lists(ANY, max_size=6))
def test_a_frame_keeps_the_order_and_knows_its_size(sent: list[Envelope]) -> None:
    packets = [wire.encode(each) for each in sent]
    data = wire.frame(packets)
    assert list(wire.decode(data)) == sent
    assert len(data) == sum(packet.size for packet in packets)


def test_every_type_of_message_has_its_place() -> None:
    parts = {Envelope, catchup.Edition, catchup.Standing, catchup.SegmentOffer}
    defined = {
        each
        for module in (paxos, catchup)
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
    }
    assert set(wire.MESSAGES) == defined - parts
    names = {field.name for field in pb.Envelope.DESCRIPTOR.oneofs_by_name["message"].fields}
    assert names == {field_name(message) for message in wire.MESSAGES}


@pytest.mark.parametrize(
    "record",
    [
        *wire.MESSAGES,
        Configuration,
        Member,
        catchup.Edition,
        catchup.Standing,
        catchup.SegmentOffer,
    ],
    ids=lambda record: record.__name__,
)
def test_a_field_that_protobuf_has_belongs_to_the_record(record: Any) -> None:
    aside = {"value", "values", "data"}
    fields = {field.name for field in getattr(pb, record.__name__).DESCRIPTOR.fields}
    if dataclasses.is_dataclass(record):
        names = {field.name for field in dataclasses.fields(record)}
    else:
        names = set(record._fields)
    assert fields == names - aside


def test_operations_come_back_as_operations() -> None:
    updates = [Update(Op.PUT, b"a", b"b"), Update(Op.DELETE, b"a")]
    (got,) = over_the_wire(envelope(Forward((Request(1, 1, Seq(0), updates, 3),))))
    assert [type(each.op) for each in got.message.requests[0].updates] == [Op, Op]


def test_a_block_is_not_copied_before_the_frame_is_made() -> None:
    packet = wire.encode(envelope(Accept(Ballot(1, 7), BLOCK, Seq(4))))
    assert any(part is BLOCK.raw for part in packet.parts)


@pytest.mark.parametrize(
    ("message", "is_data"),
    [
        (Beat(Ballot(1, 7), 1, Seq(0)), False),
        (paxos.Promise(Ballot(1, 7), Seq(0), Ballot(0, 0), ()), False),
        (paxos.Promise(Ballot(1, 7), Seq(0), Ballot(0, 0), (PValue(Ballot(1, 7), BLOCK),)), True),
        (Accept(Ballot(1, 7), BLOCK, Seq(4)), True),
        (Forward(()), True),
        (
            catchup.Push((), catchup.Standing(Seq(1), Seq(1), catchup.Edition(), ())),
            True,
        ),
    ],
)
def test_control_is_what_carries_nothing(message: Any, is_data: bool) -> None:
    assert wire.encode(envelope(message)).is_data is is_data


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(sent=ANY, data=st.data())
def test_damaged_bytes_are_a_bad_message_or_another_message(
    sent: Envelope, data: st.DataObject
) -> None:
    raw = bytearray(wire.frame([wire.encode(sent)]))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        try:
            for got in wire.decode(damaged):
                wire.encode(got)
        except BadMessage:
            pass


@settings(max_examples=300)
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_a_bad_message_or_a_message(raw: bytes) -> None:
    with contextlib.suppress(BadMessage):
        list(wire.decode(raw))


def test_a_flipped_bit_in_a_block_is_found() -> None:
    raw = wire.frame([wire.encode(envelope(Accept(Ballot(1, 7), BLOCK, Seq(4))))])
    at = raw.index(b"body")
    with pytest.raises(BadMessage, match="checksum"):
        list(wire.decode(raw[:at] + b"B" + raw[at + 1 :]))


def test_a_block_above_the_limit_is_refused() -> None:
    raw = wire.frame([wire.encode(envelope(Accept(Ballot(1, 7), BLOCK, Seq(4))))])
    with pytest.raises(BadMessage, match="limit"):
        list(wire.decode(raw, Limits(block_bytes_max=100)))


def fields_of(message: Any) -> Any:
    """An envelope as protobuf has it, to be spoilt."""
    return pb.Frame.FromString(wire.frame([wire.encode(envelope(message))])).envelopes[0]


def refused(fields: Any) -> str:
    with pytest.raises(BadMessage) as caught:
        list(wire.decode(pb.Frame(envelopes=[fields]).SerializeToString()))
    return str(caught.value)


def test_what_is_missing_or_too_much_is_named() -> None:
    beat, accept = Beat(Ballot(1, 7), 1, Seq(0)), Accept(Ballot(1, 7), BLOCK, Seq(4))
    fields = fields_of(beat)
    fields.ClearField("beat")
    assert "without a message" in refused(fields)
    fields = fields_of(beat)
    fields.ClearField("sender")
    assert "without a sender" in refused(fields)
    fields = fields_of(beat)
    fields.beat.ClearField("ballot")
    assert "lacks its ballot" in refused(fields)
    fields = fields_of(accept)
    del fields.blobs[:]
    assert "lacks its block" in refused(fields)
    fields = fields_of(accept)
    fields.blobs.append(b"")
    assert "too many" in refused(fields)
    fields = fields_of(beat)
    fields.beat.decided = 2**63
    assert "above every sequence number" in refused(fields)


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1.0])
def test_a_time_to_wait_is_a_time(wait: float) -> None:
    fields = fields_of(catchup.Busy(1, 0.5))
    fields.busy.retry_s = wait
    assert "no time to wait" in refused(fields)


def forward(**changes: Any) -> Any:
    updates = [Update(Op.PUT, b"key", b"body"), Update(Op.DELETE, b"k")]
    fields = fields_of(Forward((Request(1, 1, Seq(0), updates, 99),)))
    for name, value in changes.items():
        setattr(fields.forward.requests[0].updates, name, value)
    return fields


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ops": b"\x01\x04"}, "neither a PUT nor a DELETE"),
        ({"ops": b"\x01"}, "bytes of lengths"),
        ({"ops": b"\x02\x02"}, "DELETE has a body"),
        ({"keys": b"keyk!"}, "keys do not add up"),
        ({"bodies": b"bod"}, "bodies do not add up"),
        ({"keys": b"ke\xffk"}, "not UTF-8"),
        ({"keys": "kéa".encode(), "key_lengths": np.array([2, 2], "<u4").tobytes()}, "not UTF-8"),
        ({"key_lengths": np.array([4, 0], "<u4").tobytes()}, "a key is empty"),
        ({"key_lengths": np.array([2**32 - 1, 5], "<u4").tobytes()}, "keys do not add up"),
        ({name: b"" for name in pb.Updates.DESCRIPTOR.fields_by_name}, "0 updates"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(changes: Any, reason: str) -> None:
    assert reason in refused(forward(**changes))


def test_keys_and_bodies_have_limits() -> None:
    columns = pb.Updates(**to_columns([Update(Op.PUT, b"key", b"body")]))
    with pytest.raises(BadMessage, match="more than 2 bytes"):
        from_columns(columns, Limits(key_bytes_max=2))
    with pytest.raises(BadMessage, match="more than 3 bytes"):
        from_columns(columns, Limits(body_bytes_max=3))
    with pytest.raises(BadMessage, match="more than a block holds"):
        from_columns(columns, Limits(block_bytes_max=64 + 48 + 6))
    assert from_columns(columns, Limits(block_bytes_max=64 + 48 + 7))


def test_a_request_cannot_claim_serials_that_no_block_holds() -> None:
    fields = forward()
    fields.forward.requests[0].cancelled = 2**40
    assert "more than a block holds" in refused(fields)
    fields = forward()
    fields.forward.requests[0].serial = 2**63 - 2
    assert "above every" in refused(fields)


def test_a_request_cannot_claim_to_be_smaller_than_it_is() -> None:
    fields = forward()
    fields.forward.requests[0].size = 0
    (got,) = wire.decode(pb.Frame(envelopes=[fields]).SerializeToString(), DEFAULT_LIMITS)
    assert got.message.requests[0].size == len(b"keykbody")


def test_a_field_of_a_later_version_is_passed_over() -> None:
    raw = wire.encode(envelope(Hello(True)))
    later = raw.parts[1] + b"\xf8\x3f\x01"  # field 1023 = 1
    frame = pb.Frame(envelopes=[pb.Envelope.FromString(later)]).SerializeToString()
    assert [each.message for each in wire.decode(frame)] == [Hello(True)]
