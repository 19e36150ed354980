"""Two engines on disks in memory: one has a log, the other takes it as files."""

from __future__ import annotations

from errno import EIO
from typing import NamedTuple

import pytest

from sirius.catchup.effects import FetchSegment, InstallSegment
from sirius.catchup.messages import Busy, PullFile, SegmentOffer
from sirius.errors import TransportError
from sirius.paxos.members import Member
from sirius.taking import (
    Fetched,
    Installed,
    Interrupted,
    Refused,
    Stream,
    Taken,
    Taker,
    Withheld,
)
from sirius.types import NodeId, SegmentId, Seq
from sirius.wal import CompactionPolicy, Op, Update
from tests.catchup.hosts import Host, Net, Pipe, puts

MEMBER = Member(NodeId(1), "a")


@pytest.fixture
def net() -> Net:
    """A leader with a log of five segments."""
    found = Net()
    found.add("a")
    found.run(1)
    for begin in range(0, 230, 10):
        found.write(puts(begin, begin + 10))
    return found


def test_a_log_comes_as_files_and_is_told_of_in_order(net: Net) -> None:
    follower = net.add("b")
    net.run(2)
    assert follower.records == net.hosts["a"].records
    assert follower.engine.machine.decided == net.hosts["a"].engine.machine.decided
    assert follower.engine.machine.configuration == net.hosts["a"].engine.machine.configuration
    ends = [int(event.split()[-1]) for event in follower.events]
    begins = [int(event.split()[-3]) for event in follower.events]
    assert begins == [1, *(end + 1 for end in ends[:-1])]
    assert sum(event.startswith("segment") for event in follower.events) >= 4


def test_who_catches_up_knows_whose_requests_are_in_the_log(net: Net) -> None:
    leader, follower = net.hosts["a"].engine, net.add("b")
    net.run(2)
    known = follower.engine.machine._state.replica.sessions
    assert vars(known)["_last"] == vars(leader.machine._state.replica.sessions)["_last"] != {}


def test_a_node_below_the_floor_takes_a_whole_log_as_files(net: Net) -> None:
    leader, follower = net.hosts["a"], net.add("b")
    net.run(2)
    gone = net.hosts.pop("b")
    net.write([Update(Op.DELETE, f"k{at}".encode()) for at in range(100)])
    net.write(puts(1000, 1060))
    leader.engine.log.rotate()
    policy = CompactionPolicy(
        dead_fraction_min=0.0, drop_deletes_upto=leader.engine.log.durable_seq
    )
    for _ in range(2):
        # What a delete is about has to go before the delete does.
        leader.engine.log.compact(policy)
    leader.engine.compacted()
    assert leader.engine.log.tombstone_floor > gone.engine.machine.decided
    follower.restart()
    net.hosts["b"] = follower
    follower.events.clear()
    net.run(3)
    assert follower.records == leader.records
    assert "replacing" in follower.events
    staged = [each for each in follower.taken if isinstance(each, Installed) and each.staged]
    assert staged, "it came as files"
    assert follower.engine.machine.decided == leader.engine.machine.decided


def test_a_damaged_file_is_refused_and_ranges_bring_the_rest(net: Net) -> None:
    leader, follower = net.hosts["a"], net.add("b")
    segment = leader.engine.log.manifest.segments[1]
    read_raw = leader.engine.log.read_raw

    def rotten(number: SegmentId, offset: int, length: int) -> bytes:
        data = read_raw(number, offset, length)
        return bytes([data[0] ^ 1, *data[1:]]) if number == segment.id else data

    leader.engine.log.read_raw = rotten  # type: ignore[method-assign, assignment]
    net.run(8)
    assert any(isinstance(each, Refused) for each in follower.taken)
    assert follower.records == leader.records, "its blocks are good, so ranges brought them"
    installed = [each.info.first for each in follower.taken if isinstance(each, Installed)]
    assert segment.first not in installed


def test_what_is_decided_while_a_segment_is_installed_waits(net: Net) -> None:
    leader, follower = net.hosts["a"], net.add("b")
    engine = follower.engine
    block = next(iter(leader.engine.log.blocks(1, 3)))
    engine._installing = 7
    engine._append([block])
    assert (engine.log.next_seq, follower.events) == (1, [])
    engine.took(net.now, Refused(6, "another one"))
    assert engine.log.next_seq == 1
    engine.took(net.now, Refused(7, "no room"))
    assert engine.log.next_seq == block.last + 1
    assert follower.events == [f"{block.first} to {block.last}"]


def test_what_a_segment_has_is_not_appended_again(net: Net) -> None:
    log, engine = net.hosts["a"].engine.log, net.add("b").engine
    engine._append(list(log.blocks(1, 3)))
    engine._installing = 7
    engine._append(list(log.blocks(2, 5)))
    engine.took(net.now, Refused(7, "the log has got further"))
    engine.sync(net.now)
    assert list(engine.log.records()) == list(log.records(1, 5))


def test_streams_that_break_off_are_taken_up_where_they_stopped(net: Net) -> None:
    leader, follower = net.hosts["a"], net.add("b")
    follower.breaks.extend([900, 0, 700])
    net.run(4)
    assert follower.records == leader.records
    first, again, third, rest, *_ = leader.files
    assert [each.segment for each in (again, third, rest)] == [first.segment] * 3
    come = [each.offset - first.offset for each in (first, again, third, rest)]
    assert come == [0, 900, 900, 1600]
    assert [each.bytes for each in (first, rest)] == [first.bytes, first.bytes - 1600]


def test_a_file_that_is_gone_is_replaced_by_ranges(net: Net) -> None:
    leader, follower = net.hosts["a"], net.add("b")

    def gone(_question: PullFile, _data: bytes) -> bytes:
        raise TransportError("compaction has put another in its place")

    leader.spoil = gone
    net.run(8)
    assert follower.records == leader.records
    assert any(isinstance(each, Withheld) for each in follower.taken)
    assert not any(isinstance(each, Installed) for each in follower.taken)


def test_a_stream_whose_file_nobody_needs_any_more_is_ended(net: Net) -> None:
    leader, follower = net.hosts["a"], net.add("b")
    follower.holds_works = True
    net.run(1)
    assert follower.stream is not None
    assert not follower.stream.is_closed
    engine = follower.engine
    engine._pull(engine.catchup.advanced(list(leader.engine.log.blocks())))
    assert follower.stream.is_closed


def test_files_are_given_to_nodes_of_the_cluster_alone(net: Net) -> None:
    leader, follower = net.hosts["a"].engine, net.add("b").engine
    question = PullFile(SegmentId(1), 0, 10, Seq(17))
    net.run(2)
    envelope = follower.machine.envelope(leader.machine.me, question)
    assert leader.serve(net.now, envelope._replace(cluster=99)) is None
    assert leader.serve(net.now, envelope._replace(message=Busy(1, 0.1))) is None
    assert leader.catchup.followers["b"] != 17
    assert leader.serve(net.now, envelope) == question
    assert leader.catchup.followers["b"] == 17


# ---------------------------------------------------------------------- the taker alone


class Segment(NamedTuple):
    """The first segment of the leader, as it is offered, and who takes it."""

    offer: SegmentOffer
    data: bytes
    follower: Host

    @property
    def taker(self) -> Taker:
        return self.follower.engine._taker

    def fetch(self, stream: Stream) -> Taken:
        return self.taker.fetch(FetchSegment(1, self.offer, MEMBER, Seq(0)), stream)

    def install(self) -> Taken:
        return self.taker.install(InstallSegment(1, self.offer, staged=False))

    def give(self, question: PullFile) -> bytes:
        """Send what was asked for."""
        begin = question.offset - self.offer.offset
        return self.data[begin : begin + question.bytes]

    @property
    def unfinished(self) -> list[str]:
        """What is on the disk and not part of the log."""
        found = self.follower.fs.listdir("log/segments")
        return [name for name in found if name.endswith(".tmp")]


@pytest.fixture
def segment(net: Net) -> Segment:
    log = net.hosts["a"].engine.log
    with log.snapshot() as snapshot:
        offer = SegmentOffer(*next(snapshot.parts(1)))
    return Segment(offer, log.read_raw(offer.id, offer.offset, offer.bytes), net.add("b"))


@pytest.mark.parametrize("portion", [1, 63, 700, 1 << 20])
def test_a_segment_comes_in_portions_of_any_size(net: Net, segment: Segment, portion: int) -> None:
    assert segment.fetch(Pipe(segment.give, reads_max=portion)) == Fetched(1)
    assert segment.taker.taken == segment.offer.bytes
    assert isinstance(segment.install(), Installed)
    log, last = net.hosts["a"].engine.log, segment.offer.last
    assert segment.follower.records == list(log.records(1, last))
    assert segment.taker.taken == 0


def test_what_came_before_a_stream_broke_off_is_kept(segment: Segment) -> None:
    asked: list[PullFile] = []

    def give(question: PullFile) -> bytes:
        asked.append(question)
        return segment.give(question)

    broken = Interrupted(1, "the stream breaks off", progressed=True)
    assert segment.fetch(Pipe(give, breaks_at=100)) == broken
    assert segment.taker.taken == 100
    assert segment.fetch(Pipe(give, breaks_at=0)) == broken._replace(progressed=False)
    assert segment.fetch(Pipe(give)) == Fetched(1)
    assert isinstance(segment.install(), Installed)
    offset, size = segment.offer.offset, segment.offer.bytes
    wanted = [(offset, size), (offset + 100, size - 100), (offset + 100, size - 100)]
    assert [(each.offset, each.bytes) for each in asked] == wanted


def test_a_stream_to_nobody_brings_nothing(segment: Segment) -> None:
    stream = Pipe(segment.give, is_closed=True)
    assert segment.fetch(stream) == Interrupted(1, "nobody needs it any more", progressed=False)


def test_what_is_withheld_leaves_nothing_behind(segment: Segment) -> None:
    def gone(_question: PullFile) -> bytes:
        raise TransportError("it is gone")

    segment.fetch(Pipe(segment.give, breaks_at=500))
    assert segment.unfinished
    assert segment.fetch(Pipe(gone)) == Withheld(1, "it is gone")
    assert not segment.unfinished


def test_a_stream_that_ends_before_all_is_there_withholds_the_rest(segment: Segment) -> None:
    outcome = segment.fetch(Pipe(lambda _: segment.data[:-1]))
    assert outcome == Withheld(1, f"the file of segment {segment.offer.id} ends early")
    assert not segment.unfinished


def test_what_is_refused_leaves_nothing_behind_and_may_come_again(segment: Segment) -> None:
    bad = bytearray(segment.data)
    bad[200] ^= 1
    assert isinstance(segment.fetch(Pipe(lambda _: bytes(bad))), Refused)
    assert not segment.unfinished
    assert isinstance(segment.install(), Refused), "there is nothing to install"
    assert segment.fetch(Pipe(segment.give)) == Fetched(1)
    assert isinstance(segment.install(), Installed)
    assert isinstance(segment.install(), Refused), "it is there already"


def test_another_offer_is_begun_anew(segment: Segment) -> None:
    other = segment._replace(offer=segment.offer._replace(checksum=segment.offer.checksum ^ 1))
    segment.fetch(Pipe(segment.give, breaks_at=500))
    assert isinstance(other.fetch(Pipe(other.give, breaks_at=100)), Interrupted)
    assert other.taker.taken == 100
    assert len(segment.unfinished) == 1
    assert other.fetch(Pipe(other.give)) == Fetched(1)
    refused = other.install()
    assert isinstance(refused, Refused)
    assert "other blocks than offered" in refused.reason


def test_what_cannot_be_removed_is_left_for_the_next_start(segment: Segment) -> None:
    segment.fetch(Pipe(segment.give, breaks_at=500))
    segment.follower.fs.fail("remove", "log/segments", EIO)
    segment.taker.drop()
    assert segment.unfinished
    segment.follower.restart()
    assert not segment.unfinished
