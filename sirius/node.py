"""`Sirius`: a node inside an application. It checks arguments and hands requests over; it knows no protocol."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakSet

from sirius.config import SiriusConfig
from sirius.driver.acks import Ack, fail
from sirius.driver.assembly import Node
from sirius.driver.inbox import Asked
from sirius.errors import InvalidRecord, NodeClosed, NodeError, UsageError
from sirius.handler import RequestHandler, SiriusResult
from sirius.ops.recorder import Recorder
from sirius.ops.status import Status
from sirius.wal.record import Op, Update, key_bytes

_CLOSE_S: Final = 5.0
_POLL_S: Final = 0.005
_CLOSED: Final = "this Sirius was closed"


_new = tuple.__new__
_PUT: Final = Op.PUT
_nodes: WeakSet[Sirius] = WeakSet()


def _tell_nodes() -> None:
    """In the child of a fork. Asking for the process id with every request would be a call of the system each."""
    for node in _nodes:
        node._is_forked = True


os.register_at_fork(after_in_child=_tell_nodes)


class Sirius:
    """Keeps the data structures of a handler up to date on this node.

    ``Sirius(handler)`` alone is one durable node under ``./sirius-data``; with a configuration it is a member or a
    follower of a cluster. Every method may be called from any thread. Used as a context manager it waits until the node
    is ready, and closes it in the end.
    """

    def __init__(self, handler: RequestHandler, config: SiriusConfig | None = None) -> None:
        if not isinstance(handler, RequestHandler):
            raise UsageError(f"a handler is a RequestHandler, not {type(handler).__name__}")
        if config is not None and not isinstance(config, SiriusConfig):
            raise UsageError(f"a configuration is a SiriusConfig, not {type(config).__name__}")
        self.config = config or SiriusConfig()
        self._pid = os.getpid()
        _nodes.add(self)
        self._is_forked = False
        self._closed = False
        self._closing = threading.Lock()
        self._on_close: list[Callable[[], object]] = []
        self._limits = self.config.log_config().limits
        self._timeout_s = self.config.requests.timeout_s
        self._node = Node(handler, self.config)
        self._inbox = self._node.driver.inbox

    # ------------------------------------------------------------------ updates

    def enqueue_put(self, key: str, body: bytes) -> Ack:
        """Put a value under a key, on every node. The future's result has the sequence number.

        Waits for room while too many requests are under way. Raises what is wrong with key or body at once; everything
        else is the future's: `RequestRejected` (not in the log, and never will be), `OutcomeUnknown` (it may be).
        """
        return self._ask(self._put_of(key, body))

    def enqueue_delete(self, key: str) -> Ack:
        """Remove a key, on every node. Removing one that is not there is no error."""
        return self._ask(self._delete_of(key))

    def _put_of(self, key: str, body: bytes) -> Update:
        name = key_bytes(key)
        if type(body) is not bytes:
            body = _as_bytes(body)
        if not name or len(name) > self._limits.key_bytes_max:
            raise InvalidRecord(self._bad_key(name))
        if len(body) > (limit := self._limits.body_bytes_max):
            raise InvalidRecord(f"the body has {len(body):,} bytes, the limit is {limit:,}")
        # Not by the class: its constructor would be a fifth of what a request costs its caller.
        return _new(Update, (_PUT, name, body, 0, 0))

    def _delete_of(self, key: str) -> Update:
        name = key_bytes(key)
        if not name or len(name) > self._limits.key_bytes_max:
            raise InvalidRecord(self._bad_key(name))
        return Update(Op.DELETE, name)

    def _bad_key(self, name: bytes) -> str:
        if not name:
            return "the key is empty"
        return f"the key has {len(name):,} bytes, the limit is {self._limits.key_bytes_max:,}"

    def _ask(self, update: Update) -> Ack:
        if self._closed or self._is_forked:
            self._check()
        ack = Ack()
        self._inbox.put(_new(Asked, (update, ack)), self._timeout_s)
        return ack

    # ------------------------------------------------------------------ reads

    def enqueue_get(self, key: str, *, linearizable: bool = False) -> Ack:
        """Have the handler look a key up, between updates.

        It answers from this node's state. `linearizable` asks the leader first how far that must be, so that every
        update is seen that was acknowledged anywhere before; it needs a majority.
        """
        key_bytes(key)
        self._check()
        ack = Ack()
        if not linearizable:
            self._node.driver.applier.get(key, ack)
            return ack
        try:
            self._node.driver.get(key, ack)
        except RuntimeError:
            # It was closed just now, and its event loop with it.
            raise NodeClosed(_CLOSED) from None
        return ack

    def wait_for(self, seq: int, timeout: float | None = None) -> bool:
        """Wait until this node's handler has seen an update, given its sequence number; say whether it has.

        With the number from another node's result, one's own writes can be read here.
        """
        self._check()
        return self._node.driver.applier.wait_for(seq, timeout)

    def staleness(self) -> float:
        """How far behind this node may be, in seconds: so long ago it knew that it had everything."""
        self._check_process()
        return self._node.staleness()

    # ------------------------------------------------------------------ asyncio

    async def put(self, key: str, body: bytes) -> SiriusResult:
        """Like `enqueue_put`, for asyncio: waits without blocking the event loop.

        Cancelled while it waits for room, it is taken back; later on it is in the log or on its way there.
        """
        return await self._ask_soon(self._put_of(key, body))

    async def delete(self, key: str) -> SiriusResult:
        """Like `enqueue_delete`, for asyncio."""
        return await self._ask_soon(self._delete_of(key))

    async def get(self, key: str, *, linearizable: bool = False) -> SiriusResult:
        """Like `enqueue_get`, for asyncio."""
        return await asyncio.wrap_future(self.enqueue_get(key, linearizable=linearizable))

    async def _ask_soon(self, update: Update) -> SiriusResult:
        self._check()
        asked = Asked(update, Ack())
        if self._inbox.offer(asked):
            return await asyncio.wrap_future(asked.ack)
        self._inbox.line_up(asked, partial(_told, asked))
        late = asyncio.get_running_loop().call_later(self._timeout_s, self._too_late, asked)
        try:
            return await asyncio.wrap_future(asked.ack)
        finally:
            late.cancel()
            self._inbox.leave(asked)

    def _too_late(self, asked: Asked) -> None:
        if self._inbox.leave(asked):
            fail([asked.ack], self._inbox.overloaded(self._timeout_s))

    # ------------------------------------------------------------------ the node

    @property
    def recorder(self) -> Recorder | None:
        """What the node has measured, for `sirius.ops.metrics.NodeMetrics`; None if `metrics` is off."""
        return self._node.recorder

    def is_online(self) -> bool:
        """Whether the log was replayed: reads make sense from then on. `status().state` says more."""
        self._check_process()
        return not self._closed and not self._node.driver.applier.is_replaying

    def is_ready(self) -> bool:
        """Whether this node has caught up with its cluster since it started."""
        self._check_process()
        return not self._closed and self._node.is_ready

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until the node has replayed and caught up; say whether it has.

        Raises `HandlerFailed` if the handler has stopped: then it never will.
        """
        return self._until(self._is_ready_or_never, timeout)

    def _is_ready_or_never(self) -> bool:
        if self.is_ready():
            return True
        if (failure := self._node.driver.applier.failure) is not None:
            raise failure.with_traceback(None)
        return False

    def status(self) -> Status:
        """What the node is doing, for people and for scripts."""
        self._check_process()
        return self._node.status()

    def transfer_leadership(self, to: str | None = None, timeout: float = 5.0) -> bool:
        """Have another member lead, a given one or the one that is furthest; say whether this node leads no more.

        Harmless on a node that does not lead, and on one that is alone.
        """
        self._check()
        self._node.hand_over(to)
        if len(self._node.status().voters) <= 1:
            return not self._node.is_leader
        return self._until(lambda: not self._node.is_leader, timeout)

    def compact(self) -> None:
        """Run a compaction pass now, in this thread. Updates and reads go on meanwhile."""
        self._check()
        self._node.upkeep.run()

    def _until(self, done: Callable[[], bool], timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not done():
            self._check()
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Answer everybody, hand the leadership over, close the log. Closing twice is harmless.

        Takes up to `timeout` for others to take over, and as long again for a handler that does not return. Not for
        the handler itself, nor for callbacks of futures: they run on the threads that end here.
        """
        self._check_process()
        if self._node.driver.is_current_thread:
            raise UsageError("a handler, or a callback of a future, cannot close its own node")
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._node.close(timeout)
            calls, self._on_close = self._on_close, []
        for call in calls:
            call()

    def on_close(self, call: Callable[[], object]) -> None:
        """Have a function called when this node was closed, by the thread that closed it; at once if it is closed.

        They are called in the order in which they came. What one raises is raised by `close`, and the rest is left out.
        """
        with self._closing:
            if not self._closed:
                self._on_close.append(call)
                return
        call()

    def __enter__(self) -> Self:
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self) -> None:
        self._check_process()
        if self._closed:
            raise NodeClosed(_CLOSED)
        if (problem := self._node.gave_up) is not None:
            raise NodeError(problem)

    def _check_process(self) -> None:
        if self._is_forked:
            raise NodeClosed(
                f"this Sirius belongs to process {self._pid}, and this is its fork {os.getpid()}: "
                f"threads and files do not survive a fork. Make the Sirius after it, in each process"
            )


def _told(asked: Asked, refusal: NodeError | None) -> None:
    if refusal is not None:
        fail([asked.ack], refusal)


def _as_bytes(body: Any) -> bytes:
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if isinstance(body, bytes):
        return body
    raise InvalidRecord(f"a body is bytes, not {type(body).__name__}")
