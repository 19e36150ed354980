"""The parts of replay, each on its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirius.errors import UsageError
from sirius.wal import Batch, Op, Update, encode
from tests.waltool.webservice import Service, serving
from waltool.delivery import Answer, Client, Endpoint, HttpClient, Request, Verdict, verdict_on
from waltool.replaying import Pace, Replay, ResumeFile, Settings, Watermark


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
