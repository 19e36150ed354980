"""What the reference application answers.

=============================  ===========================================================================
GET, HEAD /storage/{key}       the value. `X-Sirius-Wait-For: seq` waits until this node has that update;
                               `?linearizable=1` sees every update that was acknowledged before, anywhere
PUT, DELETE /storage/{key}     change it, on all nodes; `X-Sirius-Seq` is the update's sequence number
GET /keys                      keys, sorted: prefix=, after=, limit=; JSON, or lines with format=plain
GET /status, /metrics          the node's status as JSON; metrics for Prometheus
GET /digest                    the sum of the state: the same on two nodes that have the same
GET /healthz, /readyz          whether the process works; whether it has caught up (503 and the reason, if not)
=============================  ===========================================================================

Reads come from memory, on every node. A key is all that follows `/storage/`, percent-decoded.

An update that fails says what became of it: 503, it is not in the log and may be sent again; 504 with
`X-Sirius-Outcome: unknown`, nobody knows, and it may take effect yet.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from sirius.app.metrics import AppMetrics
from sirius.app.progress import progress_of
from sirius.app.storage import Storage
from sirius.app.web import Refused, Request, Response
from sirius.app.web.messages import BYTES, JSON, TEXT
from sirius.errors import HandlerFailed, InvalidRecord, NodeError, SiriusError, UsageError
from sirius.node import Sirius
from sirius.ops.metrics import CONTENT_TYPE, NodeMetrics
from sirius.ops.status import State

SEQ: Final = "X-Sirius-Seq"
WAIT_FOR: Final = "x-sirius-wait-for"
OUTCOME: Final = "X-Sirius-Outcome"

_STORAGE: Final = "/storage/"
_KEYS_LIMIT: Final = 1000
_KEYS_LIMIT_MAX: Final = 100_000
_POLL_S: Final = 0.002
_RETRY: Final = {"Retry-After": "1"}
_TRUE: Final = frozenset({"1", "true", "yes", ""})

Route = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True)
class Routes:
    """The application of one node. For one event loop."""

    node: Sirius
    storage: Storage
    node_metrics: NodeMetrics
    metrics: AppMetrics
    is_stopping: bool = False

    async def respond(self, request: Request) -> Response:
        """Answer a request, and count it."""
        began = time.perf_counter()
        try:
            response = await self._route(request)
        except Refused as refusal:
            response = refusal.response
        except SiriusError as error:
            response = _failure(error)
        self.metrics.answered(request.method, response.status, time.perf_counter() - began)
        return response

    def _route(self, request: Request) -> Awaitable[Response]:
        if request.path.startswith(_STORAGE):
            return self._pick(request, self._storage_routes())
        page = self._pages().get(request.path)
        if page is None:
            raise Refused(404, f"there is no {request.path}; try /storage/…, /keys or /status")
        return self._pick(request, {"GET": page})

    def _pick(self, request: Request, routes: Mapping[str, Route]) -> Awaitable[Response]:
        """Find the method's route. Who has GET has HEAD."""
        route = routes.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            allowed = ", ".join([*routes, *(["HEAD"] if "GET" in routes else [])])
            raise Refused(405, f"{request.method} is not possible here", {"Allow": allowed})
        return route(request)

    def _storage_routes(self) -> Mapping[str, Route]:
        return {"GET": self._get, "PUT": self._put, "DELETE": self._delete}

    def _pages(self) -> Mapping[str, Route]:
        return {
            "/keys": self._keys,
            "/status": self._status,
            "/metrics": self._scrape,
            "/digest": self._digest,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    # ------------------------------------------------------------------ values

    async def _get(self, request: Request) -> Response:
        key = _key(request)
        if not self.node.is_online():
            raise Refused(503, "the log is being replayed: this node has no state yet", _RETRY)
        await self._wait(request)
        # Before the value is read: so the value is at least as new as the header says.
        headers = {SEQ: str(self.storage.seq)}
        if request.query.get("linearizable", "0").lower() in _TRUE:
            body = (await self.node.get(key, linearizable=True)).value
        else:
            body = self.storage.values.get(key)
        if body is None:
            raise Refused(404, "there is no such key", headers)
        return Response(200, body, BYTES, headers)

    async def _wait(self, request: Request) -> None:
        """Wait until the state is as new as the client wants it."""
        if (text := request.headers.get(WAIT_FOR)) is None:
            return
        seq = _number(text, "X-Sirius-Wait-For", 1, (1 << 63) - 1)
        timeout_s = self.node.config.requests.timeout_s
        deadline = time.monotonic() + timeout_s
        while not self.node.wait_for(seq, 0):
            if time.monotonic() >= deadline:
                at = {SEQ: str(self.storage.seq)}
                raise Refused(504, f"update {seq} did not arrive within {timeout_s:g} s", at)
            await asyncio.sleep(_POLL_S)

    async def _put(self, request: Request) -> Response:
        result = await self.node.put(_key(request), request.body)
        return Response(204, headers={SEQ: str(result.seq)})

    async def _delete(self, request: Request) -> Response:
        result = await self.node.delete(_key(request))
        return Response(204, headers={SEQ: str(result.seq)})

    async def _keys(self, request: Request) -> Response:
        query = request.query
        limit = _number(query.get("limit", str(_KEYS_LIMIT)), "limit", 1, _KEYS_LIMIT_MAX)
        seq = self.storage.seq
        found = await asyncio.to_thread(
            self.storage.keys, query.get("prefix", ""), query.get("after", ""), limit + 1
        )
        keys, more = found[:limit], len(found) > limit
        headers = {SEQ: str(seq)}
        match query.get("format", "json"):
            case "json":
                return _json({"keys": keys, "more": more, "seq": int(seq)}, headers)
            case "plain":
                # Encoded as in a path: a key may have line breaks.
                lines = "".join(f"{quote(key)}\n" for key in keys)
                return Response(200, lines.encode(), TEXT, headers)
        raise Refused(400, "format is json or plain")

    async def _digest(self, _request: Request) -> Response:
        digest = await asyncio.to_thread(self.storage.digest)
        found = {"digest": digest.hex, "keys": digest.keys, "seq": digest.seq}
        return _json(found, {SEQ: str(digest.seq)})

    # ------------------------------------------------------------------ the node

    async def _status(self, _request: Request) -> Response:
        status = self.node.status().as_dict()
        return _json({**status, "keys": len(self.storage.values)})

    async def _scrape(self, _request: Request) -> Response:
        return Response(200, self.node_metrics.text(), CONTENT_TYPE)

    async def _healthz(self, _request: Request) -> Response:
        status = self.node.status()
        if status.state == State.CLOSED and not self.is_stopping:
            raise Refused(503, status.problem or "the node is closed")
        return Response(200, b"alive\n")

    async def _readyz(self, _request: Request) -> Response:
        status = self.node.status()
        if self.is_stopping:
            raise Refused(503, "stopping", _RETRY)
        if status.state != State.READY:
            raise Refused(503, progress_of(status), _RETRY)
        return Response(200, b"ready\n", headers={SEQ: str(status.applied)})


def _failure(error: SiriusError) -> Response:
    """Say what became of a request that failed."""
    text = f"{error}\n".encode()
    match error:
        case InvalidRecord() | UsageError():
            return Response(400, text)
        case HandlerFailed():
            # The update is in the log; it is this node that is out of order.
            seq = {} if error.seq is None else {SEQ: str(error.seq)}
            return Response(500, text, headers=seq)
        case NodeError() if error.outcome_unknown:
            return Response(504, text, headers={OUTCOME: "unknown"})
    return Response(503, text, headers=_RETRY)


def _key(request: Request) -> str:
    try:
        key = unquote_to_bytes(request.path[len(_STORAGE) :]).decode()
    except UnicodeDecodeError:
        raise Refused(400, "the key is not UTF-8") from None
    if not key:
        raise Refused(400, "the key is empty")
    return key


def _number(text: str, name: str, least: int, most: int) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= value <= most:
        raise Refused(400, f"{name} is a number from {least} to {most}")
    return value


def _json(value: Any, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(value, allow_nan=False).encode() + b"\n"
    return Response(200, body, JSON, headers or {})
