"""Two engines on disks in memory: one has a log, the other takes it as files."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import count

import pytest

from sirius.catchup.config import CatchupConfig
from sirius.catchup.effects import InstallSegment, Read, WritePart
from sirius.catchup.messages import SegmentOffer
from sirius.engine import Engine, Settings, World
from sirius.feeding import feed
from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Answer
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.taking import Installed, Refused, Taken, Written
from sirius.testing.filesystem import MemoryFileSystem
from sirius.types import SegmentId, Seq
from sirius.wal import Block, CompactionPolicy, Log, LogConfig, Op, Update
from sirius.wal.journal import Journal

LOG = LogConfig(background=False, reserve_bytes=0, segment_records_max=50, retire_after_s=0.0)
CATCHUP = CatchupConfig(
    window_slots_min=4,
    segment_slots=20,
    file_bytes_max=700,
    file_parts_max=3,
    resync_patience_s=0.2,
    interval_s=0.2,
)
SETTINGS = Settings(PaxosConfig(heartbeat_s=0.05, election_timeout_s=0.2), CATCHUP)


class Host:
    """An engine, its disk and its port."""

    def __init__(self, net: Net, name: str) -> None:
        self.net, self.name = net, name
        self.fs = MemoryFileSystem()
        self.events: list[str] = []
        self.taken: list[Taken] = []
        self.holds_works = False
        self.works: deque[Callable[[], Taken | None]] = deque()
        self.boot()

    def boot(self) -> None:
        log = Log.open("log", LOG, fs=self.fs)
        journal = Journal.open("log/journal", uid=log.manifest.uid, fs=self.fs, background=False)
        world = World(random.Random(self.name), self.net.now, lambda: 0)
        self.works.clear()
        self.engine = Engine(self.name, log, journal, self, SETTINGS, world)
        self.engine.wish(self.net.now, ["a"])

    def restart(self) -> None:
        self.engine.journal.close()
        self.engine.log.close()
        self.boot()

    def send(self, to: Member, envelope: Envelope) -> None:
        self.net.wire.append((to.name, envelope))

    def answer(self, answer: Answer) -> None: ...

    def decided(self, block: Block) -> None:
        self.events.append(f"{block.first} to {block.last}")

    def read(self, read: Read) -> None:
        self.net.later.append(lambda: self.engine.fed(self.net.now, feed(self.engine.log, read)))

    def take(self, work: Callable[[], Taken | None]) -> None:
        self.works.append(work)

    def work(self) -> None:
        while self.works and not self.holds_works:
            if (outcome := self.works.popleft()()) is not None:
                self.taken.append(outcome)
                self.engine.took(self.net.now, outcome)

    def installed(self, first: Seq, last: Seq) -> None:
        self.events.append(f"segment {first} to {last}")

    def replacing(self) -> None:
        self.events.append("replacing")

    def replaced(self, last: Seq) -> None:
        self.events.append(f"replaced {last}")

    @property
    def records(self) -> list[object]:
        self.engine.sync(self.net.now)
        return list(self.engine.log.records())


class Net:
    """Time, and what is on its way."""

    def __init__(self) -> None:
        self.now = 1.0
        self.wire: deque[tuple[str, Envelope]] = deque()
        self.later: deque[Callable[[], None]] = deque()
        self.hosts: dict[str, Host] = {}
        self._tokens = count(1)

    def add(self, name: str) -> Host:
        self.hosts[name] = Host(self, name)
        return self.hosts[name]

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.02
            for host in self.hosts.values():
                host.engine.tick(self.now)
                self.deliver()

    def deliver(self) -> None:
        for _ in range(10_000):
            for host in self.hosts.values():
                host.engine.sync(self.now)
                host.work()
            if self.later:
                self.later.popleft()()
            elif self.wire:
                name, envelope = self.wire.popleft()
                if name in self.hosts:
                    self.hosts[name].engine.receive(self.now, envelope)
            else:
                return
        raise AssertionError("this never ends")

    def write(self, updates: list[Update]) -> None:
        engine = self.hosts["a"].engine
        engine.propose(self.now, next(self._tokens), updates, 50 * len(updates))
        self.deliver()


def puts(begin: int, end: int) -> list[Update]:
    return [Update(Op.PUT, b"k%d" % at, b"v%d" % at) for at in range(begin, end)]


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


def test_after_a_refusal_the_steps_that_were_under_way_come_to_nothing(net: Net) -> None:
    leader, follower = net.hosts["a"], net.add("b")
    with leader.engine.log.snapshot() as snapshot:
        offer = SegmentOffer(*next(snapshot.parts(1)))
    data = leader.engine.log.read_raw(offer.id, offer.offset, offer.bytes)
    taker = follower.engine._taker
    assert isinstance(taker.take(WritePart(1, offer, 0, b"x" * 100)), Refused)
    assert taker.take(WritePart(1, offer, 100, data[100:])) is None
    assert taker.take(InstallSegment(1, offer, staged=False)) is None
    assert isinstance(taker.take(WritePart(2, offer, 0, data)), Written)
    assert isinstance(taker.take(InstallSegment(2, offer, staged=False)), Installed)
    assert isinstance(taker.take(InstallSegment(3, offer, staged=False)), Refused)
