"""One simulated node: a real engine on a disk in memory, driven by simulated time.

A process lives from `start` until it is killed, stopped, or dies of its disk. Whatever was arranged for one life
(ticks, syncs) means nothing to the next.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from sirius.catchup.effects import Read
from sirius.catchup.sources import Source
from sirius.engine import Engine, World
from sirius.errors import LogError
from sirius.feeding import feed
from sirius.paxos.effects import Answer
from sirius.paxos.members import Member
from sirius.paxos.messages import Accept, Envelope
from sirius.taking import Stream, Taken
from sirius.testing._gate import SimulatedCrash
from sirius.testing.simulator.clock import NodeClock
from sirius.testing.simulator.disk import SimDisk
from sirius.testing.simulator.files import HOPS_MAX, SimStream
from sirius.testing.simulator.handler import SimHandler
from sirius.testing.simulator.settings import stream
from sirius.testing.simulator.truth import Replay
from sirius.testing.simulator.watch import Watch
from sirius.types import Seq
from sirius.wal import Block, CompactionPolicy

if TYPE_CHECKING:
    from sirius.testing.simulator.cluster import Cluster

_INBOX_MAX: Final = 2000
_TRY_AGAIN_S: Final = 0.3

Call = Callable[[Engine, float], None]
"""What happens to an engine, at a time by its node's clock."""
Work = Callable[[], Taken | None]
"""What an engine wants to be done with files."""


class SimNode:
    """A node's disk, clock and, while it is up, its engine."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        settings = cluster.settings
        self.name = name
        self._cluster = cluster
        self._loop = cluster.loop
        self.rng: random.Random = stream(settings.seed, name)
        self._chained = settings.chained and name in settings.followers
        self.disk = SimDisk(self.rng, settings.log, settings.trim_bytes_min)
        self.clock = NodeClock(self.rng.uniform(0, 1000))
        self.wish: tuple[str, ...] | None = None
        self.passive = 0
        """How many faults have emptied the member file."""
        self.engine: Engine | None = None
        self.node_id = 0
        self.life = 0
        self.pauses = 0
        self.held_down = 0
        """How many faults keep the node from starting."""
        self.replay = Replay()
        self.durable = 0
        """How far the log on disk went when it was last seen."""
        self.handler = SimHandler(name, settings.backlog_bytes_max)
        self._watch = Watch(name, settings.paxos.election_timeout_s)
        self._inbox: deque[Call] = deque(maxlen=_INBOX_MAX)
        self._is_syncing = False
        self._led = False
        self.bad_files: list[float] = []
        """Which share of the files that it gives to others cannot be read, one for each fault; the rest is damaged."""
        self._works: deque[tuple[Work, float]] = deque()
        """What is to be done with files, one after the other, and how long each takes."""
        self._is_working = False
        self._stream: SimStream | None = None

    # ------------------------------------------------------------------ lives

    @property
    def is_up(self) -> bool:
        return self.engine is not None

    @property
    def is_leader(self) -> bool:
        return self.engine is not None and self.engine.machine.is_leader

    def _monotonic(self) -> float:
        return self.clock.monotonic(self._loop.now)

    def _now_us(self) -> int:
        return self.clock.time_of_day_us(self._loop.now)

    def start(self) -> None:
        """Begin a life. A disk that cannot be opened is tried again, or given up if it is damaged."""
        if self.engine is not None or self.held_down:
            return
        self.life += 1
        try:
            self._boot()
        except SimulatedCrash:
            self.die("crashed while it started")
            self._again()
        except (LogError, OSError) as error:
            self._cannot_start(error)

    def _boot(self) -> None:
        log, journal = self.disk.open(self._monotonic, self._now_us)
        world = World(self.rng, self._monotonic(), self._now_us)
        self.engine = engine = Engine(
            self.name, log, journal, self, self._cluster.settings.machines, world
        )
        self._is_syncing = self._led = False
        self._inbox.clear()
        self._works.clear()
        self._is_working = False
        self.node_id = engine.machine.me.node
        self._cluster.began(self)
        self._watch.begin(engine, self._monotonic())
        self._replay_log(engine)
        self._cluster.note(self.name, f"starts at {self.replay.position}")
        engine.wish(self._monotonic(), self._wished)
        self._settle()
        self._plan_tick()

    def _cannot_start(self, error: Exception) -> None:
        self.engine = None
        self.disk.kill(power_loss=False)
        if self._cluster.gives_up(self, error):
            self._cluster.note(self.name, f"begins anew on an empty disk: {_brief(error)}")
            self.disk.lose()
            self.durable = 0
        else:
            self._cluster.note(self.name, f"cannot start: {_brief(error)}")
        self._again()

    def _again(self) -> None:
        self._loop.after(_TRY_AGAIN_S, self.start)

    def die(self, how: str, *, power_loss: bool = False) -> None:
        """End this life as kill -9 or a power loss does."""
        if self.engine is not None:
            self.durable = self.engine.log.durable_seq
        self.engine = None
        self.disk.kill(power_loss=power_loss)
        self._cluster.note(self.name, how)
        self._cluster.clients.lost(self.name)

    def stop(self) -> None:
        """End this life in order."""
        if (engine := self.engine) is None:
            return
        try:
            engine.stop("the node stops")
            engine.journal.close()
            engine.log.close()
        except SimulatedCrash:
            self.die("crashed while it stopped")
            return
        except (LogError, OSError) as error:
            self.die(f"stops, and fails: {_brief(error)}")
            return
        self.durable = engine.log.durable_seq
        self.engine = None
        self.disk.kill(power_loss=False)
        self._cluster.note(self.name, "stops")
        self._cluster.clients.lost(self.name)

    # ------------------------------------------------------------------ what happens to it

    def enter(self, call: Call) -> None:
        """Have the engine called, now or when the node is no longer paused."""
        if self.engine is None:
            return
        if self.pauses:
            self._inbox.append(call)
            return
        try:
            call(self.engine, self._monotonic())
        except SimulatedCrash:
            self.die("dies at a call to its disk")
            self._again()
            return
        self._settle()

    def pause(self) -> None:
        self.pauses += 1

    def go_on(self) -> None:
        """Everything that came meanwhile happens at once, and only then is it time for a tick.

        In any order: nobody knows which of its connections a process reads first when it wakes up.
        """
        self.pauses = max(0, self.pauses - 1)
        if self.pauses:
            return
        waiting = list(self._inbox)
        self._inbox.clear()
        self.rng.shuffle(waiting)
        for call in [*waiting, Engine.tick]:
            self.enter(call)

    def _replay_log(self, engine: Engine) -> None:
        self.replay = Replay()
        for block in engine.log.blocks():
            self._cluster.checkers.decided(self.name, self.replay, block)
        self.handler.begin(engine.log, self.replay.position)

    def receive(self, envelope: Envelope) -> None:
        """Take what another node sent."""
        self.enter(partial(self._receive, envelope))

    def _receive(self, envelope: Envelope, engine: Engine, now: float) -> None:
        self._watch.heard(now)
        engine.receive(now, envelope)

    def _plan_tick(self) -> None:
        delay = self._cluster.settings.tick_s * self.rng.uniform(0.9, 1.1)
        self._loop.after(delay, partial(self._tick, self.life))

    def _tick(self, life: int) -> None:
        if life != self.life or self.engine is None:
            return
        self._plan_tick()
        if not self.pauses:
            self._check()
            self.handler.apply()
            if self._chained:
                self.enter(self._follow)
            self.enter(Engine.tick)

    def _check(self) -> None:
        if self.engine is not None:
            self._cluster.checkers.memory(self.name, self.engine.machine.held_bytes)
            self._watch.look(self.engine, self._monotonic(), disk_hangs=bool(self.disk.hangs))

    def _follow(self, engine: Engine, _now: float) -> None:
        """Where followers follow each other, they prefer that to asking voters."""
        members = self._cluster.followers_beside(self)
        engine.follow(Source(member, distance=-1.0) for member in members)

    # ------------------------------------------------------------------ the disk

    def _settle(self) -> None:
        """See what the engine is up to after a call."""
        engine = self.engine
        if engine is None:
            return
        if not self._is_syncing and engine.is_waiting:
            self._plan_sync()
        if (leads := engine.machine.is_leader) != self._led:
            self._led = leads
            self._cluster.reign(self, engine, leads)
        if failure := engine.journal.failure or engine.log.failure:
            self.die(f"gives up: {_brief(failure)}")
            self._again()

    def _plan_sync(self) -> None:
        delay = self.disk.sync_delay(self._cluster.settings.sync_s)
        if delay is not None:
            self._is_syncing = True
            self._loop.after(delay, partial(self._sync, self.life))

    def _sync(self, life: int) -> None:
        """A process that is stopped has its syncs done by the kernel; it learns of it later."""
        if life == self.life and self.engine is not None:
            self._is_syncing = False
            if not self.disk.hangs:
                self._watch.synced()
                self.enter(Engine.sync)

    # ------------------------------------------------------------------ orders

    @property
    def _wished(self) -> tuple[str, ...] | None:
        return () if self.passive else self.wish or self._cluster.wish

    def read_member_file(self) -> None:
        """Take the wish as it is now."""
        self.enter(lambda engine, now: engine.wish(now, self._wished))

    def compact(self, policy: CompactionPolicy) -> None:
        self.enter(partial(_compact, policy))

    # ------------------------------------------------------------------ the engine's port

    def send(self, to: Member, envelope: Envelope) -> None:
        if isinstance(envelope.message, Accept):
            self._cluster.proposes(cast(Block, envelope.message.value))
        self._cluster.network.send(self.name, to.name, envelope)

    def answer(self, answer: Answer) -> None:
        self._cluster.clients.answered(self, answer)

    def decided(self, block: Block) -> None:
        self._cluster.decided(self, block)
        self.handler.push(block)

    def read(self, read: Read) -> None:
        delay = self._cluster.settings.sync_s * self.rng.uniform(0.5, 2)
        self._loop.after(delay, partial(self._feed, self.life, read))

    def _feed(self, life: int, read: Read) -> None:
        if life == self.life:
            self.enter(lambda engine, now: engine.fed(now, feed(engine.log, read)))

    def take(self, work: Work, takes_s: float = 0.0) -> None:
        self._works.append((work, takes_s))
        if not self._is_working:
            self._plan_work()

    def fetch(self, source: Member, envelope: Envelope, work: Callable[[Stream], Taken]) -> None:
        self._stream = SimStream(self._cluster, self.name, source, envelope)
        takes_s = self._cluster.settings.delay_s * self.rng.uniform(2.0, HOPS_MAX)
        self.take(partial(work, self._stream), takes_s)

    def hang_up(self) -> None:
        if self._stream is not None:
            self._stream.is_closed = True

    def _plan_work(self) -> None:
        self._is_working = True
        takes_s = self._works[0][1] + self._cluster.settings.sync_s * self.rng.uniform(0.2, 1.0)
        self._loop.after(takes_s, partial(self._work, self.life))

    def _work(self, life: int) -> None:
        if life != self.life or self.engine is None:
            return
        if self.pauses or self.disk.hangs:
            self._plan_work()
            return
        self.enter(self._do_work)
        self._is_working = False
        if self._works:
            self._plan_work()

    def _do_work(self, engine: Engine, now: float) -> None:
        work, _ = self._works.popleft()
        if (outcome := work()) is not None:
            engine.took(now, outcome)

    def installed(self, first: Seq, last: Seq) -> None:
        self._cluster.note(self.name, f"takes a segment, {first} to {last}")
        if self.engine is not None:
            for block in self.engine.log.blocks(first, last):
                self.decided(block)

    def replacing(self) -> None:
        """The handler of the simulation begins anew, so what it had does not matter."""

    def replaced(self, last: Seq) -> None:
        self._cluster.note(self.name, f"takes a whole log up to {last}")
        if self.engine is not None:
            self._replay_log(self.engine)


def _compact(policy: CompactionPolicy, engine: Engine, _now: float) -> None:
    try:
        engine.log.rotate()
        engine.log.compact(policy)
        engine.log.retire()
        engine.compacted()
    except (LogError, OSError):
        # A log that failed says so; one that had no room to compact in goes on.
        return


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:160]
