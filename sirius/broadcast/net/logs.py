"""Feeds a stream of a proxy from the log of a Sirius node, wherever that is.

A thread follows the log, and goes on at another node if one is lost; the loop adds what it reads. One part is under
way at a time, so a proxy that is busy is not flooded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from itertools import cycle
from typing import Any, Final

from sirius.broadcast.disk.stream import events_of_log
from sirius.broadcast.events import EventBatch, Stream
from sirius.broadcast.limits import fault
from sirius.broadcast.messages import Peer
from sirius.broadcast.net.hub import Hub
from sirius.broadcast.proxy.machine import Proxy
from sirius.errors import BadMessage
from sirius.transport.client import Client
from sirius.transport.security import Security
from sirius.wal.batch import Batch
from sirius.wal.block import Block

log = logging.getLogger("sirius.broadcast")
_RETRY_S: Final = 0.2
_TIMEOUT_S: Final = 5.0
_CLOSE_S: Final = 0.05


class LogFeed:
    """Makes a stream of `proxy`, which lives in `hub`, out of the log of a cluster. Made on the hub's loop."""

    def __init__(
        self,
        hub: Hub,
        proxy: Proxy,
        stream: Stream,
        addresses: Sequence[str],
        security: Security | None = None,
        *,
        bodies: bool = False,
    ) -> None:
        self._hub, self._proxy, self._stream, self._bodies = hub, proxy, stream, bodies
        self._addresses, self._security = list(addresses), security
        self._loop = asyncio.get_running_loop()
        proxy.follow_log(stream)
        self._book = proxy.shelf.books[stream]
        self._is_closed = threading.Event()
        self._client: Client | None = None
        self.failure: str | None = None
        """Why the log cannot be a stream, if it cannot."""
        self._said: set[tuple[str, type]] = set()
        """Which nodes were complained of since something came, and of what kind."""
        self._thread = threading.Thread(target=self._run, name="sirius-log-feed", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Follow no more."""
        self._is_closed.set()
        while self._thread.is_alive():
            if (client := self._client) is not None:
                client.close()
            await asyncio.sleep(_CLOSE_S)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        for address in cycle(self._addresses):
            with Client([address], self._security, timeout_s=_TIMEOUT_S) as client:
                self._client = client
                try:
                    self._follow(client)
                except (Exception, CancelledError) as error:
                    # Also what gRPC raises about a channel that was closed just now, and a loop that is gone.
                    self._failed(address, error)
                self._client = None
            if self._is_closed.wait(_RETRY_S):
                return

    def _failed(self, address: str, error: BaseException) -> None:
        if not self._is_closed.is_set():
            self.failure = str(error) if isinstance(error, BadMessage) else None
            # A cluster that is away for an hour is told of once for each node, not five times a second.
            level = logging.DEBUG if (address, type(error)) in self._said else logging.WARNING
            self._said.add((address, type(error)))
            log.log(level, "stream %s: %s: %s; trying the next node", self._stream, address, error)

    def _follow(self, client: Client) -> None:
        for block in client.tail(self._on_loop(lambda: self._book.end) + 1, follow=True):
            if self._is_closed.is_set():
                return
            self._take(client, block)
            self._said.clear()

    def _take(self, client: Client, block: Block) -> None:
        batch = Batch.of(block)
        # Asked for after the block was read: the floor rises together with what compaction leaves out.
        floor = client.status()["tombstone_floor"] if batch.holes else 0
        time_us = self._on_loop(lambda: self._book.end_time)
        events = events_of_log(batch, floor, time_us, bodies=self._bodies)
        wrong = fault(events, self._proxy.config.limits)
        if wrong is not None:
            raise BadMessage(
                f"{batch.first} to {batch.last} of the log is no part of a stream: {wrong}"
            )
        self._on_loop(lambda: self._add(events))

    def _on_loop(self, action: Callable[[], Any]) -> Any:
        async def act() -> Any:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    # ------------------------------------------------------------------ the loop

    def _add(self, events: EventBatch) -> None:
        self._hub.carry_out(Peer(self._proxy.name), self._proxy.extend(self._stream, events))
