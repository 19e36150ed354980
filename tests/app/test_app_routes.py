"""The reference application on a real node, asked over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sirius.app.metrics import AppMetrics
from sirius.app.routes import Routes
from sirius.app.storage import Storage
from sirius.config import RequestSettings, SiriusConfig
from sirius.errors import (
    HandlerFailed,
    NodeClosed,
    OutcomeUnknown,
    Overloaded,
    ReadFailed,
    RequestRejected,
    SiriusError,
)
from sirius.handler import SiriusResult
from sirius.node import Sirius
from sirius.ops.metrics import NodeMetrics
from sirius.wal import LogReader, state_digest
from tests.app.background import Listening


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def seq(self) -> int:
        return int(self.headers["X-Sirius-Seq"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class App(Listening):
    """The application over a node."""

    def __init__(self, node: Sirius, storage: Storage) -> None:
        self.node, self.storage = node, storage
        node_metrics = NodeMetrics(node)
        metrics = AppMetrics(lambda: self.server.connections, lambda: len(storage.values))
        metrics.register(node_metrics.registry)
        self.routes = Routes(node, storage, node_metrics, metrics)
        super().__init__(self.routes.respond)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, None, **headers)

    def put(self, path: str, body: bytes) -> Answer:
        return self.ask("PUT", path, body)


def config(folder: Path) -> SiriusConfig:
    return SiriusConfig(
        data=folder / "data", durability="os", requests=RequestSettings(timeout_s=3)
    )


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    storage = Storage()
    with (
        Sirius(storage, config(tmp_path_factory.mktemp("app"))) as node,
        App(node, storage) as listening,
    ):
        yield listening


# ---------------------------------------------------------------------- values


def test_a_value_can_be_put_read_and_deleted(app: App) -> None:
    put = app.put("/storage/title/casablanca", b'{"year": 1942}')
    assert (put.status, put.body) == (204, b"")
    got = app.get("/storage/title/casablanca")
    assert (got.status, got.body) == (200, b'{"year": 1942}')
    assert got.seq >= put.seq > 0
    deleted = app.ask("DELETE", "/storage/title/casablanca")
    assert (deleted.status, deleted.seq > put.seq) == (204, True)
    gone = app.get("/storage/title/casablanca")
    assert (gone.status, gone.seq) == (404, deleted.seq)


def test_deleting_what_is_not_there_is_no_error(app: App) -> None:
    assert app.ask("DELETE", "/storage/nobody").status == 204


@pytest.mark.parametrize(
    "key", ["a/b/../c", "with space", "ü/東京", "50%", "a?b#c", "line\nbreak", "//", "x=1&y", "."]
)
def test_a_key_is_all_that_follows_decoded(app: App, key: str) -> None:
    assert app.put(f"/storage/{quote(key)}", key.encode()).status == 204
    assert app.storage.values[key] == key.encode()
    assert app.get(f"/storage/{quote(key, safe='')}").body == key.encode()


@pytest.mark.parametrize("body", [b"", bytes(range(256)), b"x" * 1_000_000])
def test_any_bytes_come_back(app: App, body: bytes) -> None:
    app.put("/storage/bytes", body)
    got = app.get("/storage/bytes")
    assert (got.body, got.headers["Content-Type"]) == (body, "application/octet-stream")


def test_head_tells_the_length(app: App) -> None:
    app.put("/storage/head", b"12345")
    answer = app.ask("HEAD", "/storage/head")
    assert (answer.status, answer.headers["Content-Length"], answer.body) == (200, "5", b"")


def test_a_read_can_wait_for_a_write(app: App) -> None:
    seq = app.put("/storage/mine", b"1").seq
    assert app.get("/storage/mine", X_Sirius_Wait_For=str(seq)).status == 200
    late: list[Answer] = []
    reader = threading.Thread(
        target=lambda: late.append(app.get("/storage/mine", X_Sirius_Wait_For=str(seq + 1)))
    )
    reader.start()
    app.put("/storage/mine", b"2")
    reader.join()
    assert late[0].body == b"2"


def test_a_read_does_not_wait_for_ever(app: App) -> None:
    answer = app.get("/storage/mine", X_Sirius_Wait_For="1000000000")
    assert answer.status == 504
    assert b"update 1000000000 did not arrive within 3 s" in answer.body
    assert answer.seq < 1_000_000_000


def test_a_linearizable_read_asks_the_leader(app: App) -> None:
    app.put("/storage/linear", b"yes")
    assert app.get("/storage/linear?linearizable=1").body == b"yes"
    assert app.get("/storage/nobody?linearizable=true").status == 404
    assert app.get("/storage/linear?linearizable=0").body == b"yes"


# ---------------------------------------------------------------------- keys and digests


def test_keys_are_sorted_and_can_be_paged(app: App) -> None:
    for name in ("c", "a", "b", "d e"):
        app.put(f"/storage/{quote(f'page/{name}')}", b"x")
    first = app.get("/keys?prefix=page/&limit=2").json
    assert (first["keys"], first["more"]) == (["page/a", "page/b"], True)
    rest = app.get("/keys?prefix=page/&limit=2&after=page/b").json
    assert (rest["keys"], rest["more"]) == (["page/c", "page/d e"], False)
    plain = app.get("/keys?prefix=page/d&format=plain")
    assert plain.body == b"page/d%20e\n"
    assert plain.headers["Content-Type"].startswith("text/plain")
    assert "page/a" in app.get("/keys").json["keys"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("limit=0", "limit is a number from 1 to 100000"),
        ("limit=x", "limit is a number"),
        ("limit=-5", "limit is a number"),
        ("format=xml", "format is json or plain"),
    ],
)
def test_bad_questions_for_keys_are_refused(app: App, query: str, reason: str) -> None:
    answer = app.get(f"/keys?{query}")
    assert answer.status == 400
    assert reason in answer.body.decode()


def test_the_digest_is_that_of_waltool(tmp_path: Path) -> None:
    storage = Storage()
    with Sirius(storage, config(tmp_path)) as node:
        for number in range(50):
            node.enqueue_put(f"key/{number % 20}", b"%d" % number)
        node.enqueue_delete("key/7").result(30)
        digest = storage.digest()
    with LogReader.open(str(tmp_path / "data")) as reader:
        found = state_digest(reader.snapshot())
    assert (digest.hex, digest.keys) == (found.hex, found.total.keys) == (found.hex, 19)


# ---------------------------------------------------------------------- the node


def test_the_status_is_json(app: App) -> None:
    status = app.get("/status").json
    assert (status["state"], status["role"]) == ("ready", "leader")
    assert status["keys"] == len(app.storage.values)


def test_metrics_are_those_of_node_and_application(app: App) -> None:
    app.put("/storage/counted", b"x")
    app.ask("BREW", "/storage/coffee")
    answer = app.get("/metrics")
    text = answer.body.decode()
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'sirius_state{state="ready"} 1.0' in text
    assert 'sirius_http_requests_total{code="204",method="PUT"}' in text
    assert 'sirius_http_requests_total{code="405",method="other"}' in text
    assert f"sirius_storage_keys {len(app.storage.values)}.0" in text


def test_a_ready_node_is_alive_and_ready(app: App) -> None:
    assert app.get("/healthz").body == b"alive\n"
    assert app.get("/readyz").body == b"ready\n"


def test_what_is_stopping_is_alive_and_not_ready(app: App) -> None:
    app.routes.is_stopping = True
    try:
        assert app.get("/healthz").status == 200
        answer = app.get("/readyz")
        assert (answer.status, answer.body) == (503, b"stopping\n")
    finally:
        app.routes.is_stopping = False


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("POST", "/storage/x", 405, "GET, PUT, DELETE, HEAD"),
        ("DELETE", "/keys", 405, "GET, HEAD"),
        ("OPTIONS", "/status", 405, "GET, HEAD"),
        ("GET", "/", 404, None),
        ("GET", "/storage", 404, None),
        ("GET", "/storage/", 400, None),
        ("PUT", "/storage/%ff", 400, None),
        ("GET", "/status/", 404, None),
    ],
)
def test_what_is_not_there_is_refused(
    app: App, method: str, path: str, status: int, allowed: str | None
) -> None:
    answer = app.ask(method, path, b"x")
    assert (answer.status, answer.headers.get("Allow")) == (status, allowed)


@pytest.mark.parametrize("text", ["0", "-1", "x", "٣", "9" * 30])
def test_a_bad_number_to_wait_for_is_refused(app: App, text: str) -> None:
    if not text.isascii():
        text = text.encode().decode("latin-1")
    assert app.get("/storage/x", X_Sirius_Wait_For=text).status == 400


def test_a_key_that_the_log_does_not_take_is_a_bad_request(app: App) -> None:
    answer = app.put(f"/storage/{'k' * 40_000}", b"x")
    assert answer.status == 400
    assert b"the key has 40,000 bytes, the limit is 32,768" in answer.body


# ---------------------------------------------------------------------- failures


class Failing(Sirius):
    """A node whose updates and reads fail as they are told to."""

    error: SiriusError | None = None

    async def put(self, key: str, body: bytes) -> SiriusResult:
        if self.error is not None:
            raise self.error
        return await super().put(key, body)

    async def get(self, key: str, *, linearizable: bool = False) -> SiriusResult:
        if self.error is not None:
            raise self.error
        return await super().get(key, linearizable=linearizable)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    storage = Storage()
    with (
        Failing(storage, config(tmp_path_factory.mktemp("failing"))) as node,
        App(node, storage) as listening,
    ):
        yield listening


@pytest.mark.parametrize(
    ("error", "status", "header"),
    [
        (Overloaded("full"), 503, ("Retry-After", "1")),
        (RequestRejected("not in the log"), 503, ("Retry-After", "1")),
        (NodeClosed("closed"), 503, ("Retry-After", "1")),
        (OutcomeUnknown("who knows"), 504, ("X-Sirius-Outcome", "unknown")),
        (HandlerFailed("the handler raised", 17), 500, ("X-Sirius-Seq", "17")),
    ],
)
def test_a_failed_update_says_what_became_of_it(
    failing: App, error: SiriusError, status: int, header: tuple[str, str]
) -> None:
    assert isinstance(failing.node, Failing)
    failing.node.error = error
    answer = failing.put("/storage/x", b"x")
    assert (answer.status, answer.body) == (status, f"{error}\n".encode())
    assert header in answer.headers.items()


def test_a_read_that_cannot_be_done_may_be_tried_again(failing: App) -> None:
    assert isinstance(failing.node, Failing)
    failing.node.error = ReadFailed("no majority")
    assert failing.get("/storage/x?linearizable=1").status == 503
    assert failing.get("/storage/x").status == 404


class Slow(Storage):
    """A storage whose replay waits for a word."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def on_bootstrap_starting(self) -> None:
        assert self.go_on.wait(30)


def test_while_the_log_is_replayed_there_are_no_values(tmp_path: Path) -> None:
    with Sirius(Storage(), config(tmp_path)) as node:
        node.enqueue_put("k", b"old").result(30)
    storage = Slow()
    node = Sirius(storage, config(tmp_path))
    try:
        with App(node, storage) as app:
            assert app.get("/storage/k").status == 503
            ready = app.get("/readyz")
            assert (ready.status, ready.headers["Retry-After"]) == (503, "1")
            assert ready.body.startswith(b"replaying: 0 records of a log up to 2")
            assert app.get("/healthz").status == 200
            assert app.get("/status").json["staleness_s"] is None
            storage.go_on.set()
            assert node.wait_until_ready(30)
            assert app.get("/storage/k").body == b"old"
            assert app.get("/readyz").status == 200
    finally:
        storage.go_on.set()
        node.close()


def test_a_closed_node_is_not_alive(tmp_path: Path) -> None:
    storage = Storage()
    node = Sirius(storage, config(tmp_path))
    node.close()
    with App(node, storage) as app:
        assert app.get("/healthz").status == 503
        assert app.get("/readyz").status == 503
        assert app.put("/storage/x", b"x").status == 503


def test_many_clients_at_once(app: App) -> None:
    async def write(number: int) -> int:
        return (await asyncio.to_thread(app.put, f"/storage/many/{number}", b"%d" % number)).seq

    async def write_all() -> list[int]:
        return await asyncio.gather(*map(write, range(40)))

    assert len(set(asyncio.run(write_all()))) == 40
    assert len(app.get("/keys?prefix=many/").json["keys"]) == 40
