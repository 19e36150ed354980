"""The apply thread: it owns the handler, and calls it for every decided update, in order.

The loop hands it what was decided, together with the futures of those who asked for it here. What the handler has not
come to is kept in memory up to a bound, and read from the log again beyond that (`sirius.backlog`). Persistence and
consensus never wait for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sirius.backlog import Backlog
from sirius.driver.acks import Ack, complete, fail
from sirius.driver.calls import Caller, Patience, numbered
from sirius.driver.replaying import Replay, Replayer, gone
from sirius.errors import HandlerFailed, NodeClosed, NodeError, SiriusError
from sirius.handler import RequestHandler, SiriusResult
from sirius.types import Seq
from sirius.wal import Batch, Block, Log, Snapshot

_log = logging.getLogger("sirius.handler")
_LOOK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """How the handler is treated."""

    patience: Patience = field(default_factory=Patience)
    backlog_bytes_max: int = 64 * 1024 * 1024
    behind_max: int = 100_000
    replay: Replay = Replay.SERIAL
    replay_threads: int = 4


class Answered(NamedTuple):
    """Consecutive updates, from `first` on, of callers on this node."""

    first: int
    acks: Sequence[Ack]


class _Get(NamedTuple):
    key: str
    ack: Ack
    upto: int


class Applier:
    """See above. `hand`, `get` and the properties are for any thread."""

    def __init__(
        self,
        handler: RequestHandler,
        log: Callable[[], Log],
        settings: ApplySettings,
        on_stopped: Callable[[], None],
    ) -> None:
        self._handler = handler
        self._log = log
        self._settings = settings
        self._on_stopped = on_stopped
        self._caller = Caller(handler, settings.patience)
        self._changed = threading.Condition(threading.Lock())
        self._backlog = self._new_backlog(Seq(0))
        self._answered: deque[Answered] = deque()
        self._gets: deque[_Get] = deque()
        self._waiting_for: dict[object, tuple[int, threading.Event]] = {}
        self._old: Snapshot | None = None
        self._replace = False
        self._closing = False
        self._applied = Seq(0)
        self.failure: HandlerFailed | None = None
        self.is_replaying = True
        self.replayed = 0
        self.replay_end = Seq(0)
        self._thread = threading.Thread(target=self._run, name="sirius-apply", daemon=True)

    def _new_backlog(self, applied: Seq) -> Backlog:
        return Backlog(
            applied,
            lambda first, last: self._log().blocks(first, last),
            bytes_max=self._settings.backlog_bytes_max,
            behind_max=self._settings.behind_max,
        )

    # ------------------------------------------------------------------ for any thread

    @property
    def applied(self) -> Seq:
        """The handler has seen everything up to here."""
        return self._applied

    @property
    def waiting(self) -> int:
        """How many sequence numbers the handler is behind."""
        return self._backlog.waiting

    @property
    def backlog_bytes(self) -> int:
        return self._backlog.bytes

    @property
    def is_behind(self) -> bool:
        """Whether callers should wait for the handler."""
        return self._backlog.is_behind

    @property
    def busy_s(self) -> float:
        """How long the handler has been at the batch that it is at."""
        since = self._caller.busy_since
        return time.monotonic() - since if since is not None else 0.0

    @property
    def exceptions(self) -> int:
        """How often the handler has raised."""
        return self._caller.exceptions

    def get(self, key: str, ack: Ack, upto: int = 0) -> None:
        """Have a key looked up between updates, once everything up to `upto` is applied."""
        with self._changed:
            if not self._closing:
                self._gets.append(_Get(key, ack, upto))
                self._changed.notify()
                return
        fail([ack], NodeClosed("the node is closed"))

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        """Wait until the handler has seen `seq`; say whether it has."""
        with self._changed:
            if self._applied >= seq or self.failure is not None or self._closing:
                return self._applied >= seq
            reached = threading.Event()
            self._waiting_for[reached] = (seq, reached)
        reached.wait(timeout_s)
        with self._changed:
            self._waiting_for.pop(reached, None)
            return self._applied >= seq

    # ------------------------------------------------------------------ for the loop

    def start(self, log: Log) -> None:
        """Begin with what is in the log."""
        self.replay_end = log.durable_seq
        self._backlog = self._new_backlog(self.replay_end)
        self._thread.start()

    def hand(self, blocks: Sequence[Block], answered: Sequence[Answered]) -> None:
        """Take what was decided, and who asked for some of it."""
        with self._changed:
            for block in blocks:
                if block.last > self._backlog.decided:
                    first = max(block.first, self._backlog.decided + 1)
                    self._backlog.push(block.cut(first, block.last))
            if self.failure is None and not self._closing:
                self._answered += answered
                answered = ()
            self._changed.notify()
        for each in answered:
            self._refuse(each)

    def _refuse(self, answered: Answered) -> None:
        for seq, ack in enumerate(answered.acks, answered.first):
            fail([ack], self._why_not(seq))

    def _why_not(self, seq: int) -> NodeError:
        """Say why an update that is in the log was not applied here."""
        if self.failure is not None:
            return HandlerFailed(f"update {seq} is in the log but not applied: {self.failure}", seq)
        return HandlerFailed(f"update {seq} is in the log; the node stopped before it", seq)

    def replaced(self, last: Seq, old: Snapshot | None) -> None:
        """The log was taken anew and ends at `last`; `old` is what it was."""
        with self._changed:
            if self._old is None:
                self._old = old
            self._replace, self.replay_end = True, last
            self._backlog = self._new_backlog(last)
            self._changed.notify()

    def close(self, timeout_s: float | None = None) -> bool:
        """Finish the batch at hand, refuse the rest; say whether the thread ended in time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        with self._changed:
            answered, gets = list(self._answered), list(self._gets)
            self._answered.clear()
            self._gets.clear()
            for _, reached in self._waiting_for.values():
                reached.set()
        for each in answered:
            self._refuse(each)
        fail([get.ack for get in gets], NodeClosed("the node is closed"))
        return not self._thread.is_alive()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._replay()
            while self._turn():
                pass
        except SiriusError as error:
            self._stop(error)
            while self._turn_stopped():
                pass

    def _stop(self, error: SiriusError) -> None:
        """Apply nothing more, and say so. Gets go on: they see the state as it is."""
        failure = error if isinstance(error, HandlerFailed) else HandlerFailed(str(error))
        _log.error("nothing more is applied on this node: %s", failure)
        with self._changed:
            self.failure = failure
            self.is_replaying = False
            answered = list(self._answered)
            self._answered.clear()
            for _, reached in self._waiting_for.values():
                reached.set()
        for each in answered:
            self._refuse(each)
        self._on_stopped()

    def _replay(self) -> None:
        with self._log().snapshot() as snapshot:
            self.is_replaying, self.replayed = True, 0
            self._handler_says("on_bootstrap_starting")
            for deletes in gone(self._old, snapshot) if self._old is not None else ():
                self._caller.apply(deletes)
            replayer = Replayer(
                lambda: Caller(self._handler, self._settings.patience),
                self._settings.replay,
                self._settings.replay_threads,
                self._progressed,
            )
            if not replayer.run(snapshot, lambda: self._closing):
                return
            self._handler_says("on_bootstrap_complete")
            self._reached(snapshot.last)
        if self._old is not None:
            self._old.close()
            self._old = None
        self.is_replaying = False

    def _handler_says(self, name: str) -> None:
        try:
            getattr(self._handler, name)()
        except Exception as error:
            raise HandlerFailed(f"{name} raised {type(error).__name__}: {error}") from error

    def _progressed(self, records: int) -> None:
        self.replayed += records

    def _turn(self) -> bool:
        """Do what is there; False when it is time to go."""
        with self._changed:
            self._changed.wait_for(self._has_work)
            if self._closing:
                return False
            replace, self._replace = self._replace, False
            block = None if replace else self._backlog.pop()
            missing = self._backlog.missing
        if replace:
            self._replay()
        elif block is not None:
            self._apply(block)
        elif missing[0] <= missing[1]:
            self._apply_from_log(*missing)
        self._serve_gets()
        return True

    def _has_work(self) -> bool:
        return bool(self._closing or self._replace or self._backlog.waiting or self._ready_gets())

    def _turn_stopped(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._gets)
            if self._closing:
                return False
        self._serve_gets()
        return True

    def _apply_from_log(self, first: int, last: int) -> None:
        """Apply what was not kept in memory. What is not on disk yet is there in a moment."""
        log = self._log()
        last = min(last, log.durable_seq)
        blocks = list(log.blocks(first, last)) if first <= last else []
        if not blocks:
            time.sleep(_LOOK_AGAIN_S)
        for block in blocks:
            with self._changed:
                self._backlog.skip(block.last)
            self._apply(block)

    def _apply(self, block: Block) -> None:
        batch = Batch.of(block).updates()
        if block.last <= self._applied:
            return
        if block.first <= self._applied:
            batch = batch.between(self._applied + 1, block.last)
        try:
            results = self._caller.apply(batch)
        except HandlerFailed:
            seqs, done = batch.seq.tolist(), self._caller.done
            if done:
                self._answer(seqs[: len(done)], done, seqs[len(done) - 1])
                self._reached(Seq(seqs[len(done) - 1]))
            raise
        self._answer(batch.seq.tolist(), results, block.last)
        self._reached(block.last)

    def _answer(self, seqs: Sequence[int], results: Sequence[SiriusResult], upto: int) -> None:
        """Complete the futures of everything up to `upto`, given the results of these updates."""
        mine = self._take_answered(upto)
        if not mine:
            return
        wanted = [seq for first, acks in mine for seq in range(first, first + len(acks))]
        acks = [ack for each in mine for ack in each.acks]
        if wanted == list(seqs):
            complete(acks, numbered(wanted, results))
            return
        # Other nodes' updates stand between them; or they were compacted away before their turn came.
        by_seq = dict(zip(seqs, results, strict=True))
        none = SiriusResult.none()
        complete(acks, numbered(wanted, [by_seq.get(seq, none) for seq in wanted]))

    def _take_answered(self, upto: int) -> list[Answered]:
        found = []
        with self._changed:
            while self._answered and self._answered[0].first <= upto:
                first, acks = self._answered.popleft()
                count = upto - first + 1
                found.append(Answered(first, acks[:count]))
                if count < len(acks):
                    self._answered.appendleft(Answered(first + count, acks[count:]))
                    break
        return found

    def _reached(self, seq: Seq) -> None:
        self._applied = max(self._applied, seq)
        if self._waiting_for:
            with self._changed:
                for wanted, reached in self._waiting_for.values():
                    if wanted <= seq:
                        reached.set()

    # ------------------------------------------------------------------ gets

    def _ready_gets(self) -> bool:
        return any(get.upto <= self._applied for get in self._gets)

    def _serve_gets(self) -> None:
        if not self._gets:
            return
        with self._changed:
            stopped = self.failure is not None
            ready: list[_Get] = []
            later: deque[_Get] = deque()
            for get in self._gets:
                (ready if stopped or get.upto <= self._applied else later).append(get)
            self._gets = later
        for get in ready:
            self._look_up(get)

    def _look_up(self, get: _Get) -> None:
        if get.upto > self._applied:
            fail([get.ack], self._why_not(get.upto))
            return
        try:
            result = self._caller.get(get.key)
        except Exception as error:
            fail([get.ack], error)
        else:
            complete([get.ack], [result])
