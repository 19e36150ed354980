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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from sirius.backlog import Backlog
from sirius.driver.acks import Ack, complete, fail
from sirius.driver.calls import Caller, Patience, numbered
from sirius.driver.replaying import Replay, Replayer, gone
from sirius.errors import (
    HandlerFailed,
    InvariantViolation,
    NodeClosed,
    NodeError,
    Overloaded,
    ReadFailed,
)
from sirius.handler import RequestHandler, SiriusResult
from sirius.ops.recorder import Recorder
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
    gets_max: int = 65536
    """How many reads may wait for the handler; further ones are refused."""


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
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._handler = handler
        self._log = log
        self._settings = settings
        self._on_stopped = on_stopped
        self._closed = threading.Event()
        self._caller = self._new_caller()
        self._callers = [self._caller]
        """Those of a parallel replay are among them meanwhile."""
        self._exceptions = 0
        self._changed = threading.Condition(threading.Lock())
        self._backlog = self._new_backlog(Seq(0))
        self._answered: deque[Answered] = deque()
        self._gets: deque[_Get] = deque()
        self._waiting_for: dict[object, tuple[int, threading.Event]] = {}
        self._old: Snapshot | None = None
        """What the handler holds that the log to be replayed may not."""
        self._new: Snapshot | None = None
        """A log to be replayed; the backlog begins where it ends."""
        self._applied = Seq(0)
        self.failure: HandlerFailed | None = None
        self.is_replaying = True
        self.replayed = 0
        self.replay_end = Seq(0)
        self._thread = threading.Thread(target=self._run, name="sirius-apply", daemon=True)

    def _new_caller(self) -> Caller:
        # Who waits before it calls again does not wait for longer than the node is open.
        return Caller(self._handler, self._settings.patience, self._closed.wait)

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
        """Whether callers should wait for the handler. For one that has stopped they would wait in vain."""
        return self.failure is None and self._backlog.is_behind

    @property
    def busy_s(self) -> float:
        """How long the handler has been at the batch that it is at."""
        begun = [since for caller in self._callers if (since := caller.busy_since) is not None]
        return time.monotonic() - min(begun) if begun else 0.0

    @property
    def exceptions(self) -> int:
        """How often the handler has raised."""
        return self._exceptions + sum(caller.exceptions for caller in self._callers)

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller is the handler, or somebody who was called back."""
        return threading.current_thread() is self._thread

    @property
    def _closing(self) -> bool:
        return self._closed.is_set()

    def get(self, key: str, ack: Ack, upto: int = 0) -> None:
        """Have a key looked up between updates, once everything up to `upto` is applied."""
        with self._changed:
            if not self._closing and len(self._gets) < self._settings.gets_max:
                self._gets.append(_Get(key, ack, upto))
                self._changed.notify()
                return
        fail([ack], self._why_no_get())

    def _why_no_get(self) -> NodeError:
        if self._closing:
            return NodeClosed("the node is closed")
        return Overloaded(f"{len(self._gets):,} reads are waiting for the handler")

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
        self._begin_at(log.snapshot())
        self._thread.start()

    def _begin_at(self, snapshot: Snapshot) -> None:
        """Replay this, and go on behind it: what comes into the log meanwhile is handed over, so it comes once."""
        if self._new is not None:
            self._new.close()
        self._new, self.replay_end = snapshot, snapshot.last
        self._backlog = self._new_backlog(snapshot.last)

    def hand(self, blocks: Sequence[Block], answered: Sequence[Answered]) -> None:
        """Take what was decided, and who asked for some of it."""
        with self._changed:
            for block in blocks:
                if block.last > self._backlog.decided:
                    first = max(block.first, self._backlog.decided + 1)
                    self._backlog.push(block.cut(first, block.last))
            if self.failure is None and not self._closing:
                self._take_in(answered)
                answered = ()
            self._changed.notify()
        for each in answered:
            self._refuse(each)

    def jump(self, last: Seq) -> None:
        """The log has everything up to `last`, of which nothing was handed over: it is read from there."""
        with self._changed:
            self._backlog.jump(last)
            self._changed.notify()

    def _take_in(self, answered: Sequence[Answered]) -> None:
        in_order = True
        for each in answered:
            in_order &= not self._answered or self._answered[-1].first < each.first
            self._answered.append(each)
        if not in_order:
            self._answered = deque(sorted(self._answered, key=attrgetter("first")))

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
        snapshot = self._log().snapshot()
        if snapshot.last != last:
            raise InvariantViolation(f"a log up to {last} ends at {snapshot.last}")
        with self._changed:
            # If another replay has not begun yet, the handler still holds what was before that.
            self._old, unseen = (old, None) if self._old is None else (self._old, old)
            self._begin_at(snapshot)
            self._changed.notify()
        if unseen is not None:
            unseen.close()

    def close(self, timeout_s: float | None = None) -> bool:
        """Finish the batch at hand, refuse the rest; say whether the thread ended in time."""
        with self._changed:
            self._closed.set()
            self._changed.notify()
            self._wake_waiting()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        with self._changed:
            answered, gets = list(self._answered), list(self._gets)
            self._answered.clear()
            self._gets.clear()
        for each in answered:
            self._refuse(each)
        fail([get.ack for get in gets], NodeClosed("the node is closed"))
        return not self._thread.is_alive()

    def _wake_waiting(self) -> None:
        for _, reached in self._waiting_for.values():
            reached.set()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            # Whatever it was: a thread that ends without a word would leave everybody waiting.
            self._stop(error)
            while self._turn_stopped():
                pass

    def _stop(self, error: BaseException) -> None:
        """Apply nothing more, and say so. Gets go on: they see the state as it is."""
        failure = error if isinstance(error, HandlerFailed) else HandlerFailed(_named(error))
        _log.error("nothing more is applied on this node: %s", failure, exc_info=error)
        with self._changed:
            self.failure = failure
            self.is_replaying = False
            answered = list(self._answered)
            self._answered.clear()
            self._wake_waiting()
        for each in answered:
            self._refuse(each)
        # The loop may be gone already.
        with suppress(RuntimeError):
            self._on_stopped()

    def _replay(self, snapshot: Snapshot, old: Snapshot | None) -> None:
        try:
            self.is_replaying, self.replayed = True, 0
            self._handler_says("on_bootstrap_starting")
            for deletes in gone(old, snapshot) if old is not None else ():
                self._caller.apply(deletes)
            if not self._replayer().run(snapshot, lambda: self._closing):
                return
            self._handler_says("on_bootstrap_complete")
            self._reached(snapshot.last)
            self.is_replaying = self._new is not None
        finally:
            snapshot.close()
            if old is not None:
                old.close()
            self._exceptions += sum(caller.exceptions for caller in self._callers[1:])
            self._callers = [self._caller]

    def _replayer(self) -> Replayer:
        settings = self._settings
        return Replayer(self._another, settings.replay, settings.replay_threads, self._progressed)

    def _another(self) -> Caller:
        caller = self._new_caller()
        self._callers = [*self._callers, caller]
        return caller

    def _handler_says(self, name: str) -> None:
        try:
            getattr(self._handler, name)()
        except BaseException as error:
            raise HandlerFailed(f"{name} raised {type(error).__name__}: {error}") from error

    def _progressed(self, records: int) -> None:
        self.replayed += records

    def _turn(self) -> bool:
        """Do what is there; False when it is time to go."""
        with self._changed:
            self._changed.wait_for(self._has_work)
            if self._closing:
                return False
            backlog = self._backlog
            new, self._new = self._new, None
            old, self._old = self._old, None
            block = None if new else backlog.pop()
        if new is not None:
            self._replay(new, old)
        elif block is not None:
            self._apply(Batch.of(block))
        elif backlog.waiting:
            self._apply_from_log(backlog)
        elif self._has_answers():
            self._answer((), (), self._applied)
        if not self._closing:
            self._serve_gets()
        return True

    def _has_work(self) -> bool:
        return bool(
            self._closing
            or self._new is not None
            or self._backlog.waiting
            or self._has_answers()
            or self._ready_gets()
        )

    def _has_answers(self) -> bool:
        """Whether somebody asked for what was applied before."""
        return bool(self._answered) and self._answered[0].first <= self._applied

    def _turn_stopped(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._gets)
            if self._closing:
                return False
        self._serve_gets()
        return True

    def _apply_from_log(self, backlog: Backlog) -> None:
        """Apply what was not kept in memory. What is not on disk yet is there in a moment."""
        found = False
        for batch in self._read(*backlog.gap):
            found = True
            with self._changed:
                if self._closing or backlog is not self._backlog:
                    return
                backlog.skip(batch.last)
            self._apply(batch)
            self._serve_gets()
        if not found:
            self._closed.wait(_LOOK_AGAIN_S)

    def _read(self, first: int, last: int) -> Iterator[Batch]:
        """Read a range, as far as it is there: a batch at a time, since all of them may be much."""
        log = self._log()
        last = min(last, log.durable_seq)
        return log.batches(first, last) if first <= last else iter(())

    def _apply(self, batch: Batch) -> None:
        last = Seq(batch.last)
        if last <= self._applied:
            return
        first = max(int(batch.first), self._applied + 1)
        batch = batch.updates().between(first, last)
        began = time.monotonic()
        try:
            results = self._caller.apply(batch)
        except HandlerFailed:
            seqs, done = batch.seq.tolist(), self._caller.done
            if done:
                self._reached(Seq(seqs[len(done) - 1]))
                self._answer(seqs[: len(done)], done, self._applied)
            raise
        if self._recorder is not None:
            self._recorder.applied(time.monotonic() - began)
        self._reached(last)
        self._answer(batch.seq.tolist(), results, last)

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
        # With the lock: whoever looks at `applied` and then waits must not miss it in between.
        with self._changed:
            self._applied = max(self._applied, seq)
            for wanted, reached in self._waiting_for.values():
                if wanted <= self._applied:
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
        except BaseException as error:
            # It would end the thread of whoever asks for the result.
            fail([get.ack], ReadFailed(f"handle_get raised {_named(error)}"))
        else:
            complete([get.ack], [result])


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
