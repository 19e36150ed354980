"""Connections: one task each, one request after the other.

Everything has its limit: the head of a request, its body, how long each may take to arrive, how long an answer may take
to leave, how many connections there are. A server that closes lets requests that have begun be answered, and closes
connections on which nothing is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sirius.app.web.messages import Refused, Request, Response
from sirius.app.web.parsing import Head, parse_head

_log = logging.getLogger("sirius.web")
_END: Final = b"\r\n\r\n"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINGER_S: Final = 1.0
_LINGER_BYTES: Final = 1 << 20
_WITH_BODY: Final = frozenset({"PUT", "POST", "PATCH"})

Respond = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class WebLimits:
    """What a client may do."""

    head_bytes_max: int = 128 * 1024
    """Room for the longest key, with every byte of it percent-encoded."""
    body_bytes_max: int = 16 * 1024 * 1024
    connections_max: int = 1000
    idle_s: float = 60.0
    """How long a connection may stay open with nothing to do."""
    head_s: float = 10.0
    body_s: float = 60.0
    send_s: float = 60.0


class WebServer:
    """Answers requests with what `respond` returns. For one event loop."""

    def __init__(self, respond: Respond, limits: WebLimits | None = None) -> None:
        self._respond = respond
        self.limits = limits or WebLimits()
        self.is_closing = False
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, asyncio.Task[None]] = {}

    async def start(self, host: str, port: int) -> None:
        """Begin to listen. Port 0 is any that is free. Raises OSError if the address cannot be had."""
        limit = self.limits.head_bytes_max
        self._server = await asyncio.start_server(self._connected, host, port, limit=limit)

    @property
    def port(self) -> int:
        """Where it listens."""
        if self._server is None or not self._server.sockets:
            return 0
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def close(self, grace_s: float = 5.0) -> None:
        """Listen no more, answer what has begun, and close every connection after `grace_s` at the latest."""
        self.is_closing = True
        if self._server is not None:
            self._server.close()
        for connection, task in list(self._connections.items()):
            if connection.is_idle:
                task.cancel()
        if tasks := list(self._connections.values()):
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer, self, self._respond)
        task = asyncio.current_task()
        if task is None or self.is_closing:
            writer.close()
            return
        is_full = len(self._connections) >= self.limits.connections_max
        self._connections[connection] = task
        try:
            await (connection.refuse(_full()) if is_full else connection.run())
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # The client is gone, or as good as gone.
        except asyncio.CancelledError:
            pass  # Only `close` cancels these tasks; asyncio would report it as an error.
        finally:
            del self._connections[connection]
            writer.close()


def _full() -> Refused:
    return Refused(503, "there are too many connections", {"Retry-After": "1"}, close=True)


class _Connection:
    """One client."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: WebServer,
        respond: Respond,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._server = server
        self._limits = server.limits
        self._respond = respond
        self.is_idle = True

    async def run(self) -> None:
        """Answer requests until one of the two has enough."""
        while not self._server.is_closing and (first := await self._first_byte()):
            self.is_idle = False
            try:
                goes_on = await self._exchange(first)
            except Refused as refusal:
                await self.refuse(refusal)
                return
            self.is_idle = True
            if not goes_on:
                return

    async def _first_byte(self) -> bytes:
        """Wait for a request to begin. Empty lines before it mean nothing (RFC 9112, 2.2)."""
        try:
            async with asyncio.timeout(self._limits.idle_s):
                while (byte := await self._reader.read(1)) in (b"\r", b"\n"):
                    pass
        except TimeoutError:
            return b""
        return byte

    async def _exchange(self, first: bytes) -> bool:
        """Read a request and answer it; say whether there may be another."""
        head = parse_head(first + await self._head())
        request = await self._request(head)
        try:
            response = await self._respond(request)
        except Refused as refusal:
            response = refusal.response
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            response = Response(500, b"internal error\n")
        close = request.wants_close or self._server.is_closing
        await self._send(response.encode(close=close, with_body=request.method != "HEAD"))
        return not close

    async def _head(self) -> bytes:
        try:
            async with asyncio.timeout(self._limits.head_s):
                raw = await self._reader.readuntil(_END)
        except TimeoutError:
            raise Refused(408, "the head of the request did not arrive", close=True) from None
        except asyncio.LimitOverrunError:
            most = self._limits.head_bytes_max
            raise Refused(431, f"the head is longer than {most:,} bytes", close=True) from None
        return raw[: -len(_END)]

    async def _request(self, head: Head) -> Request:
        size = head.body_bytes
        if size is None and head.method in _WITH_BODY:
            raise Refused(411, f"{head.method} needs a Content-Length", close=True)
        if size is not None and size > (most := self._limits.body_bytes_max):
            raise Refused(413, f"the body has {size:,} bytes, the limit is {most:,}", close=True)
        body = await self._body(size, head.expects_continue) if size else b""
        return Request(head.method, head.path, head.query, head.headers, body, head.wants_close)

    async def _body(self, size: int, expects_continue: bool) -> bytes:
        if expects_continue:
            await self._send(_CONTINUE)
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await self._reader.readexactly(size)
        except TimeoutError:
            raise Refused(408, "the body of the request did not arrive", close=True) from None

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(self._limits.send_s):
            await self._writer.drain()

    async def refuse(self, refusal: Refused) -> None:
        """Answer with an error, and close.

        What the client is still sending is read for a moment: closing at once would reset the connection, and the
        client might never see the answer.
        """
        await self._send(refusal.response.encode(close=True))
        self._writer.write_eof()
        left = _LINGER_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while left > 0 and (data := await self._reader.read(1 << 16)):
                    left -= len(data)
