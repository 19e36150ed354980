"""The loop of a node: it owns the engine, and nothing in it waits for a disk, a handler or a caller.

Everything that happens is a **turn**: a message, a request, a timer, a word from the disk. Turns that come together
end together: then the journal is told to write, and the apply thread gets all that was decided, with the futures of
those who asked for it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from sirius.catchup.effects import Read
from sirius.driver.acks import Ack, fail
from sirius.driver.acquaintances import Acquaintances
from sirius.driver.applier import Applier, ApplySettings
from sirius.driver.disk import Disk
from sirius.driver.files import FileStream, Giving, tell_of, use
from sirius.driver.inbox import Inbox
from sirius.driver.requests import Requests
from sirius.engine import Engine, Settings, World
from sirius.errors import (
    DiskFull,
    HandlerFailed,
    InvariantViolation,
    LogError,
    NodeClosed,
    NodeError,
    ReadFailed,
    RequestRejected,
    SiriusError,
)
from sirius.feeding import feed
from sirius.handler import RequestHandler
from sirius.ops.recorder import Recorder
from sirius.paxos.effects import Answer, Rejected
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.paxos.values import Numbers
from sirius.taking import Stream, Taken
from sirius.types import Seq
from sirius.wal import Block, CompactionPolicy, LogConfig, Snapshot, Update

_log = logging.getLogger("sirius.node")
_TICKS_PER_HEARTBEAT: Final = 4
_ROOM_POLL_S: Final = 0.001
_LAST_WORDS_S: Final = 0.05
_REOPEN_S: Final = 1.0
_REOPEN_S_MAX: Final = 30.0


class Transport(Protocol):
    """The way to other nodes. `start` and `close` are awaited on the loop."""

    def send(self, to: Member, envelope: Envelope, wait_s: float = 0.0) -> None:
        """Send a message, or lose it. Never waits, never raises; the message may wait for `wait_s` for company."""
        ...

    def stream(self, source: Member, envelope: Envelope) -> FileStream:
        """Return a stream on which a file will come: another thread opens it, and reads it."""
        ...

    async def start(self, received: Callable[[Sequence[Envelope]], None]) -> None: ...

    async def close(self) -> None: ...


class DriverSettings(NamedTuple):
    """What a node is told at the start."""

    name: str
    folder: str
    log: LogConfig
    machines: Settings
    apply: ApplySettings
    ack_applied: bool = True
    outstanding_max: int = 65536
    outstanding_bytes_max: int = 64 * 1024 * 1024
    follow: tuple[str, ...] = ()


class Driver:
    """One node. Methods without a word on threads are the loop's own."""

    def __init__(
        self,
        handler: RequestHandler,
        settings: DriverSettings,
        transport: Transport | None,
        on_tick: Callable[[Engine, float], None] = lambda _engine, _now: None,
        recorder: Recorder | None = None,
    ) -> None:
        self.settings = settings
        self._on_tick = on_tick
        self._recorder = recorder
        self._syncing_since: float | None = None
        self._transport = transport
        self._loop = asyncio.new_event_loop()
        self.pool = ThreadPoolExecutor(2, "sirius-read")
        self._files = ThreadPoolExecutor(1, "sirius-files")
        """One thread: what comes as files is written in order."""
        self.applier = Applier(
            handler, lambda: self.disk.log, settings.apply, self._handler_stopped, recorder
        )
        self.inbox = Inbox(self._wake, settings.outstanding_max, settings.outstanding_bytes_max)
        self._requests = Requests(
            self.inbox,
            self.applier,
            settings.machines.paxos,
            ack_applied=settings.ack_applied,
            recorder=recorder,
        )
        self._decided: list[Block] = []
        self._giving = Giving(lambda: self.disk.log, self.pool, settings.machines.catchup.files_max)
        self._stream: FileStream | None = None
        """On which a file comes."""
        self._installed = Seq(0)
        """The log has segments up to here of which the apply thread was not told."""
        self._turn_ends = False
        self._old: Snapshot | None = None
        self._wish: Sequence[str] | None = None
        self._stopping = asyncio.Event()
        self._publishing = asyncio.Lock()
        self.acquaintances = Acquaintances(settings.follow)
        self.trouble: str | None = None
        """What is wrong with the disk, if something is."""
        self.gave_up: str | None = None
        """Why the loop has ended although nobody asked it to: a bug, which must not pass unseen."""
        self.is_closed = False
        self._reopen_s = _REOPEN_S
        self._durable_told = False
        self._reopened: Disk | None = None
        """Open, and not in use yet."""
        self._adopted_at = time.monotonic()
        try:
            self.disk, found = self._open(None)
        except BaseException:
            self._loop.close()
            self.pool.shutdown()
            self._files.shutdown()
            raise
        self.engine: Engine | None = found
        self._thread = threading.Thread(target=self._run, name="sirius-loop", daemon=True)

    def _open(self, failure: LogError | None) -> tuple[Disk, Engine]:
        """Open the disk and make an engine of what is on it. A disk that was full is compacted first."""
        disk = Disk.open(self.settings.folder, self.settings.log)
        try:
            if isinstance(failure, DiskFull):
                disk.log.compact(CompactionPolicy(dead_fraction_min=0.0))
            return disk, self._new_engine(disk)
        except BaseException:
            disk.close()
            raise

    def _new_engine(self, disk: Disk) -> Engine:
        world = World(random.Random(), time.monotonic(), lambda: time.time_ns() // 1000)
        settings = self.settings
        engine = Engine(settings.name, disk.log, disk.journal, self, settings.machines, world)
        disk.journal.on_durable(self._journal_is_durable)
        return engine

    # ------------------------------------------------------------------ lives (callers' threads)

    def start(self, wish: Sequence[str] | None) -> None:
        """Start the threads; return when the transport listens, or raise what it raised."""
        self._wish = wish
        self.applier.start(self.disk.log)
        started: Future[None] = Future()
        self._started = started
        self._thread.start()
        try:
            started.result()
        except BaseException:
            self._thread.join()
            raise

    def close(self, timeout_s: float) -> None:
        """Stop in order: hand over, answer everybody, close the disk."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(timeout_s), self._loop).result()
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        elif not self._loop.is_closed():
            # It was never started.
            self._loop.close()
        if not self.applier.close(timeout_s):
            _log.warning(
                "the handler did not return within %g s: its thread is left behind", timeout_s
            )
        for pool in (self.pool, self._files):
            pool.shutdown(wait=True, cancel_futures=True)
        if self._reopened is not None:
            self._reopened.close()
        self.disk.close()

    def call(self, function: Callable[[Engine], Any]) -> Future[Any]:
        """Have the engine called on the loop; for any thread."""
        outcome: Future[Any] = Future()
        try:
            self._loop.call_soon_threadsafe(self._called, function, outcome)
        except RuntimeError:
            outcome.set_exception(NodeClosed("the node is closed"))
        return outcome

    def _called(self, function: Callable[[Engine], Any], outcome: Future[Any]) -> None:
        if self.engine is None:
            outcome.set_exception(NodeError(self._why_none))
            return
        try:
            outcome.set_result(function(self.engine))
        except Exception as error:
            outcome.set_exception(error)
        self._end_turn_soon()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller is one of this node's own threads, which must not wait for it."""
        return threading.current_thread() is self._thread or self.applier.is_current_thread

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._drain)
        except RuntimeError:
            raise NodeClosed("the node is closed") from None

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._uncaught)
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self.is_closed = True
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _uncaught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that nobody caught in a callback: ours, or one of gRPC, which shares its events between all loops of
        a process and raises on one of them when another was closed."""
        error = context.get("exception")
        if isinstance(error, Exception) and _is_ours(error):
            self._broke(error)
        else:
            _log.debug("%s: %r", context.get("message"), error)

    def _broke(self, error: Exception) -> None:
        """A machine may be in no state to go on, so the node ends, and says so."""
        self.gave_up = f"the node has stopped because of a bug: {error!r}"
        _log.critical("%s", self.gave_up, exc_info=error)
        self._refuse(lambda: NodeError(self.gave_up or ""))
        self._requests.lose(self.gave_up)
        self.engine = None
        self._stopping.set()

    async def _main(self) -> None:
        try:
            if self._transport is not None:
                await self._transport.start(self._received)
        except BaseException as error:
            self._started.set_exception(error)
            return
        self.with_engine(lambda engine: engine.wish(time.monotonic(), self._wish))
        self._started.set_result(None)
        tick_s = self.settings.machines.paxos.heartbeat_s / _TICKS_PER_HEARTBEAT
        while not self._stopping.is_set():
            try:
                self._tick()
            except Exception as error:
                self._broke(error)
            await asyncio.sleep(tick_s)
        if self._transport is not None:
            await self._transport.close()
            # What gRPC still has to say to this loop it says now, or to a closed one.
            await asyncio.sleep(_LAST_WORDS_S)

    async def _stop(self, timeout_s: float) -> None:
        left = self.inbox.shut(lambda: NodeClosed("the node is closed"))
        fail([asked.ack for asked in left], NodeClosed("the node was closed before it took this"))
        deadline = time.monotonic() + timeout_s
        await self._until(lambda: not self._requests.are_waiting, deadline)
        self.with_engine(lambda engine: engine.hand_over(time.monotonic()))
        await self._until(lambda: self.engine is None or not self._can_hand_over, deadline)
        self.with_engine(lambda engine: engine.stop("the node was closed"))
        self.hang_up()
        self._end_turn()

    @property
    def _can_hand_over(self) -> bool:
        if self.engine is None or not self.engine.machine.is_leader:
            return False
        configuration = self.engine.machine.configuration
        return configuration is not None and len(configuration.voters) > 1

    async def _until(self, done: Callable[[], bool], deadline: float) -> None:
        while not done() and time.monotonic() < deadline:
            await asyncio.sleep(0.005)

    def with_engine(self, function: Callable[[Engine], Any]) -> None:
        """Call the engine, if there is one; on the loop's thread."""
        if self.engine is not None:
            function(self.engine)
            self._end_turn_soon()

    # ------------------------------------------------------------------ what happens

    def _tick(self) -> None:
        if self.engine is None:
            return
        now = time.monotonic()
        self.engine.tick(now)
        self._on_tick(self.engine, now)
        if (failure := self.disk.failure) is not None:
            self._disk_failed(failure)
        self._end_turn_soon()

    def _received(self, envelopes: Sequence[Envelope]) -> None:
        if self.engine is None:
            return
        now = time.monotonic()
        try:
            for envelope in envelopes:
                self.acquaintances.received(envelope, self.engine.machine.cluster, now)
                self.engine.receive(now, envelope)
            if self._decided:
                # Callers need not wait until others are told, nor for the journal of what comes next.
                self._hand_on()
        except Exception as error:
            # The transport would end one stream for it, and the node would go on.
            self._broke(error)
        self._end_turn_soon()

    def wish(self, names: Sequence[str] | None) -> None:
        """Say which names should vote."""
        self._wish = names
        self.with_engine(lambda engine: engine.wish(time.monotonic(), names))

    def _drain(self) -> None:
        """Propose what callers have handed in."""
        while self._requests.has_room and (batch := self._requests.take()) is not None:
            self._propose(*batch)
        self.inbox.rest()
        self._end_turn_soon()

    def _propose(
        self, token: int, updates: Sequence[Update], size: int, numbers: Numbers | None = None
    ) -> None:
        if self.engine is None:
            self.answer(Rejected(token, self._why_none))
        else:
            self.engine.propose(time.monotonic(), token, updates, size, numbers)

    async def publish(self, updates: Sequence[Update], numbers: Numbers | None = None) -> int:
        """Have updates of a client decided, all together; return the last sequence number, once they are in the log.

        Calls are served in their order. Those with numbers take effect once, however often they are asked for.
        """
        outcome: asyncio.Future[int] = self._loop.create_future()
        async with self._publishing:
            while not self._requests.has_room:
                await asyncio.sleep(_ROOM_POLL_S)
            token, size = self._requests.publish(updates, outcome)
            self._propose(token, updates, size, numbers)
        self._end_turn_soon()
        return await outcome

    @property
    def _why_none(self) -> str:
        """Why there is no engine."""
        return (
            f"the disk of this node is out of order: {self.trouble}"
            if self.trouble
            else "the node is closed"
        )

    def get(self, key: str, ack: Ack) -> None:
        """Look a key up so that every update acknowledged before is seen; for any thread."""
        self._loop.call_soon_threadsafe(self._get, key, ack)

    def _get(self, key: str, ack: Ack) -> None:
        if self.engine is None:
            fail([ack], ReadFailed(self._why_none))
            return
        self.engine.read(time.monotonic(), self._requests.read(key, ack))
        self._end_turn_soon()

    # ------------------------------------------------------------------ the end of a turn

    def _end_turn_soon(self) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_ends = False
        if self.engine is not None:
            now = time.monotonic()
            self.engine.push(now)
            if self._syncing_since is None and self.engine.waits_for_journal:
                self._syncing_since = now
        self._hand_on()
        if len(self.inbox) and self._requests.has_room:
            self._drain()

    def _hand_on(self) -> None:
        """Give the apply thread what was decided, and who asked for it; first what came as files before that."""
        self._let_apply()
        answered = self._requests.take_answered()
        if self._decided or answered:
            blocks, self._decided = self._decided, []
            self.applier.hand(blocks, answered)

    def _journal_is_durable(self, _ticket: int) -> None:
        """On the journal's thread: have held messages let out."""
        if not self._durable_told:
            self._durable_told = True
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._durable_told = False
        if self._recorder is not None and self._syncing_since is not None:
            self._recorder.synced(time.monotonic() - self._syncing_since)
        self._syncing_since = None
        self._end_turn_soon()

    # ------------------------------------------------------------------ the engine's port

    def send(self, to: Member, envelope: Envelope) -> None:
        """Part of the engine's port."""
        if self._transport is not None:
            wait_s = self.acquaintances.sent(to, envelope, time.monotonic())
            self._transport.send(to, envelope, wait_s)

    def decided(self, block: Block) -> None:
        """Part of the engine's port."""
        self._decided.append(block)

    def answer(self, answer: Answer) -> None:
        """Part of the engine's port."""
        self._requests.answer(answer)

    def read(self, read: Read) -> None:
        """Part of the engine's port: the log is read on another thread."""
        job = self._loop.run_in_executor(self.pool, feed, self.disk.log, read)
        job.add_done_callback(partial(self._fed, self.engine))

    def _fed(self, engine: Engine | None, job: Awaitable[Any]) -> None:
        if engine is self.engine and engine is not None and not job.cancelled():  # type: ignore[attr-defined]
            engine.fed(time.monotonic(), job.result())  # type: ignore[attr-defined]
            self._end_turn_soon()

    def give(self, envelope: Envelope) -> AsyncIterator[bytes]:
        """Return the file that another node asks for, piece by piece."""
        if self.engine is None:
            raise NodeClosed(self._why_none)
        question = self.engine.serve(time.monotonic(), envelope)
        self._end_turn_soon()
        if question is None:
            raise NodeError("files are for nodes of this cluster")
        return self._giving.pieces(question, lambda: self._is_busy)

    @property
    def _is_busy(self) -> bool:
        """Whether updates are under way."""
        engine = self.engine
        return engine is not None and (engine.waits_for_journal or self.inbox.outstanding > 0)

    def fetch(self, source: Member, envelope: Envelope, work: Callable[[Stream], Taken]) -> None:
        """Part of the engine's port."""
        if self._transport is None:
            raise InvariantViolation(f"a node without a network is to take files from {source}")
        self._stream = stream = self._transport.stream(source, envelope)
        self.take(partial(use, stream, work))

    def hang_up(self) -> None:
        """Part of the engine's port."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def take(self, work: Callable[[], Taken | None]) -> None:
        """Part of the engine's port: files are written on their own thread."""
        job = self._loop.run_in_executor(self._files, work)
        job.add_done_callback(partial(self._took, self.engine))

    def _took(self, engine: Engine | None, job: Any) -> None:
        if job.cancelled() or engine is not self.engine or engine is None:
            return
        if (outcome := job.result()) is not None:
            tell_of(outcome)
            engine.took(time.monotonic(), outcome)
            self._end_turn_soon()

    def installed(self, _first: Seq, last: Seq) -> None:
        """Part of the engine's port: what was decided before comes first."""
        blocks, self._decided = self._decided, []
        self.applier.hand(blocks, ())
        self._installed = last

    def _let_apply(self) -> None:
        """Let what came as files be applied, once no more of it comes: files and handler would get in each other's way,
        and the state is not that of one moment before."""
        is_taking = self.engine is not None and self.engine.catchup.progress is not None
        if self._installed and (self._decided or not is_taking):
            self.applier.jump(self._installed)
            self._installed = Seq(0)

    def replacing(self) -> None:
        """Part of the engine's port: keep hold of the log that is about to be replaced. Rare enough to wait for."""
        if self._old is not None:
            self._old.close()
        self.disk.log.flush()
        self._old = self.disk.log.snapshot()

    def replaced(self, last: Seq) -> None:
        """Part of the engine's port."""
        self._decided.clear()
        self._installed = Seq(0)
        self.applier.replaced(last, self._old)
        self._old = None

    # ------------------------------------------------------------------ trouble

    def _handler_stopped(self) -> None:
        """On the apply thread: nothing more is applied here, so nobody should ask for it here."""
        if self.settings.ack_applied:
            self._loop.call_soon_threadsafe(self._refuse, self._handler_failure)

    def _handler_failure(self) -> NodeError:
        return HandlerFailed(f"this node's handler has stopped: {self.applier.failure}")

    def _refuse(self, why: Callable[[], NodeError]) -> None:
        left = self.inbox.shut(why)
        fail([asked.ack for asked in left], RequestRejected(str(why())))

    def _disk_failed(self, failure: LogError) -> None:
        """Give the engine up: what was under way is unknown. The disk is opened again, and read again, later."""
        if time.monotonic() - self._adopted_at > _REOPEN_S_MAX:
            self._reopen_s = _REOPEN_S
        engine, self.engine = self.engine, None
        self.hang_up()
        self.trouble = str(failure)
        _log.error(
            "the disk of this node is out of order; it is opened again in %g s: %s",
            self._reopen_s,
            failure,
        )
        if engine is not None:
            engine.stop(f"the disk of this node failed: {failure}")
        self._end_turn()
        self._loop.call_later(self._reopen_s, self._reopen)
        self._reopen_s = min(2 * self._reopen_s, _REOPEN_S_MAX)

    def _reopen(self) -> None:
        if not self._stopping.is_set():
            job = self._loop.run_in_executor(self.pool, self._open_again, self.disk.failure)
            job.add_done_callback(self._adopt)

    def _open_again(self, failure: LogError | None) -> tuple[Disk, Engine]:
        """On another thread: close what failed, and read from disk what is really there."""
        try:
            self.disk.close()
        except SiriusError as error:
            _log.warning("closing it: %s", error)
        self._reopened, engine = self._open(failure)
        return self._reopened, engine

    def _adopt(self, job: Any) -> None:
        if job.cancelled():
            return
        if (error := job.exception()) is not None:
            self.trouble = str(error)
            _log.error("the disk is still out of order: %s", error)
            self._loop.call_later(self._reopen_s, self._reopen)
            self._reopen_s = min(2 * self._reopen_s, _REOPEN_S_MAX)
            return
        self.disk, self.engine = job.result()
        self._reopened = None
        self._adopted_at = time.monotonic()
        self.trouble = None
        _log.info("the disk is in order again, up to %d", self.disk.log.durable_seq)
        self.wish(self._wish)


def _is_ours(error: Exception) -> bool:
    """Say whether an error passed through code of this package."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("sirius."):
            return True
        trace = trace.tb_next
    return False
