"""Running a node and its web server in a process of their own, until a signal comes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from sirius.app.metrics import AppMetrics
from sirius.app.progress import Progress
from sirius.app.routes import Routes
from sirius.app.storage import Storage
from sirius.app.web import WebLimits, WebServer
from sirius.config import SiriusConfig
from sirius.errors import NodeError, UsageError
from sirius.node import Sirius
from sirius.ops.metrics import NodeMetrics
from sirius.ops.status import State

_log = logging.getLogger("sirius.app")
_LOOK_S: Final = 0.25
_GRACE_S: Final = 5.0
_STDIN: Final = 0


class Service:
    """The reference application: `run` returns when it was told to stop."""

    def __init__(
        self, config: SiriusConfig, http: tuple[str, int], *, until_eof: bool = False
    ) -> None:
        self.config = config
        self._http = http
        self._until_eof = until_eof
        self._stop = asyncio.Event()

    async def run(self, listening: Callable[[int], None]) -> None:
        """Serve until SIGTERM or SIGINT, or if wanted until standard input ends; `listening` is told the server's port.

        The web server listens while the log is replayed, so that `/readyz` and `/status` can tell about it.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        if self._until_eof:
            loop.add_reader(_STDIN, self._read_stdin)
        storage = Storage()
        node = await asyncio.to_thread(Sirius, storage, self.config)
        try:
            await self._serve(node, storage, listening)
        finally:
            # Answers who waits, hands the leadership over, closes the log.
            await asyncio.to_thread(node.close)

    async def _serve(
        self, node: Sirius, storage: Storage, listening: Callable[[int], None]
    ) -> None:
        metrics = AppMetrics(lambda: server.connections, lambda: len(storage.values))
        node_metrics = NodeMetrics(node, node.recorder)
        metrics.register(node_metrics.registry)
        routes = Routes(node, storage, node_metrics, metrics)
        limits = WebLimits(body_bytes_max=self.config.log.body_bytes_max)
        server = WebServer(routes.respond, limits)
        try:
            await server.start(*self._http)
        except OSError as error:
            host, port = self._http
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
        listening(server.port)
        try:
            await self._until_stopped(node)
        finally:
            routes.is_stopping = True
            await server.close(_GRACE_S)

    async def _until_stopped(self, node: Sirius) -> None:
        """Return when a signal came; raise if the node has given up, so that somebody restarts the process."""
        progress = Progress()
        while not self._stop.is_set():
            status = node.status()
            if line := progress.line(status, time.monotonic()):
                _log.info("%s", line)
            if status.state == State.CLOSED:
                raise NodeError(status.problem or "the node has closed")
            try:
                await asyncio.wait_for(self._stop.wait(), _LOOK_S)
            except TimeoutError:
                continue

    def _read_stdin(self) -> None:
        """Stop when standard input ends: whoever started this process is gone."""
        if not os.read(_STDIN, 4096):
            asyncio.get_running_loop().remove_reader(_STDIN)
            self._stop.set()

    def _told_to_stop(self) -> None:
        self._stop.set()
        # Whoever cannot wait sends the signal again.
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
