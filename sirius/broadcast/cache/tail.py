"""The log of a remote node as a stream: it goes on where the cache was, at another node if one is lost.

**Holes.** A log that was compacted has holes. Most are updates that a later one of the same key replaced: that one
comes, so nothing is missed. But a hole at or below the node's *tombstone floor* may have been a DELETE, and nothing
else tells of it: then everything is dropped. A cache that was away for less than deletes are kept never sees this.

**Beats.** A node's status says how far its handler is and how long ago it knew that this was everything. A node that
does not answer, or that has been cut off for longer than `patience_s`, is left for the next address.

Two threads: one of its own follows the log, the caller's of `beat` asks for the status.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any, Final, Protocol, Self

from sirius.broadcast.cache.source import InvalidationSink
from sirius.errors import LogError, UsageError
from sirius.transport.client import Client
from sirius.transport.limits import TransportLimits
from sirius.transport.security import Security
from sirius.wal.batch import Batch
from sirius.wal.block import Block

_log = logging.getLogger("sirius.broadcast")
_RETRY_S: Final = 0.2
_CLOSE_S: Final = 0.05


class Connection(Protocol):
    """What is used of `sirius.transport.client.Client`."""

    def tail(self, first: int = 1, follow: bool = False) -> Iterator[Block]:
        """Yield what is decided from `first` on."""
        ...

    def status(self) -> dict[str, Any]:
        """Return what the node says about itself."""
        ...

    def close(self) -> None:
        """End every call."""
        ...


class TailSource:
    """See above. `connect` makes a client for one address."""

    def __init__(
        self,
        addresses: Sequence[str],
        security: Security | None = None,
        limits: TransportLimits | None = None,
        *,
        timeout_s: float = 5.0,
        patience_s: float = 5.0,
        connect: Callable[[str], Connection] | None = None,
    ) -> None:
        if isinstance(addresses, str) or not addresses:
            raise UsageError(f"a source needs a list of addresses, not {addresses!r}")
        self._addresses = list(addresses)
        # One address a client: a block and the floor that explains its holes must be of the same node.
        self._connect = connect or (lambda name: Client([name], security, limits, timeout_s))
        self._patience_s = patience_s
        self._closed = threading.Event()
        self._telling = threading.Lock()
        self._client: Connection | None = None
        self._sink: InvalidationSink | None = None
        self._position: int | None = None
        self._cluster: str | None = None
        self._thread = threading.Thread(target=self._run, name="sirius-tail", daemon=True)

    # ------------------------------------------------------------------ see `InvalidationSource`

    def start(self, sink: InvalidationSink, after: int | None) -> None:
        """Begin; returns at once, whether somebody can be reached or not."""
        if self._sink is not None:
            raise UsageError("a source is started once")
        self._sink, self._position = sink, after
        self._thread.start()

    def beat(self) -> None:
        """Ask the node how it stands. Waits for its answer, up to the client's time-out."""
        if (client := self._client) is None:
            return
        try:
            staleness_s = self._ask_and_tell(client)
        except Exception:
            # Also what gRPC raises about a client that was closed just now.
            client.close()
            raise
        if len(self._addresses) > 1 and staleness_s > self._patience_s:
            _log.warning("a node has heard nothing for %.1f s: going to another", staleness_s)
            client.close()

    def close(self) -> None:
        """Stop following, and wait for it."""
        self._closed.set()
        while self._thread.is_alive() and self._thread is not threading.current_thread():
            # A client that is closed while it changes over opens once more.
            if (client := self._client) is not None:
                client.close()
            self._thread.join(_CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ telling

    def _ask_and_tell(self, client: Connection) -> float:
        """Ask for the status, hand it on as a beat, return the node's staleness."""
        began = time.monotonic()
        status = client.status()
        staleness_s: float | None = status["staleness_s"]
        if staleness_s is None:
            return float("inf")
        self._tell("alive", status["applied"], staleness_s + time.monotonic() - began)
        return staleness_s

    def _tell(self, method: str, *arguments: object) -> None:
        with self._telling:
            if not self._closed.is_set():
                getattr(self._sink, method)(*arguments)

    def _gap(self, seq: int, why: str) -> None:
        _log.info("everything up to %d is dropped: %s", seq, why)
        self._tell("gap", seq)
        self._position = seq

    # ------------------------------------------------------------------ following

    def _run(self) -> None:
        for address in cycle(self._addresses):
            client = self._connect(address)
            try:
                self._client = client
                self._follow(client)
            except Exception as error:
                # Also of the sink. What it did not take is not behind the position: it comes again.
                if not self._closed.is_set():
                    _log.warning("%s: %s; trying the next address", address, error)
            finally:
                self._client = None
                client.close()
            if self._closed.wait(_RETRY_S):
                return

    def _follow(self, client: Connection) -> None:
        position = self._begin(client)
        try:
            for block in client.tail(position + 1, follow=True):
                if self._closed.is_set():
                    return
                self._take(client, block)
        except LogError as error:
            self._gap(client.status()["applied"], f"the node cannot tell what came next: {error}")

    def _begin(self, client: Connection) -> int:
        """See whose log it is; return the position to go on behind."""
        status = client.status()
        is_another = self._is_another(status["cluster"])
        if self._position is None:
            self._gap(status["applied"], "the stream begins here")
        elif is_another:
            self._gap(status["applied"], f"the log is that of cluster {status['cluster']} now")
        return self._position or 0

    def _is_another(self, cluster: str) -> bool:
        """Say whether the node is of another cluster than the one before; one that has just started may not know."""
        if not cluster.strip("0"):
            return False
        before, self._cluster = self._cluster, cluster
        return before not in (None, cluster)

    def _take(self, client: Connection, block: Block) -> None:
        batch = Batch.of(block)
        if self._may_miss_deletes(client, batch):
            self._gap(batch.last, f"deletes from {batch.first} on may have been compacted away")
            return
        self._tell("invalidated", batch.last, batch.updates().keys())
        self._position = batch.last

    def _may_miss_deletes(self, client: Connection, batch: Batch) -> bool:
        if batch.first > (self._position or 0) + 1:
            return True
        if not batch.holes:
            return False
        # Asked after the block was read: the floor rises together with what compaction leaves out.
        floor = client.status()["tombstone_floor"]
        return floor >= batch.first and batch.between(batch.first, floor).holes > 0
