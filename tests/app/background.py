"""An event loop in a thread of its own, so that tests can talk to a server over real sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from sirius.app.web import WebLimits, WebServer
from sirius.app.web.server import Respond

T = TypeVar("T")
DEADLINE_S = 30.0


class Background:
    """Runs coroutines elsewhere."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Listening(Background):
    """A web server on a free port of the loopback."""

    def __init__(self, respond: Respond, limits: WebLimits | None = None) -> None:
        super().__init__()
        self.server = WebServer(respond, limits)

    def __enter__(self) -> Self:
        super().__enter__()
        self.run(self.server.start("127.0.0.1", 0))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self.server.close(1.0))
        super().__exit__(kind, error, trace)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), DEADLINE_S)

    def talk(self, data: bytes) -> bytes:
        """Send something, and return all that comes until the server closes."""
        with self.connect() as client:
            client.sendall(data)
            return read_all(client)


def read_all(client: socket.socket) -> bytes:
    parts = []
    while data := client.recv(1 << 16):
        parts.append(data)
    return b"".join(parts)


def read_until(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        more = client.recv(1)
        assert more, f"closed after {data!r}"
        data += more
    return data
