"""A web service that keeps what it is told, and fails when it is told to. Not a test itself."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

Fault = Callable[["Service", str, str], int]
"""Gets the service, the method and the key; returns a status, 0 for success, or one of `DROP` and `DROP_AFTER`."""


@dataclass
class Service:
    """A web service that keeps what it is told, and what it was asked."""

    fault: Fault = lambda _service, _method, _key: 0
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    by_key: dict[str, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    busy: int = 0
    busy_max: int = 0
    extra: dict[str, str] = field(default_factory=dict)
    mended: bool = False

    @property
    def state(self) -> dict[str, bytes]:
        return {key: said[-1] for key, said in self.by_key.items() if said[-1] is not None}


DROP = -1
DROP_AFTER = -2


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def do_PUT(self) -> None:
        self._serve(self.rfile.read(int(self.headers["Content-Length"])))

    def do_DELETE(self) -> None:
        self._serve(None)

    def _serve(self, body: bytes | None) -> None:
        service, key = self.service, unquote(self.path.removeprefix("/storage/"))
        with service.lock:
            service.busy += 1
            service.busy_max = max(service.busy_max, service.busy)
            service.requests.append((self.command, self.path, body or b""))
            service.headers.append(dict(self.headers.items()))
            status = service.fault(service, self.command, key)
            if status in (0, DROP_AFTER):
                service.by_key[key].append(body)
        if status < 0:
            self.close_connection = True
        else:
            self.send_response(status or 204)
            for name, value in service.extra.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()
        with service.lock:
            service.busy -= 1

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(service: Service, handler: type[Handler] = Handler) -> Iterator[str]:
    """Serve meanwhile; yield the URL."""
    bound = type("Bound", (handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/storage"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
