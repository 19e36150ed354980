"""The engine between its machines and its driver: what time it is for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from errno import ENOSPC
from typing import Literal, TypeVar

import pytest

from sirius.catchup.config import CatchupConfig
from sirius.catchup.effects import Read
from sirius.catchup.messages import Edition, Pull, Range, Standing
from sirius.engine import Engine, Settings, World
from sirius.errors import LogFailed
from sirius.feeding import Unreadable
from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Answer, ReadAt, ReadFailed
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import (
    Accept,
    Accepted,
    Beat,
    BeatAck,
    Envelope,
    Found,
    Message,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
    TakeOver,
    Welcome,
)
from sirius.remembering import CLUSTER_TAG
from sirius.taking import Fetched, Stream, Taken
from sirius.testing.filesystem import MemoryFileSystem
from sirius.types import NO_BALLOT, Ballot, NodeId, Seq
from sirius.wal import Block, Log, LogConfig, Op, Update
from sirius.wal.journal import Journal

B, C = Member(NodeId(2), "b"), Member(NodeId(3), "c")
UPDATES = [Update(Op.PUT, b"key", b"body")]
M = TypeVar("M")
LATE = 1000.0
"""Long after the last tick, which is at 0."""


class Outside:
    """A port that remembers what came out."""

    def __init__(self) -> None:
        self.sent: list[tuple[Member, Envelope]] = []
        self.answers: list[Answer] = []
        self.decided_to = 0
        self.reads: list[Read] = []

    def send(self, to: Member, envelope: Envelope) -> None:
        self.sent.append((to, envelope))

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)

    def decided(self, block: Block) -> None:
        self.decided_to = block.last

    def read(self, read: Read) -> None:
        self.reads.append(read)

    def take(self, work: Callable[[], Taken | None]) -> None:
        raise AssertionError(f"nobody gives files: {work}")

    def fetch(self, source: Member, envelope: Envelope, work: Callable[[Stream], Taken]) -> None:
        raise AssertionError(f"nobody offers files: {source}, {envelope}, {work}")

    def hang_up(self) -> None:
        raise AssertionError("nothing is on its way")

    def installed(self, first: Seq, last: Seq) -> None:
        raise AssertionError(f"nobody gave a segment from {first} to {last}")

    def replacing(self) -> None: ...

    def replaced(self, last: Seq) -> None:
        raise AssertionError(f"nobody asked for a whole log up to {last}")

    def said(self, kind: type[M]) -> list[M]:
        """Return the messages of a kind that were sent."""
        messages = (envelope.message for _, envelope in self.sent)
        return [message for message in messages if isinstance(message, kind)]


@pytest.fixture
def outside() -> Outside:
    return Outside()


def make_engine(fs: MemoryFileSystem, outside: Outside, *, new_cluster: bool = False) -> Engine:
    log = Log.open("log", LogConfig(background=False, reserve_bytes=0), fs=fs)
    journal = Journal.open("log/journal", uid=log.manifest.uid, fs=fs, background=False)
    settings = Settings(PaxosConfig(lease=True), CatchupConfig(), new_cluster=new_cluster)
    return Engine("a", log, journal, outside, settings, World(random.Random(1), 0.0, lambda: 0))


@pytest.fixture
def engine(outside: Outside) -> Engine:
    """A voter of three, without a leader, whose last tick was at 0."""
    made = make_engine(MemoryFileSystem(), outside)
    me = made.machine.me
    found = Found(Configuration(7, 1, (me, B, C)))
    made.receive(0.0, Envelope(7, 1, B, me.node, found))
    made.sync(0.0)
    assert made.machine.is_voter
    return made


def from_b(engine: Engine, message: Message | Pull) -> Envelope:
    return Envelope(7, 1, B, engine.machine.me.node, message)


def elect(engine: Engine, outside: Outside, now: float) -> None:
    """Have the engine lead, with everything decided and a lease from `now` on."""
    engine.tick(now)
    ballot = outside.said(PreVote)[-1].ballot
    engine.receive(now, from_b(engine, PreVoted(ballot, True, Seq(0), ballot)))
    engine.sync(now)
    ballot = outside.said(Prepare)[-1].ballot
    promise = Promise(ballot, Seq(0), NO_BALLOT, ())
    engine.receive(now, from_b(engine, promise))
    engine.receive(now, Envelope(7, 1, C, engine.machine.me.node, promise))
    value = outside.said(Accept)[-1].value
    engine.receive(now, from_b(engine, Accepted(ballot, value.first, value.last)))
    engine.sync(now)
    engine.tick(now)
    number = outside.said(Beat)[-1].number
    engine.receive(now, from_b(engine, BeatAck(ballot, number, value.last)))


def test_a_node_that_left_a_cluster_which_never_began_belongs_nowhere_after_a_restart(
    outside: Outside,
) -> None:
    fs = MemoryFileSystem()
    engine = make_engine(fs, outside)
    me = engine.machine.me
    engine.receive(0.0, Envelope(7, 1, B, me.node, Found(Configuration(7, 1, (me, B, C)))))
    # The log is tagged with its cluster when somebody in it asks for something.
    engine.receive(0.0, from_b(engine, Pull(1, Seq(1), Seq(9), 100)))
    engine.sync(0.0)
    engine.receive(0.0, Envelope(8, 1, C, me.node, Welcome(False, None)))
    engine.sync(0.0)
    engine.journal.close()
    engine.log.close()
    machine = make_engine(fs, outside).machine
    assert engine.log.manifest.tags == {CLUSTER_TAG: "7"}
    assert (machine.me, machine.cluster, machine.configuration) == (me, 0, None)


def test_a_request_has_all_its_time_however_long_ago_the_last_tick_was(
    engine: Engine, outside: Outside
) -> None:
    timeout_s = PaxosConfig().request_timeout_s
    engine.propose(LATE, 5, UPDATES, 60)
    engine.tick(LATE + 0.9 * timeout_s)
    assert outside.answers == []
    engine.tick(LATE + 1.1 * timeout_s)
    assert len(outside.answers) == 1


def test_a_read_has_all_its_time_however_long_ago_the_last_tick_was(
    engine: Engine, outside: Outside
) -> None:
    timeout_s = PaxosConfig().request_timeout_s
    engine.read(LATE, 5)
    engine.tick(LATE + 0.9 * timeout_s)
    assert outside.answers == []
    engine.tick(LATE + 1.1 * timeout_s)
    assert outside.answers == [ReadFailed(5, "no leader answered in time")]


def test_a_heartbeat_counts_from_when_it_came(engine: Engine, outside: Outside) -> None:
    beat = Beat(Ballot(1, B.node), 1, Seq(0))
    engine.receive(LATE, from_b(engine, beat))
    engine.tick(LATE + 0.5 * PaxosConfig().election_timeout_s)
    assert outside.said(PreVote) == []
    engine.tick(LATE + 2.1 * PaxosConfig().election_timeout_s)
    assert len(outside.said(PreVote)) == 2


def test_a_lease_is_judged_by_the_time_of_the_read(engine: Engine, outside: Outside) -> None:
    elect(engine, outside, LATE)
    engine.read(LATE, 1)
    assert outside.answers == [ReadAt(1, Seq(1))]
    engine.read(LATE + PaxosConfig().election_timeout_s, 2)
    assert outside.answers == [ReadAt(1, Seq(1))]


def test_a_follower_is_known_from_when_it_asked(engine: Engine) -> None:
    timeout_s = CatchupConfig().follower_timeout_s
    engine.receive(LATE, from_b(engine, Pull(1, Seq(1), Seq(9), 100)))
    engine.tick(LATE + 0.9 * timeout_s)
    assert engine.catchup.lowest_position == 0
    engine.tick(LATE + 1.1 * timeout_s)
    assert engine.catchup.lowest_position is None


CALLS: dict[str, Callable[[Engine], None]] = {
    "tick": lambda engine: engine.tick(LATE),
    "receive": lambda engine: engine.receive(LATE, from_b(engine, TakeOver(Ballot(1, 9)))),
    "propose": lambda engine: engine.propose(LATE, 5, UPDATES, 60),
    "read": lambda engine: engine.read(LATE, 5),
    "wish": lambda engine: engine.wish(LATE, ("a", "b", "c")),
    "hand_over": lambda engine: engine.hand_over(LATE),
    "sync": lambda engine: engine.sync(LATE),
    "settle": lambda engine: engine.settle(LATE),
    "took": lambda engine: engine.took(LATE, Fetched(1)),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_that_may_depend_on_it_says_what_time_it_is(engine: Engine, call: str) -> None:
    CALLS[call](engine)
    assert (engine.machine._state.now, engine.catchup._context.now) == (LATE, LATE)


def test_the_time_of_a_read_of_the_log_is_that_of_its_outcome(
    engine: Engine, outside: Outside
) -> None:
    elect(engine, outside, 1.0)
    engine.catchup.compacted(Edition(1, Seq(1)))
    engine.receive(1.0, from_b(engine, Pull(1, Seq(1), Seq(9), 100)))
    engine.fed(LATE, Unreadable(outside.reads[0].read, "rotten"))
    assert engine.machine._state.now == LATE


def test_time_never_goes_back(engine: Engine) -> None:
    engine.tick(LATE)
    engine.read(LATE - 1, 5)
    assert (engine.machine._state.now, engine.catchup._context.now) == (LATE, LATE)


def beginning_with_holes(engine: Engine, outside: Outside) -> Envelope:
    """Have the engine ask for a log, and return an answer: a part that says nothing, not even whose it is."""
    engine.wish(0.0, ("b", "c"))
    engine.receive(0.0, Envelope(7, 1, B, engine.machine.me.node, Welcome(False, B)))
    engine.tick(0.0)
    question = outside.said(Pull)[0]
    standing = Standing(Seq(9), Seq(9), Edition(1, Seq(9)), (B.node,))
    answer = Range(question.request, Seq(1), Seq(9), (Block.hole(1, 9),), standing)
    return Envelope(7, 1, B, engine.machine.me.node, answer)


def test_a_log_grows_only_once_it_is_on_disk_whose_it_is(outside: Outside) -> None:
    """Seed 1689 of the simulator: a node lost its power with the first segment of a log, which began with holes, and
    without the note which cluster it had joined. It took the log for an imported one, and nobody took it in."""
    fs = MemoryFileSystem()
    engine = make_engine(fs, outside)
    engine.receive(0.0, beginning_with_holes(engine, outside))
    engine.log.flush()
    assert engine.log.next_seq == 1
    engine.journal.sync()
    engine.settle(0.0)
    assert engine.log.next_seq == 10
    engine.log.flush()
    assert make_engine(fs.synced(), Outside()).machine.cluster == 7


def test_a_log_does_not_grow_while_a_full_disk_cannot_say_whose_it_is(outside: Outside) -> None:
    """Seed 278."""
    fs = MemoryFileSystem()
    engine = make_engine(fs, outside)
    fs.fail("append", "manifests", ENOSPC)
    engine.receive(0.0, beginning_with_holes(engine, outside))
    engine.sync(0.0)
    assert engine.log.next_seq == 1
    engine.settle(0.0)
    assert engine.log.next_seq == 10
    assert engine.log.manifest.tags == {CLUSTER_TAG: "7"}


@pytest.mark.parametrize("operation", ["append", "sync_dir"])
def test_a_node_begins_again_if_the_floor_of_its_log_cannot_be_raised(
    outside: Outside, operation: Literal["append", "sync_dir"]
) -> None:
    """Seed 1000806: what catch-up took to be on disk was not, and the node ended as if that were a bug."""
    fs = MemoryFileSystem()
    engine = make_engine(fs, outside)
    answer = beginning_with_holes(engine, outside)
    engine.log.tag(**{CLUSTER_TAG: "7"})
    fs.fail(operation, "manifests", ENOSPC)
    engine.receive(0.0, answer)
    engine.sync(0.0)
    assert isinstance(engine.log.failure, LogFailed)
    assert (engine.log.next_seq, engine.log.tombstone_floor) == (1, 0)


def joined_and_damaged(outside: Outside) -> MemoryFileSystem:
    """A disk whose node has joined a cluster, and whose journal is gone."""
    fs = MemoryFileSystem()
    engine = make_engine(fs, outside)
    engine.receive(0.0, Envelope(7, 1, B, engine.machine.me.node, Pull(1, Seq(1), Seq(9), 100)))
    engine.sync(0.0)
    left = fs.synced()
    left.remove("log/journal/journal")
    return left


def test_a_log_tells_whose_it_is_when_the_journal_does_not(outside: Outside) -> None:
    """Seed 1001949 of the simulator: as above, and then a bit of the journal flipped."""
    fs = joined_and_damaged(outside)
    assert make_engine(fs, Outside()).machine.cluster == 7


def test_a_backup_of_which_a_new_cluster_is_made_belongs_to_none(outside: Outside) -> None:
    fs = joined_and_damaged(outside)
    assert make_engine(fs, Outside(), new_cluster=True).machine.cluster == 0
