"""`waltool replay`"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import click

from sirius.errors import UsageError
from sirius.wal import Batch
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.delivery import Endpoint, HttpClient
from waltool.failures import INTERRUPTED, complain
from waltool.filters import Filter, filter_options
from waltool.output import Output
from waltool.params import per_second
from waltool.progress import Progress, progress
from waltool.replaying import Replay, ResumeFile, Settings, Summary
from waltool.source import Source, open_source
from waltool.text import plural
from waltool.timing import Stopwatch, duration


@_command(
    "waltool replay films http://localhost:8080/storage",
    "waltool replay --resume films.done --rate 500/s films https://films.example/storage",
    "waltool replay --header 'Authorization: Bearer …' --keep-going films https://films.example/v1",
)
@log_argument
@click.argument("url")
@click.option(
    "--concurrency", type=click.IntRange(1, 256), default=8, help="Requests at a time; default: 8."
)
@click.option("--rate", type=per_second, metavar="N/S", help="No more requests a second than this.")
@click.option(
    "--retries",
    type=click.IntRange(0, 100),
    default=5,
    help="How often to try again after a 429, a 5xx or no answer; default: 5.",
)
@click.option(
    "--backoff",
    type=click.FloatRange(0, 60),
    default=0.2,
    metavar="SECONDS",
    help="How long to wait before the first of them, and twice as long each time; default: 0.2.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.001, 3600),
    default=30.0,
    metavar="SECONDS",
    help="How long to wait for an answer; default: 30.",
)
@click.option(
    "--resume",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Note in this file what is done, and begin behind what it says is done.",
)
@click.option("--header", "headers", multiple=True, metavar="K:V", help="Send this with each one.")
@click.option("--keep-going", is_flag=True, help="Go on when a record is refused.")
@filter_options("first", "last", "since", "until", "op", "key")
def command(  # noqa: PLR0913 (an argument for each option)
    out: Output,
    log: str,
    url: str,
    *,
    concurrency: int,
    rate: float | None,
    retries: int,
    backoff: float,
    timeout: float,
    resume: str | None,
    headers: tuple[str, ...],
    keep_going: bool,
    wanted: Filter,
) -> int:
    """Send records to a web service, as PUT and DELETE.

    A PUT goes to URL/key with the body, a DELETE to URL/key; the key is percent-encoded, its slashes too. Records of
    one key are sent in order; those of different keys at the same time. A DELETE that is answered by 404 is done.
    After a 429, a 5xx or no answer at all the request is sent again. Any other answer stops the run, or with
    --keep-going is counted. Control entries are not sent.

    With --resume a run that was interrupted goes on where it was: a few records may be sent twice, none is left out.
    Exits with 1 if a record could not be delivered. Changes nothing in the log.
    """
    if {"noop", "membership"} & set(wanted.ops):
        raise UsageError("control entries cannot be sent")
    watch, endpoint = Stopwatch(), Endpoint.of(url, headers, timeout)
    memory = ResumeFile(resume, endpoint.url) if resume else None
    done = memory.load() if memory else 0
    settings = Settings(concurrency, retries, backoff, keep_going, rate)
    with open_source(log) as source:
        first, last = wanted.bounds(source)
        with progress(out, "sending", last - first + 1) as bar:
            run = Replay(
                lambda: HttpClient(endpoint), settings, done, memory.save if memory else _forget
            )
            summary = run.run(_batches(source, wanted, done, bar))
    _show(out, endpoint.url, summary, watch.seconds)
    return INTERRUPTED if summary.interrupted else 1 if summary.failed else 0


def _forget(_done: int) -> None:
    """Nobody wants to know how far it is."""


def _batches(source: Source, wanted: Filter, done: int, bar: Progress) -> Iterator[Batch]:
    """Yield what is wanted and not done yet."""
    first, last = wanted.bounds(source)
    if done >= last:
        return iter(())
    behind = replace(wanted, first=max(first, done + 1))
    return bar.over(behind.batches(source), first)


def _show(out: Output, url: str, summary: Summary, seconds: float) -> None:
    failures = [
        {"seq": at.request.seq, "method": at.request.method, "key": at.request.key, "what": at.what}
        for at in summary.failures
    ]
    if out.as_json:
        counts = {"puts": summary.sent["PUT"], "deletes": summary.sent["DELETE"]}
        results = {"retries": summary.retries, "failed": summary.failed, "failures": failures}
        state = {"done": summary.done, "interrupted": summary.interrupted, "seconds": seconds}
        out.object({"url": url, **counts, **results, **state})
        return
    for at in failures:
        complain(f"record {at['seq']}, {at['method']} {at['key']}: {at['what']}")
    sent = f"{plural(summary.sent['PUT'], 'put')}, {plural(summary.sent['DELETE'], 'delete')} sent"
    again = f"{summary.retries:,} sent again, {summary.failed:,} failed"
    stopped = "interrupted; " if summary.interrupted else ""
    out.line(f"{url}: {stopped}{sent}, {again}, in {duration(seconds)}")
    out.line(f"everything up to {summary.done:,} is done")
