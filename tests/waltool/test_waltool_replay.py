"""Replay against a real web server that fails now and then."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from sirius.errors import UsageError
from sirius.wal import Batch, Durability, Log, LogConfig, Op, Update, encode
from waltool.delivery import Answer, Client, Endpoint, HttpClient, Request, Verdict, verdict_on
from waltool.replaying import Pace, Replay, ResumeFile, Settings, Watermark

Waltool = Callable[..., Any]
CONFIG = LogConfig(durability=Durability.OS, background=False, reserve_bytes=0)
Fault = Callable[["Service", str, str], int]


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
def serving(service: Service) -> Iterator[str]:
    handler = type("Bound", (Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/storage"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def updates(count: int, keys: int = 20, seed: int = 7) -> list[Update]:
    rng = random.Random(seed)
    made = []
    for number in range(count):
        key = f"title/{rng.randrange(keys)}".encode()
        delete = rng.random() < 0.2
        made.append(Update(Op.DELETE, key) if delete else Update(Op.PUT, key, f"{number}".encode()))
    return made


def expected(made: list[Update]) -> dict[str, list[bytes | None]]:
    """What each key should have been told, in order."""
    said: dict[str, list[bytes | None]] = defaultdict(list)
    for update in made:
        said[update.key.decode()].append(update.body if update.op == Op.PUT else None)
    return said


def build(path: Path, made: list[Update]) -> None:
    with Log.open(path, CONFIG) as log:
        for at in range(0, len(made), 10):
            log.write(made[at : at + 10])


def quick(line: str) -> str:
    return f"replay --backoff 0 {line}"


# ---------------------------------------------------------------------- the whole way


def test_everything_arrives_in_the_order_of_its_key(here: Path, waltool: Waltool) -> None:
    made = updates(400)
    build(here / "log", made)
    with serving(service := Service()) as url:
        result = waltool(quick(f"log {url}"))
    assert (result.code, result.err) == (0, "")
    assert service.by_key == expected(made)
    deletes = sum(update.op == Op.DELETE for update in made)
    assert result.out == (
        f"{url}: {400 - deletes} puts, {deletes} deletes sent, 0 sent again, 0 failed, in 0.0 s\n"
        "everything up to 400 is done\n"
    )


def test_a_service_that_fails_now_and_then_gets_everything(here: Path, waltool: Waltool) -> None:
    made = updates(300)
    build(here / "log", made)
    rng = random.Random(1)

    def sometimes(_service: Service, _method: str, _key: str) -> int:
        return rng.choice((0, 0, 0, 0, 500, 503, 429, DROP))

    with serving(service := Service(sometimes)) as url:
        result = waltool(quick(f"--retries 100 --json log {url}"))
    summary = json.loads(result.out)
    assert result.code == 0
    assert service.by_key == expected(made)
    assert summary["puts"] + summary["deletes"] == 300
    assert summary["failed"] == 0
    assert summary["retries"] > 50
    assert len(service.requests) >= 300 + summary["retries"]


def test_an_answer_that_is_lost_does_no_harm(here: Path, waltool: Waltool) -> None:
    made = updates(100, keys=5)
    build(here / "log", made)
    rng = random.Random(2)
    with serving(service := Service(lambda *_: rng.choice((0, 0, DROP_AFTER)))) as url:
        assert waltool(quick(f"--retries 100 log {url}")).code == 0
    for key, said in expected(made).items():
        heard = service.by_key[key]
        once = [value for at, value in enumerate(heard) if at == 0 or heard[at - 1] != value]
        wanted = [value for at, value in enumerate(said) if at == 0 or said[at - 1] != value]
        assert once == wanted


def test_many_requests_are_on_their_way_at_a_time(here: Path, waltool: Waltool) -> None:
    build(here / "log", updates(64, keys=64))
    gate = threading.Barrier(4, timeout=30)

    class Together(Handler):
        def _serve(self, body: bytes | None) -> None:
            # Whoever sent them one after the other would never get past this.
            if len(self.service.requests) < 1:
                gate.wait()
            super()._serve(body)

    service = Service()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("T", (Together,), {"service": service}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/storage"
        result = waltool(quick(f"--concurrency 4 --retries 0 log {url}"))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert result.code == 0
    assert not gate.broken


def test_one_at_a_time_is_the_order_of_the_log(here: Path, waltool: Waltool) -> None:
    made = updates(60)
    build(here / "log", made)
    with serving(service := Service()) as url:
        assert waltool(quick(f"--concurrency 1 log {url}")).code == 0
    assert service.busy_max == 1
    heard = [(method, unquote(path), body) for method, path, body in service.requests]
    assert heard == [
        (update.op.name, f"/storage/{update.key.decode()}", update.body) for update in made
    ]


def test_keys_are_percent_encoded_and_bodies_are_bytes(here: Path, waltool: Waltool) -> None:
    keys = ["a/b", "a b", "ñ", "100%", "?x=#y", "映画", "..", "a+b", "a\nb"]
    build(here / "log", [Update(Op.PUT, key.encode(), bytes(range(256))) for key in keys])
    with serving(service := Service()) as url:
        assert waltool(quick(f"log {url}/")).code == 0
    assert service.state == dict.fromkeys(keys, bytes(range(256)))
    assert all(path.isascii() and path.count("/") == 2 for _, path, _ in service.requests)


def test_headers_are_sent_with_each_request(here: Path, waltool: Waltool) -> None:
    build(here / "log", updates(5))
    with serving(service := Service()) as url:
        waltool("replay", "--header", "X-Colour: blue", "--header", "X-Size:9", "log", url)
    assert len(service.headers) == 5
    assert all((sent["X-Colour"], sent["X-Size"]) == ("blue", "9") for sent in service.headers)


def test_filters_choose_and_control_entries_stay(corpus: Path, waltool: Waltool) -> None:
    with serving(service := Service()) as url:
        assert waltool(quick(f"--key ^title/ --op put --last 9 films {url}")).code == 0
        assert set(service.by_key) == {"title/casablanca", "title/vertigo", "title/psycho"}
        assert waltool(quick(f"films {url}")).code == 0
        assert waltool(quick(f"old {url}")).code == 0
    assert "" not in service.by_key
    assert service.state["title/casablanca"] == b'{"year": 1942}'


def test_a_delete_of_what_is_not_there_is_done(here: Path, waltool: Waltool) -> None:
    build(here / "log", [Update(Op.DELETE, b"gone"), Update(Op.PUT, b"here", b"x")])
    with serving(Service(lambda _s, method, _k: 404 if method == "DELETE" else 0)) as url:
        assert waltool(quick(f"log {url}")).code == 0
    with serving(Service(lambda _s, method, _k: 404 if method == "PUT" else 0)) as url:
        result = waltool(quick(f"log {url}"))
    assert result.code == 1
    assert "waltool: record 2, PUT here: 404 Not Found\n" in result.err


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("status", [301, 400, 403, 405])
def test_a_refusal_stops_the_run_and_is_not_repeated(
    status: int, here: Path, waltool: Waltool
) -> None:
    build(here / "log", [Update(Op.PUT, f"key-{n}".encode(), b"x") for n in range(300)])
    with serving(service := Service(lambda _s, _m, key: status if key == "key-5" else 0)) as url:
        result = waltool(quick(f"--concurrency 1 --resume done log {url}"))
    assert result.code == 1
    assert f"record 6, PUT key-5: {status} " in result.err
    assert [path for _, path, _ in service.requests].count("/storage/key-5") == 1
    assert len(service.requests) == 6
    assert json.loads((here / "done").read_text())["done"] == 5


def test_keep_going_goes_on_and_counts(here: Path, waltool: Waltool) -> None:
    build(here / "log", [Update(Op.PUT, f"key-{n}".encode(), b"x") for n in range(50)])
    with serving(service := Service(lambda _s, _m, key: 403 if key[-1] == "7" else 0)) as url:
        result = waltool(quick(f"--keep-going --resume done --json log {url}"))
    summary = json.loads(result.out)
    assert result.code == 1
    assert (summary["puts"], summary["failed"]) == (45, 5)
    assert sorted(failure["seq"] for failure in summary["failures"]) == [8, 18, 28, 38, 48]
    assert len(service.requests) == 50
    assert json.loads((here / "done").read_text())["done"] == 7, "what failed is not done"


def test_giving_up_after_so_many_attempts(here: Path, waltool: Waltool) -> None:
    build(here / "log", [Update(Op.PUT, b"key", b"x")])
    with serving(service := Service(lambda *_: 503)) as url:
        result = waltool(quick(f"--retries 3 log {url}"))
    assert result.code == 1
    assert "record 1, PUT key: 503 Service Unavailable, after 4 attempts" in result.err
    assert len(service.requests) == 4


# ---------------------------------------------------------------------- resuming


def test_an_interrupted_run_goes_on_where_it_was(
    here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = updates(300)
    build(here / "log", made)
    over = Replay._deal_out

    def interrupted(self: Replay, batches: Iterator[Batch]) -> None:
        def some() -> Iterator[Batch]:
            for number, batch in enumerate(batches):
                if number == 17:
                    raise KeyboardInterrupt
                yield batch

        over(self, some())

    with serving(service := Service()) as url:
        with monkeypatch.context() as patched:
            patched.setattr(Replay, "_deal_out", interrupted)
            patched.setattr("sirius.wal.segment._SMALL_BLOCK", 0)
            first = waltool(quick(f"--resume done --json log {url}"))
        summary = json.loads(first.out)
        assert first.code == 130
        assert summary["interrupted"]
        assert 0 <= summary["done"] <= 170
        assert json.loads((here / "done").read_text()) == {"url": url, "done": summary["done"]}
        sent = len(service.requests)
        second = waltool(quick(f"--resume done --json log {url}"))
        assert second.code == 0
        assert len(service.requests) - sent == 300 - summary["done"]
        assert waltool(quick(f"--resume done --json log {url}")).code == 0
    assert json.loads((here / "done").read_text())["done"] == 300
    wanted = {key: said[-1] for key, said in expected(made).items() if said[-1] is not None}
    assert service.state == wanted
    assert set(service.by_key) == set(expected(made))
    assert not list(here.glob("*.writing"))


def test_whatever_was_done_before_a_stop_is_not_lost(here: Path, waltool: Waltool) -> None:
    """Stop at a refusal, mend the service, go on: nothing is missing, whichever worker was ahead."""
    made = updates(400, keys=40)
    build(here / "log", made)
    for stop in (1, 50, 200, 399):

        def refuse(service: Service, _m: str, _k: str, stop: int = stop) -> int:
            return 403 if len(service.requests) >= stop and not service.mended else 0

        (here / "done").unlink(missing_ok=True)
        with serving(service := Service(refuse)) as url:
            assert waltool(quick(f"--resume done log {url}")).code == 1
            service.mended = True
            assert waltool(quick(f"--resume done log {url}")).code == 0
        wanted = {key: said[-1] for key, said in expected(made).items() if said[-1] is not None}
        assert service.state == wanted


def test_a_log_that_grew_is_taken_up_again(here: Path, waltool: Waltool) -> None:
    build(here / "log", updates(10))
    with serving(service := Service()) as url:
        waltool(quick(f"--resume done log {url}"))
        build(here / "log", [Update(Op.PUT, b"new", b"x")])
        waltool(quick(f"--resume done log {url}"))
    assert len(service.requests) == 11
    assert service.state["new"] == b"x"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"done": "x"}', "nonsense"])
def test_another_file_is_not_taken_for_a_resume_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "done"
    path.write_text(text)
    with pytest.raises(UsageError, match="not a file that replay has written"):
        ResumeFile(str(path), "http://a").load()


def test_a_resume_file_belongs_to_its_url(tmp_path: Path) -> None:
    path = str(tmp_path / "done")
    ResumeFile(path, "http://a").save(7)
    assert ResumeFile(path, "http://a").load() == 7
    with pytest.raises(UsageError, match="belongs to http://a, not to http://b"):
        ResumeFile(path, "http://b").load()


# ---------------------------------------------------------------------- parts


def test_the_watermark_is_behind_everything_that_is_not_done() -> None:
    rng = random.Random(3)
    for _ in range(50):
        mark, open_, begun, failed, passed = Watermark(10), set(), 10, set(), 10
        for _ in range(200):
            move = rng.random()
            if move < 0.5:
                begun += rng.choice((1, 1, 4))
                mark.begin(begun)
                open_.add(begun)
                passed = begun
            elif move < 0.9 and open_:
                seq = rng.choice(sorted(open_))
                lost = rng.random() < 0.02
                mark.finish(seq, failed=lost)
                open_.remove(seq)
                failed |= {seq} if lost else set()
            elif move >= 0.97:
                begun = passed = begun + 2
                mark.pass_over(begun)
            undone = open_ | failed
            assert mark.value == (min(undone) - 1 if undone else passed)


class Scripted:
    """A client that answers as told."""

    def __init__(self, answers: Iterator[Answer]) -> None:
        self._answers = answers

    def send(self, request: Request) -> Answer:
        return next(self._answers)

    def close(self) -> None:
        """Nothing is open."""


def waits(monkeypatch: pytest.MonkeyPatch, *answers: Answer, backoff_s: float = 0.5) -> list[float]:
    """Return how long a run of one record waited between its attempts."""
    run = Replay(lambda: Scripted(iter(answers)), Settings(1, retries=9, backoff_s=backoff_s))
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    monkeypatch.setattr(run._stop, "wait", wait)
    batch = Batch.of(encode(1, [Update(Op.PUT, b"key", b"x")], 0))
    assert run.run([batch]).failed == 0
    return waited


AGAIN, DONE = Answer(Verdict.AGAIN, "503"), Answer(Verdict.DONE, "204")


def test_waits_double_up_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, *[AGAIN] * 8, DONE) == [0.5, 1, 2, 4, 8, 16, 32, 60]


def test_retry_after_counts_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Answer(Verdict.AGAIN, "429", 7.0)
    very_late = Answer(Verdict.AGAIN, "429", 3600.0)
    assert waits(monkeypatch, AGAIN, late, very_late, DONE) == [0.5, 7, 60]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("Wed, 21 Oct 2026 07:28:10 GMT", 10.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    with serving(Service(lambda *_: 429, extra={"Retry-After": value})) as url:
        client = HttpClient(Endpoint.of(url), now=lambda: 1_792_567_680.0)
        answer = client.send(Request(1, "PUT", "key", b"x"))
        client.close()
    assert (answer.verdict, answer.retry_after_s) == (Verdict.AGAIN, seconds)


def test_the_pace_is_even() -> None:
    now = 100.0
    pace = Pace(4, lambda: now)
    assert [pace.delay() for _ in range(4)] == [0, 0.25, 0.5, 0.75]
    now = 101.5
    assert [pace.delay() for _ in range(3)] == [0, 0.25, 0.5]
    assert Pace(None, lambda: now).delay() == 0


def test_the_rate_is_kept_by_waiting(
    here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(here / "log", updates(5))
    rates: list[float | None] = []

    def delay(pace: Pace) -> float:
        rates.append(pace.per_s)
        return 0.0

    monkeypatch.setattr("waltool.replaying.Pace.delay", delay)
    with serving(Service()) as url:
        assert waltool(quick(f"--rate 100/s log {url}")).code == 0
    assert rates == [100.0] * 5


@pytest.mark.parametrize(
    ("method", "status", "verdict"),
    [
        ("PUT", 200, Verdict.DONE),
        ("PUT", 201, Verdict.DONE),
        ("DELETE", 204, Verdict.DONE),
        ("DELETE", 404, Verdict.DONE),
        ("PUT", 404, Verdict.REFUSED),
        ("PUT", 302, Verdict.REFUSED),
        ("DELETE", 410, Verdict.REFUSED),
        ("PUT", 429, Verdict.AGAIN),
        ("PUT", 500, Verdict.AGAIN),
        ("DELETE", 503, Verdict.AGAIN),
    ],
)
def test_what_a_status_means(method: str, status: int, verdict: Verdict) -> None:
    assert verdict_on(method, status) == verdict


def test_a_worker_that_breaks_stops_the_run_and_is_told() -> None:
    class Broken:
        def send(self, request: Request) -> Answer:
            raise ZeroDivisionError("of all things")

        def close(self) -> None:
            """Nothing is open."""

    def connect() -> Client:
        return Broken()

    blocks = [encode(n, [Update(Op.PUT, f"k{n}".encode(), b"x")], 0) for n in range(1, 2_000)]
    summary = Replay(connect, Settings(2)).run(map(Batch.of, blocks))
    assert summary.failures[0].what == "ZeroDivisionError: of all things"
    assert summary.done < 5


def test_the_fastest_worker_is_never_far_ahead_of_the_slowest() -> None:
    run = Replay(lambda: Scripted(iter(())), Settings(2))
    for seq in range(1, 10_001):
        assert run._has_room()
        run._watermark.begin(seq)
    for seq in range(2, 10_001):
        run._watermark.finish(seq)
    assert not run._has_room(), "all are done but the first"
    run._watermark.finish(1)
    assert run._has_room()
    run._watermark.begin(10_001)
    run._halt()
    assert not run._may_begin(10_002), "nobody waits for room after a halt"
