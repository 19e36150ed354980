"""Engines on disks in memory, what is on its way between them, and streams that bring files. Not a test."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

from sirius.catchup.config import CatchupConfig
from sirius.catchup.effects import Read
from sirius.catchup.messages import PullFile
from sirius.engine import Engine, Settings, World
from sirius.errors import TransportError, Unreachable
from sirius.feeding import feed
from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Answer
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.taking import Stream, Taken
from sirius.testing.filesystem import MemoryFileSystem
from sirius.types import Seq
from sirius.wal import Block, Log, LogConfig, Op, Update
from sirius.wal.journal import Journal

LOG = LogConfig(background=False, reserve_bytes=0, segment_records_max=50, retire_after_s=0.0)
CATCHUP = CatchupConfig(
    window_slots_min=4,
    segment_slots=20,
    resync_patience_s=0.2,
    interval_s=0.2,
)
SETTINGS = Settings(PaxosConfig(heartbeat_s=0.05, election_timeout_s=0.2), CATCHUP)


@dataclass
class Pipe:
    """A stream in memory, which is what its fields say."""

    give: Callable[[PullFile], bytes]
    """What the other end sends: whatever was asked for, if it is an honest one."""
    breaks_at: int | None = None
    """After how many bytes it breaks off."""
    reads_max: int = 1 << 30
    """How many bytes come at a time."""
    is_closed: bool = False

    def ask(self, question: PullFile) -> None:
        self._fail_if_closed()
        self._data, self._given = self.give(question), 0

    def read_into(self, buffer: memoryview) -> int:
        self._fail_if_closed()
        assert len(buffer), "there is always room"
        end = len(self._data) if self.breaks_at is None else self.breaks_at
        if self.breaks_at == self._given:
            raise Unreachable("the stream breaks off")
        size = min(len(buffer), end - self._given, self.reads_max)
        buffer[:size] = self._data[self._given : self._given + size]
        self._given += size
        return size

    def _fail_if_closed(self) -> None:
        if self.is_closed:
            raise Unreachable("nobody needs it any more")


class Host:
    """An engine, its disk and its port."""

    def __init__(self, net: Net, name: str) -> None:
        self.net, self.name = net, name
        self.fs = MemoryFileSystem()
        self.events: list[str] = []
        self.taken: list[Taken] = []
        self.holds_works = False
        self.works: deque[Callable[[], Taken | None]] = deque()
        self.stream: Pipe | None = None
        self.breaks: deque[int] = deque()
        """After how many bytes the next streams break off that bring this host a file."""
        self.files: list[PullFile] = []
        """What others asked this host for."""
        self.spoil: Callable[[PullFile, bytes], bytes] = lambda _question, data: data
        """What this host sends instead of what it reads."""
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

    def fetch(self, source: Member, envelope: Envelope, work: Callable[[Stream], Taken]) -> None:
        give = partial(self.net.give, source, envelope)
        self.stream = Pipe(give, self.breaks.popleft() if self.breaks else None, reads_max=700)
        self.take(partial(work, self.stream))

    def hang_up(self) -> None:
        assert self.stream is not None, "nothing is on its way"
        self.stream.is_closed = True

    def give(self, envelope: Envelope) -> bytes:
        """Read a file for another host."""
        if (question := self.engine.serve(self.net.now, envelope)) is None:
            raise TransportError("not of this cluster")
        self.files.append(question)
        try:
            data = self.engine.log.read_raw(question.segment, question.offset, question.bytes)
        except OSError as error:
            raise TransportError(str(error)) from None
        return self.spoil(question, data)

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

    def give(self, source: Member, envelope: Envelope, question: PullFile) -> bytes:
        if source.name not in self.hosts:
            raise Unreachable("nobody is there")
        return self.hosts[source.name].give(envelope._replace(message=question))

    def write(self, updates: list[Update]) -> None:
        engine = self.hosts["a"].engine
        engine.propose(self.now, next(self._tokens), updates, 50 * len(updates))
        self.deliver()


def puts(begin: int, end: int) -> list[Update]:
    return [Update(Op.PUT, b"k%d" % at, b"v%d" % at) for at in range(begin, end)]
