"""What waits for a peer: bounds, order, and where a frame is cut."""

from __future__ import annotations

import pytest

from sirius.errors import UsageError
from sirius.transport.limits import TransportLimits
from sirius.transport.outbox import Outbox
from sirius.transport.wire import Packet
from sirius.wal.record import Limits

LIMITS = TransportLimits(
    log=Limits(block_bytes_max=1000),
    frame_bytes=100,
    queue_bytes_max=300,
    queue_messages_max=5,
)


def packet(size: int, is_data: bool = True) -> Packet:
    return Packet([bytes(size)], size, is_data)


def taken(outbox: Outbox) -> list[list[tuple[int, bool]]]:
    frames = []
    while packets := outbox.take():
        frames.append([(each.size, each.is_data) for each in packets])
    return frames


def test_control_goes_in_front_of_data() -> None:
    outbox = Outbox(LIMITS)
    for each in (packet(10), packet(20), packet(1, False), packet(2, False)):
        assert outbox.put(each)
    assert taken(outbox) == [[(1, False), (2, False), (10, True), (20, True)]]


def test_a_frame_is_cut_at_its_bound_and_a_larger_message_travels_alone() -> None:
    outbox = Outbox(LIMITS)
    for each in (packet(60), packet(40), packet(1), packet(150), packet(5, False)):
        assert outbox.put(each)
    assert taken(outbox) == [
        [(5, False), (60, True)],
        [(40, True), (1, True)],
        [(150, True)],
    ]


def test_data_beyond_the_bytes_is_not_taken_but_control_is() -> None:
    outbox = Outbox(LIMITS)
    assert [outbox.put(packet(150)) for _ in range(3)] == [True, True, False]
    assert outbox.put(packet(1, False))
    assert len(outbox) == 3
    assert outbox.take()
    assert outbox.take()
    assert outbox.put(packet(150)), "there is room again"


def test_one_message_fits_whatever_its_size_and_nothing_above_the_limit() -> None:
    outbox = Outbox(LIMITS)
    assert outbox.put(packet(LIMITS.message_bytes_max))
    assert not Outbox(LIMITS).put(packet(LIMITS.message_bytes_max + 1))


@pytest.mark.parametrize("is_data", [True, False])
def test_messages_beyond_the_count_are_not_taken(is_data: bool) -> None:
    outbox = Outbox(LIMITS)
    assert [outbox.put(packet(1, is_data)) for _ in range(6)] == [True] * 5 + [False]


def test_clearing_makes_room() -> None:
    outbox = Outbox(LIMITS)
    assert outbox.put(packet(250))
    assert outbox.put(packet(1, False))
    assert outbox.clear() == 2
    assert not outbox.take()
    assert outbox.put(packet(40))
    assert outbox.put(packet(250))


def test_a_limit_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="frame_bytes = 0"):
        TransportLimits(frame_bytes=0)
    with pytest.raises(UsageError, match="backoff_s_min"):
        TransportLimits(backoff_s_min=3, backoff_s_max=2)
