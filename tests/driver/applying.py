"""An applier on a log in memory, and a handler that goes on when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sirius.driver.acks import Ack
from sirius.driver.applier import Answered, Applier, ApplySettings
from sirius.driver.calls import Patience
from sirius.handler import HandledUpdate, RequestHandler, SiriusResult
from sirius.testing import MemoryFileSystem
from sirius.types import Seq
from sirius.wal import Block, Log, LogConfig, Op, Snapshot, Update, encode

CONFIG = LogConfig(reserve_bytes=0, background=False, retire_after_s=0)


def put(key: str, body: bytes = b"") -> Update:
    return Update(Op.PUT, key.encode(), body)


def delete(key: str) -> Update:
    return Update(Op.DELETE, key.encode())


class Gate:
    """Open, or closed with somebody waiting in front of it."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.waiting = threading.Event()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        if not self._open.is_set():
            self.waiting.set()
            assert self._open.wait(90), "nobody opened the gate"
            self.waiting.clear()


class Recording(RequestHandler):
    """A dict, and all that it was told. Its answer to an update is its sequence number, as text."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.seqs: list[int] = []
        self.events: list[str] = []
        self.gate = Gate()
        self.replay_gate = Gate()
        self.poison: Callable[[HandledUpdate], None] = lambda _update: None

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        raise AssertionError("handle_update is there")

    handle_delete = handle_put  # type: ignore[assignment]

    def handle_update(self, update: HandledUpdate) -> SiriusResult:
        self.gate.pass_through()
        self.poison(update)
        if update.body is None:
            self.values.pop(update.key, None)
        else:
            self.values[update.key] = update.body
        self.seqs.append(update.seq)
        return SiriusResult.some(str(update.seq))

    def handle_get(self, key: str) -> SiriusResult:
        self.poison(HandledUpdate(Seq(0), 0, key, None))
        if key not in self.values:
            return SiriusResult.none()
        return SiriusResult.some((self.values[key], self.seqs[-1]))

    def on_bootstrap_starting(self) -> None:
        self.events.append("starting")
        self.replay_gate.pass_through()

    def on_bootstrap_complete(self) -> None:
        self.events.append("complete")


class Bench:
    """Plays the loop."""

    def __init__(self, **settings: Any) -> None:
        self.fs = MemoryFileSystem()
        self.log = Log.open("/log", CONFIG, fs=self.fs, now_us=lambda: 5)
        self.handler = Recording()
        self.stopped: list[object] = []
        patience = settings.pop("patience", Patience(0, 0))
        self.applier = Applier(
            self.handler,
            lambda: self.log,
            ApplySettings(patience, **settings),
            lambda: self.stopped.append(self.applier.failure),
        )

    def write(self, *updates: Update, flush: bool = True) -> Block:
        """Append a block to the log, and to nothing else."""
        block = encode(self.log.next_seq, list(updates), 5)
        self.log.append(block)
        if flush:
            self.log.flush()
        return block

    def decide(self, *updates: Update) -> list[Ack]:
        """Have updates decided for callers of this node, all in one block."""
        block = self.write(*updates)
        acks = [Ack() for _ in updates]
        self.applier.hand([block], [Answered(block.first, acks)])
        return acks

    def replace(self, *updates: Update) -> Snapshot:
        """Let the log be taken anew from elsewhere; return what it was."""
        old = self.log.snapshot()
        block = encode(1, list(updates), 5)
        staging = self.log.stage()
        staging.append([block])
        staging.finish(0)
        self.applier.replaced(block.last, old)
        return old

    def get(self, key: str, upto: int = 0) -> Ack:
        ack = Ack()
        self.applier.get(key, ack, upto)
        return ack


@contextmanager
def running(**settings: Any) -> Iterator[Bench]:
    """An applier that has started; closed in the end, whatever the handler does."""
    bench = Bench(**settings)
    bench.applier.start(bench.log)
    try:
        yield bench
    finally:
        bench.handler.gate.open()
        bench.handler.replay_gate.open()
        assert bench.applier.close(30)
        bench.log.close()


def outcomes(acks: Sequence[Ack]) -> list[tuple[Any, Any]]:
    """What they were told: the handler's answer, and the sequence number."""
    return [(result.value, result.seq) for result in (ack.result(30) for ack in acks)]


def told(*seqs: int) -> list[tuple[Any, Any]]:
    return [(str(seq), seq) for seq in seqs]
