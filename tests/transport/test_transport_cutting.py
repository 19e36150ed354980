"""Large frames are cut up into what protobuf would have made of them, or are refused as protobuf would refuse them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sirius.catchup.messages import Edition, Push, Standing
from sirius.errors import BadMessage
from sirius.paxos.messages import Beat, Envelope
from sirius.transport import cutting, wire
from sirius.transport import sirius_pb2 as pb
from sirius.types import Ballot, Seq
from sirius.wal.block import encode
from sirius.wal.record import Op, Update
from tests.transport.test_transport_wire import ANY, envelope

BLOBS = st.lists(st.binary(max_size=300), max_size=4)
SMALL = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@pytest.fixture
def all_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(cutting, "LARGE_BYTES", 1)
        yield


def part(size: int = cutting.LARGE_BYTES) -> Envelope:
    standing = Standing(Seq(9), Seq(8), Edition(7, Seq(6)), ())
    block = encode(1, [Update(Op.PUT, b"k", b"x" * size)], ts_us=1)
    return envelope(Push((block,), standing))


def raw(*sent: Envelope) -> bytes:
    return wire.frame([wire.encode(each) for each in sent])


def outcome(found: Any) -> Any:
    """What there is in envelopes, all fields and all blobs; or that they were refused."""
    try:
        return [plain(fields, list(blobs)) for fields, blobs in found()]
    except BadMessage:
        return "refused"


def plain(fields: Any, blobs: list[bytes]) -> tuple[bytes, list[bytes]]:
    rest = pb.Envelope.FromString(fields.SerializeToString())
    rest.ClearField("blobs")
    return rest.SerializeToString(deterministic=True), blobs


def by_cutting(data: bytes) -> Any:
    return outcome(lambda: cutting.envelopes(pb.Frame, pb.Envelope, data))


def by_protobuf(data: bytes) -> Any:
    return outcome(lambda: [(each, each.blobs) for each in wire.parsed(pb.Frame, data).envelopes])


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


# ---------------------------------------------------------------------- what is meant to be large


def test_protobuf_does_not_see_the_bytes_of_a_block() -> None:
    sent = part()
    ((fields, blobs),) = cutting.envelopes(pb.Frame, pb.Envelope, raw(sent))
    assert not fields.blobs
    assert blobs == [sent.message.values[0].raw]
    assert type(blobs[0]) is bytes
    assert list(wire.decode(raw(sent))) == [sent]


def test_small_messages_come_between_large_ones_as_they_were_sent() -> None:
    beat = envelope(Beat(Ballot(1, 7), 1, Seq(0)))
    sent = [beat, part(), beat, part(3), part(2 * cutting.LARGE_BYTES), beat]
    assert list(wire.decode(raw(*sent))) == sent


# ---------------------------------------------------------------------- the same as protobuf


@pytest.mark.usefixtures("all_is_large")
@settings(max_examples=200, suppress_health_check=SMALL)
@given(sent=st.lists(ANY, max_size=4))
def test_every_message_is_what_protobuf_makes_of_it(sent: list[Envelope]) -> None:
    data = raw(*sent)
    assert by_cutting(data) == by_protobuf(data)
    assert list(wire.decode(data)) == sent


@pytest.mark.usefixtures("all_is_large")
@settings(max_examples=200, suppress_health_check=SMALL)
@given(sent=ANY, blobs=BLOBS, data=st.data())
def test_fields_may_come_in_any_order(sent: Envelope, blobs: list[bytes], data: Any) -> None:
    pieces = [wire.encode(sent).parts[1], *(field(5, each[:99]) for each in blobs)]
    pieces += [b"\xf8\x3f\x01", field(3, b""), b"\x25abcd", b"\x28\x07"]
    content = b"".join(data.draw(st.permutations(pieces)))
    frame = pb.Frame(envelopes=[pb.Envelope.FromString(content)])
    shuffled = _framed(content)
    assert by_cutting(shuffled) == by_protobuf(shuffled) != "refused"
    written = frame.SerializeToString()
    assert by_cutting(written) == by_protobuf(written) != "refused"


def _framed(content: bytes) -> bytes:
    return b"\x0a" + _varint(content) + content


def _varint(content: bytes) -> bytes:
    """The length of something, as protobuf writes it."""
    return bytes(pb.Accepted(first=len(content)).SerializeToString()[1:]) or b"\0"


@pytest.mark.usefixtures("all_is_large")
@settings(max_examples=300, suppress_health_check=SMALL)
@given(sent=st.lists(ANY, min_size=1, max_size=2), data=st.data())
def test_damaged_frames_are_what_protobuf_makes_of_them(sent: list[Envelope], data: Any) -> None:
    damaged = bytearray(raw(*sent))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for each in (bytes(damaged), bytes(damaged[:cut])):
        assert by_cutting(each) == by_protobuf(each)


@pytest.mark.usefixtures("all_is_large")
@settings(max_examples=300, suppress_health_check=SMALL)
@given(data=st.binary(max_size=60) | st.binary(max_size=60).map(lambda content: field(1, content)))
def test_any_bytes_are_what_protobuf_makes_of_them(data: bytes) -> None:
    assert by_cutting(data) == by_protobuf(data)


# ---------------------------------------------------------------------- what somebody may think of


@pytest.mark.usefixtures("all_is_large")
@pytest.mark.parametrize(
    ("data", "is_taken"),
    [
        (b"\x0a\x05\x2a\x03abc", True),
        (b"\x0a", False),
        (b"\x0a\x05\x2a\x03ab", False),
        (b"\x0a\x05\x2a\x04abc\x0a\x00", False),
        (b"\x0a\xff\xff\xff\xff\x07", False),
        (b"\x0a\x0b\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", False),
        (b"\x0a\x0c\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", False),
        (b"\x0a\x02\x28\x07", True),
        (b"\x0a\x02\x2b\x2c", True),
        (b"\x0a\x01\x2b", False),
        (b"\x0a\x02\x2e\x00", False),
        (b"\x0a\x06\xaa\x00\x03abc", True),
        (b"\x0a\x06\x2a\x83\x00abc", True),
        (b"\x8a\x00\x00", True),
        (b"\x0a\x0c\x2a\x83\x80\x80\x80\x80\x80\x80\x00abc", False),
        (b"\x0a\x0c\xaa\x80\x80\x80\x80\x80\x80\x00\x03abc", False),
        (b"\x12\x03abc", True),
        (b"\x08\x01", True),
        (b"\x0a\x04\x1a\x02\x12\x05", False),
        (b"\x0a\x05\x1a\x03\x12\x01\xff", False),
        (b"\x0a\x02\x02\x00", False),
    ],
    ids=[
        "a blob",
        "a length that is missing",
        "a frame that is cut off",
        "a blob that leads into the next envelope",
        "an envelope of two gigabytes",
        "a blob of all there is",
        "a length without end",
        "a number in the place of a blob",
        "a group in the place of a blob",
        "a group without an end",
        "a kind that there is not",
        "a tag that is too long",
        "a length that is too long",
        "the tag of an envelope that is too long",
        "a length of eight bytes",
        "a tag of eight bytes",
        "an unknown field of a frame",
        "a number in the place of an envelope",
        "a sender that is cut off",
        "a name that is no text",
        "a field without a number",
    ],
)
def test_what_is_unusual_is_left_to_protobuf(data: bytes, is_taken: bool) -> None:
    assert by_cutting(data) == by_protobuf(data)
    assert (by_cutting(data) != "refused") is is_taken


@pytest.mark.parametrize("data", [b"\x0a\x00" * 100_000, _framed(b"\x28\x07" * 100_000)])
def test_very_many_fields_do_not_keep_the_loop_busy(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    number = cutting._number

    def counted(data: bytes, at: int) -> tuple[int, int]:
        looked_at.append(at)
        return number(data, at)

    monkeypatch.setattr(cutting, "_number", counted)
    assert by_cutting(data) == by_protobuf(data)
    assert len(looked_at) < 1000
