"""One node's machines on one node's disk: the effects of consensus, done in their order.

The engine owns the log, the journal and the consensus machine, and is itself without threads, clocks and sockets: a
driver calls it, one call at a time, and gives it a `Port` to the outside. The simulator drives the same engine.

**Time.** Calls that may depend on the time are told it first, by a clock that never goes back: a message may come long
after the last tick, and a lease or a time-out must not be judged by the time of that tick.

**Order.** What a call asks to be persisted goes to the journal at once, and is put on disk when the driver calls `sync`
or by the journal's own thread. Messages that depend on it are held back until the journal says so. Decided blocks go to
the log in order; when the log has them on disk the acceptor forgets them.

**Disk trouble.** A journal or log that fails makes the node unable to vote and lead; nothing is retried. A full disk
does the same for as long as it is full.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, get_args

from sirius import remembering
from sirius.catchup.config import CatchupConfig
from sirius.catchup.effects import Effects as CatchupEffects
from sirius.catchup.effects import (
    FetchSegment,
    FinishResync,
    InstallSegment,
    Read,
    ResyncStep,
    SegmentStep,
    Stage,
)
from sirius.catchup.machine import Catchup
from sirius.catchup.messages import Message as CatchupMessage
from sirius.catchup.messages import PullFile
from sirius.catchup.ranges import Start
from sirius.catchup.segments import Progress
from sirius.catchup.sources import Source
from sirius.codec import BlockCodec
from sirius.errors import LogError, LogFailed, OutOfOrder
from sirius.feeding import Fed, Found, Listed, Unreadable, edition_of
from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Answer, Effects, Entry, KeepNote
from sirius.paxos.machine import Machine
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Envelope, Message
from sirius.paxos.sessions import Sessions
from sirius.paxos.state import JOINED
from sirius.paxos.values import Numbers
from sirius.remembering import CLUSTER_TAG
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
from sirius.types import Seq
from sirius.wal import Block, Log
from sirius.wal.journal import Journal
from sirius.wal.record import Update
from sirius.wal.staging import Staging

_EARLY_MAX: Final = 16
"""Who has just joined a cluster has one question under way. More than that may be lost: it is asked again."""

_CATCHUP: Final = get_args(CatchupMessage)


class Port(Protocol):
    """The engine's way to the outside. All are called on the engine's thread and must not block."""

    def send(self, to: Member, envelope: Envelope) -> None:
        """Send a message; it may be lost, doubled, late."""
        ...

    def answer(self, answer: Answer) -> None:
        """Tell whoever asked."""
        ...

    def decided(self, block: Block) -> None:
        """Hand a decided block to whoever applies it: in order, each once in this life of the process."""
        ...

    def read(self, read: Read) -> None:
        """Have a read done (`sirius.feeding.feed`), now or later, and give the outcome to `Engine.fed`."""
        ...

    def take(self, work: Callable[[], Taken | None]) -> None:
        """Have work on files done: on a thread of its own, or at least later, one after the other in the order of the
        calls. Give the outcome, if there is one, to `Engine.took`."""
        ...

    def fetch(self, source: Member, envelope: Envelope, work: Callable[[Stream], Taken]) -> None:
        """The same for work with a stream from `source`. The envelope is for the question that the work asks it."""
        ...

    def hang_up(self) -> None:
        """End the stream of the work under way, or of that which is still to begin: nobody needs it any more."""
        ...

    def installed(self, first: Seq, last: Seq) -> None:
        """The log has got a segment, behind all that was decided: whoever applies it finds it there."""
        ...

    def replacing(self) -> None:
        """The log is about to be replaced as a whole: whoever applies it needs to know which keys it had."""
        ...

    def replaced(self, last: Seq) -> None:
        """The log was taken anew from somebody else and goes up to `last`: whoever applies it begins again."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What a node finds around it when it starts."""

    rng: random.Random
    now: float
    """Monotonic time, in seconds."""
    now_us: Callable[[], int]
    """The time of day, for people to read in the log."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the machines are set."""

    paxos: PaxosConfig = field(default_factory=PaxosConfig)
    catchup: CatchupConfig = field(default_factory=CatchupConfig)
    region: str = ""
    new_cluster: bool = False
    """Whether a log that was another cluster's, as a backup is, may become the data of a new one."""


class Engine:
    """The machines of one node, and its disk."""

    def __init__(
        self,
        name: str,
        log: Log,
        journal: Journal,
        port: Port,
        settings: Settings,
        world: World,
    ) -> None:
        self.log = log
        self.journal = journal
        self._port = port
        self._own: deque[Envelope] = deque()
        self._held: deque[tuple[int, list[tuple[Member, Message]]]] = deque()
        self._tickets: deque[tuple[int, int]] = deque()
        """Tickets of the machine, and those of the journal that settle them."""
        self._journal_ticket = self._pushed = 0
        self._joined = 0
        """The journal's ticket of the note that says to which cluster this node belongs."""
        self._early: deque[Envelope] = deque(maxlen=_EARLY_MAX)
        """What came for catch-up before that note was on disk."""
        self._failed = False
        me = Member(remembering.identity(journal, world.rng), name)
        self._codec = BlockCodec(world.now_us, log.config.limits)
        disk = remembering.recover(
            log, journal, self._codec, settings.paxos.sessions_max, settings.new_cluster
        )
        self.machine = Machine(me, settings.paxos, self._codec, world.rng, world.now, disk)
        start = Start(disk.decided, edition_of(log.manifest))
        catchup = settings.catchup
        self.catchup = Catchup(me, catchup, world.rng, world.now, start, settings.region)
        self._acquaintances: list[Member] = []
        self._followed: tuple[Source, ...] = ()
        self._staging: Staging | None = None
        self._staged: Configuration | None = None
        self._sessions_max = settings.paxos.sessions_max
        self._staged_sessions = Sessions(1, self._sessions_max)
        self._taker = Taker(log, self._codec, self._sessions_max)
        self._installing = 0
        """The transfer of which a segment is being installed."""
        self._waiting: list[Block] = []
        """What was decided meanwhile: nobody knows where the log will end."""

    # ------------------------------------------------------------------ what goes in

    def _at(self, now: float) -> None:
        self.machine.at(now)
        self.catchup.at(now)

    def receive(self, now: float, envelope: Envelope) -> None:
        """Take a message from another node."""
        self._at(now)
        if not isinstance(envelope.message, _CATCHUP):
            self._do(self.machine.step(envelope))
        elif self.machine.admits(envelope) or not envelope.cluster:
            # Who belongs to no cluster yet may ask, and is told which one this is.
            self._do(self.machine.admitted())
            self._early.append(envelope)
            self._catch_up()

    def serve(self, now: float, envelope: Envelope) -> PullFile | None:
        """Take a question for a file; return it if whoever opened a stream with it is to have the file."""
        question = envelope.message
        if not isinstance(question, PullFile) or not self.machine.admits(envelope):
            return None
        self.receive(now, envelope)
        return question

    def _catch_up(self) -> None:
        """Take what came for catch-up, once it is on disk to which cluster this node belongs.

        A log that begins with holes does not tell. A node that starts with such a log and without the note takes it
        for an imported one, and no cluster takes it in.
        """
        while self._early and self._is_noted():
            envelope = self._early.popleft()
            self._pull(self.catchup.step(envelope.sender, envelope.message))

    def _is_noted(self) -> bool:
        """Say whether the disk knows to which cluster this node belongs: the journal, and in case of damage the log."""
        cluster = str(self.machine.cluster)
        if self._joined > self.journal.durable:
            return False
        if cluster != "0" and self.log.manifest.tags.get(CLUSTER_TAG) != cluster:
            try:
                self.log.tag(**{CLUSTER_TAG: cluster})
            except LogError as error:
                self._lost(error)
                return False
            except OSError:
                return False  # as on a full disk; the next message tries again
        return True

    def tick(self, now: float) -> None:
        """Let time pass."""
        self._do(self.machine.tick(now))
        self._tell_catchup()
        self._pull(self.catchup.tick(now))

    def _tell_catchup(self) -> None:
        """Tell catch-up what consensus knows: how far it should be, whether it votes, whom it may ask."""
        machine, catchup = self.machine, self.catchup
        if machine.known > catchup.known:
            self._pull(catchup.heard(machine.known))
        if machine.is_voter != catchup.is_voter:
            self._pull(catchup.set_voter(machine.is_voter))
        if (known := machine.acquaintances) != self._acquaintances:
            self._acquaintances = known
            self._set_sources()

    def follow(self, sources: Iterable[Source]) -> None:
        """Say who may be asked besides the voters: nodes that follow them, or each other."""
        if (followed := tuple(sources)) != self._followed:
            self._followed = followed
            self._set_sources()

    def _set_sources(self) -> None:
        voters = [Source(member, primary=True) for member in self._acquaintances]
        self._pull(self.catchup.set_sources([*voters, *self._followed]))

    def propose(
        self,
        now: float,
        token: int,
        updates: Sequence[Update],
        size: int,
        numbers: Numbers | None = None,
    ) -> None:
        """Have updates decided; `Port.answer` tells what became of them. See `Machine.propose` for `numbers`."""
        self._at(now)
        self._do(self.machine.propose(token, updates, size, numbers))

    def read(self, now: float, token: int) -> None:
        """Ask from where on a read is up to date; `Port.answer` tells."""
        self._at(now)
        self._do(self.machine.read(token))

    def fed(self, now: float, outcome: Fed) -> None:
        """Take the outcome of a read that was asked for."""
        self._at(now)
        match outcome:
            case Found(read, blocks, edition):
                self._pull(self.catchup.found(read, blocks, edition))
            case Listed(read, offers, edition):
                self._pull(self.catchup.listed(read, offers, edition))
            case Unreadable(read, reason):
                self._pull(self.catchup.unreadable(read, reason))

    def took(self, now: float, outcome: Taken) -> None:
        """Take the outcome of work on files that was asked for."""
        self._at(now)
        match outcome:
            case Fetched(transfer):
                self._pull(self.catchup.fetched(transfer))
            case Interrupted(transfer):
                self._pull(self.catchup.interrupted(transfer, progressed=outcome.progressed))
            case Withheld(transfer):
                self._pull(self.catchup.withheld(transfer))
            case Refused(transfer):
                if transfer == self._installing:
                    self._append_waiting()
                self._pull(self.catchup.refused(transfer))
            case Installed(staged=True):
                self._stage_segment(outcome)
            case Installed():
                self._jump(outcome)

    def compacted(self) -> None:
        """A compaction pass has changed the log. Call it before reads that were done meanwhile are answered."""
        self._pull(self.catchup.compacted(edition_of(self.log.manifest)))

    def wish(self, now: float, names: Sequence[str] | None) -> None:
        """Say which names should vote."""
        self._at(now)
        self._do(self.machine.wish(names))

    def hand_over(self, now: float, to: Member | None = None) -> None:
        """Hand the leadership over."""
        self._at(now)
        self._do(self.machine.hand_over(to))

    def stop(self, reason: str) -> None:
        """Answer everybody who waits."""
        self._do(self.machine.stop(reason))

    # ------------------------------------------------------------------ the disk

    def sync(self, now: float) -> None:
        """Have what is waiting put on disk, where journal and log have no thread that does it."""
        self._at(now)
        try:
            self.journal.sync()
            self.log.flush()
        except LogError as error:
            self._fail(error)
        self.settle(now)

    def push(self, now: float) -> None:
        """Let out what is on disk, and have the journal write what is waiting: in its thread, or at once without one.

        Then again, since what is let out may ask for more.
        """
        self.settle(now)
        while self._journal_ticket > self._pushed and not self._failed:
            try:
                self._pushed = self.journal.sync()
            except LogError as error:
                self._fail(error)
            self.settle(now)

    def settle(self, now: float) -> None:
        """See what is on disk by now, and let out what was held back for it."""
        self._at(now)
        durable = self.journal.durable
        while self._tickets and self._tickets[0][1] <= durable:
            self.machine.persisted(self._tickets.popleft()[0])
        self.machine.stored(self.log.durable_seq)
        while self._held and self._held[0][0] <= durable:
            self._send(self._held.popleft()[1])
        self._run_own()
        self._catch_up()

    def _fail(self, error: LogError) -> None:
        """Nothing that was held back may leave any more: nobody knows whether it is on disk."""
        self._failed = True
        self._held.clear()
        self._do(self.machine.disable(str(error)))

    def _lost(self, error: LogError | OSError) -> None:
        """Something is not on disk that the machines take to be there, so this node begins again from its disk."""
        failure = self.log.failure or LogFailed(str(error))
        self.log.fail(failure)
        self._fail(failure)

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for the disk."""
        if self._held or self._tickets:
            return True
        return self.log.durable_seq + 1 < self.log.next_seq

    @property
    def waits_for_journal(self) -> bool:
        """Whether something that consensus asked for is not on disk yet."""
        return bool(self._tickets)

    # ------------------------------------------------------------------ effects

    def _do(self, effects: Effects) -> None:
        self._act(effects)
        self._run_own()

    def _run_own(self) -> None:
        """Take the messages that this node sent to itself."""
        while self._own:
            self._act(self.machine.step(self._own.popleft()))

    def _act(self, effects: Effects) -> None:
        if effects.persist:
            self._persist(effects.persist, effects.ticket)
        if effects.send:
            self._hold(effects.send)
        self._send(effects.send_now)
        if effects.append:
            self._append(effects.append)  # type: ignore[arg-type]
        for answer in effects.answers:
            self._port.answer(answer)

    def _persist(self, entries: Iterable[Entry], ticket: int) -> None:
        if self._failed:
            return
        try:
            for entry in entries:
                self._journal_ticket = remembering.keep(self.journal, entry)
                if isinstance(entry, KeepNote) and entry.key == JOINED:
                    self._joined = self._journal_ticket
        except LogError as error:
            self._fail(error)
            return
        self._tickets.append((ticket, self._journal_ticket))

    def _hold(self, messages: list[tuple[Member, Message]]) -> None:
        if self._failed:
            return
        if self._journal_ticket <= self.journal.durable:
            self._send(messages)
        else:
            self._held.append((self._journal_ticket, messages))

    def _send(self, messages: Iterable[tuple[Member, Message]]) -> None:
        me = self.machine.me
        for to, message in messages:
            envelope = self.machine.envelope(to, message)
            if to == me:
                self._own.append(envelope)
            else:
                self._port.send(to, envelope)

    def _append(self, blocks: Sequence[Block]) -> None:
        if self._installing:
            self._waiting += blocks
            return
        for block in blocks:
            try:
                self.log.append(block)
            except LogError as error:
                self._fail(error)
                return
            self._port.decided(block)
            self._pull(self.catchup.advanced([block]))

    # ------------------------------------------------------------------ effects of catch-up

    def _pull(self, effects: CatchupEffects) -> None:
        try:
            if effects.floor:
                self.log.raise_tombstone_floor(effects.floor)
            for step in effects.resync:
                self._resync(step)
        except (LogError, OSError) as error:
            self._lost(error)
            return
        if effects.learned:
            self._do(self.machine.learn(effects.learned))
        for part in effects.segments:
            self._take(part)
        for read in effects.read:
            self._port.read(read)
        for to, message in effects.send:
            self._port.send(to, self.machine.envelope(to, message))

    def _take(self, step: SegmentStep) -> None:
        match step:
            case FetchSegment(_, offer, source, position):
                question = PullFile(offer.id, offer.offset, offer.bytes, position)
                envelope = self.machine.envelope(source, question)
                self._port.fetch(source, envelope, partial(self._taker.fetch, step))
            case InstallSegment():
                self._installing = 0 if step.staged else step.transfer
                self._port.take(partial(self._taker.install, step))
            case _:
                self._port.hang_up()
                self._port.take(self._taker.drop)

    @property
    def progress(self) -> Progress | None:
        """How much of the segments that are being taken has come; None if none are. For any thread."""
        if (progress := self.catchup.progress) is None:
            return None
        return Progress(min(progress.done + self._taker.taken, progress.total), progress.total)

    def _jump(self, outcome: Installed) -> None:
        """A segment is part of the log."""
        first, last = outcome.info.first, outcome.info.last
        self._port.installed(first, last)
        self._do(self.machine.installed(first, last, outcome.configuration, outcome.sessions))
        self._pull(self.catchup.installed(outcome.transfer))
        self._append_waiting()

    def _append_waiting(self) -> None:
        """Append what was decided meanwhile, as far as the log does not have it now."""
        self._installing = 0
        waiting, self._waiting = self._waiting, []
        end = self.log.next_seq
        self._append([_behind(block, end) for block in waiting if block.last >= end])

    def _stage_segment(self, outcome: Installed) -> None:
        try:
            self._begin_staging().add(outcome.info)
        except (LogError, OSError) as error:
            self._lost(error)
            return
        self._staged = outcome.configuration or self._staged
        self._staged_sessions.extend(outcome.info.first, outcome.sessions)
        self._pull(self.catchup.installed(outcome.transfer))

    def _resync(self, step: ResyncStep) -> None:
        if isinstance(step, Stage):
            self._stage(step.values)
        elif isinstance(step, FinishResync) and self._staging is not None:
            self._take_over(self._staging, step)
        else:
            self._drop_staging()

    def _stage(self, blocks: Iterable[Any]) -> None:
        staging = self._begin_staging()
        for block in blocks:
            content = self._codec.content(block)
            self._staged = content.configuration or self._staged
            self._staged_sessions.learn(content, block.last)
            staging.append([block])

    def _begin_staging(self) -> Staging:
        if self._staging is None:
            self._staging, self._staged = self.log.stage(), None
            self._staged_sessions = Sessions(1, self._sessions_max)
        return self._staging

    def _take_over(self, staging: Staging, step: FinishResync) -> None:
        """Let the staged log be the log."""
        self._port.replacing()
        try:
            staging.finish(step.floor)
        except OutOfOrder as error:
            self._drop_staging()
            self._pull(self.catchup.resync_failed(str(error)))
            return
        self._staging = None
        self._port.replaced(step.last)
        self._do(self.machine.resynced(step.last, self._staged, self._staged_sessions))
        self._pull(self.catchup.resynced(edition_of(self.log.manifest)))

    def _drop_staging(self) -> None:
        if self._staging is not None:
            self._staging.discard()
            self._staging = None


def _behind(block: Block, first: int) -> Block:
    return block.cut(max(first, block.first), block.last)
