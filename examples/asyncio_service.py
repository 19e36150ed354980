"""A web service in asyncio that embeds a node: reads are plain Python, writes are awaited.

Run it, and try it from another terminal::

    python examples/asyncio_service.py 8090 ./films
    curl -X PUT -d '{"year": 1942}' localhost:8090/films/casablanca
    curl localhost:8090/films/casablanca

The server below is the least that speaks HTTP; yours is the framework that you like. What matters is `Films`: it never
leaves the process to read, and awaits Sirius to write. Each process of a service has a node of its own: make it after
the fork, in the worker.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from contextlib import suppress

from sirius import RequestHandler, Sirius, SiriusConfig, SiriusResult
from sirius.errors import NodeError, OutcomeUnknown

Answer = tuple[str, bytes]


class Films(RequestHandler):
    """Bodies by key."""

    def __init__(self) -> None:
        self.by_key: dict[str, bytes] = {}

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = body
        return SiriusResult.none()

    def handle_delete(self, key: str) -> SiriusResult:
        self.by_key.pop(key, None)
        return SiriusResult.none()


class Service:
    """The routes."""

    def __init__(self, films: Films, sirius: Sirius) -> None:
        self._films = films
        self._sirius = sirius

    async def answer(self, method: str, key: str, body: bytes) -> Answer:
        """Answer one request."""
        match method:
            case "GET":
                found = self._films.by_key.get(key)
                return ("404 Not Found", b"") if found is None else ("200 OK", found)
            case "PUT":
                return await self._written(self._sirius.put(key, body))
            case "DELETE":
                return await self._written(self._sirius.delete(key))
        return "405 Method Not Allowed", b""

    async def _written(self, update: Awaitable[SiriusResult]) -> Answer:
        try:
            result = await update
        except OutcomeUnknown as error:
            return "504 Gateway Timeout", f"it may still come: {error}\n".encode()
        except NodeError as error:
            return "503 Service Unavailable", f"not written: {error}\n".encode()
        return "200 OK", f"entry {result.seq}\n".encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            request, *fields = head.split("\r\n")
            method, path, _ = request.split(" ")
            headers = dict(field.lower().split(": ", 1) for field in fields if ": " in field)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status, content = await self.answer(method, path.lstrip("/"), body)
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n".encode())
            writer.write(b"Connection: close\r\n\r\n" + content)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            pass
        finally:
            writer.close()


async def main(port: int, folder: str) -> None:
    films = Films()
    # Opening replays the log: not on the event loop's thread, which has others to serve.
    sirius = await asyncio.to_thread(Sirius, films, SiriusConfig(data=folder))
    try:
        await asyncio.to_thread(sirius.wait_until_ready)
        server = await asyncio.start_server(Service(films, sirius).serve, "127.0.0.1", port)
        where = server.sockets[0].getsockname()[1]
        print(f"{len(films.by_key)} films at http://127.0.0.1:{where}/", flush=True)
        async with server:
            await server.serve_forever()
    finally:
        await asyncio.to_thread(sirius.close)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "sirius-data"))
