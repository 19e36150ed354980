"""Replay against a real web server that fails now and then."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from sirius.wal import Batch, Durability, Log, LogConfig, Op, Update
from tests.waltool.webservice import DROP, DROP_AFTER, Handler, Service, serving
from waltool.replaying import Pace, Replay

Waltool = Callable[..., Any]
CONFIG = LogConfig(durability=Durability.OS, background=False, reserve_bytes=0)


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
    made = updates(200)
    build(here / "log", made)
    with serving(service := Service()) as url:
        result = waltool(quick(f"log {url}"))
    assert (result.code, result.err) == (0, "")
    assert service.by_key == expected(made)
    deletes = sum(update.op == Op.DELETE for update in made)
    assert result.out == (
        f"{url}: {200 - deletes} puts, {deletes} deletes sent, 0 sent again, 0 failed, in 0.0 s\n"
        "everything up to 200 is done\n"
    )


def test_a_service_that_fails_now_and_then_gets_everything(here: Path, waltool: Waltool) -> None:
    made = updates(150)
    build(here / "log", made)
    rng = random.Random(1)

    def sometimes(_service: Service, _method: str, _key: str) -> int:
        return rng.choice((0, 0, 0, 0, 500, 503, 429, DROP))

    with serving(service := Service(sometimes)) as url:
        result = waltool(quick(f"--retries 100 --json log {url}"))
    summary = json.loads(result.out)
    assert result.code == 0
    assert service.by_key == expected(made)
    assert summary["puts"] + summary["deletes"] == 150
    assert summary["failed"] == 0
    assert summary["retries"] > 25
    assert len(service.requests) >= 150 + summary["retries"]


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

    with serving(Service(), Together) as url:
        result = waltool(quick(f"--concurrency 4 --retries 0 log {url}"))
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


def interrupted_after(
    batches: int, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]
) -> None:
    """Have the next run interrupted when so many batches were dealt out, and something done about it."""
    deal_out, halt = Replay._deal_out, Replay._halt

    def interrupted(self: Replay, source: Iterator[Batch]) -> None:
        def some() -> Iterator[Batch]:
            for number, batch in enumerate(source):
                if number == batches:
                    raise KeyboardInterrupt
                yield batch

        deal_out(self, some())

    def halting(self: Replay) -> None:
        halt(self)
        then()

    monkeypatch.setattr(Replay, "_deal_out", interrupted)
    monkeypatch.setattr(Replay, "_halt", halting)
    monkeypatch.setattr("sirius.wal.segment._SMALL_BLOCK", 0)


def test_an_interrupted_run_goes_on_where_it_was(
    here: Path, waltool: Waltool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Update(Op.PUT, f"key-{n}".encode(), b"x") for n in range(300)]
    build(here / "log", made)
    release = threading.Event()

    class Held(Handler):
        def _serve(self, body: bytes | None) -> None:
            # One worker hangs until the run is interrupted, with others of its records behind it.
            if self.path.endswith("/key-0"):
                release.wait(30)
            super()._serve(body)

    with serving(service := Service(), Held) as url:
        with monkeypatch.context() as patched:
            interrupted_after(17, patched, release.set)
            first = waltool(quick(f"--resume done --json log {url}"))
        summary = json.loads(first.out)
        assert (first.code, summary["interrupted"]) == (130, True)
        # The request that was held back may have been answered before the run ended, or not.
        assert 0 <= summary["done"] < 170
        if summary["done"]:
            assert json.loads((here / "done").read_text()) == {"url": url, "done": summary["done"]}
        sent = len(service.requests)
        assert waltool(quick(f"--resume done --json log {url}")).code == 0
        again = len(service.requests) - sent
        assert again in (300 - summary["done"], 301 - summary["done"])
        assert waltool(quick(f"--resume done --json log {url}")).code == 0
    assert len(service.requests) - sent == again
    assert json.loads((here / "done").read_text())["done"] == 300
    assert service.state == {update.key.decode(): b"x" for update in made}
    assert not list(here.glob("*.writing"))


def test_whatever_was_done_before_a_stop_is_not_lost(here: Path, waltool: Waltool) -> None:
    """Stop at a refusal, mend the service, go on: nothing is missing, whichever worker was ahead."""
    made = updates(120, keys=30)
    build(here / "log", made)
    for stop in (1, 40, 119):

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
